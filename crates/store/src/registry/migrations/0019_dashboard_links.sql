-- A link shows one dashboard without an account, until its end: on a screen on a wall.
CREATE TABLE dashboard_links (
    id {text} PRIMARY KEY,
    dashboard_id {text} NOT NULL REFERENCES organization_dashboards (id) ON DELETE CASCADE,
    organization_id {text} NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    -- Who made it, and by whose rights it reads.
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name {text} NOT NULL,
    -- SHA-256 of its secret.
    digest {bytes} NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX dashboard_links_of ON dashboard_links (dashboard_id, id);
CREATE INDEX dashboard_links_of_organization ON dashboard_links (organization_id);
CREATE INDEX dashboard_links_of_user ON dashboard_links (user_id);
