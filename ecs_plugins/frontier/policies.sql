-- Row-level security of a ledger on PostgreSQL: rows belong to the role that their namespace
-- begins with. Namespaces are JSON of ASCII here, unlike those of a memory.

ALTER TABLE contexts ENABLE ROW LEVEL SECURITY;
ALTER TABLE means ENABLE ROW LEVEL SECURITY;
ALTER TABLE prepared ENABLE ROW LEVEL SECURITY;
ALTER TABLE leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE spent ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON contexts USING (namespace::json ->> 0 = session_user);
CREATE POLICY own ON means USING (namespace::json ->> 0 = session_user);
CREATE POLICY own ON prepared USING (namespace::json ->> 0 = session_user);
CREATE POLICY own ON leases USING (namespace::json ->> 0 = session_user);
CREATE POLICY own ON spent USING (namespace::json ->> 0 = session_user);
