-- Alarms that are assigned to a user who can no longer see them are found along this index.
CREATE INDEX alarms_assigned ON alarms (assignee_id, device_key) WHERE assignee_id IS NOT NULL;
