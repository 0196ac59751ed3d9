import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import apply_plan, consolidate
from ecs_plugins.memory.contest import replay
from ecs_plugins.memory.store.sleeps import DECISION
from tests.unit.memory.factories import axis, cold, hot

SMALL = MemoryConfig(cold_capacity=2, min_support=2)


def sleep(hot_items, cold_items=(), config=SMALL, step=100, seed=0, **rest):
    return consolidate(hot_items, cold_items, config=config, step=step, seed=seed, **rest)


def kinds(plan):
    return [decision.kind for decision in plan.decisions]


def full_store(**changes):
    return [cold("a", axis(0), demand=50.0, **changes), cold("b", axis(1), demand=0.1)]


def test_a_repeated_observation_is_inserted_while_there_is_room():
    plan = sleep([hot("m1", axis(0)), hot("m2", axis(0))])
    assert kinds(plan) == ["insert"]
    assert plan.decisions[0].members == ("m1", "m2")
    assert plan.inserted[0].evidence.support == 2
    assert plan.consumed == ("m1", "m2")


def test_a_single_observation_waits_for_support():
    plan = sleep([hot("m1", axis(0))])
    assert plan.decisions == ()
    assert plan.consumed == ()


FILLING = SMALL.replace(hot_capacity=3, sleep_every=2)


def test_single_observations_about_to_leave_fill_a_store_with_room():
    plan = sleep([hot(f"m{i}", axis(i)) for i in range(3)], config=FILLING)
    assert kinds(plan) == ["insert", "insert"]
    assert plan.consumed == ("m0", "m1")


def test_single_observations_compete_only_with_older_ones_of_their_kind():
    store = [cold("old", axis(6), step=0), cold("asked", axis(7), step=0, support=2)]
    plan = sleep([hot(f"m{i}", axis(i), step=90 + i) for i in range(3)], store, FILLING)
    assert kinds(plan) == ["replace"]
    assert [memory.id for memory in plan.removed] == ["old"]


def test_a_supported_candidate_displaces_an_unsupported_memory_first():
    store = [cold("new", axis(6), step=99), cold("weak", axis(7), step=0, support=2)]
    plan = sleep([hot("m1", axis(2), support=2, step=50, demand=1.0)], store, FILLING)
    assert plan.decisions[0].target_id == "new"


def test_being_asked_for_counts_as_support():
    asked = hot("m1", axis(2))
    asked = replace(asked, evidence=replace(asked.evidence, hits=1, demand=1.0))
    assert kinds(sleep([asked])) == ["insert"]


def test_a_proposal_that_repeats_a_memory_reinforces_it():
    memory = cold("a", axis(0), support=3)
    plan = sleep([hot("m1", axis(0, 1, 0.9), support=2)], [memory])
    assert kinds(plan) == ["reinforce"]
    assert plan.decisions[0].target_id == "a"
    assert plan.decisions[0].similarity == pytest.approx(0.9, abs=1e-6)
    assert plan.updated[0].evidence.support == 5
    assert plan.inserted == plan.removed == ()


def test_the_weakest_memory_is_displaced_by_one_in_more_demand():
    plan = sleep([hot("m1", axis(2), support=9, demand=40.0)], full_store())
    assert kinds(plan) == ["replace"]
    assert [memory.id for memory in plan.removed] == ["b"]


def test_a_candidate_of_contradicting_outcomes_is_rejected():
    config = SMALL.replace(temperature=0.0, entropy_weight=5.0)
    torn = hot("m1", axis(2), support=4, demand=3.0, contradictions=3.0)
    steady = [
        cold(name, axis(i), demand=1.0, support=4, agreements=3.0) for i, name in enumerate("ab")
    ]
    assert kinds(sleep([torn], steady, config)) == ["reject"]
    assert kinds(sleep([torn], steady, config.replace(entropy_weight=0.0))) == ["replace"]


