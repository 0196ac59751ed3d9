-- The tables of a reuse ledger.
--
-- Queries at one target are counted together, as one game. A run is queries without a gap that
-- lets an entry of a prompt cache lapse. Queries whose tokens nobody reported are unknown.

CREATE TABLE IF NOT EXISTS contexts (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    game TEXT NOT NULL,
    queries INTEGER NOT NULL,
    run INTEGER NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (namespace, context, game)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS contexts_seen ON contexts (namespace, last_seen);
CREATE TABLE IF NOT EXISTS means (
    namespace TEXT NOT NULL,
    game TEXT NOT NULL,
    contexts REAL NOT NULL,
    logs REAL NOT NULL,
    runs REAL NOT NULL,
    run_logs REAL NOT NULL,
    PRIMARY KEY (namespace, game)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS prepared (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    cost REAL NOT NULL,
    at REAL NOT NULL,
    life REAL NOT NULL,
    PRIMARY KEY (namespace, context, strategy, config)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    holder TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (namespace, context, strategy, config)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    namespace TEXT NOT NULL,
    day INTEGER NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    unit TEXT NOT NULL,
    queries INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    cost REAL NOT NULL,
    compared REAL NOT NULL,
    baseline REAL NOT NULL,
    PRIMARY KEY (namespace, day, strategy, config, unit)
) WITHOUT ROWID;
