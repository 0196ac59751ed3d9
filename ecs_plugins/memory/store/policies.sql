-- Rows of a memory on PostgreSQL belong to the role that their namespace begins with and that logged
-- in: SET ROLE to a group changes nothing. All others but the tables' owner neither see nor write them. The embedder is everybody's to read; what an
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
    RETURN starts_with(key, '[' || to_json(session_user::text));
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

-- Nobody writes provenance but that of items of his own.

ALTER TABLE provenance ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON provenance USING ((SELECT true FROM namespaces n WHERE n.id = namespace))
    WITH CHECK ((SELECT true FROM namespaces n WHERE n.id = namespace)
        AND (SELECT true FROM tiers t WHERE t.id = item LIMIT 1));

-- Nobody takes a number that the sequence would give to another.

CREATE POLICY numbered ON namespaces AS RESTRICTIVE FOR INSERT
    WITH CHECK (id = currval('namespaces_id_seq'));
CREATE POLICY numbered ON messages AS RESTRICTIVE FOR INSERT
    WITH CHECK (seq = currval('messages_seq_seq'));
CREATE POLICY numbered ON tiers AS RESTRICTIVE FOR INSERT
    WITH CHECK (row = currval('tiers_row_seq'));
CREATE POLICY numbered ON sleeps AS RESTRICTIVE FOR INSERT
    WITH CHECK (id = currval('sleeps_id_seq'));
CREATE POLICY numbered ON decisions AS RESTRICTIVE FOR INSERT
    WITH CHECK (id = currval('decisions_id_seq'));
CREATE POLICY numbered ON queries AS RESTRICTIVE FOR INSERT
    WITH CHECK (id = currval('queries_id_seq'));
CREATE POLICY numbered ON items AS RESTRICTIVE FOR INSERT
    WITH CHECK (row = currval('items_row_seq'));
CREATE POLICY numbered ON item_vectors AS RESTRICTIVE FOR INSERT
    WITH CHECK (row = currval('item_vectors_row_seq'));
