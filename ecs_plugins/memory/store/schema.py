"""The tables of a memory file, as numbered migrations that are only ever appended to.

``PRAGMA user_version`` counts the migrations that a file has seen. A released migration is never
edited; a change of the schema is a new one, and a test opens a file of the first version with data
in it.

Within an epoch a row of `tiers` never changes its vector: a changed item is a new row, whose number
was never used before, under the same public id, and a row that left its tier never comes back. An
index can therefore be brought up to date by comparing row numbers alone.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable

APPLICATION_ID = 0x4563_734D  # "EcsM"

Migration = Callable[[sqlite3.Connection], None]


def _script(*statements: str) -> Migration:
    def run(connection: sqlite3.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    return run


_m001_messages_tiers_decisions = _script(
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Each tier counts its changes. A reader whose generation is at or above `*_rewritten` has
    # only rows to append; `epoch` counts re-embeddings, after which no vector is what it was.
    """CREATE TABLE namespaces (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        created REAL NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        step INTEGER NOT NULL DEFAULT 0,
        since_sleep INTEGER NOT NULL DEFAULT 0,
        novel INTEGER NOT NULL DEFAULT 0,
        cycle INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0,
        erasures INTEGER NOT NULL DEFAULT 0,
        hot_count INTEGER NOT NULL DEFAULT 0,
        hot_generation INTEGER NOT NULL DEFAULT 0,
        hot_rewritten INTEGER NOT NULL DEFAULT 0,
        cold_count INTEGER NOT NULL DEFAULT 0,
        cold_generation INTEGER NOT NULL DEFAULT 0,
        cold_rewritten INTEGER NOT NULL DEFAULT 0,
        statistics TEXT NOT NULL DEFAULT '{}'
    )""",
    """CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        step INTEGER NOT NULL,
        role TEXT NOT NULL,
        writer TEXT,
        label TEXT,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL,
        vector BLOB NOT NULL,
        text_crc INTEGER NOT NULL,
        vector_crc INTEGER NOT NULL
    )""",
    "CREATE INDEX messages_by_namespace ON messages (namespace, seq)",
    "CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE sleeps (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        at REAL NOT NULL,
        undone REAL,
        config TEXT NOT NULL,
        report TEXT NOT NULL
    )""",
    "CREATE INDEX sleeps_by_namespace ON sleeps (namespace, id)",
    # A hot item of one message has no vector of its own: it borrows that message's.
    """CREATE TABLE hot_items (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        live INTEGER NOT NULL,
        died INTEGER REFERENCES sleeps(id) ON DELETE SET NULL,
        first INTEGER NOT NULL,
        support INTEGER NOT NULL,
        judged INTEGER NOT NULL,
        text TEXT,
        metadata TEXT NOT NULL,
        expires REAL,
        evidence TEXT NOT NULL,
        vector BLOB,
        vector_crc INTEGER
    )""",
    "CREATE INDEX hot_items_by_tier ON hot_items (namespace, live, first, row)",
    "CREATE INDEX hot_items_by_id ON hot_items (id)",
    "CREATE INDEX hot_items_by_death ON hot_items (died) WHERE died IS NOT NULL",
    """CREATE TABLE hot_members (
        message TEXT NOT NULL,
        item TEXT NOT NULL,
        PRIMARY KEY (message, item)
    ) WITHOUT ROWID""",
    "CREATE INDEX hot_members_by_item ON hot_members (item)",
    """CREATE TABLE memories (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        live INTEGER NOT NULL,
        born INTEGER REFERENCES sleeps(id) ON DELETE SET NULL,
        died INTEGER REFERENCES sleeps(id) ON DELETE SET NULL,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        created REAL NOT NULL,
        changed REAL NOT NULL,
        expires REAL,
        pinned INTEGER NOT NULL,
        energy REAL,
        entropy REAL,
        free_energy REAL,
        cluster_entropy REAL NOT NULL,
        utility REAL NOT NULL,
        evidence TEXT NOT NULL,
        vector BLOB NOT NULL,
        text_crc INTEGER NOT NULL,
        vector_crc INTEGER NOT NULL,
        UNIQUE (id, version)
    )""",
    "CREATE INDEX memories_by_tier ON memories (namespace, live, row)",
    "CREATE INDEX memories_by_birth ON memories (born) WHERE born IS NOT NULL",
    "CREATE INDEX memories_by_death ON memories (died) WHERE died IS NOT NULL",
    # A memory's version v rests on the messages that joined it at version v or before.
    """CREATE TABLE provenance (
        message TEXT NOT NULL,
        memory TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (message, memory)
    ) WITHOUT ROWID""",
    "CREATE INDEX provenance_by_memory ON provenance (memory, version)",
    """CREATE TABLE decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sleep INTEGER NOT NULL REFERENCES sleeps(id) ON DELETE CASCADE,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        erased INTEGER NOT NULL DEFAULT 0,
        record TEXT NOT NULL,
        UNIQUE (sleep, position)
    )""",
    "CREATE INDEX decisions_by_namespace ON decisions (namespace, id)",
    """CREATE TABLE decision_items (
        item TEXT NOT NULL,
        decision INTEGER NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
        PRIMARY KEY (item, decision)
    ) WITHOUT ROWID""",
    "CREATE INDEX decision_items_by_decision ON decision_items (decision)",
    """CREATE TABLE queries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        step INTEGER NOT NULL,
        at REAL NOT NULL,
        text TEXT NOT NULL,
        answer TEXT,
        recalled TEXT NOT NULL,
        vector BLOB NOT NULL
    )""",
    "CREATE INDEX queries_by_namespace ON queries (namespace, id)",
)

