-- What the server knows of itself. The search path of a session whose tables are in the schema $1:
-- extensions live in a schema of their own on some servers.

SELECT set_config('search_path', concat_ws(', ', quote_ident($1), (
    SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector'), 'public'), false);

-- The role that logged in, and whether it owns the tables of a schema.

SELECT session_user::text, bool_and(pg_has_role(tableowner, 'USAGE')) FROM pg_tables
    WHERE schemaname = $1;

-- The tables of a schema, and whether they are the role's to vacuum.

SELECT tablename, pg_has_role(tableowner, 'USAGE') FROM pg_tables WHERE schemaname = $1;

-- How many others still read an older state.

SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
    AND datname = current_database() AND pid != pg_backend_pid();

-- Bytes of the tables of a schema, and of their indexes.

SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r';
