-- Of the namespace ?1: its live rows, those of them that are found, and three counts of its terms.

SELECT (SELECT count(*) FROM tiers WHERE namespace = ?1 AND live = 1),
    (SELECT count(*) FROM {table} e JOIN tiers t
        ON t.row = e.row AND t.live = 1 AND t.namespace = e.namespace WHERE e.namespace = ?1),
    (SELECT coalesce(sum(cardinality(terms)), 0) FROM {table} WHERE namespace = ?1),
    (SELECT count(*) FROM postings WHERE namespace = ?1),
    (SELECT coalesce(sum(texts), 0) FROM words WHERE namespace = ?1);
