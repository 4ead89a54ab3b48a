-- How much of the rate limits is used, over all gateways: the time, in microseconds, at which all calls so far are paid off if
-- each takes its share of a minute.

CREATE TABLE quotas (
    name TEXT NOT NULL PRIMARY KEY,
    paid_off BIGINT NOT NULL
);
