-- What is behind items or messages ?1 (JSON), in the order of its joining, since when it held, and
-- the corrections of it that have not expired by ?2, the first one leading.

SELECT p.item, p.message, coalesce(m.created, c.at), n.at, n.message
FROM ({behind} IN (SELECT value FROM json_each(?1))) p
LEFT JOIN messages m ON m.id = p.message
LEFT JOIN claims c ON c.message = p.message AND c.falls = 1
LEFT JOIN claims n ON n.namespace = c.namespace AND n.key = c.key AND n.value != c.value
    AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = n.message AND x.expires <= ?2)
    AND n.corrects = 1 AND n.message != c.message AND (n.at, n.row) > (c.at, c.row)
ORDER BY p.version, m.seq, n.at NULLS LAST;
