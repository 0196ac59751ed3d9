-- Of the terms ?1 of a query, among ?2 texts of the namespace ?3: how many have each, and its
-- weight, as in ranking.coverage. Then the chosen rows, with their cosine to ?4 and their coverage.

WITH asked AS MATERIALIZED (
    SELECT t AS term, coalesce(texts, 0) AS texts,
        ln(1 + (?2 - coalesce(texts, 0) + 0.5::float8) / (coalesce(texts, 0) + 0.5)) AS weight
    FROM unnest(?1::bigint[]) AS t LEFT JOIN words ON namespace = ?3 AND words.term = t)
SELECT row, -(embedding <#> ?4) AS cosine, coalesce(
    (SELECT sum(weight) FROM asked WHERE term = ANY(terms)) / (SELECT sum(weight) FROM asked), 0
) AS coverage, near, covers
FROM ({chosen}) AS chosen JOIN {table} USING (row);

-- Chosen are those allowed:

SELECT unnest(?5::bigint[]) AS row, true AS near, true AS covers;

-- or the nearest, and those with most of the query. Sums of integers tie. Terms that are frequent
-- beyond {read} occurrences choose nothing.

WITH read AS (
    SELECT term, (weight * 1e8)::int AS weight, sum(texts) OVER rarest AS read,
        row_number() OVER rarest AS place
    FROM asked WHERE texts > 0 WINDOW rarest AS (ORDER BY texts, term)),
covering AS (
    SELECT row, true AS covers FROM read JOIN postings USING (term)
    WHERE namespace = ?3 AND (read <= {read} OR place = 1)
    GROUP BY row ORDER BY sum(weight) DESC, row
    LIMIT {count} * (SELECT CASE WHEN sum(texts) > {read} THEN 4 ELSE 1 END FROM asked)),
near AS (
    SELECT row, true AS near FROM {table} WHERE namespace = ?3 {among}
    ORDER BY embedding <#> ?4 LIMIT {count})
SELECT row, near, covers FROM near FULL JOIN covering USING (row);
