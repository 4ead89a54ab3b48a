-- `config` is the group as JSON. Its members are names, not references: one that is gone may come back.
CREATE TABLE groups (
    name TEXT NOT NULL PRIMARY KEY,
    config TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
