"""The tables of a memory file, and how files of version 0.1 get them.

``PRAGMA user_version`` says which schema a file has: 4 in all that 0.1.0 wrote. Tests open such a
file, with data in it. What is released is never edited: a later change of the tables is a further,
numbered step of `upgrade`.

Within an epoch a row of `tiers` never changes its vector: a changed item is a new row, whose number
was never used before, under the same public id, and a row that left its tier never comes back. An
index can therefore be brought up to date by comparing row numbers alone.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable
from contextlib import closing
from functools import lru_cache

from ecs_plugins.common.sqlite import MEMORY, Database, Schema
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.store import messages

NEWEST = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # `epoch` counts re-embeddings, after which no vector is what it was.
    """CREATE TABLE IF NOT EXISTS namespaces (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        created REAL NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        step INTEGER NOT NULL DEFAULT 0,
        since_sleep INTEGER NOT NULL DEFAULT 0,
        cycle INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0,
        erasures INTEGER NOT NULL DEFAULT 0,
        hot_count INTEGER NOT NULL DEFAULT 0,
        cold_count INTEGER NOT NULL DEFAULT 0
    )""",
    # `asked` is the question that a text replies to, `asker` the message it stands in.
    """CREATE TABLE IF NOT EXISTS messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        step INTEGER NOT NULL,
        role TEXT NOT NULL,
        writer TEXT,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL,
        vector BLOB NOT NULL,
        text_crc INTEGER NOT NULL,
        vector_crc INTEGER NOT NULL,
        asked TEXT NOT NULL DEFAULT '',
        asker TEXT
    )""",
    "CREATE INDEX IF NOT EXISTS messages_by_asker ON messages (asker) WHERE asker IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS messages_by_namespace ON messages (namespace, seq)",
    "CREATE INDEX IF NOT EXISTS messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS sleeps (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        at REAL NOT NULL,
        undone REAL,
        config TEXT NOT NULL,
        report TEXT NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS sleeps_by_namespace ON sleeps (namespace, id)",
    # Both tiers: an item is hot or cold because its row says so.
    """CREATE TABLE IF NOT EXISTS tiers (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        tier TEXT NOT NULL,
        live INTEGER NOT NULL,
        version INTEGER NOT NULL,
        born INTEGER REFERENCES sleeps(id) ON DELETE SET NULL,
        died INTEGER REFERENCES sleeps(id) ON DELETE SET NULL,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        created REAL NOT NULL,
        changed REAL NOT NULL,
        expires REAL,
        pinned INTEGER NOT NULL,
        judged INTEGER NOT NULL,
        energy REAL,
        entropy REAL,
        free_energy REAL,
        cluster_entropy REAL NOT NULL,
        evidence TEXT NOT NULL,
        vector BLOB NOT NULL,
        text_crc INTEGER NOT NULL,
        vector_crc INTEGER NOT NULL,
        asked TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX IF NOT EXISTS tiers_by_namespace ON tiers (namespace, live, tier, row)",
    "CREATE INDEX IF NOT EXISTS tiers_by_id ON tiers (id)",
    "CREATE INDEX IF NOT EXISTS tiers_by_birth ON tiers (born) WHERE born IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS tiers_by_death ON tiers (died) WHERE died IS NOT NULL",
    # An item's version v rests on the messages that joined it at version v or before.
    """CREATE TABLE IF NOT EXISTS provenance (
        message TEXT NOT NULL,
        item TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (message, item)
    ) WITHOUT ROWID""",
    # The HNSW graphs of large namespaces, without their vectors: caches, see `vector_index`.
    """CREATE TABLE IF NOT EXISTS graphs (
        namespace INTEGER PRIMARY KEY REFERENCES namespaces(id) ON DELETE CASCADE,
        epoch INTEGER NOT NULL,
        places BLOB NOT NULL,
        links BLOB NOT NULL,
        crc INTEGER NOT NULL
    )""",
    # What messages claim, as hashes; they outlive the log's retention.
    """CREATE TABLE IF NOT EXISTS claims (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        message TEXT NOT NULL,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        key INTEGER NOT NULL,
        value INTEGER NOT NULL,
        corrects INTEGER NOT NULL,
        falls INTEGER NOT NULL,
        at REAL NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS claims_by_message ON claims (message)",
    "CREATE INDEX IF NOT EXISTS claims_by_key ON claims (namespace, key)",
    "CREATE INDEX IF NOT EXISTS provenance_by_memory ON provenance (item, version)",
    """CREATE TABLE IF NOT EXISTS decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sleep INTEGER NOT NULL REFERENCES sleeps(id) ON DELETE CASCADE,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        erased INTEGER NOT NULL DEFAULT 0,
        record TEXT NOT NULL,
        UNIQUE (sleep, position)
    )""",
    "CREATE INDEX IF NOT EXISTS decisions_by_namespace ON decisions (namespace, id)",
    """CREATE TABLE IF NOT EXISTS decision_items (
        item TEXT NOT NULL,
        decision INTEGER NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
        PRIMARY KEY (item, decision)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS decision_items_by_decision ON decision_items (decision)",
    """CREATE TABLE IF NOT EXISTS queries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        step INTEGER NOT NULL,
        at REAL NOT NULL,
        text TEXT NOT NULL,
        answer TEXT,
        recalled TEXT NOT NULL,
        vector BLOB NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS queries_by_namespace ON queries (namespace, id)",
    # Key-value items beside the messages (`items`); one that belongs to a message goes with it.
    # `space` says whose an item is; '' is that of key-value items.
    """CREATE TABLE IF NOT EXISTS items (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        value_crc INTEGER NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        ttl REAL,
        expires REAL,
        message TEXT REFERENCES messages(id) ON DELETE CASCADE,
        text_key TEXT,
        space TEXT NOT NULL DEFAULT '',
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX IF NOT EXISTS items_by_message ON items (message) WHERE message IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS items_by_expiry ON items (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS item_vectors (
        item INTEGER NOT NULL REFERENCES items(row) ON DELETE CASCADE,
        path TEXT NOT NULL,
        text TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        vector BLOB NOT NULL,
        vector_crc INTEGER NOT NULL,
        PRIMARY KEY (item, path)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS item_vectors_by_epoch ON item_vectors (epoch)",
)


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Make the tables of a new file (version 0), or those of one of 0.1.0 (version 4) into these.

    Raises:
        StorageError: The file is of another version, which was never released.
    """
    if version not in (0, 4):
        raise StorageError(
            f"the file has schema {version}, which was never released; export it with the version "
            "that wrote it, and import that"
        )
    if version:
        _run(connection, _NEW_COLUMNS)
    _run(connection, NEWEST)
    if version:
        _take_over(connection)


MEMORY_FILE = Schema("memory file", application_id=0x4563_734D, version=9, upgrade=upgrade)


@lru_cache
def columns() -> dict[str, dict[str, str]]:
    """The columns of each table, with their types."""
    with closing(Database(MEMORY, MEMORY_FILE)) as scratch, scratch.read() as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))
            for (table,) in tables.fetchall()
        }


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _take_over(connection: sqlite3.Connection) -> None:
    """Move the items of both tiers from the tables that 0.1 kept them in, and find the claims."""
    connection.create_function("crc", 1, lambda text: zlib.crc32(text.encode()), deterministic=True)
    _run(connection, (_COLD, _HOT, *_PROVENANCE, "DROP VIEW hot_messages", MARK_LOGS))
    old = ("not_hot", "hot_members", "hot_items", "memories", "snapshots")
    _run(connection, (f"DROP TABLE {name}" for name in old))
    gone = (
        "novel",
        "hot_generation",
        "hot_rewritten",
        "hot_since",
        "cold_generation",
        "cold_rewritten",
        "statistics",
    )
    _run(connection, (f"ALTER TABLE namespaces DROP COLUMN {name}" for name in gone))
    said = connection.execute(f"{messages.SAID} ORDER BY seq").fetchall()
    messages.write_claims(connection, said)


_NEW_COLUMNS = (
    "ALTER TABLE provenance RENAME COLUMN memory TO item",
    "ALTER TABLE messages ADD COLUMN asked TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE messages ADD COLUMN asker TEXT",
    "ALTER TABLE items ADD COLUMN space TEXT NOT NULL DEFAULT ''",
)
MARK_LOGS = (
    "UPDATE items SET space = iif(json_type(value, '$.type') IS NULL, 'llama_index', 'langchain')"
    " WHERE space = '' AND length(key) = 32 AND key NOT GLOB '*[^0-9a-f]*' AND json_valid(value)"
    " AND json_type(value, '$.data.additional_kwargs') = 'object'"
)
"""Tells the session logs that version 0.1 kept among the key-value items."""
_COLD = (
    "INSERT INTO tiers SELECT row, id, namespace, 'cold', live, version, born, died, text,"
    " metadata, created, changed, expires, pinned, 0, energy, entropy, free_energy,"
    " cluster_entropy, evidence, vector, text_crc, vector_crc, '' FROM memories"
)
# A hot item of one message had no row of its own: every message from `hot_since` on was one, unless
# `not_hot` listed it.
_HOT = (
    "INSERT INTO tiers (id, namespace, tier, live, version, text, metadata, created, changed,"
    " expires, pinned, judged, cluster_entropy, evidence, vector, text_crc, vector_crc)"
    " SELECT id, namespace, 'hot', 1, 1, text, metadata, created, created, expires, 0, judged,"
    " 0.0, evidence, vector, crc(text), vector_crc FROM ("
    "SELECT h.row AS number, h.id, h.namespace, COALESCE(h.text, m.text) AS text, h.metadata,"
    " COALESCE(m.created, 0.0) AS created, h.expires, h.judged, h.evidence,"
    " COALESCE(h.vector, m.vector) AS vector, COALESCE(h.vector_crc, m.vector_crc) AS vector_crc"
    " FROM hot_items h LEFT JOIN messages m ON m.id = h.id WHERE h.live = 1"
    " UNION ALL SELECT m.seq, m.id, m.namespace, m.text, m.metadata, m.created, m.expires, 0,"
    " '{\"created\":' || m.step || ',\"updated\":' || m.step || ',\"last_seen\":' || m.step || '}',"
    " m.vector, m.vector_crc FROM hot_messages x JOIN messages m ON m.seq = x.message"
    ") ORDER BY number"
)
_PROVENANCE = (
    "INSERT OR IGNORE INTO provenance (message, item, version) SELECT message, item, 1"
    " FROM hot_members WHERE item IN (SELECT id FROM tiers WHERE tier = 'hot')",
    "INSERT OR IGNORE INTO provenance (message, item, version)"
    " SELECT id, id, 1 FROM tiers WHERE tier = 'hot'",
)
