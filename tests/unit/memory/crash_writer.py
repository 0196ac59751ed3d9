"""The victim of `test_memory_crash`: forks a writer per line of standard input.

A line is ``[path, seed]``. The writer adds, recalls, sleeps, deletes, compacts and
writes snapshots until it is killed, and acknowledges each step on standard output, one JSON line
by one system call each. Forking from a process that has imported everything makes a kill cheap.
"""

import json
import os
import random
import sys

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import vector_index
from ecs_plugins.ranking.embedder import FakeEmbedder

vector_index.KEPT_FROM = 20  # so that snapshots are written

STORE = StoreConfig(sleep="manual")
CONFIG = MemoryConfig(hot_capacity=60, cold_capacity=30, merge_threshold=0.95)


def say(**what) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def open_memory(path: str) -> EntropicMemory:
    return EntropicMemory.open(path, embedder=FakeEmbedder(32), config=CONFIG, store=STORE)


def write_for_ever(path: str, seed: int) -> None:
    rng = random.Random(seed)
    memory = open_memory(path)
    say(opened=True)
    mine: list[str] = []
    while True:
        texts = [f"w{rng.randrange(40)} x{rng.randrange(40)}" for _ in range(rng.randint(1, 6))]
        ids = memory.add(texts)
        say(added=dict(zip(ids, texts, strict=True)))
        mine += ids
        step = rng.random()
        if step < 0.3:
            memory.recall(texts[0])
            report = memory.sleep()
            say(slept=report.id)
        elif step < 0.5:
            gone = mine.pop(rng.randrange(len(mine)))
            say(deleting=gone)
            memory.delete(gone)
            say(deleted=gone)
        elif step < 0.75:
            memory.recall(texts[0])
            memory.admin.compact()
            say(compacted=True)


def main() -> None:
    import faiss  # noqa: F401  # before the fork, so that no writer has to

    for line in sys.stdin:
        path, seed = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(path, seed)
            except BaseException as error:
                say(failed=repr(error))
            finally:
                os._exit(1)
        say(child=child)
        os.waitpid(child, 0)
        say(dead=child)


if __name__ == "__main__":
    main()
