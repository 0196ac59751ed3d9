"""A batch does what its messages do one after the other."""

import json
from dataclasses import asdict

import pytest

from ecs_plugins.memory import MemoryConfig, StoreConfig
from ecs_plugins.memory.store.tiers import dump_evidence, read_evidence
from ecs_plugins.memory.types import Evidence
from tests.unit.memory.streams import rows_of, stream

pytestmark = pytest.mark.slow  # every batch twice, whole and one by one


@pytest.mark.parametrize("rule", ["default", "paper"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_equals_its_messages_one_by_one(open_memory, tmp_path, rule, seed):
    config = MemoryConfig(rule=rule, merge_threshold=0.8, hot_capacity=500)
    options = {"config": config, "store": StoreConfig(sleep="manual")}
    together, one_by_one = (open_memory(path=tmp_path / name, **options) for name in "ab")
    before, batch = stream(seed + 100, 40), stream(seed, 150)
    for memory in (together, one_by_one):
        for message in before:
            memory.add(message)
        memory.sleep()
        for message in before[:20]:
            memory.add(message)
    together.add(batch)
    for message in batch:
        one_by_one.add(message)
    assert rows_of(together) == rows_of(one_by_one)
    assert together.admin.verify().ok


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(created=3, updated=3, last_seen=3),
        Evidence(created=-1, updated=-1, last_seen=-1),
        Evidence(created=1, updated=9, last_seen=4, support=3, demand=0.5, hits=2, resultant=2.5),
        Evidence(
            created=0, updated=0, last_seen=0, agreements=1.0, contradictions=0.25,
        ),
    ],
)  # fmt: skip
def test_stored_evidence_is_read_as_it_was_written(evidence):
    stored = dump_evidence(evidence)
    assert read_evidence(json.loads(stored)) == evidence
    assert len(stored) <= len(json.dumps(asdict(evidence)))
