-- The audit: who changed what. Each entry has a keyed hash of itself and of the hash before it, so that a removed or altered
-- one shows. Numbers have no gaps. `before_value` and `after_value` are sealed JSON, and empty if there is none.
CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    before_value BYTEA NOT NULL,
    after_value BYTEA NOT NULL,
    outcome TEXT NOT NULL,
    address TEXT,
    count BIGINT NOT NULL,
    hash BYTEA NOT NULL
);

-- One row: the newest entry, the newest entry that was deleted because of its age, with a proof that a gateway did that, and
-- the key of the hashes, sealed.
CREATE TABLE audit_head (
    name TEXT NOT NULL PRIMARY KEY,
    chain_key BYTEA NOT NULL,
    number BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    anchor_number BIGINT NOT NULL,
    anchor_hash BYTEA NOT NULL,
    anchor_proof BYTEA NOT NULL
);
