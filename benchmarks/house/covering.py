"""Which tests of a folder execute a statement, so that a fault there is judged by these alone.

All tests of the folder run once while coverage.py notes the lines that each executes. What happens
in another process is not seen: a test that starts one counts as executing everything. So does every
test for a statement outside functions, which runs on import, before or in whichever test comes
first.
"""

from __future__ import annotations

import ast
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

LIBRARIES = (
    "faiss",
    "hypothesis",
    "langchain.agents",
    "langgraph.graph",
    "llama_index.core",
    "psycopg",
    "sklearn.cluster",
    "torch",
    "transformers",
)
"""What tests import that takes long, and what of it is not installed is left out."""

_BUSY = 5
"""How many times as long work takes by the clock, at most, where others compute too."""

_OPTIONS = ("-q", "-p", "no:cacheprovider")


def import_libraries() -> None:
    """Import what every run of tests would: forked processes find it there."""
    for name in LIBRARIES:
        with suppress(ImportError):
            import_module(name)


@dataclass(frozen=True, slots=True)
class Covering:
    """What the tests of a folder execute.

    Attributes:
        seconds: Of every test that passes, by its id.
        everywhere: Tests that count as executing everything.
        lines: Tests that execute a line, by file and number of the line; tests by their position
            in ``seconds``.
        imported: Lines of each file that are executed while no test runs.
    """

    seconds: Mapping[str, float]
    everywhere: Sequence[str]
    lines: Mapping[str, Mapping[str, Sequence[int]]]
    imported: Mapping[str, Sequence[int]]

    def tests_of(self, file: str, line: int) -> list[str]:
        """Tests that execute the statement of this line, the quickest first."""
        extent = _statement(Path(file), line)
        imported = self.imported.get(file, ())
        if extent is None or any(number in extent for number in imported):
            return self._by_time(self.seconds)
        ids = list(self.seconds)
        lines = self.lines.get(file, {})
        executing = set(self.everywhere)
        for number in extent:
            executing.update(ids[position] for position in lines.get(str(number), ()))
        return self._by_time(executing)

    def one_fails(self, tests: Sequence[str], patience: float) -> bool:
        """Whether one of these tests fails, in the working directory.

        Args:
            tests: In the order in which they run.
            patience: Seconds of a processor that all may take beyond five times what they took
                here; then they are taken for endless, which is a failure. So are those that wait:
                by the clock it is five times as much, since a busy machine makes nothing endless.
        """
        if not tests:
            return False
        seconds = [self.seconds[test] for test in tests]
        of_one = _BUSY * (patience + 5 * max(seconds))
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        options = [*_OPTIONS, "-x", f"--timeout={of_one:.0f}", *files]
        of_all = patience + 5 * sum(seconds)
        work = partial(_run, options, tests, of_all)
        code = _forked(work, _BUSY * of_all, Path(os.devnull))
        return code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

    def _by_time(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def _statement(file: Path, line: int) -> range | None:
    """The lines of the innermost statement around a line, without its body.

    None where it stands outside every function.
    """
    extent = None
    for node in _around(ast.parse(file.read_text("utf-8")), line, inside=False):
        body = getattr(node, "body", None)
        end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        extent = range(node.lineno, max(end, node.lineno) + 1)
    return extent


def _around(parent: ast.AST, line: int, inside: bool) -> Iterator[ast.stmt]:
    """Statements in functions around a line, the innermost last."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.stmt):
            end = node.end_lineno or 0
            if not node.lineno <= line <= end:
                continue
            if inside:
                yield node
        in_its_body = False
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            in_its_body = line >= node.body[0].lineno
        yield from _around(node, line, inside or in_its_body)


class _Recorder:
    """A plug-in of pytest: what each test executes, how long it takes, whether it passes."""

    def __init__(self, files: Sequence[str]) -> None:
        from coverage import Coverage

        self._coverage = Coverage(data_file=None, config_file=False, include=list(files))
        self._coverage.set_option("run:core", "ctrace")  # the newer one knows no contexts
        self._files = files
        self._seconds: dict[str, float] = {}
        self._starting: list[str] = []
        self._failing: set[str] = set()

    def start(self) -> None:
        """Note what is executed from now on."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what is executed as this test's."""
        self._coverage.switch_context(item.nodeid)
        ended_children = _pages_of_ended_children()
        before = time.perf_counter()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.perf_counter() - before
            if _pages_of_ended_children() != ended_children:
                self._starting.append(item.nodeid)
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self._failing.add(report.nodeid)

    def covering(self) -> Covering:
        """What was noted; a test that fails without a fault shows none and is left out."""
        self._coverage.stop()
        for test in self._failing:
            self._seconds.pop(test, None)
        positions = {test: position for position, test in enumerate(self._seconds)}
        lines: dict[str, dict[str, list[int]]] = {}
        imported: dict[str, list[int]] = {}
        data = self._coverage.get_data()
        for file in self._files:
            lines[file] = {}
            imported[file] = []
            for line, tests in data.contexts_by_lineno(os.path.realpath(file)).items():
                passing = [positions[test] for test in tests if test in positions]
                lines[file][str(line)] = passing
                if "" in tests:
                    imported[file].append(line)
        everywhere = [test for test in self._starting if test in positions]
        return Covering(self._seconds, everywhere, lines, imported)


def _pages_of_ended_children() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


class _Choice:
    """A plug-in of pytest: runs the given tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._position = {test: position for position, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out all others."""
        chosen = [item for item in items if item.nodeid in self._position]
        items[:] = sorted(chosen, key=lambda item: self._position[item.nodeid])


def record(tests: str, marks: str, files: Sequence[str], kept: Path) -> Covering:
    """Run tests of the working directory once, and note what each executes.

    Args:
        tests: Their folder.
        marks: Which of them, as ``pytest -m`` has it.
        files: Those of the package to watch.
        kept: Where the record is kept; one that is there already is read.

    Raises:
        RuntimeError: If the tests did not run to their end.
    """
    if not kept.exists():
        log = kept.with_suffix(".log")
        _forked(lambda: _record(tests, marks, files, kept), None, log)
        if not kept.exists():
            raise RuntimeError(f"the tests did not run to their end: see {log}")
    return Covering(**json.loads(kept.read_text("utf-8")))


def _record(tests: str, marks: str, files: Sequence[str], kept: Path) -> int:
    recorder = _Recorder(files)
    recorder.start()
    code = pytest.main([*_OPTIONS, "-m", marks, tests], plugins=[recorder])
    covering = recorder.covering()
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        _check_source()
    if code not in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
        kept.write_text(json.dumps(asdict(covering)), "utf-8")
    return int(code)


def _run(options: Sequence[str], tests: Sequence[str], seconds: float) -> int:
    whole = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
    sys.dont_write_bytecode = True  # within a second, faults of one length would share it
    return int(pytest.main(list(options), plugins=[_Choice(tests)]))


def _check_source() -> None:
    package = Path(sys.modules["ecs_plugins"].__file__ or "")
    assert package.is_relative_to(Path.cwd()), f"{package} was tested in place of the copy"


def _forked(task: Callable[[], int], patience: float | None, log: Path) -> int | None:
    """The exit code of a task in a process of its own; none where it takes too long."""

    def run() -> None:
        os.setsid()
        with log.open("wb") as shown:
            os.dup2(shown.fileno(), 1)
            os.dup2(shown.fileno(), 2)
        sys.path.insert(0, str(Path.cwd()))
        sys.exit(task())

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(patience)
    code = process.exitcode
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return code
