-- Of the terms ?1 of a query, among ?2 texts of the namespace ?3: how many have each, and its
-- weight, as in ranking.coverage. Then the chosen rows with their cosine to ?4 and their coverage.

WITH asked AS MATERIALIZED (
    SELECT t AS term, coalesce(texts, 0) AS texts,
        ln(1 + (?2 - coalesce(texts, 0) + 0.5::float8) / (coalesce(texts, 0) + 0.5)) AS weight
    FROM unnest(?1::bigint[]) AS t LEFT JOIN words ON namespace = ?3 AND words.term = t),
{chosen}
SELECT row, cosine, round(1e12 * coalesce(
    (SELECT sum(weight) FROM asked WHERE term = ANY(terms)) / (SELECT sum(weight) FROM asked), 0
)) / 1e12 AS coverage, near, covers
FROM chosen ORDER BY near DESC, coverage DESC, row LIMIT {most};

-- Chosen are those allowed:

chosen AS (
    SELECT row, terms, -(embedding <#> ?4) AS cosine, true AS near, true AS covers
    FROM {table} WHERE row = ANY(?5::bigint[]));

-- or the nearest, and those with most of the query. Sums of integers tie. Terms that are frequent
-- beyond {read} occurrences choose nothing.

read AS (
    SELECT term, (weight * 1e8)::int AS weight, sum(texts) OVER rarest AS read,
        row_number() OVER rarest AS place
    FROM asked WHERE texts > 0 WINDOW rarest AS (ORDER BY texts, term)),
covering AS MATERIALIZED (
    SELECT row FROM read JOIN postings USING (term)
    WHERE namespace = ?3 AND (read <= {read} OR place = 1)
    GROUP BY row ORDER BY sum(weight) DESC, row
    LIMIT {count} * (SELECT CASE WHEN sum(texts) > {read} THEN 2 ELSE 1 END FROM asked)),
near AS MATERIALIZED (
    SELECT row, terms, -(embedding <#> ?4) AS cosine FROM {table} WHERE {among}
    ORDER BY embedding <#> ?4 LIMIT {count}),
chosen AS (
    SELECT *, true AS near, row IN (SELECT row FROM covering) AS covers FROM near
    UNION ALL
    SELECT row, terms, -(embedding <#> ?4), false, true FROM {table} JOIN covering USING (row)
    WHERE row NOT IN (SELECT row FROM near));

-- The rows that are nearest to a query:

SELECT row, embedding <#> ? AS distance FROM {table} WHERE {among} ORDER BY 2 LIMIT {k};
