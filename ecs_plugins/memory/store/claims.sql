-- What is read of claims and corrections; lists of ids are JSON. The messages behind items, in the
-- order of their joining:

SELECT item, group_concat(message, ' ') FROM (
    SELECT item, message FROM provenance WHERE item IN (SELECT value FROM json_each(?))
    ORDER BY item, version, message
) p GROUP BY item;

-- The same one by one, with when each was said, and whether it claims what may fall:

SELECT p.item, p.message, m.created, EXISTS (
    SELECT 1 FROM claims c WHERE c.message = p.message AND c.falls = 1
) AS claims
FROM provenance p LEFT JOIN messages m ON m.id = p.message
WHERE p.item IN (SELECT value FROM json_each(?)) ORDER BY p.item, p.version, p.message;

-- Of live items the first message behind each and the latest {most}, the last of these leading:

SELECT t.id, (SELECT message FROM provenance WHERE item = t.id ORDER BY version, message LIMIT 1), (
    SELECT group_concat(message, ' ') FROM (
        SELECT message FROM provenance WHERE item = t.id ORDER BY version DESC, message DESC
        LIMIT {most}
    ) latest
) FROM tiers t WHERE t.live = 1 AND t.id IN (SELECT value FROM json_each(?));

-- When messages were said, or what they claim, if the log has them no more:

SELECT id, created FROM messages WHERE id IN (SELECT value FROM json_each(?1))
UNION ALL SELECT message, min(at) FROM claims c WHERE message IN (SELECT value FROM json_each(?1))
    AND falls = 1 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = c.message)
    GROUP BY message;

-- The first correction of each claim of messages ?1 that has not expired by ?2: one of the same
-- time, or a later one. Of a comparison of both columns at once SQLite seeks by the first alone.
-- Where no other value was ever claimed since, what was said again is not read through.

SELECT c.message, n.at, n.message FROM claims c LEFT JOIN claims n ON n.row = CASE WHEN EXISTS (
    SELECT 1 FROM claims other WHERE other.namespace = c.namespace AND other.key = c.key
        AND other.value < c.value AND other.at >= c.at
) OR EXISTS (
    SELECT 1 FROM claims other WHERE other.namespace = c.namespace AND other.key = c.key
        AND other.value > c.value AND other.at >= c.at
) THEN coalesce((
    SELECT later.row FROM claims later
    WHERE later.namespace = c.namespace AND later.key = c.key AND later.corrects = 1
        AND later.at = c.at AND later.row > c.row
        AND later.value != c.value AND later.message != c.message
        AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = later.message AND x.expires <= ?2)
    ORDER BY later.row LIMIT 1
), (
    SELECT later.row FROM claims later
    WHERE later.namespace = c.namespace AND later.key = c.key AND later.corrects = 1
        AND later.at > c.at
        AND later.value != c.value AND later.message != c.message
        AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = later.message AND x.expires <= ?2)
    ORDER BY later.at, later.row LIMIT 1
)) END
WHERE c.falls = 1 AND c.message IN (SELECT value FROM json_each(?1));

-- The claims of messages that fall when they are corrected:

SELECT message, namespace, key, value, at, row FROM claims
WHERE falls = 1 AND message IN (SELECT value FROM json_each(?));

-- What corrects claims of the keys ?2 in a namespace ?1 and has not expired by ?3, in order:

SELECT key, at, row, value, message FROM claims c
WHERE namespace = ?1 AND key IN (SELECT CAST(value AS BIGINT) FROM json_each(?2)) AND corrects = 1
    AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = c.message AND x.expires <= ?3)
ORDER BY key, at, row;

-- When what messages claim was said first since something else was said of the same thing:

SELECT c.message, coalesce(m.created, f.at) FROM claims c JOIN claims o ON o.row = (
    SELECT other.row FROM claims other
    WHERE other.namespace = c.namespace AND other.key = c.key AND other.corrects = 1
        AND other.value != c.value AND other.at <= c.at AND (other.at < c.at OR other.row < c.row)
    ORDER BY other.at DESC, other.row DESC LIMIT 1
) JOIN claims f ON f.row = (
    SELECT again.row FROM claims again
    WHERE again.namespace = c.namespace AND again.key = c.key AND again.value = c.value
        AND again.at >= o.at AND (again.at > o.at OR again.row > o.row)
    ORDER BY again.at, again.row LIMIT 1
) LEFT JOIN messages m ON m.id = f.message
WHERE c.falls = 1 AND c.message IN (SELECT value FROM json_each(?1));

-- The live items with the last word until ?2 on what messages ?1 correct, without what has expired
-- by ?3; those with the messages themselves come last:

SELECT DISTINCT c.message, t.row, c.message = last.message AS own FROM claims c JOIN claims last ON last.row = (
    SELECT later.row FROM claims later
    WHERE later.namespace = c.namespace AND later.key = c.key AND later.corrects = 1
        AND later.at <= ?2
        AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = later.message AND x.expires <= ?3)
    ORDER BY later.at DESC, later.row DESC LIMIT 1
) JOIN provenance p ON p.message = last.message JOIN tiers t ON t.id = p.item
WHERE c.corrects = 1 AND c.message IN (SELECT value FROM json_each(?1)) AND t.live = 1
ORDER BY own, t.row;
