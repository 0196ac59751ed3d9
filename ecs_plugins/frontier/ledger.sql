-- The tables of a reuse ledger.

CREATE TABLE IF NOT EXISTS contexts (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    queries INTEGER NOT NULL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (namespace, context)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS prepared (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    cost REAL NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (namespace, context, strategy, config)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS observed (
    namespace TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    kind TEXT NOT NULL,
    n INTEGER NOT NULL,
    total REAL NOT NULL,
    squares REAL NOT NULL,
    PRIMARY KEY (namespace, strategy, config, kind)
) WITHOUT ROWID;
