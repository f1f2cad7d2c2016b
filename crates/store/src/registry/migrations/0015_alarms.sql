-- What designs have raised and somebody has to look at. An alarm lives until it is both cleared and acknowledged.
CREATE TABLE alarms (
    id {text} PRIMARY KEY,
    device_key BIGINT NOT NULL REFERENCES devices (key) ON DELETE CASCADE,
    element {text} NOT NULL,
    key {text} NOT NULL,
    title {text} NOT NULL,
    -- 0 info, 1 warning, 2 critical.
    severity BIGINT NOT NULL,
    -- 0 active, 1 cleared.
    state BIGINT NOT NULL,
    acknowledged BIGINT NOT NULL,
    raised_at BIGINT NOT NULL,
    cleared_at BIGINT,
    acknowledged_at BIGINT,
    acknowledged_by {text},
    assignee_id {text},
    count BIGINT NOT NULL,
    value {text},
    history {text} NOT NULL,
    -- The last time that it became active, by the device's own numbers, and how often it was raised in it: so what is written
    -- again is known.
    episode BIGINT NOT NULL,
    episode_count BIGINT NOT NULL,
    -- The newest change by a user, so that it too is known when it is written again.
    last_change {text},
    -- None: it lives.
    ended_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX alarms_living ON alarms (device_key, element, key) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX alarms_episode ON alarms (device_key, element, key, episode);
CREATE INDEX alarms_active ON alarms (device_key, severity) WHERE state = 0;
CREATE INDEX alarms_past ON alarms (ended_at) WHERE ended_at IS NOT NULL;

-- The alarm that a notification tells of.
ALTER TABLE notifications ADD COLUMN alarm_id {text};
