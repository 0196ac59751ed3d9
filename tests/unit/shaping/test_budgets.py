"""Budgets of kept text: shares, tokens, characters, and shaping without a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.acceptance import Budget
from ecs_plugins.shaping.choosing import SHORT_TOGETHER, prune
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.signals.combined import NoModel
from tests.unit.shaping.outcomes import kept

FILLER = "The tram was late again on that day. Soup is served at noon by the pier. "
LONG = [f"Boat {n} lies in the harbour of Tarrow. {FILLER * 3}" for n in range(9)]
QUERY = "Where does boat 4 lie?"
ALWAYS_HALF = ProbabilityFit(0.0, {"utility": 0.0})


def shape(passages=LONG, **fields):
    model = FakeLanguageModel()
    config = ShapingConfig(
        unit="sentence",
        ranker="bm25",
        on_error="raise",
        **fields,
    )
    shaped = ContextShaper(model, config).shape(QUERY, passages)
    left = [verdict.kept_text for verdict in shaped.kept]
    assert sum(model.count_tokens(left)) == shaped.tokens_after
    return shaped


def characters_left(shaped):
    return sum(len(verdict.kept_text) for verdict in shaped.kept)


@pytest.mark.parametrize(
    "max_tokens",
    [
        30,
        100,
        200,
    ],
)
def test_the_token_budget_applies_to_kept_text(max_tokens):
    shaped = shape(max_tokens=max_tokens)
    assert 0.85 * max_tokens <= shaped.tokens_after <= max_tokens
    assert f"max_tokens of {max_tokens}" in shaped.explain(width=200)


@pytest.mark.parametrize("max_characters", [120, 500])
def test_the_character_budget_applies_to_kept_text(max_characters):
    left = characters_left(shape(max_characters=max_characters))
    assert max_characters - 80 <= left <= max_characters


def test_top_k_bounds_passages_before_a_share():
    shaped = shape(keep_share=0.25, top_k=2)
    assert len(shaped.kept) == 2
    assert characters_left(shaped) <= 0.25 * sum(map(len, LONG))


def test_the_tightest_budget_decides():
    shaped = shape(
        keep_share=0.9,
        max_tokens=40,
        max_characters=150,
    )
    assert shaped.tokens_after <= 40
    assert characters_left(shaped) <= 150


def test_sentence_longer_than_the_budget_stays_alone_and_is_reported():
    text = "Boat 4 lies in the harbour of Tarrow behind the old pier."
    shaped = shape([text], max_tokens=5)
    assert shaped.text == text
    assert shaped.over_budget
    assert "longer than the budget" in shaped.explain()


@pytest.mark.parametrize("field", [{"max_tokens": 3}, {"max_characters": 9}, {"keep_share": 0.01}])
def test_passage_longer_than_the_budget_stays_alone_and_is_reported(field):
    config = ShapingConfig(signal=None, ranker="bm25", **field)
    shaped = ContextShaper(FakeLanguageModel(), config).shape(QUERY, LONG)
    assert [verdict.index for verdict in shaped.kept] == [4]
    assert shaped.over_budget


@pytest.mark.parametrize("number", [5, 10, 20, 40])
@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_share_is_of_all_given_passages(number, unit):
    words = [f"word{n} stands here on day {n}. It is {n} miles long." for n in range(60)]
    passages = [" ".join(words[n : n + 8]) + f" Number {n} ends." for n in range(number)]
    config = ShapingConfig(keep_share=0.5, unit=unit, ranker="coverage")
    shaped = ContextShaper(FakeLanguageModel(), config).shape("Where is word3?", passages)
    share = characters_left(shaped) / sum(map(len, passages))
    assert share <= 0.5
    assert share >= (0.39 if unit == "passage" and number == 5 else 0.45)


def test_sentence_of_overlapping_chunks_stays_once():
    sentences = [f"Boat {n} lies in the harbour of Tarrow." for n in range(8)]
    chunks = [" ".join(sentences[n : n + 4]) for n in (0, 2, 4)]
    assert shape(chunks, keep_share=1.0).text.count("Boat 2 ") == 1
    apart = [f"Ida {n} sells tea here. Returns are accepted within a month." for n in range(2)]
    assert shape(apart, keep_share=1.0).text.count("Returns are accepted") == 2


def test_where_everything_fits_everything_stays_and_nothing_is_scored_again():
    whole = FakeLanguageModel()
    settings = {"ranker": "bm25", "on_error": "raise"}
    ContextShaper(whole, ShapingConfig(**settings, top_k=10)).shape(QUERY, LONG)
    pruned = FakeLanguageModel()
    config = ShapingConfig(
        **settings,
        unit="sentence",
        max_tokens=5_000,
    )
    shaped = ContextShaper(pruned, config).shape(QUERY, LONG)
    assert [verdict.kept_text for verdict in shaped.kept] == LONG
    assert len(pruned.requests) == len(whole.requests)


def test_nothing_is_cut_from_passages_that_are_short_together():
    short = ["Boat 4 lies in Tarrow. It is red. Gulls nest there.", "Tarrow is in Kerry. It rains."]
    assert sum(map(len, short)) < SHORT_TOGETHER
    assert [verdict.kept_text for verdict in shape(short).kept] == short
    cut = shape(short, keep_share=0.5)
    assert characters_left(cut) < sum(map(len, short)) / 2 + 1


WORDS = st.lists(st.sampled_from(["boat", "pier.", "Soup", "noon!", "a:\n", "- b\n"]), max_size=30)


@settings(deadline=None)
@given(st.lists(WORDS.map(" ".join), max_size=4), st.integers(1, 60), st.randoms())
def test_no_choice_of_sentences_exceeds_its_budget(texts, limit, draw):
    def count(each):
        return [len(text.split()) for text in each]

    def score(each):
        return [draw.choice([None, draw.random()]) for _ in each]

    budget = Budget(tokens=limit, count_tokens=count)
    spans = prune("boat", texts, score, [0.0] * len(texts), budget)
    left = [
        text if span is None else " ".join(text[start:end] for start, end in span)
        for text, span in zip(texts, spans, strict=True)
    ]
    # The best piece stays even if it alone is longer.
    pieces = [span for span in spans if span]
    alone = len(pieces) == 1 or sum(map(bool, left)) == 1
    assert sum(count(left)) <= limit or alone


def test_without_a_signal_the_ranker_decides_and_no_model_is_asked():
    model = FakeLanguageModel()
    config = ShapingConfig(
        signal=None,
        ranker="bm25",
        unit="sentence",
        keep_share=0.1,
    )
    shaped = ContextShaper(model, config).shape(QUERY, LONG)
    assert model.requests == []
    assert shaped.ledger.total() == 0
    assert shaped.signal == "bm25"
    assert shaped.ranked[0].index == BM25Ranker().rank(QUERY, LONG).order[0] == 4
    assert "Boat 4 lies in the harbour of Tarrow." in shaped.text
    assert ShapingConfig.from_json(config.to_json()) == config


def test_no_model_is_needed_without_a_signal():
    config = ShapingConfig(signal=None, ranker="bm25", top_k=1)
    passages = ["The tram was late.", "Anna lives in Rome."]
    shaped = ContextShaper(config=config).shape("Where does Anna live?", passages)
    assert (kept(shaped), shaped.model) == ([1], "none")
    assert shaped.tokens_before == 10
    with pytest.raises(ConfigurationError, match="signal=None"):
        ContextShaper()
    with pytest.raises(ConfigurationError, match="none was given"):
        NoModel().generate([()])


def test_without_signal_and_ranker_words_decide():
    shaper = ContextShaper(
        FakeLanguageModel(),
        ShapingConfig(
            signal=None,
            ranker=None,
            top_k=1,
        ),
    )
    assert [verdict.index for verdict in shaper.shape(QUERY, LONG).kept] == [4]


@pytest.mark.parametrize(
    ("fields", "cuts"),
    [
        ({"top_k": 2}, {"top_k": 2}),
        ({"max_tokens": 1}, {"max_tokens": 3}),
        ({"signal": "query_likelihood", "threshold": 99.0}, {"threshold": 4}),
        ({"min_probability": 1.0}, {"min_probability": 4}),
        ({"pool_size": 1, "ranker": "bm25"}, {"pool_size": 3}),
        ({"unit": "sentence", "max_characters": 1, "top_k": 3}, {"max_characters": 3, "top_k": 1}),
        ({"top_k": 4}, {}),
    ],
)
def test_reasons_for_dropped_passages_are_counted(fields, cuts):
    texts = [f"Ida{n} lives in Rome{n}. The dog of Ida{n} slept by the door." for n in range(4)]
    config = ShapingConfig(**{"ranker": None, **fields})
    shaper = ContextShaper(FakeLanguageModel(), config, probability=ALWAYS_HALF)
    shaped = shaper.shape("Where does Ida2 live?", texts)
    assert shaped.cuts == cuts
    for verdict in shaped.verdicts:
        assert verdict.cut_by in ("", *cuts)
    for setting, number in cuts.items():
        assert f"{setting} ({number})" in shaped.explain()
