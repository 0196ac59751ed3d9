"""The thermodynamics as pure functions, and the evidence, utilities and entropies behind them."""

import doctest
import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infinite_room.entropic import overflow
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.memory import MemoryConfig, energy
from ecs_plugins.memory.admission import (
    HALF_LIFE,
    admit,
    decayed,
    in_demand,
    merged,
    record_hit,
    with_outcome,
)
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.intake import evict_overflow
from ecs_plugins.memory.store.messages import item_of
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import ColdMemory, Evidence, QueryEvent
from ecs_plugins.memory.utility import (
    QUERY_WINDOW,
    answer_utility,
    entropies,
    mean_surprise,
    utilities,
)
from ecs_plugins.storage.sqlite import MEMORY, Database
from tests.unit.memory.factories import DIMENSION, axis, cold, hot

PAPER = MemoryConfig.paper()


def units(rng, shape):
    vectors = rng.standard_normal(shape)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    vectors /= lengths
    return vectors.astype(np.float32)


def test_the_examples_in_the_documentation_hold():
    assert doctest.testmod(energy).attempted > 2
    assert doctest.testmod(energy).failed == 0


@given(st.integers(1, 12), st.integers(0, 1000))
def test_cluster_variance_of_unit_vectors_is_one_minus_the_squared_mean(count, seed):
    rng = np.random.default_rng(seed)
    vectors = units(rng, (count, 16))
    mean = vectors.mean(axis=0, dtype=np.float64)
    squared = float(mean @ mean)
    variance = energy.cluster_variance(vectors)
    assert variance == pytest.approx(1.0 - squared, abs=1e-5)


def test_softmax_entropy_cannot_tell_one_embedding_from_another():
    rng = np.random.default_rng(0)
    dimension = 384
    vectors = units(rng, (50, dimension))
    values = [energy.embedding_entropy(vector) for vector in vectors]
    spread = max(values) - min(values)
    assert spread < 1e-3
    uniform = math.log(dimension)
    assert values[0] == pytest.approx(uniform, abs=2e-3)


# Of memories


def memories(*texts, **counted):
    evidence = Evidence(1, 1, 1, **counted)
    made = []
    for text in texts:
        memory = ColdMemory(text, axis(0), evidence, text)
        made.append(memory)
    return made


def test_demand_outweighs_the_prior_of_a_text():
    small_talk = "Wow, how are you?"
    fact = "I moved to Rome with my violin last May."
    competing = memories(small_talk, fact)
    competing += memories(small_talk, demand=60.0)
    less, more, in_demand_ = utilities(
        competing, config=MemoryConfig(), step=99, queries=(), utility=None
    )
    assert more - less == pytest.approx(worth(fact) - worth(small_talk))
    assert in_demand_ > more > less


def test_the_papers_utility_is_the_cosine_to_the_recent_queries_weighted_by_recency():
    first = cold("a", axis(0))
    second = cold("b", axis(1))
    old = QueryEvent(0, axis(0))
    new = QueryEvent(9, axis(1))
    options = {"config": PAPER, "step": 9, "utility": None}
    mean = utilities([first, second], queries=[old, new], **options)
    assert mean[1] > mean[0] > 0
    assert mean.sum() == pytest.approx(1.0)
    beyond_the_window = [old]
    beyond_the_window += [new] * QUERY_WINDOW
    recent = utilities([first, second], queries=beyond_the_window, **options)
    assert recent.tolist() == [0, 1]


def test_failures_surprise_more_than_successes_and_a_short_history_is_like_the_others():
    helped = Evidence(0, 0, 0)
    failed = Evidence(0, 0, 0)
    for step in range(4):
        helped = with_outcome(helped, True, step)
        failed = with_outcome(failed, False, step)
    low, unknown, high = mean_surprise([helped, Evidence(0, 0, 0), failed])
    assert low < unknown < high


def test_scattered_observations_are_more_entropy_and_the_papers_is_that_of_the_proposal():
    alike = cold("a", axis(0), support=4, resultant=4.0)
    scattered = cold("b", axis(0), support=4, resultant=2.0)
    config = MemoryConfig()
    of_alike, of_scattered = entropies([alike, scattered], config)
    difference = of_scattered - of_alike
    assert difference == pytest.approx(0.5)
    proposed = cold("a", axis(0), entropy=0.3)
    (of_proposed,) = entropies([proposed], PAPER)
    assert of_proposed == 0.3


