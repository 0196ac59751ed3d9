import math

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, LabelledExample, ModelDiagnostics, ShapingConfig
from ecs_plugins.shaping.config import AUTO_WITHOUT_ANSWER as AUTO
from ecs_plugins.shaping.config import is_signal
from ecs_plugins.shaping.probability import (
    SHIPPED,
    LabelledList,
    ProbabilityFit,
    without_evidence,
)
from ecs_plugins.shaping.signals.combined import places_of
from tests.unit.shaping.outcomes import kept

FIT = ProbabilityFit(-2.0, {"explained": 4.0, "shared_words": 3.0})
QUESTION = "Where does Anna live?"
PASSAGES = ["The tram was late.", "Anna does live in Rome.", "Anna likes jazz.", "It rained."]


def shape(passages=PASSAGES, **settings):
    config = ShapingConfig(top_k=2, **settings)
    return ContextShaper(FakeLanguageModel(), config, probability=FIT).shape(QUESTION, passages)


def test_a_probability_rises_with_each_part_and_is_none_where_one_is_missing():
    likely = []
    for explained in (-1e9, -1.0, 0.0, 0.5, 1e9):
        parts = {"explained": explained, "shared_words": 0.2}
        likely.append(FIT.of(parts))
    assert likely == sorted(likely)
    assert likely[0] == 0.0
    assert likely[-1] == 1.0
    assert FIT.of({"explained": 0.3}) is None


@pytest.mark.parametrize("part", ["explained", "utility"])
def test_a_fit_predicts_the_share_of_helping_passages(part):
    low = [{part: 0.0}] * 200
    high = [{part: 1.0}] * 200
    one_in_ten = [n % 10 == 0 for n in range(200)]
    seven_in_ten = [n % 10 < 7 for n in range(200)]
    fit = ProbabilityFit.fitted(low + high, one_in_ten + seven_in_ten)
    assert fit.of({part: 0.0}) == pytest.approx(0.1, abs=0.02)
    assert fit.of({part: 1.0}) == pytest.approx(0.7, abs=0.02)


def test_where_nothing_helps_there_is_nothing_to_fit():
    parts = [{"utility": 0.0}, {"utility": 1.0}]
    assert ProbabilityFit.fitted(parts, [False, False]) is None


def test_the_passage_that_answers_is_likely_and_without_it_the_question_is_not_answerable():
    shaped = shape()
    best_first = [verdict.probability for verdict in shaped.ranked]
    assert best_first == sorted(best_first, reverse=True)
    assert shaped.answerable == shaped.verdicts[1].probability
    assert shaped.answerable > 0.5
    assert f"{shaped.answerable:.2f}" in shaped.explain()
    assert shaped.to_dict()["answerable"] == shaped.answerable
    without = shape([PASSAGES[0], *PASSAGES[2:]])
    assert without.answerable < 0.4


def test_passage_helps_less_likely_the_later_its_place():
    (shipped,) = SHIPPED.values()
    shaped = ContextShaper(FakeLanguageModel()).shape(QUESTION, PASSAGES)
    scored = sorted(shaped.ranked, key=lambda verdict: -verdict.parts["relevance"])
    places = [math.exp(verdict.parts["place"]) for verdict in scored]
    assert places == pytest.approx([1, 2, 3, 4])
    likely = [shipped.of(verdict.parts) for verdict in scored]
    assert likely == sorted(likely, reverse=True)


def test_passages_without_number_come_last():
    assert places_of([0.5, math.nan, 2.0, -math.inf, 2.0]) == [3, 4, 1, 5, 2]


def test_without_helping_passages_the_others_move_up():
    parts = [
        {"explained": n / 10, "place": math.log(4 - n), "relevance": n - 1.5} for n in range(4)
    ]
    others = without_evidence(LabelledList(parts, [False, False, True, True]))
    assert [each["explained"] for each in others] == [0.0, 0.1]
    assert [math.exp(each["place"]) for each in others] == pytest.approx([2, 1])
    assert [each["relevance"] for each in others] == pytest.approx([-1, 1])
    assert parts[0]["place"] == math.log(4)
    assert without_evidence(LabelledList(parts, [False] * 4)) == []


