-- What authorization servers granted, sealed. A renewed grant replaces only the one it was renewed from.
CREATE TABLE oauth_grants (
    server TEXT NOT NULL PRIMARY KEY REFERENCES servers (name) ON DELETE CASCADE,
    lineage TEXT NOT NULL,
    content BYTEA NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Authorizations that a person is asked for. `content` is sealed, and empty once the session is over; the state that
-- comes back with the person is known only by its digest.
CREATE TABLE oauth_sessions (
    id TEXT NOT NULL PRIMARY KEY,
    server TEXT NOT NULL,
    state_digest TEXT NOT NULL,
    status TEXT NOT NULL,
    error TEXT NOT NULL,
    content BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    finished_at BIGINT
);

CREATE INDEX oauth_sessions_by_state ON oauth_sessions (state_digest);
