-- Every noun of the platform. {text} sorts by code point, {bytes} are raw bytes, {key} counts up and is never given
-- out twice. Times are milliseconds, truth is 0 or 1, JSON is kept as the text it came as.

CREATE TABLE organizations (
    id {text} PRIMARY KEY,
    parent_id {text} REFERENCES organizations (id),
    name {text} NOT NULL,
    description {text},
    -- /<id>/<id>/ from the top to itself: a subtree is a range.
    lineage {text} NOT NULL UNIQUE,
    level BIGINT NOT NULL,
    search {text} NOT NULL,
    -- Devices of its own, kept with every device that comes, goes or moves.
    device_count BIGINT NOT NULL DEFAULT 0,
    -- Bytes that its own devices have stored, kept with device_usage.
    bytes_stored BIGINT NOT NULL DEFAULT 0,
    device_count_limit DOUBLE PRECISION NOT NULL DEFAULT 0,
    data_usage_mb_limit DOUBLE PRECISION NOT NULL DEFAULT 0,
    children_inherit_dashboard BIGINT NOT NULL DEFAULT 0,
    device_table {text},
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX organizations_parent ON organizations (parent_id);
CREATE INDEX organizations_tree ON organizations (lineage, level, id, device_count, bytes_stored);
CREATE INDEX organizations_name ON organizations (name, id);
CREATE INDEX organizations_limited ON organizations (id) WHERE device_count_limit > 0 OR data_usage_mb_limit > 0;

CREATE TABLE organization_brandings (
    organization_id {text} PRIMARY KEY REFERENCES organizations (id) ON DELETE CASCADE,
    company_name {text},
    address_line_1 {text},
    address_line_2 {text},
    domain {text},
    domain_http_file_overrides {text},
    domain_public_configuration {text},
    email {text},
    email_sender_name {text}
);

CREATE TABLE organization_dashboards (
    organization_id {text} PRIMARY KEY REFERENCES organizations (id) ON DELETE CASCADE,
    name {text},
    options {text} NOT NULL,
    configuration {text} NOT NULL
);

-- How near to its limits an organization was found to be.
CREATE TABLE organization_alerts (
    organization_id {text} NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    -- What is limited.
    used {text} NOT NULL,
    fill BIGINT NOT NULL,
    -- Since when it is so full.
    since BIGINT NOT NULL,
    -- Whether its administrators were told.
    told BIGINT NOT NULL,
    PRIMARY KEY (organization_id, used)
);

CREATE TABLE users (
    id {text} PRIMARY KEY,
    organization_id {text} NOT NULL REFERENCES organizations (id),
    username {text} NOT NULL,
    email {text} NOT NULL,
    -- The place of the role in its rank, lowest first.
    role BIGINT NOT NULL,
    first_name {text} NOT NULL,
    last_name {text} NOT NULL,
    company {text} NOT NULL,
    job_title {text},
    language {text},
    tos_hash {text},
    preferences {text},
    disabled BIGINT NOT NULL DEFAULT 0,
    verified BIGINT NOT NULL DEFAULT 0,
    password_hash {text},
    -- Why it was last changed, for the operator alone.
    reason {text},
    search {text} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_active BIGINT
);
CREATE INDEX users_organization ON users (organization_id, username, id);
-- One for each order of the list, with what the walk along it needs.
CREATE INDEX users_username ON users (username, id, organization_id);
CREATE INDEX users_by_email ON users (email, id, organization_id);
CREATE INDEX users_by_first_name ON users (first_name, id, organization_id);
CREATE INDEX users_by_last_name ON users (last_name, id, organization_id);
CREATE INDEX users_by_company ON users (company, id, organization_id);
CREATE INDEX users_by_role ON users (role, id, organization_id);
CREATE INDEX users_by_creation ON users (created_at, id, organization_id);
CREATE INDEX users_by_update ON users (updated_at, id, organization_id);
CREATE INDEX users_by_activity ON users (coalesce(last_active, 0), id, organization_id);

-- What a user may call itself at login: its username and its e-mail address, in lower case. One space of names for
-- both, so that nobody can take another's address as a username.
CREATE TABLE login_names (
    name {text} PRIMARY KEY,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE
);
CREATE INDEX login_names_user ON login_names (user_id);

CREATE TABLE sessions (
    id {text} PRIMARY KEY,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    refresh {bytes} UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_end ON sessions (expires_at);

-- What a link in an e-mail carries: of each purpose a user has at most one.
CREATE TABLE nonces (
    digest {bytes} PRIMARY KEY,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    purpose {text} NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX nonces_purpose ON nonces (user_id, purpose);
CREATE INDEX nonces_end ON nonces (expires_at);

-- Where a user has signed in from.
CREATE TABLE sign_in_addresses (
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    address {text} NOT NULL,
    last_seen BIGINT NOT NULL,
    PRIMARY KEY (user_id, address)
);

CREATE TABLE revoked_jwts (
    jti {text} PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX revoked_jwts_end ON revoked_jwts (expires_at);

CREATE TABLE secrets (
    name {text} PRIMARY KEY,
    secret {bytes} NOT NULL
);

CREATE TABLE api_keys (
    id {text} PRIMARY KEY,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name {text} NOT NULL,
    digest {bytes} NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX api_keys_user ON api_keys (user_id, created_at, id);

CREATE TABLE notifications (
    -- In the order in which they were given out.
    number {key},
    id {text} NOT NULL UNIQUE,
    kind {text} NOT NULL,
    message {text} NOT NULL,
    device_id {text},
    -- 1: for every user that there was. Such a notice has no row for each of them, whatever their number.
    everybody BIGINT NOT NULL,
    -- Else for one user, or for those of an organization of at least a rank.
    user_id {text},
    organization_id {text},
    minimum_role BIGINT NOT NULL,
    -- The last user, in the order of ids, that it was spread to: empty at first, none when all have it.
    spread_to {text},
    created_at BIGINT NOT NULL
);
CREATE INDEX notifications_age ON notifications (created_at, number);
CREATE INDEX notifications_everybody ON notifications (created_at, number) WHERE everybody = 1;
CREATE INDEX notifications_spreading ON notifications (number) WHERE spread_to IS NOT NULL;

-- Who has a notice that is not for everybody. Deleting it is deleting the row.
CREATE TABLE notification_recipients (
    number {number} NOT NULL REFERENCES notifications (number) ON DELETE CASCADE,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    read BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (number, user_id)
);
CREATE INDEX notification_recipients_inbox ON notification_recipients (user_id, created_at, number, read);

-- What a user did to a notice that is for everybody.
CREATE TABLE notification_states (
    number {number} NOT NULL REFERENCES notifications (number) ON DELETE CASCADE,
    user_id {text} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    read BIGINT NOT NULL,
    deleted BIGINT NOT NULL,
    PRIMARY KEY (user_id, number)
);
CREATE INDEX notification_states_notice ON notification_states (number);

-- What a user did to all notices for everybody at once, up to a number; a state of a single one goes before it.
CREATE TABLE notification_marks (
    user_id {text} PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    read_to BIGINT NOT NULL,
    deleted_to BIGINT NOT NULL
);

CREATE TABLE projects (
    id {text} PRIMARY KEY,
    organization_id {text} NOT NULL REFERENCES organizations (id),
    name {text} NOT NULL,
    kind {text} NOT NULL,
    created_by {text},
    search {text} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX projects_organization ON projects (organization_id, name, id);
CREATE INDEX projects_name ON projects (name, id, organization_id);

CREATE TABLE specifications (
    project_id {text} PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    name {text} NOT NULL,
    create_version {text} NOT NULL,
    description {text} NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    meta {text} NOT NULL,
    planes {text} NOT NULL
);

-- What every device of a project has due after so many minutes: intervals by their element, and under the empty name
-- the look whether it is silent.
CREATE TABLE project_alarms (
    project_id {text} NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    element {text} NOT NULL,
    minutes BIGINT NOT NULL,
    PRIMARY KEY (project_id, element)
);

CREATE TABLE devices (
    key {key},
    id {text} NOT NULL UNIQUE,
    organization_id {text} NOT NULL REFERENCES organizations (id),
    project_id {text} NOT NULL REFERENCES projects (id),
    token {bytes} NOT NULL UNIQUE,
    name {text} NOT NULL,
    version {text},
    protocol {text},
    protocols {text} NOT NULL,
    meta {text} NOT NULL,
    description {text},
    street_address {text},
    latitude DOUBLE PRECISION,
    longitude DOUBLE PRECISION,
    -- Where it is shown: there, or else where its metadata says. Kept with every change of either.
    place_latitude DOUBLE PRECISION,
    place_longitude DOUBLE PRECISION,
    status BIGINT NOT NULL DEFAULT 0,
    -- What a missing device gets back when it is heard again.
    status_before BIGINT NOT NULL DEFAULT 0,
    created_by {text},
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX devices_organization ON devices (organization_id, name, id);
CREATE INDEX devices_worst ON devices (organization_id, status);
CREATE INDEX devices_project ON devices (project_id);
CREATE INDEX devices_placed ON devices (organization_id, key) WHERE place_latitude IS NOT NULL;
-- One for each order of the list, with what the walk along it needs. Where many devices are alike, the ascending id
-- within them needs one for each direction.
CREATE INDEX devices_by_name ON devices (name, id, organization_id);
CREATE INDEX devices_by_description ON devices (coalesce(description, ''), id, organization_id);
CREATE INDEX devices_by_description_down ON devices (coalesce(description, '') DESC, id, organization_id);
CREATE INDEX devices_by_creation ON devices (created_at, id, organization_id);
CREATE INDEX devices_by_update ON devices (updated_at, id, organization_id);
CREATE INDEX devices_by_status ON devices (status, id, organization_id);
CREATE INDEX devices_by_status_down ON devices (status DESC, id, organization_id);

-- Beside the devices, because it is written with every event: short rows keep those writes small.
CREATE TABLE device_activity (
    key {number} PRIMARY KEY REFERENCES devices (key) ON DELETE CASCADE,
    id {text} NOT NULL,
    organization_id {text} NOT NULL,
    -- 0: never.
    last_active BIGINT NOT NULL
);
CREATE INDEX device_activity_order ON device_activity (last_active DESC, id, organization_id);
CREATE INDEX device_activity_order_up ON device_activity (last_active, id, organization_id);

CREATE TABLE device_alarms (
    id {key},
    device_key BIGINT NOT NULL REFERENCES devices (key) ON DELETE CASCADE,
    element {text} NOT NULL,
    due_at BIGINT NOT NULL,
    UNIQUE (device_key, element)
);
CREATE INDEX device_alarms_due ON device_alarms (due_at, id);

-- Beside the devices, because it is read from end to end: what a device is searched by, in lower case.
CREATE TABLE device_search (
    key {number} PRIMARY KEY REFERENCES devices (key) ON DELETE CASCADE,
    organization_id {text} NOT NULL,
    search {text} NOT NULL
);

-- Beside the devices, so that one is found by a label of its metadata: those of its members that are texts, numbers or
-- truths, as text. The webhook asks for them (contract: Integration webhook).
CREATE TABLE device_labels (
    label {text} NOT NULL,
    value {text} NOT NULL,
    device_key {number} NOT NULL REFERENCES devices (key) ON DELETE CASCADE,
    PRIMARY KEY (label, value, device_key)
);
CREATE INDEX device_labels_device ON device_labels (device_key);
-- Bytes that a device has stored, as they were last counted.
CREATE TABLE device_usage (
    key {number} PRIMARY KEY REFERENCES devices (key) ON DELETE CASCADE,
    bytes BIGINT NOT NULL
);

-- Present while the registry knows all that was stored: from an orderly stop to the next start.
CREATE TABLE usage_counted (
    counted BIGINT PRIMARY KEY
);

CREATE TABLE settings (
    id {text} PRIMARY KEY,
    device_key BIGINT NOT NULL REFERENCES devices (key) ON DELETE CASCADE,
    name {text} NOT NULL,
    -- None: the default of the design.
    value {text},
    created_at BIGINT NOT NULL,
    changed_at BIGINT,
    changed_to {text},
    changed_by {text}
);
CREATE UNIQUE INDEX settings_current ON settings (device_key, name) WHERE changed_at IS NULL;
CREATE INDEX settings_replaced ON settings (device_key, changed_at, id);

-- What is to leave the house, until it has: e-mails, calls. It names what it is about, and refers to nothing.
CREATE TABLE deliveries (
    id {text} PRIMARY KEY,
    kind {text} NOT NULL,
    body {text} NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (kind, due_at, id);
-- Of an organization, a project, a user or a device; it goes with its owner. Apart from them, so that no list reads it.
CREATE TABLE images (
    organization_id {text} UNIQUE REFERENCES organizations (id) ON DELETE CASCADE,
    project_id {text} UNIQUE REFERENCES projects (id) ON DELETE CASCADE,
    user_id {text} UNIQUE REFERENCES users (id) ON DELETE CASCADE,
    device_id {text} UNIQUE REFERENCES devices (id) ON DELETE CASCADE,
    -- As it was sent.
    posted {text} NOT NULL,
    png {bytes} NOT NULL,
    digest {bytes} NOT NULL,
    updated_at BIGINT NOT NULL
);
