"""A batch does what its messages do one after the other."""

import pytest

from ecs_plugins.memory import MemoryConfig
from tests.unit.memory.factories import stream


def rows_of(memory):
    """All that the file holds, with the position of a message in the log for its id."""
    with memory._store.database.read() as connection:
        fetch = lambda sql: connection.execute(sql).fetchall()  # noqa: E731
        known = {name: seq for seq, name in fetch("SELECT seq, id FROM messages")}
        cold = "SELECT min(row), id FROM tiers WHERE tier = 'cold' GROUP BY id"
        known |= {name: row for row, name in fetch(cold)}
        tables = [
            fetch("SELECT seq, step, text, metadata, created, expires FROM messages"),
            fetch(
                "SELECT row, id, tier, version, live, judged, text, metadata, expires, energy,"
                " entropy, evidence, vector FROM tiers"
            ),
            fetch("SELECT item, message, version FROM provenance"),
            fetch("SELECT step, since_sleep, hot_count, cold_count FROM namespaces"),
        ]
    return [
        sorted(tuple(known.get(value, value) for value in row) for row in table) for table in tables
    ]


@pytest.mark.slow  # every batch twice, whole and one by one
@pytest.mark.parametrize("rule", ["default", "paper"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_equals_its_messages_one_by_one(open_memory, tmp_path, rule, seed):
    config = MemoryConfig(rule=rule, merge_threshold=0.8, hot_capacity=500)
    together, one_by_one = (open_memory(path=tmp_path / name, config=config) for name in "ab")
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
