-- Whose a call is, whatever the user or client was called: names change, and are given again. 0 for nobody, and for calls that were
-- recorded before.
ALTER TABLE calls ADD COLUMN principal_id BIGINT NOT NULL DEFAULT 0;

CREATE INDEX calls_of_owners ON calls (principal_id, id) WHERE principal_id <> 0;
