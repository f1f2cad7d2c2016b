-- A fleet is counted along indexes alone: the devices of each project, everywhere and in one organization, and how long ago
-- those of an organization were heard.
DROP INDEX devices_project;
CREATE INDEX devices_of_project ON devices (project_id, organization_id);
CREATE INDEX devices_in_project ON devices (organization_id, project_id);
CREATE INDEX device_activity_of_organization ON device_activity (organization_id, last_active);
-- Which devices have a place is told by the index alone.
DROP INDEX devices_placed;
CREATE INDEX devices_placed ON devices (organization_id, key, place_latitude) WHERE place_latitude IS NOT NULL;