_m002_index_snapshots = _script(
    """CREATE TABLE snapshots (
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        tier TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        file TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size INTEGER NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (namespace, tier)
    ) WITHOUT ROWID""",
)

# Key-value items beside the messages (`items`). An item that belongs to a message holds all of
# its value but the text, and goes with the message when that is erased.
_m003_items = _script(
    """CREATE TABLE items (
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
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX items_by_message ON items (message) WHERE message IS NOT NULL",
    "CREATE INDEX items_by_expiry ON items (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE item_vectors (
        item INTEGER NOT NULL REFERENCES items(row) ON DELETE CASCADE,
        path TEXT NOT NULL,
        text TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        vector BLOB NOT NULL,
        vector_crc INTEGER NOT NULL,
        PRIMARY KEY (item, path)
    ) WITHOUT ROWID""",
    "CREATE INDEX item_vectors_by_epoch ON item_vectors (epoch)",
)

# Most hot items are one message of which nothing more is known than that it was said. Such an item
# has no row in `hot_items` until there is more to say: every message from `hot_since` on is one,
# unless `not_hot` lists it. So an ``add`` writes nothing but the log. Both kinds share the row
# numbers of `messages`, which therefore go on above all that `hot_items` has used.
_m004_hot_messages = _script(
    "ALTER TABLE namespaces ADD COLUMN hot_since INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE not_hot (
        namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
        message INTEGER NOT NULL,
        PRIMARY KEY (namespace, message)
    ) WITHOUT ROWID""",
    """CREATE VIEW hot_messages AS
        SELECT m.namespace AS namespace, m.seq AS message
        FROM namespaces n JOIN messages m ON m.namespace = n.id AND m.seq >= n.hot_since
        WHERE NOT EXISTS (
            SELECT 1 FROM not_hot x WHERE x.namespace = m.namespace AND x.message = m.seq
        )""",
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'messages', 0"
    " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')",
    "UPDATE sqlite_sequence SET seq = max(seq, coalesce("
    "(SELECT seq FROM sqlite_sequence WHERE name = 'hot_items'), 0)) WHERE name = 'messages'",
    "UPDATE namespaces SET hot_since = 1 + coalesce("
    "(SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0)",
)


# Both tiers in one table: an item is hot or cold because its row says so. A hot item holds its own
# text and vector, also where it is one message, and `provenance` names the messages behind every
# item. Hot items that a sleep phase consumed, kept for its undo, are gone, and so are the folders
# of index snapshots.
_TIERS = (
    "ALTER TABLE provenance RENAME COLUMN memory TO item",
    """CREATE TABLE tiers (
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
        vector_crc INTEGER NOT NULL
    )""",
    "INSERT INTO tiers SELECT row, id, namespace, 'cold', live, version, born, died, text,"
    " metadata, created, changed, expires, pinned, 0, energy, entropy, free_energy,"
    " cluster_entropy, evidence, vector, text_crc, vector_crc FROM memories",
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
    ") ORDER BY number",
    "INSERT OR IGNORE INTO provenance (message, item, version)"
    " SELECT message, item, 1 FROM hot_members"
    " WHERE item IN (SELECT id FROM tiers WHERE tier = 'hot')",
    "INSERT OR IGNORE INTO provenance (message, item, version)"
    " SELECT id, id, 1 FROM tiers WHERE tier = 'hot'",
    "CREATE INDEX tiers_by_namespace ON tiers (namespace, live, tier, row)",
    "CREATE INDEX tiers_by_id ON tiers (id)",
    "CREATE INDEX tiers_by_birth ON tiers (born) WHERE born IS NOT NULL",
    "CREATE INDEX tiers_by_death ON tiers (died) WHERE died IS NOT NULL",
    "DROP VIEW hot_messages",
    "DROP TABLE not_hot",
    "DROP TABLE hot_members",
    "DROP TABLE hot_items",
    "DROP TABLE memories",
    "DROP TABLE snapshots",
    *(
        f"ALTER TABLE namespaces DROP COLUMN {column}"
        for column in (
            "novel", "hot_since", "hot_generation", "hot_rewritten", "cold_generation",
            "cold_rewritten", "statistics",
        )
    ),
)  # fmt: skip


def _m005_one_table_of_tiers(connection: sqlite3.Connection) -> None:
    connection.create_function("crc", 1, lambda text: zlib.crc32(text.encode()), deterministic=True)
    _script(*_TIERS)(connection)


MIGRATIONS: tuple[Migration, ...] = (
    _m001_messages_tiers_decisions,
    _m002_index_snapshots,
    _m003_items,
    _m004_hot_messages,
    _m005_one_table_of_tiers,
)
"""In order; append only."""
