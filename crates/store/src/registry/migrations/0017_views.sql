-- Views of the device list, which a user saves under a name. They go with their user, and with the organization that they show.
CREATE TABLE user_views (
    id {text} PRIMARY KEY,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- None: whichever organization is looked at.
    organization_id {text} REFERENCES organizations (id) ON DELETE CASCADE,
    name {text} NOT NULL,
    -- The query of an address of the list.
    query {text} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX user_views_names ON user_views (user_id, name);
CREATE INDEX user_views_shown ON user_views (organization_id) WHERE organization_id IS NOT NULL;
