"""Orders by signals against those of `ContextShaper`."""

import pytest

from benchmarks.evidence.catalogue import CATALOGUE, choose
from benchmarks.evidence.ordering import order_by_signals
from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals import QueryLikelihood

from .helpers import finder, question, tools

ASKED = question()
SIGNAL_NAMES = [name for name, entry in CATALOGUE.items() if entry.signal is not None]


def shaped(model, signal, asked, pool_size=5):
    config = ShapingConfig(
        signal=signal,
        ranker=tools().convex,
        pool_size=pool_size,
        redundancy_similarity=None,
        on_error="raise",
    )
    answer = asked.answers if signal.needs_answer else None
    return ContextShaper(model, config).shape(asked.question, list(asked.units), answer=answer)


@pytest.fixture(scope="module")
def together():
    """All signals of the catalogue on one question, and the model that was asked."""
    model = FakeLanguageModel(replies=lambda prompt: prompt.split()[0])
    signals = choose(SIGNAL_NAMES, tools()).signals
    return signals, order_by_signals(signals, finder(model).find(ASKED), model), model


@pytest.mark.parametrize("name", SIGNAL_NAMES)
def test_every_signal_orders_the_pool_as_the_shaper_does(name, together):
    signals, found, _ = together
    model = FakeLanguageModel(replies=lambda prompt: prompt.split()[0])
    alone = shaped(model, signals[name], ASKED)
    assert found[name].order == tuple(verdict.index for verdict in alone.ranked)
    assert found[name].scores == pytest.approx([verdict.score for verdict in alone.ranked])


@pytest.mark.parametrize("name", ["query_likelihood+bm25+dense", "joint_shift+bm25"])
def test_a_pool_smaller_than_the_units_is_the_shapers_with_and_without_the_answer(name):
    asked = question(answer="Nothing of interest happened")
    signal = CATALOGUE[name].signal(tools())
    model = FakeLanguageModel()
    found = order_by_signals({name: signal}, finder(model, pool_size=2).find(asked), model)
    alone = shaped(model, signal, asked, pool_size=2)
    assert (5 in found[name].order) == signal.needs_answer
    assert found[name].order == tuple(verdict.index for verdict in alone.ranked)


def test_a_method_is_charged_its_cost_alone(together):
    signals, found, _ = together
    for name in ("query_likelihood", "answer_shift", "longllmlingua_rule"):
        alone = shaped(FakeLanguageModel(), signals[name], ASKED)
        assert found[name].scored_tokens == alone.ledger.total()


def test_a_signal_that_fails_leaves_its_reason_and_the_order_of_stage_1():
    class Failing(QueryLikelihood):
        def prepare(self, task, model, ledger):
            raise ScoringError("no draft")

    model = FakeLanguageModel()
    candidates = finder(model).find(ASKED)
    found = order_by_signals({"bad": Failing(), "good": QueryLikelihood()}, candidates, model)
    assert (found["bad"].order, found["bad"].error) == (candidates.pool, "no draft")
    assert found["good"].error == ""


def test_label_free_signals_never_see_the_answer():
    model = FakeLanguageModel(replies=lambda prompt: "draft")
    asked = question(answer="Zanzibar")
    made = choose(SIGNAL_NAMES, tools()).signals
    free = {name: signal for name, signal in made.items() if not signal.needs_answer}
    order_by_signals(free, finder(model).find(asked), model)
    read = [
        segment.text
        for request in model.requests
        for part in (request.prefix, *request.candidates, *request.continuations)
        for segment in part
    ]
    assert read
    assert not any("Zanzibar" in text for text in [*read, *model.prompts])


def test_methods_of_others_read_turns_as_they_are_and_ours_with_their_questions():
    turns = tuple(
        f"({day} May) {turn}"
        for day in range(3)
        for turn in ("Ana: Hello. Who bought a boat?", "Ben: It was me.", "Ana: Good.", "Ben: Yes.")
    )
    asked = question(units=turns, evidence=(1,))
    model = FakeLanguageModel()
    candidates = finder(model, 12).find(asked)
    chosen = choose(("query_likelihood", "plain_query_likelihood", "upr", "stage1"), tools())
    assert chosen.as_they_are == {"plain_query_likelihood", "upr"}
    found = order_by_signals(chosen.signals, candidates, model, as_they_are=chosen.as_they_are)
    assert chosen.methods["stage1"].order(candidates).order == candidates.pool
    reply, as_said = "(0 May) Ben: Who bought a boat? It was me.", turns[1]
    read = ["".join(s.text for s in c) for r in model.requests for c in r.candidates]
    assert sum(reply in text for text in read) == 1
    assert sum(as_said in text for text in read) == 2
    config = ShapingConfig(
        signal=QueryLikelihood(), ranker=tools().convex, redundancy_similarity=None
    )
    product = ContextShaper(FakeLanguageModel(), config).shape(asked.question, turns)
    scores = {verdict.index: verdict.score for verdict in product.ranked}
    ordered = found["query_likelihood"]
    assert dict(zip(ordered.order, ordered.scores, strict=True)) == pytest.approx(scores)
    assert ordered.order[0] == 1
    assert found["plain_query_likelihood"].order[0] == 0
