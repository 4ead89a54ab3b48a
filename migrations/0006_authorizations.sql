-- What a person is asked for is an authorization; sessions are those of agents.

ALTER TABLE oauth_sessions RENAME TO oauth_authorizations;

DROP INDEX oauth_sessions_by_state;
CREATE INDEX oauth_authorizations_by_state ON oauth_authorizations (state_digest);
