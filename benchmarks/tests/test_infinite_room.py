import json
from functools import cache

import numpy as np
import pytest

from benchmarks.infinite_room.entropic import EntropicPolicy, Variant
from benchmarks.infinite_room.labels import Labels
from benchmarks.infinite_room.policies import CACHES, Moment, VotingLfu
from benchmarks.infinite_room.simulation import (
    OF_THE_WORLD,
    bounded,
    entropic_configs,
    policies,
    simulate,
)
from benchmarks.infinite_room.suite import run_suite
from benchmarks.infinite_room.tables import OURS, settings_line
from benchmarks.infinite_room.worlds import (
    CAPACITY,
    CONCEPTS,
    DIMENSION,
    WORLDS,
    stream,
)
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.consolidation import replay

STEPS = 1500
SEEDS = (0, 1)


@cache
def survival(world, policy):
    """Mean expected survival of a policy over the seeds."""
    settings = WORLDS[world].shortened(STEPS)
    factory = policies()[policy]
    return float(np.mean([simulate(settings, seed, factory).expected for seed in SEEDS]))


def axis(index):
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[index] = 1.0
    return vector


def feed(policy, indices):
    """Show a policy one basis vector per step; its number is its label."""
    for step, index in enumerate(indices):
        similarities = policy.vectors @ axis(index)
        order = (-similarities).argsort()[:3].tolist()
        recalled = [position for position in order if similarities[position] >= 0.7]
        policy.observe(Moment(step, axis(index), index, similarities, recalled))


def held(policy):
    return {policy.label(position) for position in range(len(policy.vectors))}


def test_a_stream_follows_its_world():
    world = WORLDS["a30"]
    source = stream(world, seed=0)
    assert np.allclose(np.linalg.norm(source.vectors, axis=1), 1.0, atol=1e-5)
    assert (source.concepts < 0).mean() == pytest.approx(0.3, abs=0.03)
    asked = source.concepts >= 0
    truth = source.truth[np.arange(world.steps), source.concepts]
    assert (source.labels[asked] == truth[asked]).all()
    changes = (np.diff(source.truth, axis=0) != 0).sum()
    assert 10 <= changes <= 45
    own = (source.vectors[asked] * source.centres[source.concepts[asked]]).sum(axis=1)
    assert own.mean() ** 2 == pytest.approx(1 / 1.25, abs=0.01)


def test_recurring_distractors_recur_and_near_ones_look_like_concepts():
    pool, near = (stream(WORLDS[name], seed=0) for name in ("pool50", "near50"))
    vectors = pool.vectors[pool.concepts < 0][:200]
    assert ((vectors @ vectors.T) > 0.6).sum(axis=1).mean() > 10
    looks = near.vectors[near.concepts < 0] @ near.centres.T
    assert looks.max(axis=1).min() > 0.7


def test_popularity_is_reshuffled():
    popularity = stream(WORLDS["shift30"], seed=0).popularity
    assert np.allclose(popularity.sum(axis=1), 1.0)
    assert (popularity[999] != popularity[1000]).any()
    assert sorted(popularity[999]) == sorted(popularity[1000])


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("name", CACHES)
def test_a_cache_never_exceeds_its_capacity_and_answers_from_it(name, deduplicate):
    policy = CACHES[name](deduplicate, 0, capacity=4)
    rng = np.random.default_rng(0)
    feed(policy, rng.integers(12, size=300).tolist())
    assert len(policy.vectors) == 4
    for position, vector in enumerate(policy.vectors):
        assert int(vector.argmax()) == policy.label(position)
    if deduplicate:
        assert len(held(policy)) == 4


@pytest.mark.parametrize(
    ("name", "kept"),
    [("FIFO", {1, 2, 3}), ("LRU", {0, 2, 3}), ("LFU", {0, 2, 3}), ("SIEVE", {0, 2, 3})],
)
def test_classical_policies_keep_the_expected_items(name, kept):
    policy = CACHES[name](True, 0, capacity=3)
    feed(policy, [0, 1, 2, 0, 0, 3])
    assert held(policy) == kept


def test_lfu_with_a_vote_answers_with_the_most_frequent_label_and_evicts_the_most_disputed():
    policy = VotingLfu(True, 0, capacity=2)
    steps = [(0, 7), (0, 7), (0, 8), (1, 5), (1, 6), (1, 9), (2, 4)]
    for step, (concept, label) in enumerate(steps):
        similarities = policy.vectors @ axis(concept)
        recalled = np.flatnonzero(similarities > 0.9).tolist()
        policy.observe(Moment(step, axis(concept), label, similarities, recalled))
    assert [policy.label(slot) for slot in range(2)] == [7, 4]


def test_arc_returns_a_ghost_to_the_frequent_list():
    policy = CACHES["ARC"](True, 0, capacity=3)
    feed(policy, [0, 1, 2, 3, 0, 5, 6, 7])
    assert 0 in held(policy)


def test_fifo_agrees_with_its_closed_form():
    distractors = 0.3
    hit = 1 - (1 - (1 - distractors) / CONCEPTS) ** CAPACITY
    assert survival("a30", "FIFO") == pytest.approx(hit + (1 - hit) / 50, abs=0.02)


