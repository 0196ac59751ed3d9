"""Streams of messages for tests, and what a file holds after them, whatever the ids."""

import numpy as np

SUBJECTS = ["the boat", "a cat", "snow", "the mill", "our train", "old Quilla"]
VERBS = [
    "is blue",
    "is not blue",
    "sleeps late",
    "falls in winter",
    "burned down",
    "was late again",
]
ENDS = ["", " today", " they say", " at noon and at night"]


def stream(seed, count):
    """Messages of which many repeat others, some deny or contradict others, some expire."""
    rng = np.random.default_rng(seed)
    said = []
    for number in range(count):
        words = [SUBJECTS[rng.integers(6)], VERBS[rng.integers(6)]]
        message = {"content": f"{words[0]} {words[1]}{ENDS[rng.integers(4)]}", "at": 1e9 + number}
        if rng.random() < 0.4:
            message["metadata"] = {"source": int(rng.integers(2)), "kind": {"deep": ["x"]}}
        if rng.random() < 0.1:
            message["ttl"] = 5e9 + number
        said.append(message)
    return said


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
