-- Rows of a memory on PostgreSQL belong to the role that their namespace begins with; all others
-- but the tables' owner neither see nor write them. The embedder is everybody's to read; what an
-- erasure notes, everybody counts up and nobody but the owner takes back.

ALTER TABLE meta ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody ON meta FOR SELECT USING (true);
CREATE POLICY noted ON meta FOR INSERT
    WITH CHECK (key IN ('scrub', 'erasures') AND value = '1');
CREATE FUNCTION is_next(TEXT, TEXT) RETURNS BOOLEAN VOLATILE LANGUAGE sql
    RETURN (SELECT CAST($2 AS BIGINT) = CAST(value AS BIGINT) + 1 FROM meta WHERE key = $1);
CREATE POLICY counted ON meta FOR UPDATE USING (key IN ('scrub', 'erasures'))
    WITH CHECK (key IN ('scrub', 'erasures') AND is_next(key, value));

CREATE FUNCTION is_own(key TEXT) RETURNS BOOLEAN STABLE LANGUAGE sql
    RETURN starts_with(key, '[' || to_json(current_user::text));
ALTER TABLE namespaces ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON namespaces USING (is_own(key));
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON items USING (is_own(namespace));

-- What is in a namespace that a role sees. A scalar is looked up for each row; of EXISTS the
-- server would rather read every namespace of the role first.

ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON messages USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE tiers ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON tiers USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE additions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON additions USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE sleeps ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON sleeps USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE decisions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON decisions USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE queries ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON queries USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE words ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON words USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON postings USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
ALTER TABLE judged ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON judged USING ((SELECT true FROM namespaces n WHERE n.id = namespace));

-- What belongs to a row that a role sees:

ALTER TABLE decision_items ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON decision_items USING ((SELECT true FROM decisions d WHERE d.id = decision));
ALTER TABLE item_vectors ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON item_vectors USING ((SELECT true FROM items i WHERE i.row = item));
ALTER TABLE outdated ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON outdated USING ((SELECT true FROM messages m WHERE m.id = older)
    AND (SELECT true FROM messages m WHERE m.id = newer));

-- Provenance outlives the message by the log's retention, and the item until it is looked for. The
-- function sees every row: what belongs to nobody is everybody's to delete. Nobody writes any but
-- of items of his own, of which the message is not another's.

CREATE FUNCTION is_of_another(NAME, TEXT, TEXT) RETURNS BOOLEAN STABLE SECURITY DEFINER LANGUAGE sql
    RETURN NOT coalesce(starts_with((SELECT key FROM namespaces WHERE id = (
        SELECT namespace FROM messages WHERE id = $2)), '[' || to_json($1::text)), true)
    OR NOT coalesce(starts_with((SELECT key FROM namespaces WHERE id = (
        SELECT namespace FROM tiers WHERE id = $3 LIMIT 1)), '[' || to_json($1::text)), true);
ALTER TABLE provenance ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON provenance USING (NOT is_of_another(current_user, message, item))
    WITH CHECK (NOT is_of_another(current_user, message, item)
        AND (SELECT true FROM tiers t WHERE t.id = item LIMIT 1));
