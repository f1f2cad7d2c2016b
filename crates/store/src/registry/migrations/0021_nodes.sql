-- What processes that serve one platform tell each other.

-- Findings of runs before this revision of the device were taken over by another process: late writes of them are refused.
ALTER TABLE devices ADD COLUMN findings_from BIGINT NOT NULL DEFAULT 0;

-- Time until which a process works on the row: others leave it alone until then.
ALTER TABLE deliveries ADD COLUMN claimed_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE device_timers ADD COLUMN claimed_until BIGINT NOT NULL DEFAULT 0;

-- Work that is done by one process at a time, with the time at which it is due next.
CREATE TABLE jobs (
    name {text} PRIMARY KEY,
    due_at BIGINT NOT NULL
);

-- Processes that serve the platform. Each renews its row every second.
CREATE TABLE nodes (
    id {text} PRIMARY KEY,
    name {text} NOT NULL,
    version {text} NOT NULL,
    -- A digest of its settings: processes with other settings answer otherwise.
    settings {text} NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    -- Milliseconds by which its clock is ahead of the database's.
    clock_ahead BIGINT NOT NULL
);

-- Failed log-ins, and links sent, of a name or an account: where several processes serve, they count together.
CREATE TABLE login_failures (
    subject {text} PRIMARY KEY,
    since BIGINT NOT NULL,
    count BIGINT NOT NULL
);
