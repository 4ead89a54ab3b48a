-- What users may use, a JSON array of rules; whether they are kept out; and when they were last seen.
ALTER TABLE users ADD COLUMN allow_list TEXT NOT NULL DEFAULT '["*"]';
ALTER TABLE users ADD COLUMN is_disabled BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN last_seen_at BIGINT;

-- The subject of the tokens that another issuer gives to a program.
ALTER TABLE clients ADD COLUMN jwt_subject TEXT;

-- People of an identity provider (IdP): users without a token. `issuer` and `subject` name somebody there; `idp_groups` is a
-- JSON array of their groups there.
CREATE TABLE idp_users (
    username TEXT NOT NULL PRIMARY KEY,
    id BIGINT NOT NULL UNIQUE,
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    idp_groups TEXT NOT NULL,
    role TEXT NOT NULL,
    rate_limit TEXT,
    allow_list TEXT NOT NULL,
    is_disabled BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_seen_at BIGINT,
    UNIQUE (issuer, subject)
);

-- What people of the IdP may do because they are in a group there. The group * is everybody of the IdP.
CREATE TABLE idp_groups (
    name TEXT NOT NULL PRIMARY KEY,
    role TEXT NOT NULL,
    allow_list TEXT NOT NULL,
    rate_limit TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- When people signed in at the IdP. `content` is what the IdP can be asked with again, sealed, or empty. `checked_at` is the
-- time of the last question.
CREATE TABLE idp_tokens (
    user_id BIGINT NOT NULL PRIMARY KEY,
    content BYTEA NOT NULL,
    signed_in_at BIGINT NOT NULL,
    checked_at BIGINT NOT NULL
);
