-- What is recorded of calls. On SQLite these tables are in a file of their own, so that they never hold up a change.

-- One row for each call. `record` is JSON, `searched` its texts in lower case; `arguments` and `result` are sealed, and empty unless they are kept.
-- `written` is the time of the database server, by which other gateways find new calls; 0 where there are no others.
CREATE TABLE calls (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    server TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    principal_kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    via TEXT NOT NULL,
    weight BIGINT NOT NULL,
    searched TEXT NOT NULL,
    record TEXT NOT NULL,
    arguments BYTEA NOT NULL,
    result BYTEA NOT NULL,
    written BIGINT NOT NULL
);

CREATE INDEX calls_of_servers ON calls (server, id);
CREATE INDEX calls_of_principals ON calls (principal, id);
CREATE INDEX calls_as_written ON calls (written) WHERE written > 0;
CREATE INDEX calls_that_failed ON calls (outcome, id) WHERE outcome <> 'ok';

-- How many calls there were in a span of time, which begins at `at`, and how long they took. Each process of a gateway writes
-- rows of its own, and replaces them while the span lasts.
CREATE TABLE call_counts (
    span BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    writer TEXT NOT NULL,
    calls BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    durations BYTEA NOT NULL,
    PRIMARY KEY (span, at, kind, name, writer)
);

-- The same as in the main database, for a file of its own: committing to it is how a failed commit is overwritten.
CREATE TABLE IF NOT EXISTS settings (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
