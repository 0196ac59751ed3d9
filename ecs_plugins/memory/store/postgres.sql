-- What a memory on PostgreSQL has beside the tables of schema.sql: in which rows of a namespace a
-- term is, and in how many. Terms are hashes.

CREATE TABLE words (
    namespace BIGINT,
    term BIGINT,
    texts BIGINT NOT NULL,
    PRIMARY KEY (namespace, term)
) WITH (fillfactor = 70);
CREATE TABLE postings (
    namespace BIGINT,
    term BIGINT,
    row BIGINT,
    PRIMARY KEY (namespace, term, row)
);
