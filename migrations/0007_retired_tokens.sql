-- Hashes of tokens that were deleted or replaced a short time ago: who still sends one does not guess.

CREATE TABLE retired_tokens (
    token_hash BYTEA NOT NULL PRIMARY KEY,
    retired_at BIGINT NOT NULL
);