def test_a_rejected_item_is_not_proposed_again_without_new_support():
    config = SMALL.replace(temperature=0.0)
    items = [hot("m1", axis(2), support=2, demand=0.0, step=0)]
    store = [cold(name, axis(i), demand=30.0) for i, name in enumerate("ab")]
    plan = sleep(items, store, config)
    assert kinds(plan) == ["reject"]
    items, store = apply_plan(plan, items, store)
    assert sleep(items, store, config).decisions == ()
    grown = replace(items[0], evidence=replace(items[0].evidence, support=3))
    assert kinds(sleep([grown], store, config)) == ["reject"]


def test_a_pinned_memory_is_never_a_victim():
    store = [cold("a", axis(0), demand=50.0), cold("b", axis(1), demand=0.1, pinned=True)]
    plan = sleep([hot("m1", axis(2), support=9, demand=90.0)], store)
    assert [memory.id for memory in plan.removed] == ["a"]


def test_a_store_of_pinned_memories_rejects_everything():
    store = [cold(name, axis(i), pinned=True) for i, name in enumerate("ab")]
    plan = sleep([hot("m1", axis(2), support=9, demand=90.0)], store)
    assert kinds(plan) == ["reject"]
    assert plan.decisions[0].target_id is None


def test_a_store_above_its_capacity_shrinks_to_it():
    store = [*full_store(), cold("c", axis(2), demand=9.0), cold("d", axis(3), demand=0.5)]
    plan = sleep([], store)
    assert kinds(plan) == ["evict", "evict"]
    assert {memory.id for memory in plan.removed} == {"b", "d"}


def test_the_paper_discards_clusters_below_three():
    config = MemoryConfig.paper(clusters=2)
    items = [hot(f"m{i}", axis(0, 1, 0.99 + i / 1000)) for i in range(3)] + [hot("x", axis(5))]
    plan = sleep(items, config=config)
    assert sorted(kinds(plan)) == ["discard", "insert"]
    assert plan.consumed == ()


def test_the_paper_inserts_the_medoid_as_it_is():
    items = [hot(f"m{i}", axis(0, 1, cosine)) for i, cosine in enumerate((0.9, 0.95, 1.0))]
    plan = sleep(items, config=MemoryConfig.paper(clusters=1))
    assert plan.inserted[0].text == items[1].text
    assert np.array_equal(plan.inserted[0].vector, items[1].vector)


def test_a_utility_function_replaces_the_observed_utility():
    store = full_store()

    def prefers_b(items, queries, step):
        return [9.0 if item.id == "b" else 0.0 for item in items]

    config = SMALL.replace(temperature=0.0)
    plan = sleep([hot("m1", axis(2), support=2)], store, config, utility=prefers_b)
    assert [memory.id for memory in plan.removed] == ["a"]


@pytest.mark.parametrize("values", [[], [1.0], [math.nan] * 3, [math.inf] * 3])
def test_a_utility_that_is_not_one_finite_number_each_is_refused(values):
    items = [hot("m1", axis(2), support=2)]
    with pytest.raises(InvalidInputError, match="3 finite numbers"):
        sleep(items, full_store(), utility=lambda *_: values)


def test_vectors_that_are_not_finite_are_refused():
    broken = axis(0)
    broken[3] = np.nan
    with pytest.raises(InvalidInputError, match="NaN"):
        sleep([hot("m1", broken)])


def test_vectors_of_different_length_are_refused():
    with pytest.raises(InvalidInputError, match="different shapes"):
        sleep([hot("m1", axis(0)), hot("m2", np.ones(3, dtype=np.float32))])


def test_a_summary_gives_text_and_vector():
    def summarise(cluster):
        return " and ".join(item.id for item in cluster), axis(7)

    items = [hot("m1", axis(0)), hot("m2", axis(0))]
    plan = sleep(items, config=SMALL.replace(proposal="summary"), summarise=summarise)
    assert plan.inserted[0].text == "m1 and m2"
    assert np.array_equal(plan.inserted[0].vector, axis(7))


def test_a_summariser_that_fails_leaves_its_own_error():
    def fails(cluster):
        raise TimeoutError("too slow")

    with pytest.raises(TimeoutError):
        sleep([hot("m1", axis(0), support=2)], summarise=fails)


