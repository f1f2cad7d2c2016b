-- For pages that follow an item: what was made after it, along an index. Devices and users have theirs.
CREATE INDEX organizations_by_creation ON organizations (created_at, id);
CREATE INDEX projects_by_creation ON projects (created_at, id, organization_id);
CREATE INDEX alarms_by_creation ON alarms (created_at, id, organization_id, state, severity, acknowledged, device_key);
