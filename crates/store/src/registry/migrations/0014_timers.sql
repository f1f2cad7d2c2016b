-- A moment at which the scheduler has something to do is a timer: an alarm is what operators call one.
ALTER TABLE project_alarms RENAME TO project_timers;
ALTER TABLE device_alarms RENAME TO device_timers;
DROP INDEX device_alarms_due;
CREATE INDEX device_timers_due ON device_timers (due_at, id);
