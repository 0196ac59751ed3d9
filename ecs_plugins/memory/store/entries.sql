-- The vectors of one dimension and the terms of every live row; large namespaces are in a graph.

CREATE TABLE entries_{dimension} (
    row BIGINT PRIMARY KEY,
    namespace BIGINT NOT NULL,
    large BOOLEAN NOT NULL,
    terms BIGINT[] NOT NULL,
    embedding vector({dimension}) NOT NULL
);
CREATE INDEX entries_{dimension}_by_namespace ON entries_{dimension} (namespace, row);
ALTER TABLE entries_{dimension} ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON entries_{dimension}
    USING ((SELECT true FROM namespaces n WHERE n.id = namespace));
-- As far as pgvector indexes and a page holds:
ALTER TABLE entries_{dimension} ALTER COLUMN embedding SET STORAGE PLAIN;
CREATE INDEX entries_{dimension}_by_vector ON entries_{dimension}
    USING hnsw (embedding vector_ip_ops) WHERE large;