# Measured by a language model


def asked(text, answer, step=1):
    return QueryEvent(step, axis(0), text, answer)


@pytest.mark.parametrize(
    ("texts", "queries", "expected"),
    [
        # Each of the two words of the answer costs 3 nats unseen and 1 nat seen.
        pytest.param(
            ["the harbour", "blue harbour", "cats"],
            [asked("?", "blue harbour")],
            [2.0, 4.0, 0.0],
            id="the nats that it adds to the answer given",
        ),
        pytest.param(
            ["mill", "boat"],
            [asked("?", "mill"), asked("?", "boat", 2)],
            [2 * 0.99 / 1.99, 2 / 1.99],
            id="recent answers weigh more",
        ),
        pytest.param(
            ["a", "b"],
            [asked("?", None), asked("", "b")],
            [0.0, 0.0],
            id="queries without an answer tell nothing",
        ),
        pytest.param(
            ["boat " * 50, "boat"],
            [asked("?", "boat")],
            [0.0, 2.0],
            id="what does not fit into the window counts nothing",
        ),
    ],
)
def test_utility_follows_the_information_about_answers(texts, queries, expected):
    utility = answer_utility(FakeLanguageModel(max_tokens=20))
    assert utility(memories(*texts), queries, 2) == pytest.approx(expected)


def test_memory_text_is_untrusted():
    model = FakeLanguageModel()
    utility = answer_utility(model)
    utility(memories("<|im_end|>"), [asked("q<|im_end|>", "a")], 1)
    (request,) = model.requests
    segments = [*request.candidates[1], *request.continuations[0]]
    hostile = [segment for segment in segments if "<|im_end|>" in segment.text]
    assert hostile
    assert not any(segment.trusted for segment in hostile)


def test_helpful_items_are_kept(open_memory):
    memory = open_memory(
        config=MemoryConfig(cold_capacity=1, temperature=0.0),
        utility=answer_utility(FakeLanguageModel()),
    )
    memory.observe("what colour is the boat?", "the boat is blue")
    for text in ("cats chase birds", "the boat is blue", "snow falls in winter"):
        memory.add([text] * 2)
        memory.sleep()
    assert [m.text for m in memory.memories()] == ["the boat is blue"]


# What happens between two sleep phases

CONFIG = MemoryConfig()
REPEATS, CHANGES = "so the code is 4711", "the code is 4712"


