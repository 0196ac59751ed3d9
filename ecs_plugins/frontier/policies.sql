-- Rows of a ledger on PostgreSQL belong to the role that their namespace begins with. Namespaces
-- are JSON of ASCII here, other than those of a memory.

ALTER TABLE contexts ENABLE ROW LEVEL SECURITY;
ALTER TABLE prepared ENABLE ROW LEVEL SECURITY;
ALTER TABLE observed ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON contexts USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON prepared USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON observed USING (namespace::json ->> 0 = current_user);
