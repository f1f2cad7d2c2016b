-- The number of the version in force. It goes up with each that is written, so that none is given out twice.
ALTER TABLE specifications ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

-- The designs that a project has had, the one in force among them; the newest are kept. What is large stands last, so that a
-- list does not read it. Designs that are older than this table get their first version when the registry is opened.
CREATE TABLE specification_versions (
    project_id {text} NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    name {text} NOT NULL,
    element_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by {text},
    create_version {text} NOT NULL,
    description {text} NOT NULL,
    -- Metadata and planes together, compressed.
    design {bytes} NOT NULL,
    PRIMARY KEY (project_id, number)
);

-- The highest role that a key gives, as its place in the rank, and when it ends; none: as its user, and never.
ALTER TABLE api_keys ADD COLUMN role BIGINT;
ALTER TABLE api_keys ADD COLUMN expires_at BIGINT;
