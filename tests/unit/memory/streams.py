"""Streams of messages for tests."""

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
