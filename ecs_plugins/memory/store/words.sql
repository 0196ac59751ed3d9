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
