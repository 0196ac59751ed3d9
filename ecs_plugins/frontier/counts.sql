-- Writes to a reuse ledger: queries of a context, a run that has ended, a stage 1 that was paid,
-- who prepares it now, a value of a point, and what a query cost.

INSERT INTO contexts VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?)
    ON CONFLICT (namespace, context, game) DO UPDATE
    SET queries = contexts.queries + excluded.queries,
    ended = CASE WHEN contexts.last_seen < excluded.last_seen - ? THEN contexts.run ELSE 0 END,
    lapses = contexts.lapses
        + CASE WHEN contexts.last_seen < excluded.last_seen - ? THEN 1 ELSE 0 END,
    run = excluded.run
        + CASE WHEN contexts.last_seen < excluded.last_seen - ? THEN 0 ELSE contexts.run END,
    last_seen = CASE WHEN contexts.last_seen < excluded.last_seen
        THEN excluded.last_seen ELSE contexts.last_seen END
    RETURNING queries, run, lapses, ended;
INSERT INTO runs VALUES (?, ?, ?, ?, 1)
    ON CONFLICT (namespace, context, game, queries) DO UPDATE SET times = runs.times + 1;
INSERT INTO totals VALUES (?, 1)
    ON CONFLICT (namespace) DO UPDATE SET units = totals.units + 1 RETURNING units;
INSERT INTO prepared VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, strategy, config) DO UPDATE
    SET cost = CASE WHEN prepared.cost < excluded.cost
        THEN excluded.cost ELSE prepared.cost END, at = excluded.at;
INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, strategy, config) DO UPDATE
    SET holder = excluded.holder, until = excluded.until
    WHERE leases.holder = excluded.holder OR leases.until < ?
    RETURNING holder;
DELETE FROM leases WHERE namespace = ? AND context = ? AND strategy = ? AND config = ?
    AND holder = ?;
INSERT INTO observed VALUES (?, ?, ?, ?, 1, ?, ?)
    ON CONFLICT (namespace, strategy, config, kind) DO UPDATE
    SET n = observed.n + 1, total = observed.total + excluded.total,
    squares = observed.squares + excluded.squares;
INSERT INTO spent VALUES (?, ?, ?, ?, ?, 1, ?, ?)
    ON CONFLICT (namespace, day, strategy, config, unit) DO UPDATE
    SET queries = spent.queries + 1, cost = spent.cost + excluded.cost,
    baseline = spent.baseline + excluded.baseline;

-- Forget contexts that nobody has asked about since, and what was prepared for no context. What is
-- to go is looked for first, so that nobody waits while all contexts are read.

SELECT context, game FROM contexts WHERE namespace = ? AND last_seen < ?;
SELECT context, strategy, config FROM prepared WHERE namespace = ? AND at < ? AND NOT EXISTS
    (SELECT 1 FROM contexts c
    WHERE c.namespace = prepared.namespace AND c.context = prepared.context);
DELETE FROM runs WHERE namespace = ? AND context = ? AND game = ? AND EXISTS (SELECT 1
    FROM contexts c WHERE c.namespace = runs.namespace AND c.context = runs.context
    AND c.game = runs.game AND c.last_seen < ?);
DELETE FROM contexts WHERE namespace = ? AND context = ? AND game = ? AND last_seen < ?;
DELETE FROM prepared WHERE namespace = ? AND context = ? AND strategy = ? AND config = ?
    AND at < ?;
DELETE FROM leases WHERE namespace = ? AND until < ?;

-- Forget values that are in an artefact now; twice the same are forgotten once.

UPDATE observed SET n = n - ?, total = total - ?, squares = squares - ?
    WHERE namespace = ? AND strategy = ? AND config = ? AND kind = ? AND n >= ?;
DELETE FROM observed WHERE namespace = ? AND strategy = ? AND config = ? AND kind = ? AND n = 0;