def test_the_oracle_agrees_with_its_closed_form():
    held = CAPACITY / CONCEPTS
    ceiling = held * (1 - 0.005 / 0.7) + (1 - held) / 50
    assert survival("a30", "Oracle") == pytest.approx(ceiling, abs=0.01)


@pytest.mark.parametrize("policy", ["FIFO", "LRU + dedup", "Entropic, default"])
def test_expected_and_sampled_survival_agree(policy):
    world = WORLDS["a30"].shortened(STEPS)
    runs = [simulate(world, seed, policies()[policy]) for seed in SEEDS]
    sampled = np.mean([run.survival for run in runs])
    assert sampled == pytest.approx(survival("a30", policy), abs=0.03)


def test_the_paper_lies_between_fifo_and_the_default():
    fifo, paper, ours, ceiling = (
        survival("a50", name)
        for name in ("FIFO", "Entropic, paper()", "Entropic, default", "Oracle")
    )
    assert fifo + 0.02 < paper < ours - 0.05
    assert ours > fifo + 0.15
    assert ours > 0.93 * ceiling


@pytest.mark.parametrize("world", ["pool50", "near50"])
def test_the_entropy_term_tells_lying_memories_from_true_ones(world):
    ours = survival(world, "Entropic, default")
    assert ours > survival(world, "Entropic, no entropy (lambda = 0)") + 0.03
    assert ours > survival(world, "LFU + dedup") + 0.08


@pytest.mark.parametrize("config", [bounded(MemoryConfig()), MemoryConfig.paper()])
def test_decisions_replay_from_their_record_and_capacity_holds(config):
    source = stream(WORLDS["pool50"].shortened(700), seed=1)
    policy = EntropicPolicy(Variant(config), seed=1, keep_decisions=True)
    for step in range(700):
        similarities = policy.vectors @ source.vectors[step]
        recalled = np.flatnonzero(similarities >= 0.7)[:3].tolist()
        label = int(source.labels[step])
        policy.observe(Moment(step, source.vectors[step], label, similarities, recalled))
        hot, cold = policy.tiers
        assert len(hot) <= config.hot_capacity
        assert len(cold) <= config.cold_capacity
    assert {decision.kind for decision in policy.decisions} >= {"insert", "replace"}
    assert all(replay(decision) == decision for decision in policy.decisions)


def labelled(sequence, contradiction="learned", before=()):
    """The label that a memory has after a sequence, in a stream that has taught ``before``."""
    labels = Labels(contradiction)
    for number, earlier in enumerate([*before, sequence]):
        labels.founded(str(number), earlier[0])
        for label in earlier[1:]:
            labels.repeated(str(number), label)
    return labels.of(str(number))


DRIFTED, LIED = [1, 1, 1, 2, 2, 2], [1, 1, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("sequence", "contradiction", "before", "answer"),
    [
        ([1, 1, 1, 2], "learned", [DRIFTED] * 10, 2),
        ([1, 1, 1, 2], "learned", [LIED] * 10, 1),
        ([1, 1, 1, 2, 2, 2], "learned", [LIED] * 10, 2),
        ([1, 1, 1, 2], "newest", (), 2),
        ([1, 2, 2, 2], "never", (), 1),
    ],
)
def test_drift_is_told_from_noise(sequence, contradiction, before, answer):
    assert labelled(sequence, contradiction, before) == answer


def test_a_merged_memory_has_the_better_supported_label():
    labels = Labels()
    for name, label, repeats in (("old", 1, 3), ("new", 2, 0)):
        labels.founded(name, label)
        for _ in range(repeats):
            assert labels.repeated(name, label)
    labels.repeated("new", 1)
    labels.merged("both", ["old", "new"])
    assert labels.of("both") == 1


def test_processes_do_not_change_the_results():
    worlds = {"a30": WORLDS["a30"].shortened(100)}
    names = ("Oracle", "FIFO", "Entropic, default")
    alone = run_suite(worlds, names, (0, 1), workers=1)
    together = run_suite(worlds, names, (0, 1), workers=2)
    assert alone.runs == together.runs


def test_the_command_writes_runs_and_tables(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.commands.infinite_room.QUICK_STEPS", 120)
    bench("infinite-room", "--quick", "--worlds", "a30,a50", "--out", tmp_path)
    record = json.loads((tmp_path / "runs.json").read_text())
    assert record["seeds"] == [20, 21]
    assert len(record["runs"]["a30"]["FIFO"]) == 2
    assert record["configs"]["Entropic, paper()"]["version"] == MemoryConfig.paper().version
    assert "Entropic, default" in (tmp_path / "tables.md").read_text()


def test_an_unknown_world_is_refused(bench, tmp_path):
    assert "mars" in bench("infinite-room", "--worlds", "mars", "--out", tmp_path, status=1)


def test_the_measured_default_differs_only_in_the_printed_settings():
    measured = entropic_configs()[OURS].config.to_json()
    shipped = MemoryConfig().to_json()
    changed = {name for name in shipped if measured[name] != shipped[name]}
    assert changed == {*OF_THE_WORLD}
    printed = settings_line()
    for name in changed:
        assert f"{name}={measured[name]:g}" in printed
