"""The writer is killed at 200 random points; whatever it acknowledged is there afterwards.

After each kill the file is opened and checked: every acknowledged message is there, every
acknowledged deletion holds, and `verify` is clean. A sleep phase moves messages from the hot tier
into memories, so a message in both, or counts that do not fit, would be a sleep phase half done.
"""

import gzip
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.memory import crash_writer
from tests.unit.memory.factories import FIRST_SCHEMA

FILES, KILLS_PER_FILE = 20, 10


class Writers:
    """The process that forks writers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, crash_writer.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def _read(self) -> dict[str, object]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def run_and_kill(self, path: Path, seed: int, delay: float) -> list[dict[str, object]]:
        """What a writer acknowledged before it was killed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(path), seed]).encode() + b"\n")
        self._process.stdin.flush()
        said = []
        while "child" not in (line := self._read()):
            said.append(line)
        time.sleep(delay)
        os.kill(int(str(line["child"])), signal.SIGKILL)
        while "dead" not in (line := self._read()):
            said.append(line)
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    writers = Writers()
    yield writers
    writers.close()


def in_both_tiers(path: Path) -> list[object]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(
            "SELECT p.message FROM provenance p JOIN tiers t ON t.id = p.item AND t.live = 1"
            " GROUP BY p.message HAVING count(DISTINCT t.tier) > 1"
        ).fetchall()
    finally:
        connection.close()


class Promises:
    """What the writers of one file have acknowledged."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.gone: set[str] = set()
        self.steps: set[str] = set()

    def hear(self, said: list[dict]) -> None:
        for line in said:
            assert "failed" not in line, line
            self.steps |= set(line)
            self.kept |= line.get("added", {})
            # Announced but not acknowledged: it may have happened or not.
            self.kept.pop(line.get("deleting", ""), None)
            if "deleted" in line:
                self.gone.add(line["deleted"])

    def check(self, path: Path) -> None:
        memory = crash_writer.open_memory(str(path))
        try:
            there = {message.id: message.text for message in memory.messages()}
            assert self.kept.items() <= there.items()
            assert not self.gone & set(there)
            assert memory.admin.verify().problems == ()
            assert in_both_tiers(path) == []
            assert all(each.agrees for each in memory.replay())
        finally:
            memory.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("file", range(FILES))
def test_a_killed_writer_keeps_every_promise(tmp_path, writers, file):
    rng = random.Random(file)
    path = tmp_path / "memory.db"
    promises = Promises()
    if file % 4 == 0:  # the first kills hit the upgrade of an old file
        path.write_bytes(gzip.decompress(FIRST_SCHEMA.read_bytes()))
        promises.kept["old"] = "an old fact"
    for kill in range(KILLS_PER_FILE):
        upgrade = file % 4 == 0 and kill < 2
        delay = rng.uniform(0, 0.01) if upgrade else rng.uniform(0, 0.25)
        promises.hear(writers.run_and_kill(path, 100 * file + kill, delay))
        if path.exists() and not path.stat().st_size:  # killed before it began
            path.unlink()
        if path.exists():
            promises.check(path)
    assert promises.steps >= {"opened", "added"}
