-- What a filter finds rows by: their metadata under the number of their namespace, so that an entry
-- of the index belongs to one. jsonb holds no NUL character. An index of live rows alone would be
-- read whole for the rows of a namespace.

CREATE FUNCTION findable(namespace BIGINT, metadata TEXT) RETURNS JSONB IMMUTABLE LANGUAGE sql
    RETURN ('{"' || namespace::text || '":' || replace(metadata, '\u0000', '\ufffd') || '}')::jsonb;
CREATE INDEX tiers_by_metadata ON tiers USING gin (findable(namespace, metadata) jsonb_path_ops)
    WITH (fastupdate = off);
