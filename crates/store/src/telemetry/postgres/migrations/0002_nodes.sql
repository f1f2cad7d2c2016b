-- Number of the changes of what a run sees of the device outside of telemetry: work for the registry, or a change there.
-- A run by an older number is made again.
ALTER TABLE telemetry.head ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
-- Time at which a device was deleted: the row stays for a while, so that no process begins a new one.
ALTER TABLE telemetry.head ADD COLUMN forgotten_at TIMESTAMPTZ;
CREATE INDEX head_forgotten ON telemetry.head (forgotten_at) WHERE forgotten_at IS NOT NULL;

-- The device's number of changes with the oldest part of the entry.
ALTER TABLE telemetry.outbox ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
-- The process that is to do the work: the upper bits of the number say who has committed it.
ALTER TABLE telemetry.outbox ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
UPDATE telemetry.outbox SET owner = number >> 40;
ALTER TABLE telemetry.outbox ADD COLUMN came TIMESTAMPTZ NOT NULL DEFAULT now();
CREATE INDEX outbox_of_device ON telemetry.outbox (device, revision);

-- The processes that have the store open. Each renews its row.
CREATE TABLE telemetry.node (
    process BIGINT PRIMARY KEY,
    seen TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
