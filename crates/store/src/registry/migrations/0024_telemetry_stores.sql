-- The telemetry stores of the platform: no other is served. One that is not noted yet is noted when it is first served.
CREATE TABLE telemetry_stores (
    -- Of the database; 0 for a folder.
    number BIGINT PRIMARY KEY,
    identity {text} NOT NULL,
    -- Where it was served last, for messages.
    place {text} NOT NULL
);
