-- The rate limit of a user or client, as JSON; NULL is none. Those of servers are in their sealed configuration.

ALTER TABLE users ADD COLUMN rate_limit TEXT;

ALTER TABLE clients ADD COLUMN rate_limit TEXT;
