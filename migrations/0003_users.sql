-- Tokens are kept twice: as a keyed hash, by which their holder is found, and sealed, for the answers that show them.
-- `token_id` is random and new with every token that is given to somebody.

CREATE TABLE users (
    username TEXT NOT NULL PRIMARY KEY,
    role TEXT NOT NULL,
    token_hash BYTEA NOT NULL UNIQUE,
    token BYTEA NOT NULL,
    token_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- `allow_list` is a JSON array. Its members are names, not references: such a server may come later.
CREATE TABLE clients (
    name TEXT NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    allow_list TEXT NOT NULL,
    is_custom_token BIGINT NOT NULL,
    token_hash BYTEA NOT NULL UNIQUE,
    token BYTEA NOT NULL,
    token_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
