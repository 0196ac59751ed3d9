-- Moves the items of both tiers from the tables that 0.1.0 kept them in into the newest ones.
-- crc is the checksum of a text.

INSERT INTO tiers SELECT row, id, namespace, 'cold', live, version, born, died, text, metadata,
    created, changed, expires, pinned, 0, energy, entropy, free_energy, cluster_entropy, evidence,
    vector, text_crc, vector_crc, '' FROM memories;
-- A hot item of one message had no row of its own: every message from hot_since on was one, unless
-- not_hot listed it.
INSERT INTO tiers (id, namespace, tier, live, version, text, metadata, created, changed, expires,
    pinned, judged, cluster_entropy, evidence, vector, text_crc, vector_crc)
SELECT id, namespace, 'hot', 1, 1, text, metadata, created, created, expires, 0, judged, 0.0,
    evidence, vector, crc(text), vector_crc
FROM (
    SELECT h.row AS number, h.id, h.namespace, COALESCE(h.text, m.text) AS text, h.metadata,
        COALESCE(m.created, 0.0) AS created, h.expires, h.judged, h.evidence,
        COALESCE(h.vector, m.vector) AS vector, COALESCE(h.vector_crc, m.vector_crc) AS vector_crc
    FROM hot_items h LEFT JOIN messages m ON m.id = h.id WHERE h.live = 1
    UNION ALL
    SELECT m.seq, m.id, m.namespace, m.text, m.metadata, m.created, m.expires, 0,
        '{"created":' || m.step || ',"updated":' || m.step || ',"last_seen":' || m.step || '}',
        m.vector, m.vector_crc
    FROM hot_messages x JOIN messages m ON m.seq = x.message
)
ORDER BY number;
INSERT OR IGNORE INTO provenance (message, item, version)
    SELECT message, item, 1 FROM hot_members
    WHERE item IN (SELECT id FROM tiers WHERE tier = 'hot');
INSERT OR IGNORE INTO provenance (message, item, version)
    SELECT id, id, 1 FROM tiers WHERE tier = 'hot';
DROP VIEW hot_messages;
DROP TABLE not_hot;
DROP TABLE hot_members;
DROP TABLE hot_items;
DROP TABLE memories;
DROP TABLE snapshots;
ALTER TABLE namespaces DROP COLUMN novel;
ALTER TABLE namespaces DROP COLUMN hot_generation;
ALTER TABLE namespaces DROP COLUMN hot_rewritten;
ALTER TABLE namespaces DROP COLUMN hot_since;
ALTER TABLE namespaces DROP COLUMN cold_generation;
ALTER TABLE namespaces DROP COLUMN cold_rewritten;
ALTER TABLE namespaces DROP COLUMN statistics;