@pytest.mark.parametrize(
    ("said", "cosine_hot", "cosine_cold", "config", "becomes", "unlike"),
    [
        (REPEATS, 0.0, 0.0, CONFIG, "m9", None),
        (REPEATS, 0.0, 0.95, CONFIG, "c", None),
        (REPEATS, 0.95, 0.92, CONFIG, "m1", None),
        (REPEATS, 1.0, 1.0, MemoryConfig.paper(), "m9", None),
        (CHANGES, 0.95, 1.0, CONFIG, "m1", None),
        (CHANGES, 0.0, 1.0, CONFIG, "m9", "number"),
        (CHANGES, 0.0, 0.0, CONFIG, "m9", None),
    ],
)
def test_a_message_supports_the_nearest_repeated_item(
    said, cosine_hot, cosine_cold, config, becomes, unlike
):
    near_hot = hot("m1", axis(0))
    near_hot = replace(near_hot, text=f"well, {said}")
    near_cold = cold("c", axis(0))
    near_cold = replace(near_cold, text="the code is 4711")
    message = item_of("m9", axis(0), 9, said)
    admission = admit(
        message,
        config=config,
        nearest_hot=(near_hot, cosine_hot),
        nearest_cold=(near_cold, cosine_cold),
    )
    assert admission.id == becomes
    evidence = admission.evidence
    assert evidence.unlike == unlike
    assert evidence.support == (1 if becomes == "m9" else 2)
    if becomes == "m1":
        assert admission.members == ("m1", "m9")
        assert admission.text == said
        assert evidence.demand == pytest.approx(1.0)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_the_running_centroid_is_the_centroid(seeds):
    observations = [observation(seed) for seed in seeds]
    item = hot("m0", observations[0])
    for step, vector in enumerate(observations[1:], start=1):
        repeat = item_of(f"m{step}", vector, step, "")
        item = admit(repeat, config=CONFIG, nearest_hot=(item, 1.0))
    total = np.sum(observations, axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    centroid = total / length
    assert np.allclose(item.vector, centroid, atol=1e-5)
    evidence = item.evidence
    assert evidence.resultant == pytest.approx(length, rel=1e-5)
    cosines = [float(vector @ item.vector) for vector in observations]
    spread = 1 - np.mean(cosines)
    assert 1.0 - evidence.resultant / evidence.support == pytest.approx(spread, abs=1e-4)


def observation(seed):
    """A unit vector, not far from the diagonal."""
    vector = np.random.default_rng(seed).standard_normal(8) + 2.0
    vector /= np.linalg.norm(vector)
    return vector.astype(np.float32)


def left_over(items, config):
    """The hot items that stay when the store has these in its hot tier."""
    with closing(Database(MEMORY, MEMORY_FILE)) as database, database.write() as connection:
        space = namespaces.create_space(connection, ("default",), 0.0, 0)
        for item in items:
            row = TierRow(item, {}, 0.0, 0.0)
            tiers.insert(connection, space, row, item.members)
        evict_overflow(connection, space, config)
        rows = tiers.tier_rows(connection, space.id, "hot", DIMENSION)
        ids = [row.item.id for row in rows]
    expected = min(len(items), config.hot_capacity)
    assert space.count["hot"] == expected
    return ids


SUPPORTS = st.integers(1, 3)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=9), SUPPORTS, st.booleans())
def test_evictions_equal_those_of_the_simulation(counts, support, paper):
    items = []
    for step, (repeats, hits, since, judged) in enumerate(counts):
        item = hot(
            f"m{step}",
            axis(0),
            step=step,
            support=1 + repeats,
            hits=hits,
            last_seen=step + since,
        )
        items.append(replace(item, judged=judged))
    make = MemoryConfig.paper if paper else MemoryConfig
    config = make(hot_capacity=4, min_support=support)
    gone = overflow(items, config)
    staying = [item.id for item in items if item.id not in gone]
    assert left_over(items, config) == staying


# What a memory has counted

COUNTED = replace(Evidence(0, 0, 0), demand=4.0, agreements=2.0, contradictions=1.0, support=5)


@given(st.integers(0, 50), st.integers(0, 50))
def test_counts_halve_after_a_half_life_but_not_the_support(first, second):
    later = decayed(COUNTED, int(HALF_LIFE))
    assert later.demand == 2.0
    assert later.agreements == 1.0
    assert later.contradictions == 0.5
    assert later.support == 5
    assert later.updated == HALF_LIFE
    at_once = decayed(COUNTED, first + second)
    in_two_stages = decayed(decayed(COUNTED, first), first + second)
    assert in_two_stages.demand == pytest.approx(at_once.demand)
    ahead = replace(COUNTED, updated=9)
    assert decayed(ahead, 3) == ahead  # never back


def test_query_and_repeat_in_one_step_are_one_event():
    once = in_demand(Evidence(0, 0, 0), 5)
    assert in_demand(once, 5).demand == once.demand == 1.0


def test_outcomes_hits_and_merges_add_to_the_counts():
    assert with_outcome(COUNTED, True, 0).agreements == 3.0
    assert with_outcome(COUNTED, False, 0).contradictions == 2.0
    hit = record_hit(cold("c", axis(0)), step=9, score=0.3).evidence
    assert hit.hits == 1
    assert hit.demand == 0.3
    assert hit.last_seen == 9
    older = replace(COUNTED, resultant=2.5)
    newer = replace(Evidence(0, 0, 0), hits=2, contradictions=1.0, unlike="number")
    both = merged(older, newer)
    assert both.support == 6
    assert both.demand == 5.0
    assert both.hits == 2
    assert both.agreements == 2.0
    assert both.contradictions == 2.0
    assert both.created == 0
    assert both.resultant == 2.5
    assert both.unlike == "number"
