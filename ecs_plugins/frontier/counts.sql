-- Writes to a reuse ledger: queries of a context, a stage 1 that was paid, a value of a point.

INSERT INTO contexts VALUES (?, ?, ?, ?, ?) ON CONFLICT (namespace, context) DO UPDATE
    SET queries = contexts.queries + excluded.queries,
    last_seen = CASE WHEN contexts.last_seen < excluded.last_seen
        THEN excluded.last_seen ELSE contexts.last_seen END
    RETURNING queries;
INSERT INTO prepared VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, strategy, config) DO UPDATE
    SET cost = CASE WHEN prepared.cost < excluded.cost
        THEN excluded.cost ELSE prepared.cost END, at = excluded.at;
INSERT INTO observed VALUES (?, ?, ?, ?, 1, ?, ?)
    ON CONFLICT (namespace, strategy, config, kind) DO UPDATE
    SET n = observed.n + 1, total = observed.total + excluded.total,
    squares = observed.squares + excluded.squares;

-- Forget contexts that nobody has asked about since, and what was prepared for no context.

DELETE FROM contexts WHERE namespace = ? AND last_seen < ?;
DELETE FROM prepared WHERE namespace = ? AND at < ? AND NOT EXISTS (SELECT 1 FROM contexts c
    WHERE c.namespace = prepared.namespace AND c.context = prepared.context);
