-- Until when a gateway renews the grant of a server, so that no other one does so too: a refresh token may work only once.

ALTER TABLE oauth_grants ADD COLUMN renewing_until BIGINT NOT NULL DEFAULT 0;