def test_complete_lists_do_not_teach_that_the_first_helps():
    lists = []
    for n in range(60):
        parts = [{"explained": 0.5 + n / 200, "place": 0.0}, {"explained": 0.4, "place": 0.7}]
        lists.append(LabelledList(parts, [True, False]))
    hopeless = {"explained": 0.4, "place": 0.0}
    assert ProbabilityFit.fitted_to_lists(lists).of(hopeless) < 0.5


def test_nothing_is_said_without_a_fit_or_where_passages_were_not_scored_alone():
    bare = ContextShaper(FakeLanguageModel()).shape(QUESTION, PASSAGES)
    stream = shape(acceptance="stream", signal=AUTO, threshold=0.1)
    other_parts = shape(signal="distribution_shift")
    for shaped in (bare, stream, other_parts, shape([])):
        assert shaped.answerable is None
        for verdict in shaped.verdicts:
            assert verdict.probability is None


def test_shipped_fits_belong_to_built_in_signals():
    for _, signal in SHIPPED:
        assert is_signal(signal)
    assert shape(signal=AUTO).answerable is not None


def test_own_examples_fit_a_probability_which_the_configuration_and_files_keep(tmp_path):
    examples = [
        LabelledExample(
            f"Where does Anna{n} live?",
            (f"The tram {n} was late.", f"Anna{n} does live in Rome{n}.", f"Jazz{n} is loud."),
            (1,),
        )
        for n in range(22)
    ]
    found = ModelDiagnostics.measure(FakeLanguageModel(), examples, signals=[AUTO])
    back = ModelDiagnostics.load(found.save(tmp_path / "found.json"))
    config = back.config()
    assert ShapingConfig.from_json(config.to_json()) == config
    fit = back.signals[0].probability
    shaper = ContextShaper(FakeLanguageModel(), config, probability=fit)
    question = examples[0].question
    here = shaper.shape(question, examples[0].passages)
    elsewhere = shaper.shape(question, examples[1].passages)
    assert here.answerable > 0.9
    assert elsewhere.answerable < 0.9


def test_passages_below_the_probability_are_dropped():
    by_rank = shape()
    likely = by_rank.verdicts[1].probability
    at_least = shape(min_probability=likely)
    assert kept(at_least) == [1]
    assert str(at_least.verdicts[1].verdict) == "helps"
    assert {str(v.verdict) for v in at_least.verdicts if not v.kept} == {"neutral"}
    assert all(f"at least {likely:g}" in v.reason for v in at_least.kept)
    assert not shape(min_probability=min(1.0, likely + 1e-6)).kept
    assert "top_k" in shape(min_probability=0.0).verdicts[at_least.ranked[-1].index].reason


def test_a_known_answer_is_judged_by_its_threshold_and_an_unknown_one_by_probability():
    config = ShapingConfig(threshold=0.05, min_probability=0.5)
    shaper = ContextShaper(FakeLanguageModel(), config, probability=FIT)
    unknown = shaper.shape(QUESTION, PASSAGES)
    assert kept(unknown) == [1]
    known = shaper.shape(QUESTION, PASSAGES, answer="Rome")
    assert all("nats" in v.reason for v in known.verdicts if v.utility is not None)


def test_a_threshold_of_answers_is_refused_where_there_is_none():
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(threshold=0.05))
    with pytest.raises(ConfigurationError, match="min_probability"):
        shaper.shape(QUESTION, PASSAGES)
    assert shaper.shape(QUESTION, PASSAGES, answer="Rome").verdicts
    named = ShapingConfig(threshold=0.05, signal=AUTO)
    assert ContextShaper(FakeLanguageModel(), named).shape(QUESTION, PASSAGES).verdicts


def test_a_least_probability_needs_a_fit_and_passages_that_stand_alone():
    bare = ContextShaper(FakeLanguageModel(), ShapingConfig(min_probability=0.5))
    with pytest.raises(ConfigurationError, match="diagnose"):
        bare.shape(QUESTION, PASSAGES)
    with pytest.raises(ConfigurationError, match="independent"):
        ShapingConfig(min_probability=0.5, acceptance="stream")
