-- An organization has any number of dashboards, the oldest of which is its first. The one that it had is named as the
-- organization itself, which is older than any other that comes.
ALTER TABLE organization_dashboards RENAME TO organization_dashboards_before;
CREATE TABLE organization_dashboards (
    id {text} PRIMARY KEY,
    organization_id {text} NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    -- Counts its changes.
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name {text},
    -- The project on whose devices' pages it is shown, as its options name it. Nothing hangs on it.
    project_id {text},
    options {text} NOT NULL,
    configuration {text} NOT NULL
);
INSERT INTO organization_dashboards (id, organization_id, version, created_at, updated_at, name, options, configuration)
    SELECT b.organization_id, b.organization_id, 1, o.created_at, o.updated_at, b.name, b.options, b.configuration
    FROM organization_dashboards_before b JOIN organizations o ON o.id = b.organization_id;
DROP TABLE organization_dashboards_before;
CREATE INDEX organization_dashboards_of ON organization_dashboards (organization_id, id);
