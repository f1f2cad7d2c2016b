//! What each list may be sorted and searched by. Every list of these can be held to ids, too.

use super::order::{SortField, TableAlias, names};

/// How a noun is listed.
pub(crate) struct Listing {
    /// Its table.
    pub(crate) relation: TableAlias,
    /// What its conditions and its order need besides, joined; the organizations that it belongs to are `o`.
    pub(crate) joined: &'static str,
    /// The column of the organization that a row belongs to, in each table that has an index in an order of the list; none:
    /// the rows are organizations themselves, or are not looked for in the tree.
    pub(crate) organization: Option<&'static str>,
    /// The column that it is searched by, in lower case, of a row of the list's own table or of one that is joined; none: it
    /// is not searched.
    pub(crate) search: Option<&'static str>,
    /// The fields that it can be sorted by.
    pub(crate) fields: &'static [SortField],
    /// The order when none is asked for.
    pub(crate) default: &'static str,
}

/// The fields that each list can be sorted by, as the API calls them.
pub mod sortable {
    use super::names;

    /// Of the list of devices.
    pub const DEVICES: &[&str] = &names(&super::DEVICE_FIELDS);
    /// Of the list of organizations.
    pub const ORGANIZATIONS: &[&str] = &names(&super::ORGANIZATION_FIELDS);
    /// Of the list of projects.
    pub const PROJECTS: &[&str] = &names(&super::PROJECT_FIELDS);
    /// Of the list of the records of settings that were replaced.
    pub const SETTING_HISTORY: &[&str] = &names(&super::SETTING_HISTORY_FIELDS);
    /// Of the list of users.
    pub const USERS: &[&str] = &names(&super::USER_FIELDS);
}

const DEVICE: TableAlias = TableAlias { table: "devices", alias: "d" };
/// The activity of devices is indexed beside them, where it is written with every event.
const ACTIVITY: TableAlias = TableAlias { table: "device_activity", alias: "a" };
const ORGANIZATION: TableAlias = TableAlias { table: "organizations", alias: "o" };
const PROJECT: TableAlias = TableAlias { table: "projects", alias: "p" };
const USER: TableAlias = TableAlias { table: "users", alias: "u" };

/// When a device was heard last.
pub(super) const DEVICE_LAST_ACTIVE: &str = "a.last_active";

const DEVICE_FIELDS: [SortField; 6] = [
    SortField::indexed("name", "d.name", DEVICE),
    SortField::indexed("description", "coalesce(d.description, '')", DEVICE),
    SortField::indexed("createdAt", "d.created_at", DEVICE),
    SortField::indexed("updatedAt", "d.updated_at", DEVICE),
    SortField::indexed("lastActive", DEVICE_LAST_ACTIVE, ACTIVITY),
    SortField::indexed("statusInt", "d.status", DEVICE),
];

/// Searched by name, description, id and the values of the metadata.
pub(crate) const DEVICES: Listing = Listing {
    relation: DEVICE,
    joined: " JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
             JOIN device_search s ON s.key = d.key",
    organization: Some("organization_id"),
    search: Some("s.search"),
    fields: &DEVICE_FIELDS,
    default: "name",
};

const ORGANIZATION_FIELDS: [SortField; 4] = [
    SortField::indexed("name", "o.name", ORGANIZATION),
    SortField::unindexed("description", "coalesce(o.description, '')"),
    SortField::unindexed("createdAt", "o.created_at"),
    SortField::unindexed("updatedAt", "o.updated_at"),
];

/// Searched by name and description.
pub(crate) const ORGANIZATIONS: Listing = Listing {
    relation: ORGANIZATION,
    joined: "",
    organization: None,
    search: Some("o.search"),
    fields: &ORGANIZATION_FIELDS,
    default: "name",
};

const PROJECT_FIELDS: [SortField; 3] = [
    SortField::indexed("name", "p.name", PROJECT),
    SortField::unindexed("createdAt", "p.created_at"),
    SortField::unindexed("updatedAt", "p.updated_at"),
];

/// Searched by name and id; held to a type by a condition of its own.
pub(crate) const PROJECTS: Listing = Listing {
    relation: PROJECT,
    joined: " JOIN organizations o ON o.id = p.organization_id",
    organization: Some("organization_id"),
    search: Some("p.search"),
    fields: &PROJECT_FIELDS,
    default: "name",
};

const USER_FIELDS: [SortField; 9] = [
    SortField::indexed("username", "u.username", USER),
    SortField::indexed("email", "u.email", USER),
    SortField::indexed("firstName", "u.first_name", USER),
    SortField::indexed("lastName", "u.last_name", USER),
    SortField::indexed("company", "u.company", USER),
    SortField::indexed("role", "u.role", USER),
    SortField::indexed("createdAt", "u.created_at", USER),
    SortField::indexed("updatedAt", "u.updated_at", USER),
    SortField::indexed("lastActive", "coalesce(u.last_active, 0)", USER),
];

/// Searched by username, e-mail address, names and company.
pub(crate) const USERS: Listing = Listing {
    relation: USER,
    joined: " JOIN organizations o ON o.id = u.organization_id",
    organization: Some("organization_id"),
    search: Some("u.search"),
    fields: &USER_FIELDS,
    default: "username",
};

const SETTING_HISTORY_FIELDS: [SortField; 4] = [
    SortField::unindexed("changedAt", "s.changed_at"),
    SortField::unindexed("createdAt", "s.created_at"),
    // A replaced record was touched last when it was replaced.
    SortField::unindexed("updatedAt", "s.changed_at"),
    SortField::unindexed("name", "s.name"),
];

/// Of one device, newest first.
pub(crate) const SETTING_HISTORY: Listing = Listing {
    relation: TableAlias { table: "settings", alias: "s" },
    joined: "",
    organization: None,
    search: None,
    fields: &SETTING_HISTORY_FIELDS,
    default: "-changedAt",
};

/// Of one user.
pub(crate) const API_KEYS: Listing = Listing {
    relation: TableAlias { table: "api_keys", alias: "k" },
    joined: "",
    organization: None,
    search: None,
    fields: &[SortField::unindexed("createdAt", "k.created_at")],
    default: "createdAt",
};
