-- One text for SQLite and Postgres: TEXT, BIGINT and BYTEA mean the same to both (SQLite keeps a blob a blob
-- in a column of any type). Times are milliseconds since 1970, yes and no are 1 and 0.

CREATE TABLE settings (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- `config` is sealed; `server_info`, `capabilities` and `instructions` are JSON.
CREATE TABLE servers (
    name TEXT NOT NULL PRIMARY KEY,
    config BYTEA NOT NULL,
    enabled BIGINT NOT NULL,
    protocol_version TEXT NOT NULL,
    server_info TEXT,
    capabilities TEXT,
    instructions TEXT,
    ttl_ms BIGINT,
    is_private BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    discovered_at BIGINT
);

-- What people switched off, by name, whether or not the server lists it now.
CREATE TABLE disabled (
    server TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (server, kind, name)
);

-- `items` is the JSON array of the definitions as the server sent them.
CREATE TABLE catalogs (
    server TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    items TEXT NOT NULL,
    PRIMARY KEY (server, kind)
);
