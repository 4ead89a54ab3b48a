-- The fingerprints of the secret keys that a gateway knows, its own one first, separated by spaces. While the key is being
-- replaced, a gateway knows two.

ALTER TABLE replicas ADD COLUMN keys TEXT NOT NULL DEFAULT '';
