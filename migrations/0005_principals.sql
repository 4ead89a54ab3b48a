-- An identity of its own for each user and client, to which tokens are only credentials. Until now the token was the
-- identity, so its id is what sessions and states that were given out before know their owner by.

ALTER TABLE users ADD COLUMN id BIGINT NOT NULL DEFAULT 0;
UPDATE users SET id = token_id;

ALTER TABLE clients ADD COLUMN id BIGINT NOT NULL DEFAULT 0;
UPDATE clients SET id = token_id;
