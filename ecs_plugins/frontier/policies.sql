-- Rows of a ledger on PostgreSQL belong to the role that their namespace begins with. Namespaces
-- are JSON of ASCII here, other than those of a memory.

ALTER TABLE contexts ENABLE ROW LEVEL SECURITY;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE totals ENABLE ROW LEVEL SECURITY;
ALTER TABLE prepared ENABLE ROW LEVEL SECURITY;
ALTER TABLE leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE observed ENABLE ROW LEVEL SECURITY;
ALTER TABLE spent ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON contexts USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON runs USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON totals USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON prepared USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON leases USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON observed USING (namespace::json ->> 0 = current_user);
CREATE POLICY own ON spent USING (namespace::json ->> 0 = current_user);
