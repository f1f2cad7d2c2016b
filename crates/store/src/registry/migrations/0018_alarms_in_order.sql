-- Where a device belongs is stored with its alarms, as with its activity: a part of the tree is counted and listed along
-- indexes alone.
ALTER TABLE alarms ADD COLUMN organization_id {text} NOT NULL DEFAULT '';
UPDATE alarms SET organization_id = (SELECT d.organization_id FROM devices d WHERE d.key = alarms.device_key);
-- The order of the list when none is asked for, and by time, with what the walk along them looks at.
CREATE INDEX alarms_order ON alarms (
    state, severity DESC, raised_at DESC, id DESC, organization_id, acknowledged, device_key
);
CREATE INDEX alarms_by_time ON alarms (raised_at, id, organization_id, state, severity, acknowledged, device_key);
CREATE INDEX alarms_of_organization ON alarms (
    organization_id, state, severity, acknowledged, ended_at, raised_at, id, device_key
);
-- The cells of a map are counted without a look at the devices.
CREATE INDEX devices_on_map ON devices (organization_id, place_latitude, place_longitude, status, key)
    WHERE place_latitude IS NOT NULL;