def test_utilities_by_query_prefer_what_was_asked():
    from ecs_plugins.memory.types import QueryEvent

    config = SMALL.replace(utility="query_mean", entropy_weight=0.0, temperature=0.0)
    queries = [QueryEvent(step, axis(0)) for step in range(5)]
    plan = sleep([hot("m1", axis(2), support=2)], full_store(), config, queries=queries)
    assert plan.decisions[0].target_id == "b"
    assert plan.decisions[0].candidate.energy == pytest.approx(0.0)


vectors = st.integers(0, 7).map(axis)
hot_items = st.lists(st.tuples(vectors, st.integers(1, 4), st.floats(0, 9)), max_size=12)


def random_plan(items, seed, config):
    entries = [
        hot(f"m{i}", vector, support=support, demand=demand)
        for i, (vector, support, demand) in enumerate(items)
    ]
    store = [cold(f"c{i}", axis(i), demand=float(i)) for i in range(config.cold_capacity)]
    return entries, store, sleep(entries, store, config, seed=seed)


configs = st.sampled_from(
    [
        SMALL,
        SMALL.replace(temperature=3.0),
        SMALL.replace(merge_threshold=1.0, temperature=1.0),
        MemoryConfig.paper(cold_capacity=2, min_support=1),
        MemoryConfig(cold_capacity=2),
    ]
)


@settings(deadline=None)
@given(hot_items, st.integers(0, 2**31), configs)
def test_capacity_holds_and_every_decision_replays(items, seed, config):
    entries, store, plan = random_plan(items, seed, config)
    _, after = apply_plan(plan, entries, store)
    assert len(after) <= config.cold_capacity
    assert len({memory.id for memory in after}) == len(after)
    for decision in plan.decisions:
        recorded = DECISION.validate_json(DECISION.dump_json(decision))
        assert recorded == decision
        assert replay(recorded) == decision


@settings(deadline=None)
@given(hot_items, st.integers(0, 2**31), configs)
def test_the_same_seed_gives_the_same_plan(items, seed, config):
    entries, store, plan = random_plan(items, seed, config)
    assert sleep(entries, store, config, seed=seed) == plan


def test_replay_detects_an_altered_record():
    plan = sleep([hot("m1", axis(2), support=9, demand=40.0)], full_store())
    decision = plan.decisions[0]
    assert replay(replace(decision, draw=0.999999, delta=5.0)) != replace(
        decision, draw=0.999999, delta=5.0
    )
    stronger = replace(decision.victim, energy=decision.victim.energy - 50.0)
    assert replay(replace(decision, victim=stronger)).kind == "reject"


def test_acceptance_frequency_follows_the_recorded_probability():
    values = {"a": 9.0, "b": 1.0}
    std = 4.0  # of F over the store, in which T is measured
    config = SMALL.replace(temperature=1.0 / std, entropy_weight=0.0)

    def utility(scored, queries, step):
        return [values.get(item.id, 0.0) for item in scored]

    items = [hot("m1", axis(2), support=2)]
    accepted = [
        kinds(sleep(items, full_store(), config, seed=seed, utility=utility)) == ["replace"]
        for seed in range(2000)
    ]
    assert np.mean(accepted) == pytest.approx(math.exp(-1.0), abs=0.04)


def says(item, text):
    return replace(item, text=text)


def test_a_sleep_phase_does_not_cluster_what_says_something_else():
    items = [
        says(hot("m1", axis(0), support=2), "the code is 4711"),
        says(hot("m2", axis(0), support=2), "the code is 4712"),
        says(hot("m3", axis(0), support=2), "so the code is 4711"),
    ]
    plan = sleep(items)
    assert [decision.members for decision in plan.decisions] == [("m1", "m3"), ("m2",)]


def test_a_proposal_reinforces_the_nearest_memory_that_says_the_same():
    cold_items = [
        says(cold("a", axis(0), support=2), "the code is 4711"),
        says(cold("b", axis(0, 1, 0.9), support=2), "the code is 4712"),
    ]
    plan = sleep([says(hot("m1", axis(0), support=2), "so the code is 4712")], cold_items)
    (decision,) = plan.decisions
    assert (decision.kind, decision.target_id) == ("reinforce", "b")
