"""Shared helpers of memory tests: unit vectors, small items, files, processes."""

import os
from pathlib import Path

import numpy as np
import psycopg
import pytest

from ecs_plugins.memory.store import inspection
from ecs_plugins.memory.store.index import Indexes
from ecs_plugins.memory.store.values import crc_of, pack, packed_half
from ecs_plugins.memory.types import ColdMemory, Evidence, HotItem
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage.addresses import is_address, parsed

DIMENSION = 8
SECRET = "xyzzysecret plugh lives at harbour 4711"


def axis(index, toward=None, cosine=1.0):
    """A basis vector, or one at ``cosine`` to it in the plane towards another axis."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[index] = cosine
    if toward is not None:
        vector[toward] = np.sqrt(1.0 - cosine**2)
    return vector


def evidence(step=0, support=1, **changes):
    counted = {"last_seen": step, "support": support, "resultant": float(support)}
    counted.update(changes)
    return Evidence(created=step, updated=step, **counted)


def text_of(name):
    """A text without a number, in which two names would differ."""
    spelt = str.maketrans("0123456789", "abcdefghij")
    return f"text of {name.translate(spelt)}"


def hot(name, vector, **changes):
    return HotItem(
        id=name,
        vector=vector,
        evidence=evidence(**changes),
        members=(name,),
        text=text_of(name),
    )


def cold(name, vector, *, pinned=False, entropy=0.0, **changes):
    return ColdMemory(
        id=name,
        vector=vector,
        evidence=evidence(**changes),
        text=text_of(name),
        pinned=pinned,
        entropy=entropy,
    )


def is_on_server(memory) -> bool:
    """Return True for a server, whose files change later."""
    return is_address(memory.path)


def contents(memory) -> dict[str, str]:
    """Return the contents of a memory's files or tables; bytes also as digits."""
    if is_on_server(memory):
        return contents_of_tables(memory)
    held = {}
    for path in Path(memory.path).parent.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            held[path.name] = data.decode(errors="ignore") + data.hex()
    return held


def contents_of_tables(memory) -> dict[str, str]:
    address, schema = parsed(memory.path)
    held = {}
    with psycopg.connect(address) as connection:
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        for (name,) in connection.execute(tables, (schema,)).fetchall():
            rows = connection.execute(f"SELECT t::text FROM {schema}.{name} t")
            held[name] = str(rows.fetchall())
    return held


def holders(memory, content: bytes) -> list[str]:
    """The files, or the tables, that hold some content."""
    text = content.decode(errors="ignore")
    digits = content.hex()
    holding = []
    for name, held in contents(memory).items():
        is_text_held = text != "" and text in held
        if is_text_held or digits in held:
            holding.append(name)
    return holding


def leftovers(memory, text: str = SECRET) -> list[str]:
    """Files or tables that still hold a word of the text, or its vector."""
    vector = FakeEmbedder(32).embed_query(text)
    traces = [word.encode() for word in text.split() if len(word) > 5]
    traces.append(pack(vector))
    traces.append(packed_half(vector)[0])
    left = []
    for trace in traces:
        left += holders(memory, trace)
    return left


def expire(memory, name=None):
    """Let time pass, so that items with a time to live expire."""
    with memory._store.database.write() as connection:
        for table, key in (("messages", "id"), ("tiers", "row")):
            columns = inspection.CHECKED[table][1]["metadata"]
            for row in [*inspection.rows(connection, table)]:
                if row["expires"] is None and row["id"] != name:
                    continue
                row["expires"] = 3.0
                checksum = crc_of([row[column] for column in columns])
                connection.execute(
                    f"UPDATE {table} SET expires = ?, metadata_crc = ? WHERE {key} = ?",
                    (3.0, checksum, row[key]),
                )


def in_child(action) -> str:
    """Return the result or error of ``action`` in a forked child, as text."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        try:
            said = str(action())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


COUNTS = """
    SELECT (SELECT count(*) FROM tiers WHERE namespace = ?1 AND live = 1),
        (SELECT count(*) FROM {table} e JOIN tiers t
            ON t.row = e.row AND t.live = 1 AND t.namespace = e.namespace WHERE e.namespace = ?1),
        (SELECT coalesce(sum(cardinality(terms)), 0) FROM {table} WHERE namespace = ?1),
        (SELECT count(*) FROM postings WHERE namespace = ?1),
        (SELECT coalesce(sum(texts), 0) FROM words WHERE namespace = ?1)
"""
"""Live rows of a namespace on a server, its rows in the index, and three counts of their terms."""


def assert_current(memory, namespace=("default",)):
    """Check that an updated index equals a rebuilt one."""
    store = memory._store
    memory.recall("red", namespace=namespace, threshold=0.0, record=False)
    with store.reading(namespace) as (connection, space):
        if not isinstance(store.indexes, Indexes):  # the server keeps them
            table = f"entries_{store.dimension}"
            counts = connection.execute(COUNTS.format(table=table), (space.id,)).fetchone()
            live, kept, said, posted, counted = counts
            assert (live, said, said) == (kept, posted, counted)
            return
        known = store.indexes.current(connection, space)
        fresh = Indexes(store.dimension).current(connection, space)
    assert known._read()._postings == fresh._read()._postings
    assert known.words.size == fresh.words.size
    assert sorted(known.index.rows()) == sorted(fresh.index.rows())
    for query in np.eye(store.dimension, dtype=np.float32)[:4]:
        near = scores_of(known.index, query)
        near_anew = scores_of(fresh.index, query)
        assert near == pytest.approx(near_anew, abs=1e-6)


def scores_of(index, query) -> dict[int, float]:
    rows, scores = index.search(query, 500)
    return dict(zip(rows, scores, strict=True))


SUBJECTS = ["the boat", "a cat", "snow", "the mill", "our train", "old Quilla"]
VERBS = ["is blue", "is not blue", "sleeps late", "falls in winter", "burned down", "was late"]
ENDS = ["", " today", " they say", " at noon and at night"]


def stream(seed, count):
    """Messages of which many repeat others, some deny or contradict others, some expire."""
    rng = np.random.default_rng(seed)
    said = []
    for number in range(count):
        subject = SUBJECTS[rng.integers(6)]
        verb = VERBS[rng.integers(6)]
        end = ENDS[rng.integers(4)]
        message = {"content": f"{subject} {verb}{end}", "at": 1e9 + number}
        if rng.random() < 0.4:
            source = int(rng.integers(2))
            message["metadata"] = {"source": source, "kind": {"deep": ["x"]}}
        if rng.random() < 0.1:
            message["ttl"] = 5e9 + number
        said.append(message)
    return said
