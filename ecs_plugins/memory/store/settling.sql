-- How what a transaction wrote to the tiers gets into the table of vectors. The namespaces of which
-- rows are not there yet:

SELECT DISTINCT namespace FROM tiers WHERE live = 1
    AND row > (SELECT coalesce(max(row), 0) FROM {table});

-- Take rows out:

DELETE FROM {table} WHERE row = ANY(?1::bigint[]) RETURNING row, terms;

-- The rows of a namespace that are missing:

SELECT row, vector, vector_crc, id, asked, text FROM tiers WHERE namespace = ?1 AND live = 1
    AND row > (SELECT coalesce(max(row), 0) FROM {table} WHERE namespace = ?1) ORDER BY row;

-- A namespace has become large:

UPDATE {table} SET large = true WHERE namespace = ?1 AND NOT large;

-- Write a row:

INSERT INTO {table} (row, namespace, large, terms, embedding) VALUES (?, ?, ?::bigint = 1, ?, ?);

-- Write the terms ?1 of the rows ?2 of a namespace ?3, two statements; take them out, three.

INSERT INTO postings SELECT ?3, t, r FROM unnest(?1::bigint[], ?2::bigint[]) AS said (t, r);
INSERT INTO words SELECT ?3, t, count(*) FROM unnest(?1::bigint[], ?2::bigint[]) AS said (t, r)
    GROUP BY t ON CONFLICT (namespace, term) DO UPDATE SET texts = words.texts + excluded.texts;

DELETE FROM postings USING unnest(?1::bigint[], ?2::bigint[]) AS said (t, r)
    WHERE namespace = ?3 AND term = t AND row = r;
UPDATE words SET texts = texts - fewer FROM (
    SELECT t, count(*) AS fewer FROM unnest(?1::bigint[], ?2::bigint[]) AS said (t, r) GROUP BY t
) AS gone WHERE namespace = ?3 AND term = t;
DELETE FROM words USING unnest(?1::bigint[], ?2::bigint[]) AS said (t, r)
    WHERE namespace = ?3 AND term = t AND texts = 0;

-- The tables of vectors of all dimensions:

SELECT tablename FROM pg_tables WHERE schemaname = ? AND tablename ~ '^entries_';
