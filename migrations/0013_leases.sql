-- Which gateway reads the lists of a server, and what it last found the state of the server to be. A lease lasts for as long as
-- its gateway is alive (table `replicas`).

CREATE TABLE leases (
    server TEXT NOT NULL PRIMARY KEY,
    instance TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL
);
