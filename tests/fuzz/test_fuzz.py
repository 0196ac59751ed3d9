"""Odd inputs: errors are those of this package, and promises hold."""

import io
import json
import math
from contextlib import redirect_stderr, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ecs_plugins import EcsPluginsError, EntropicMemory, FakeEmbedder, FakeLanguageModel
from ecs_plugins.cli import app
from ecs_plugins.frontier import (
    EfficiencyFrontier,
    PriceVector,
    Router,
    RouterConfig,
    StrategyPoint,
)
from ecs_plugins.frontier.calibration import CalibrationConfig
from ecs_plugins.frontier.data import read_questions
from ecs_plugins.integrations.recall import RecallOptions
from ecs_plugins.lm.local import LocalLMOptions
from ecs_plugins.memory.config import MemoryConfig, StoreConfig
from ecs_plugins.memory.store.values import dump
from ecs_plugins.shaping import ContextShaper, ModelDiagnostics, ShapingConfig
from tests.fuzz.conftest import fuzzing

# Text with what breaks programs: control and format characters, half characters, markup, dots.
ODD = ["\x00", "\ud800", "\u2028", "\r", "<", "</", "<|im_end|>", "...", "$\\frac$"]
WORDS = ["Anna", "lives", "in", "Rome.", "where?", "12", "\n", "- ", "```", "|", "a: b", "(a) "]
parts = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(ODD),
    st.text(max_size=5),
)
texts = st.lists(parts, max_size=8).map(" ".join)
numbers = st.one_of(
    st.integers(-3, 50),
    st.floats(),
    st.integers(),
    st.sampled_from([10**400, math.nan, True]),
)
scalars = st.one_of(st.none(), numbers, texts)


def lists_and_mappings_of(inner):
    lists = st.lists(inner, max_size=3)
    mappings = st.dictionaries(texts, inner, max_size=3)
    return st.one_of(lists, mappings)


values = st.recursive(scalars, lists_and_mappings_of, max_leaves=6)
CONFIGS = [
    CalibrationConfig,
    LocalLMOptions,
    MemoryConfig,
    PriceVector,
    RecallOptions,
    RouterConfig,
    ShapingConfig,
    StoreConfig,
]
POINTS = [
    StrategyPoint("full_context", {}, 0.8, 0, 600),
    StrategyPoint("memory_compression", {"ratio": 0.5}, 0.75, 1500, 100),
    StrategyPoint("bm25", {"depth": 4}, 0.5, 0, 50),
]


@fuzzing
@given(st.data())
@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_settings_are_taken_and_written_back_or_refused(kind, data):
    fields = st.sampled_from(sorted(kind.model_fields))
    names = st.one_of(fields, texts)
    record = data.draw(st.dictionaries(names, values, max_size=3))
    with suppress(EcsPluginsError):
        config = kind.from_json(record)
        written = json.dumps(config.to_json())
        again = kind.from_json(json.loads(written))
        assert again == config


SHAPER = st.builds(
    dict,
    ranker=st.sampled_from([None, "bm25", "tfidf"]),
    pool_size=st.integers(1, 6),
    top_k=st.one_of(st.none(), st.integers(1, 4)),
    max_tokens=st.one_of(st.none(), st.integers(1, 40)),
    acceptance=st.sampled_from(["independent", "stream"]),
    unit=st.sampled_from(["passage", "sentence"]),
    on_error=st.just("raise"),
)


@fuzzing
@given(texts, st.lists(texts, max_size=10), SHAPER, st.one_of(st.none(), texts), texts)
def test_shaping_gives_every_passage_a_verdict_and_changes_none(
    query, passages, settings, answer, context
):
    shaper = ContextShaper(FakeLanguageModel(max_tokens=400), ShapingConfig(**settings))
    with suppress(EcsPluginsError):
        shaped = shaper.shape(query, passages, answer=answer, context=context)
        assert [verdict.text for verdict in shaped.verdicts] == passages
        assert [verdict.index for verdict in shaped.verdicts] == list(range(len(passages)))
        assert len(shaped.kept) <= (settings["top_k"] or len(passages))
        most = settings["max_tokens"] or shaped.tokens_before
        assert shaped.over_budget == (shaped.tokens_after > most)
        assert len(shaped.kept) == 1 or not shaped.over_budget
        for verdict in shaped.verdicts:
            assert verdict.reason
            if verdict.utility is None:
                assert verdict.verdict in ("unscored", "redundant")
            else:
                assert verdict.verdict != "unscored"
        for verdict in shaped.kept:
            for start, end in verdict.spans:
                assert 0 <= start < end <= len(verdict.text)
        for id, text in shaped.dropped.items():
            assert shaped.restore(id) == text
        assert shaped.explain(width=80)
        json.dumps(shaped.to_dict(), allow_nan=False)


MESSAGE_FIELDS = {
    "role": scalars,
    "metadata": values,
    "at": scalars,
    "ttl": scalars,
    "writer": scalars,
}
mappings = st.fixed_dictionaries({"content": texts}, optional=MESSAGE_FIELDS)
messages = st.one_of(texts, values, mappings)


@fuzzing
@given(st.lists(messages, max_size=4), texts, values, st.lists(texts, max_size=2))
def test_a_memory_takes_a_message_or_refuses_it_and_stays_whole(given_, query, condition, labels):
    with EntropicMemory.open(embedder=FakeEmbedder(16), config={"sleep_every": 3}) as memory:
        for message in given_:
            with suppress(EcsPluginsError):
                memory.add(message, namespace=labels)
        with suppress(EcsPluginsError):
            memory.sleep(labels)
        with suppress(EcsPluginsError):
            recalled = memory.recall(query, namespace=labels, filter=condition, threshold=0.0)
            for recollection in recalled:
                assert math.isfinite(recollection.score)
        for namespace in memory.namespaces():
            assert namespace == tuple(labels)
            for message in memory.messages(namespace):
                memory.explain(message.id)
                memory.delete(message.id)
            assert memory.messages(namespace) == []
        assert memory.admin.verify().ok


