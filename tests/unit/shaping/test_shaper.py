import asyncio
import json
import logging
import pickle
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError, ModelNotFoundError, ScoringError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking import Ranking
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig, Verdict
from ecs_plugins.shaping.config import DEFAULT_TOP_K
from tests.unit.shaping.outcomes import kept, verdicts

QUESTION = "Where does Anna live?"
GOOD = "Anna lives in Rome."
WRONG = "Anna lives in Oslo, forget Rome."
HERRING = "Anna likes jazz."
OTHER = "The tram was late."


def knows(context, text):
    """Rome is likely once a passage says so, less likely where a passage denies it."""
    if "Rome" not in text:
        return -4.0
    if "Oslo" in context:
        return -6.0
    return -0.5 if "Rome" in context else -3.0


def shape(passages, *, answer="Rome", logprob=knows, query=QUESTION, context="", **settings):
    shaper = ContextShaper(FakeLanguageModel(logprob), ShapingConfig(**settings))
    return shaper.shape(
        query,
        passages,
        context=context,
        answer=answer,
    )


class Broken(FakeLanguageModel):
    def score(self, requests):
        raise ScoringError("the numbers are NaN")


class LastFirst:
    name = "last_first"

    def rank(self, query, passages):
        return Ranking.from_scores(range(len(passages)))


def test_each_kind_of_passage_gets_its_verdict():
    result = shape([GOOD, WRONG, HERRING, "  ", GOOD])
    assert verdicts(result) == ["helps", "hurts", "neutral", "unscored", "redundant"]
    assert kept(result) == [0]
    assert result.verdicts[0].utility == pytest.approx(2.5)
    assert result.verdicts[1].utility == pytest.approx(-3.0)
    assert result.verdicts[3].utility is None
    assert all(v.reason for v in result.verdicts)


def test_kept_passages_stay_in_the_order_of_the_input_and_unchanged():
    passages = ["  Rome once. ", OTHER, "Rome twice, in Rome."]
    result = shape(passages, logprob=lambda c, t: float(c.count("Rome")) - 9)
    assert [v.text for v in result.kept] == [passages[0], passages[2]]
    assert [v.index for v in result.ranked[:2]] == [2, 0]
    assert result.text == "  Rome once. \n\nRome twice, in Rome."
    assert passages == ["  Rome once. ", OTHER, "Rome twice, in Rome."]


@pytest.mark.parametrize(("signal", "passed_on"), [("joint_shift", 2), ("query_likelihood", 1)])
def test_the_ranker_looks_for_the_answer_too_if_the_signal_uses_it(signal, passed_on):
    passages = ["It snowed.", "Which city lies there, Ostia?", "Rome does."]
    config = ShapingConfig(
        signal=signal,
        ranker="tfidf_query",
        pool_size=1,
    )
    shaped = ContextShaper(FakeLanguageModel(), config).shape(
        "Which city lies by the sea?", passages, answer="Rome does, Rome does."
    )
    assert [v.index for v in shaped.verdicts if v.utility is not None] == [passed_on]


def test_auto_asks_for_the_answer_if_there_is_one_and_for_the_question_if_not():
    assert shape([GOOD]).signal == "joint_shift+bm25"
    assert shape([GOOD], answer=None).signal == "query_likelihood+bm25+dense"
    assert shape([GOOD], answer=[]).signal == "query_likelihood+bm25+dense"


def test_a_signal_without_threshold_keeps_the_best_by_rank_and_says_so():
    passages = [f"Passage {i} of many." for i in range(9)]
    result = shape(
        passages,
        answer=None,
        logprob=lambda c, t: -5.0 + ("7" in c),
    )
    assert len(result.kept) == DEFAULT_TOP_K
    assert 7 in kept(result)
    assert "selected by rank" in result.verdicts[7].reason
    assert {v.verdict for v in result.kept} == {Verdict.SELECTED}
    assert {v.verdict for v in result.verdicts if not v.kept} == {Verdict.NEUTRAL}


def test_passages_kept_by_rank_do_not_count_as_helping():
    worse = lambda c, t: -5.0 - ("Rome" in c) - ("tram" in c)  # noqa: E731
    result = shape(
        [GOOD, OTHER],
        answer=None,
        logprob=worse,
    )
    assert all(v.kept and v.utility < 0 for v in result.verdicts)
    assert verdicts(result) == ["selected", "selected"]


def test_a_threshold_that_nobody_chose_does_not_decide_alone():
    passages = [f"Rome {i}" for i in range(9)]
    assert len(shape(passages).kept) == DEFAULT_TOP_K
    assert verdicts(shape(passages)) == ["helps"] * 9
    assert len(shape(passages, threshold=0.05).kept) == 9
    assert len(shape(passages, max_tokens=100).kept) == 9


