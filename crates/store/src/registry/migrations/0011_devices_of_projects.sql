-- A summary of a fleet tells how many devices each project has without counting them.
ALTER TABLE projects ADD COLUMN device_count BIGINT NOT NULL DEFAULT 0;
UPDATE projects SET device_count = (SELECT count(*) FROM devices d WHERE d.project_id = projects.id);
