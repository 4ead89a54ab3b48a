-- The gateways that use this database at the moment. `slot` is part of the numbers that a gateway gives to what only it
-- knows, such as sessions; `instance` tells a gateway from the one that had its slot before.

CREATE TABLE replicas (
    slot BIGINT NOT NULL PRIMARY KEY,
    instance TEXT NOT NULL,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at BIGINT NOT NULL
);

-- Sessions that clients ended, so that no gateway takes them up again.
CREATE TABLE ended_sessions (
    serial BIGINT NOT NULL PRIMARY KEY,
    ended_at BIGINT NOT NULL
);