def test_top_k_and_budget_and_threshold_combine():
    passages = ["Rome a b c d e f g", "Rome Rome", "Rome Rome Rome, i j k l m", OTHER]
    score = lambda c, t: float(c.count("Rome")) - 9  # noqa: E731
    assert kept(shape(passages, logprob=score)) == [0, 1, 2]
    assert kept(
        shape(
            passages,
            logprob=score,
            top_k=2,
        )
    ) == [1, 2]
    budget = shape(
        passages,
        logprob=score,
        max_tokens=10,
    )
    assert kept(budget) == [2]
    assert budget.tokens_after <= 10
    assert "max_tokens" in budget.verdicts[1].reason
    assert budget.verdicts[1].verdict is Verdict.HELPS
    assert kept(
        shape(
            passages,
            logprob=score,
            threshold=2.0,
        )
    ) == [1, 2]
    assert kept(
        shape(
            passages,
            logprob=score,
            threshold=2.0,
            top_k=1,
            max_tokens=4,
        )
    ) == [2]


def test_the_length_penalty_can_turn_help_into_harm():
    long = GOOD + " and so on" * 40
    result = shape([GOOD, long], length_penalty=0.05)
    assert verdicts(result) == ["helps", "hurts"]
    spent = result.verdicts[1].parts["length_penalty"]
    assert spent == pytest.approx(0.05 * result.verdicts[1].tokens)
    assert result.verdicts[1].utility == pytest.approx(2.5 - spent)


def test_a_near_repetition_is_redundant_unless_it_brings_a_new_name_or_number():
    first = "On Monday Anna said that she has been living in Rome since 2019"
    near = first + " really"
    other_year = first.replace("2019", "2012")
    other_day = first.replace("Monday", "Friday")
    result = shape([first, near, other_year, other_day])
    assert verdicts(result) == ["helps", "redundant", "helps", "helps"]
    assert "repeats passage 0" in result.verdicts[1].reason
    assert len(shape([first, near], redundancy_similarity=None).kept) == 2
    assert len(shape([first, other_year], redundancy_similarity=0.1).kept) == 2


def test_the_ranker_selects_the_pool():
    passages = [f"Rome {i}" for i in range(6)]
    model = FakeLanguageModel(knows)
    config = ShapingConfig(ranker=LastFirst(), pool_size=2)
    result = ContextShaper(model, config).shape(QUESTION, passages, answer="Rome")
    assert verdicts(result)[:4] == ["unscored"] * 4
    assert [v.rank for v in result.verdicts] == [6, 5, 4, 3, 2, 1]
    assert result.verdicts[5].rank_score == 5.0
    assert len(model.requests[0].candidates) == 3
    assert "the ranker passed on" in result.verdicts[0].reason


def test_a_long_passage_is_judged_by_its_best_unit_and_kept_whole():
    filler = "The tram was late again today. " * 60
    passage = filler + GOOD + " " + filler
    result = shape([passage, OTHER])
    (found,) = result.kept
    assert found.text == passage
    assert found.utility == pytest.approx(2.5)
    assert found.parts["units"] > 2
    assert 0 < found.parts["best_unit"] < found.parts["units"] - 1


def test_a_passage_longer_than_the_window_is_still_scored():
    model = FakeLanguageModel(knows, max_tokens=400)
    passage = "The tram was late again today. " * 300 + GOOD
    config = ShapingConfig(ranker="tfidf_query")
    result = ContextShaper(model, config).shape(QUESTION, [passage], answer="Rome")
    assert verdicts(result) == ["helps"]


def test_a_context_longer_than_the_window_is_forgotten_from_its_oldest_end():
    model = FakeLanguageModel(knows, max_tokens=400)
    context = "Oslo first. " + "And nothing happened then. " * 200 + "Last of all."
    result = ContextShaper(model).shape(
        QUESTION,
        [GOOD],
        context=context,
        answer="Rome",
    )
    prefix = "".join(s.text for s in model.requests[0].prefix)
    assert "Oslo" not in prefix
    assert prefix.rstrip().endswith("Last of all.")
    assert verdicts(result) == ["helps"]


def test_only_blank_and_repeated_passages_never_reach_the_model():
    model = FakeLanguageModel(knows)
    result = ContextShaper(model).shape(QUESTION, ["", "\n\t"], answer="Rome")
    assert verdicts(result) == ["unscored", "unscored"]
    assert model.requests == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"query": " \n"}, "query is empty"),
        ({"answer": "  ", "signal": "answer_shift"}, "has no tokens"),
        ({"answer": ["Rome", ""]}, "has no tokens"),
        ({"answer": 5}, "is a text or a list"),
        ({"answer": [5]}, "is a text or a list"),
        ({"answer": None, "signal": "joint_shift"}, "query_likelihood"),
        ({"passages": "one text"}, "sequence of texts"),
        ({"passages": 5}, "sequence of texts"),
        ({"passages": [GOOD, None]}, "passage 1 must be text"),
    ],
)
def test_invalid_input_of_shape_is_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        shape(**{"passages": [GOOD], **given})


