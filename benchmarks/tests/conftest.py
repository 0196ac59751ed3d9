"""The fixtures of the package's tests, and the command line of the benchmarks."""

import sys

import pytest

from benchmarks.__main__ import main
from tests.conftest import bundled_lm, embedder, located, postgres, processor

__all__ = ["bench", "bundled_lm", "embedder", "located", "postgres", "processor"]


@pytest.fixture
def bench(monkeypatch, capsys):
    """Run ``python -m benchmarks``, check the exit status and return the output."""

    def run(*arguments, status=0):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        assert int(caught.value.code or 0) == status, captured
        return captured.out + captured.err

    return run