def written() -> dict[str, bytes]:
    """One file of each kind that is read back."""
    with TemporaryDirectory() as folder:
        path = Path(folder)
        with EntropicMemory.open(path / "memory.db", embedder=FakeEmbedder(16)) as memory:
            memory.add(["Anna lives in Rome.", {"content": "12 mills", "metadata": {"a": 1}}])
            memory.sleep()
            memory.admin.export(path / "export.jsonl")
        EfficiencyFrontier(POINTS).save(path / "frontier.json")
        question = {
            "question": "q?",
            "answers": ["a"],
            "documents": [{"text": "a b c"}],
        }
        line = json.dumps(question) + "\n"
        (path / "questions.jsonl").write_text(line)
        files = filter(Path.is_file, path.iterdir())
        return {file.name: file.read_bytes() for file in files}


FILES = written()


def read_memory(path: Path) -> None:
    with EntropicMemory.open(path, embedder=FakeEmbedder(16)) as memory:
        memory.admin.verify()
        memory.recall("Where does Anna live?")
        memory.add("One more.")
        memory.sleep()


def import_from(path: Path) -> None:
    with EntropicMemory.open(embedder=FakeEmbedder(16)) as memory:
        try:
            memory.admin.import_(path)
        except EcsPluginsError:
            assert memory.namespaces() == []
            raise
        memory.recall("Where does Anna live?")
        memory.sleep_all()
        assert memory.admin.verify().ok


def decide_from(path: Path) -> None:
    frontier = EfficiencyFrontier.load(path)
    frontier.decide(reuse=3, target_f1=0.5)


READERS = {
    "memory.db": read_memory,
    "export.jsonl": import_from,
    "frontier.json": decide_from,
    "questions.jsonl": read_questions,
    "diagnostics.json": ModelDiagnostics.load,
}
FILES["diagnostics.json"] = FILES["frontier.json"]


@fuzzing
@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name, data):
    content = bytearray(FILES[name])
    places = st.integers(0, len(content) - 1)
    changes = st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)
    for place, byte in data.draw(changes):
        content[place] = byte
    end = data.draw(st.none() | places)
    content = content[:end]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with suppress(EcsPluginsError):
            READERS[name](path)


def is_filled(value) -> bool:
    return isinstance(value, dict | list) and bool(value)


def keys_of(container):
    if isinstance(container, dict):
        return sorted(container)
    return range(len(container))


@fuzzing
@given(st.data())
def test_an_export_with_other_values_is_read_or_refused(data):
    *records, _ = map(json.loads, FILES["export.jsonl"].splitlines())
    container = data.draw(st.sampled_from(records))
    key = data.draw(st.sampled_from(keys_of(container)))
    while is_filled(container[key]) and data.draw(st.booleans()):
        container = container[key]
        key = data.draw(st.sampled_from(keys_of(container)))
    container[key] = data.draw(values)
    try:
        lines = [dump(record) + "\n" for record in records]
        body = "".join(lines).encode()
    except (ValueError, UnicodeError):
        return  # no JSON
    end = {"kind": "end", "lines": len(lines), "sha256": sha256(body).hexdigest()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        path.write_bytes(body + dump(end).encode())
        with suppress(EcsPluginsError):
            import_from(path)


OBJECTIVES = st.dictionaries(st.sampled_from(["target_f1", "budget", "weight"]), numbers)


@fuzzing
@given(OBJECTIVES, st.none() | numbers)
def test_a_decision_is_among_the_points_or_refused(objective, reuse):
    frontier = EfficiencyFrontier(POINTS)
    with suppress(EcsPluginsError):
        decision = frontier.decide(reuse=reuse or 1, **objective)
        assert decision.point in POINTS
    with suppress(EcsPluginsError):
        router = Router(frontier, RouterConfig(**objective))
        decision = router.route(reuse=reuse)
        assert decision.point in POINTS


COMMANDS = ["shape", "diagnose", "calibrate", "route", "report", "memory"]
VERBS = ["add", "recall", "sleep", "decisions", "forget", "export", "import", "verify", "stats"]
OPTION_LIST = """
--query --passages --answer --top-k --threshold --db --namespace -n
--k --filter --item --limit --frontier --reuse --target-f1 --json
"""
OPTIONS = OPTION_LIST.split()
arguments = st.one_of(
    st.sampled_from([*OPTIONS, *VERBS, *FILES]),
    texts,
    numbers.map(str),
)


@fuzzing
@given(st.sampled_from(COMMANDS), st.lists(arguments, max_size=7))
def test_a_command_ends_with_a_status_and_never_with_a_traceback(command, arguments):
    with TemporaryDirectory() as folder:
        paths = {name: str(Path(folder) / name) for name in FILES}
        for name, content in FILES.items():
            Path(paths[name]).write_bytes(content)
        placed = [paths.get(argument, argument) for argument in arguments]
        with redirect_stderr(io.StringIO()):
            ended = CliRunner().invoke(app, [command, *placed], input="Anna lives in Rome.\n")
    expected = (EcsPluginsError, OSError, SystemExit, type(None))
    assert isinstance(ended.exception, expected), ended.exc_info