def test_a_model_that_cannot_score_returns_the_input_and_says_so(caplog):
    passages = [GOOD, "", GOOD]
    with caplog.at_level(logging.WARNING):
        result = ContextShaper(Broken()).shape(QUESTION, passages, answer="Rome")
    assert "ScoringError: the numbers are NaN" in result.error
    assert [v.text for v in result.kept] == passages
    assert verdicts(result) == ["unscored"] * 3
    assert "returned as given" in caplog.text
    assert "not scored" in result.explain()


@pytest.mark.parametrize(
    ("error", "on_error"), [(ScoringError, "raise"), (ModelNotFoundError, "return_input")]
)
def test_a_model_that_cannot_score_raises_if_asked_to_and_a_missing_one_always(error, on_error):
    def fail(context, text):
        raise error("no numbers")

    with pytest.raises(error):
        shape(
            [GOOD],
            logprob=fail,
            on_error=on_error,
        )


def test_a_passage_that_the_model_refuses_is_unscored_with_the_models_reason():
    model = FakeLanguageModel(knows, max_tokens=40)
    model_count = model.count_tokens
    model.count_tokens = lambda texts: [min(n, 9) for n in model_count(texts)]  # counts wrongly
    result = ContextShaper(model).shape(QUESTION, ["Rome " * 60, GOOD], answer="Rome")
    assert verdicts(result) == ["unscored", "helps"]
    assert "window of 40" in result.verdicts[0].reason


def test_results_survive_json_and_pickle():
    result = shape([GOOD, WRONG, HERRING, ""], signal="joint_shift")
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["kept"] == [0]
    assert [p["verdict"] for p in data["passages"]] == verdicts(result)
    assert data["tokens"]["before"] == result.tokens_before
    copy = pickle.loads(pickle.dumps(result))
    assert isinstance(copy, ShapedContext)
    assert copy.to_dict() == result.to_dict()


@pytest.mark.parametrize(
    "acceptance",
    [
        "independent",
        "stream",
    ],
)
def test_a_context_that_does_not_fit_is_warned_of_once_per_call(caplog, acceptance):
    config = ShapingConfig(acceptance=acceptance, redundancy_similarity=None)
    shaper = ContextShaper(FakeLanguageModel(knows, max_tokens=400), config)
    for calls in (1, 2):
        shaper.shape(
            QUESTION,
            [GOOD, OTHER, HERRING],
            context="It rained. " * 300,
            answer="Rome",
        )
        assert caplog.text.count("the context does not fit") == calls


def test_explain_hands_no_escape_sequence_of_a_passage_to_the_terminal():
    table = shape([GOOD + "\x1b[2J\x1b]0;owned\x07", "\u202eback"]).explain()
    assert all(c.isprintable() for line in table.splitlines() for c in line)


def test_explain_shows_every_passage_and_survives_markup_in_it():
    passages = [GOOD, "[red]Rome[/red] [/] \\[", ""]
    table = shape(passages).explain(width=140)
    assert "[red]Rome[/red]" in table
    for word in ("helps", "unscored", "of 3 passages kept"):
        assert word in table
    assert "more passages are not shown" in shape([f"Rome {i}" for i in range(9)]).explain(limit=3)


def test_a_shaper_is_pickled_with_its_settings_only():
    config = ShapingConfig(ranker="tfidf_query", pool_size=1)
    shaper = ContextShaper(FakeLanguageModel(), config)
    before = shaper.shape(QUESTION, [OTHER, GOOD])
    again = pickle.loads(pickle.dumps(shaper)).shape(QUESTION, [OTHER, GOOD])
    assert verdicts(again) == verdicts(before) == ["unscored", "selected"]


async def test_the_async_form_gives_the_same_off_the_loop():
    seen = []

    def logprob(context, text):
        seen.append(threading.get_ident())
        return knows(context, text)

    shaper = ContextShaper(FakeLanguageModel(logprob))
    results = await asyncio.gather(
        *(shaper.ashape(QUESTION, [GOOD, HERRING], answer="Rome") for _ in range(3))
    )
    assert {tuple(verdicts(r)) for r in results} == {("helps", "neutral")}
    assert threading.get_ident() not in seen


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.permutations([GOOD, WRONG, HERRING, OTHER, "Rome is where she is, by the river"]))
def test_independent_acceptance_does_not_depend_on_the_order(passages):
    distinct = {p: -1.0 - i for i, p in enumerate(sorted(passages))}

    def logprob(context, text):
        return next((v for p, v in distinct.items() if p in context), -3.3)

    for settings_ in ({}, {"top_k": 2}, {"signal": "joint_shift", "top_k": 2}):
        result = shape(
            passages,
            logprob=logprob,
            **settings_,
        )
        found = {v.text: (v.verdict, v.kept, v.utility) for v in result.verdicts}
        again = shape(
            sorted(passages),
            logprob=logprob,
            **settings_,
        )
        assert found == {v.text: (v.verdict, v.kept, v.utility) for v in again.verdicts}
