-- The tables of a reuse ledger.
--
-- A game is what is asked of a context: queries at one target are counted together. A run is
-- queries that follow each other before an entry of a prompt cache lapses.

CREATE TABLE IF NOT EXISTS contexts (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    game TEXT NOT NULL,
    queries INTEGER NOT NULL,
    run INTEGER NOT NULL,
    lapses INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (namespace, context, game)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    game TEXT NOT NULL,
    queries INTEGER NOT NULL,
    times INTEGER NOT NULL,
    PRIMARY KEY (namespace, context, game, queries)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (
    namespace TEXT NOT NULL PRIMARY KEY,
    units INTEGER NOT NULL
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
CREATE TABLE IF NOT EXISTS leases (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    holder TEXT NOT NULL,
    until REAL NOT NULL,
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
CREATE TABLE IF NOT EXISTS spent (
    namespace TEXT NOT NULL,
    day INTEGER NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    unit TEXT NOT NULL,
    queries INTEGER NOT NULL,
    cost REAL NOT NULL,
    baseline REAL NOT NULL,
    PRIMARY KEY (namespace, day, strategy, config, unit)
) WITHOUT ROWID;
