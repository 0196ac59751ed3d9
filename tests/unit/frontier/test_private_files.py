"""What holds the text of users can be read by its owner alone."""

import os
import stat
from contextlib import closing

import pytest

from ecs_plugins.frontier.journal import Journal
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from tests.unit.frontier.test_strategies import CONTEXT, Notes


def journal(folder):
    with closing(Journal(folder / "journal.db", ("kind", 1), {"a": 1})) as made:
        made.append({"kind": "x"})


def ledger(folder):
    with ReuseLedger(folder / "reuse.db") as made:
        made.record("What a user said.")


def compression(folder):
    MemoryCompression(Notes(), 0.25, cache_dir=folder).prepare(CONTEXT)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize("write", [journal, ledger, compression])
def test_what_holds_the_text_of_users_is_private(tmp_path, write):
    before = os.umask(0o022)
    try:
        write(tmp_path)
        for path in tmp_path.rglob("*.*"):
            path.chmod(0o644)  # as version 0.1 wrote them
        write(tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
