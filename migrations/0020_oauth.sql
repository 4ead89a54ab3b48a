-- Keys that stay the same when the secret key is replaced. `content` is sealed.
CREATE TABLE token_keys (
    name TEXT NOT NULL PRIMARY KEY,
    content BYTEA NOT NULL
);

-- Software that acts for a user, who agreed to it. `software` is sealed. `last_used_at` is 0 before the first use.
CREATE TABLE user_grants (
    id TEXT NOT NULL PRIMARY KEY,
    user_id BIGINT NOT NULL,
    client_id TEXT NOT NULL,
    client_name TEXT NOT NULL,
    software BYTEA NOT NULL,
    reach TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE INDEX user_grants_by_user ON user_grants (user_id);
CREATE INDEX user_grants_by_end ON user_grants (expires_at);

-- The refresh tokens of a grant, known by their digests. One that was used has a successor, which is kept sealed for as long as
-- the one before it may still be used. `rotated_at` is 0 before that.
CREATE TABLE refresh_tokens (
    digest TEXT NOT NULL PRIMARY KEY,
    grant_id TEXT NOT NULL REFERENCES user_grants (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL,
    rotated_at BIGINT NOT NULL,
    successor_digest TEXT NOT NULL,
    successor BYTEA NOT NULL
);

CREATE INDEX refresh_tokens_by_grant ON refresh_tokens (grant_id, rotated_at);
CREATE INDEX refresh_tokens_by_end ON refresh_tokens (expires_at);
CREATE INDEX refresh_tokens_with_successor ON refresh_tokens (rotated_at) WHERE LENGTH(successor) > 0;

-- Codes with which software fetches its first tokens. A used one names the grant that it gave: a second use ends that.
CREATE TABLE grant_codes (
    digest TEXT NOT NULL PRIMARY KEY,
    user_id BIGINT NOT NULL,
    content BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    grant_id TEXT NOT NULL
);

CREATE INDEX grant_codes_by_user ON grant_codes (user_id);

-- What users agreed to. Clients and redirect URIs are digests, since they may be long; `id` is that of all columns which
-- a consent is for.
CREATE TABLE consents (
    id TEXT NOT NULL PRIMARY KEY,
    user_id BIGINT NOT NULL,
    client TEXT NOT NULL,
    redirect TEXT NOT NULL,
    is_remembered BIGINT NOT NULL,
    agreed_at BIGINT NOT NULL
);

CREATE INDEX consents_by_user ON consents (user_id, client);

-- People who signed in with a browser. The cookie is known by its digest.
CREATE TABLE browser_sessions (
    digest TEXT NOT NULL PRIMARY KEY,
    user_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);

CREATE INDEX browser_sessions_by_user ON browser_sessions (user_id);

-- Software that an admin registered. `software` is sealed.
CREATE TABLE oauth_clients (
    id TEXT NOT NULL PRIMARY KEY,
    client_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    software BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);
