-- Names, keys and payloads are bytes (UTF-8): texts of PostgreSQL have no U+0000.

-- State of a device on which processes agree: the next commit locks this row. Narrow, updated in place.
CREATE TABLE telemetry.head (
    device BIGINT PRIMARY KEY,
    seq BIGINT NOT NULL,
    last_commit BIGINT NOT NULL,
    device_events BIGINT NOT NULL,
    cloud_events BIGINT NOT NULL,
    device_order BYTEA NOT NULL,
    cloud_order BYTEA NOT NULL,
    queued BIGINT NOT NULL
) WITH (fillfactor = 60);

-- History, a part for each day. `n` is dense for each device and kind; `id` is given where it is not `ord`.
CREATE TABLE telemetry.event (
    device BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    n BIGINT NOT NULL,
    ord BYTEA NOT NULL,
    id BYTEA,
    element BYTEA NOT NULL,
    payload BYTEA NOT NULL,
    errors TEXT,
    xact BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    item INTEGER NOT NULL,
    PRIMARY KEY (device, kind, ord)
) PARTITION BY RANGE (ord);
CREATE INDEX event_in_order ON telemetry.event (xact, item);
CREATE INDEX event_by_time ON telemetry.event USING brin (ord) WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX event_by_id ON telemetry.event (device, id) WHERE id IS NOT NULL;

-- Stored values. `n` is dense for each series, and `ord` increases with it.
CREATE TABLE telemetry.value (
    series BIGINT NOT NULL,
    n BIGINT NOT NULL,
    ord BYTEA NOT NULL,
    id BYTEA,
    payload BYTEA NOT NULL,
    PRIMARY KEY (series, n)
);

-- The series of a device, with their last values. What is below `floor` was dropped.
CREATE TABLE telemetry.last (
    device BIGINT NOT NULL,
    element BYTEA NOT NULL,
    series BIGINT NOT NULL,
    created BIGINT NOT NULL,
    count BIGINT NOT NULL,
    floor BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    ord BYTEA NOT NULL,
    last BYTEA NOT NULL,
    PRIMARY KEY (device, element)
) WITH (fillfactor = 60);

CREATE TABLE telemetry.state (
    device BIGINT NOT NULL,
    element BYTEA NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (device, element)
) WITH (fillfactor = 60);

CREATE TABLE telemetry.queue (
    device BIGINT NOT NULL,
    n BIGINT NOT NULL,
    id BYTEA NOT NULL,
    element BYTEA NOT NULL,
    payload BYTEA NOT NULL,
    expires BIGINT,
    PRIMARY KEY (device, n)
);

CREATE TABLE telemetry.outbox (
    number BIGINT PRIMARY KEY,
    device BIGINT NOT NULL,
    work BYTEA NOT NULL,
    parked TEXT
);

CREATE TABLE telemetry.key (
    device BIGINT NOT NULL,
    key BYTEA NOT NULL,
    answer BYTEA NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (device, key)
);
CREATE INDEX key_by_expiry ON telemetry.key (expires);

-- Values of a series that nobody sees any more, below a number: to be deleted.
CREATE TABLE telemetry.garbage (
    series BIGINT NOT NULL,
    below BIGINT NOT NULL,
    PRIMARY KEY (series, below)
);

-- Moments that the store remembers: `cutoff`, `seen`.
CREATE TABLE telemetry.moment (
    name TEXT PRIMARY KEY,
    millis BIGINT NOT NULL
);

-- Devices that an older registry has lost: those with numbers above `after`, and up to `up_to`.
CREATE TABLE telemetry.lost_devices (
    after BIGINT PRIMARY KEY,
    up_to BIGINT NOT NULL
);

-- Numbers of the processes that have opened the store.
CREATE SEQUENCE telemetry.process;

-- The first number from `low` on, and before `high`, whose value has at least this position in time, or else `high`.
CREATE FUNCTION telemetry.value_first_at(wanted BIGINT, low BIGINT, high BIGINT, at BYTEA) RETURNS BIGINT
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    middle BIGINT;
    found BYTEA;
BEGIN
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT v.ord INTO found FROM telemetry.value v WHERE v.series = wanted AND v.n = middle;
        IF found IS NULL OR found < at THEN
            low := middle + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END
$$;
