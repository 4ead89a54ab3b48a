-- Which gateway has the links to stateful servers of a caller without a session. It counts for as long as that gateway is alive
-- (table `replicas`).

CREATE TABLE homes (
    owner TEXT NOT NULL PRIMARY KEY,
    instance TEXT NOT NULL
);
