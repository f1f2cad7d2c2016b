-- PostgreSQL only. Where telemetry is in several databases: the order of events over all of them.

-- Each mark notes places up to which the events of databases are complete.
CREATE TABLE stream_marks (
    number BIGINT PRIMARY KEY,
    -- By the database's clock.
    made_at BIGINT NOT NULL
);
CREATE INDEX stream_marks_in_time ON stream_marks (made_at);

-- The places that a mark has moved.
CREATE TABLE stream_places (
    database BIGINT NOT NULL,
    mark BIGINT NOT NULL,
    xact BIGINT NOT NULL,
    item BIGINT NOT NULL,
    -- Position in time of the events there, in milliseconds.
    near BIGINT NOT NULL,
    PRIMARY KEY (database, mark)
);
CREATE INDEX stream_places_in_order ON stream_places (database, xact, item);
CREATE INDEX stream_places_in_time ON stream_places (database, near);
