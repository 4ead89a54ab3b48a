-- What changed last in which epoch, by kind and name, so that other gateways on the same database read only that again.

CREATE TABLE changes (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE INDEX changes_by_epoch ON changes (epoch);
