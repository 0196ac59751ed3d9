-- The newest tables of a memory, for every engine.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- epoch counts re-embeddings, after which no vector is what it was; bytes are those of texts and
-- metadata of the messages.
CREATE TABLE namespaces (
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
    cold_count INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);
-- asked is the question that a text replies to, asker the message it stands in.
CREATE TABLE messages (
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
    metadata_crc INTEGER NOT NULL,
    asked TEXT NOT NULL DEFAULT '',
    asker TEXT
);
CREATE INDEX messages_by_asker ON messages (asker) WHERE asker IS NOT NULL;
CREATE INDEX messages_by_namespace ON messages (namespace, seq);
CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
-- What was added under which idempotency key: hashes, ids, and how many of these are stored.
CREATE TABLE additions (
    namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    content TEXT NOT NULL,
    messages TEXT NOT NULL,
    stored INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX additions_by_time ON additions (namespace, at);
CREATE TABLE sleeps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
    at REAL NOT NULL,
    config TEXT NOT NULL,
    report TEXT NOT NULL,
    report_crc INTEGER NOT NULL
);
CREATE INDEX sleeps_by_namespace ON sleeps (namespace, id);
-- Both tiers: an item is hot or cold because its row says so.
CREATE TABLE tiers (
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
    metadata_crc INTEGER NOT NULL,
    evidence_crc INTEGER NOT NULL,
    asked TEXT NOT NULL DEFAULT ''
);
CREATE INDEX tiers_by_namespace ON tiers (namespace, live, tier, row);
CREATE INDEX tiers_by_id ON tiers (id);
CREATE INDEX tiers_by_birth ON tiers (born) WHERE born IS NOT NULL;
CREATE INDEX tiers_by_death ON tiers (died) WHERE died IS NOT NULL;
-- An item's version v rests on the messages that joined it at version v or before.
CREATE TABLE provenance (
    message TEXT NOT NULL,
    item TEXT NOT NULL,
    version INTEGER NOT NULL,
    namespace INTEGER NOT NULL,
    PRIMARY KEY (message, item)
) WITHOUT ROWID;
-- The newer message outdates the older one with a probability; source is the judge.
CREATE TABLE outdated (
    older TEXT NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
    newer TEXT NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
    probability REAL NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (older, newer)
) WITHOUT ROWID;
CREATE INDEX outdated_by_newer ON outdated (newer);
-- The last message of a namespace that needs no judge any more.
CREATE TABLE judged (
    namespace INTEGER PRIMARY KEY REFERENCES namespaces(id) ON DELETE CASCADE,
    seq INTEGER NOT NULL
);
CREATE INDEX provenance_by_memory ON provenance (item, version, message);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sleep INTEGER NOT NULL REFERENCES sleeps(id) ON DELETE CASCADE,
    namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    erased INTEGER NOT NULL DEFAULT 0,
    record TEXT NOT NULL,
    record_crc INTEGER NOT NULL,
    UNIQUE (sleep, position)
);
CREATE INDEX decisions_by_namespace ON decisions (namespace, id);
CREATE TABLE decision_items (
    item TEXT NOT NULL,
    decision INTEGER NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
    PRIMARY KEY (item, decision)
) WITHOUT ROWID;
CREATE INDEX decision_items_by_decision ON decision_items (decision);
CREATE TABLE queries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespaces(id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    answer TEXT,
    recalled TEXT NOT NULL,
    vector BLOB NOT NULL,
    text_crc INTEGER NOT NULL,
    vector_crc INTEGER NOT NULL
);
CREATE INDEX queries_by_namespace ON queries (namespace, id);
-- Key-value items beside the messages (items); one that belongs to a message goes with it.
-- space says whose an item is; '' is that of key-value items.
CREATE TABLE items (
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
);
CREATE INDEX items_by_message ON items (message) WHERE message IS NOT NULL;
CREATE INDEX items_by_expiry ON items (expires) WHERE expires IS NOT NULL;
-- Rows are added and removed, never changed: an index in memory follows them by their numbers.
CREATE TABLE item_vectors (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    item INTEGER NOT NULL REFERENCES items(row) ON DELETE CASCADE,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    vector BLOB NOT NULL,
    text_crc INTEGER NOT NULL,
    vector_crc INTEGER NOT NULL,
    UNIQUE (item, path)
);
