//! What each list may be sorted and searched by. Every list of these can be held to ids, too.

use super::device_filters::DeviceField;
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

    /// Of the list of alarms.
    pub const ALARMS: &[&str] = &names(&super::ALARM_FIELDS);
    /// Of the list of devices.
    pub const DEVICES: &[&str] = &names(&super::DEVICE_SORT_FIELDS);
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

/// A field of the list of devices, declared once: the orders, the filters, their SQL and what the API says of both come from
/// [`DEVICE_FIELDS`].
pub(super) struct DeviceListField {
    /// Its name in the API.
    pub(super) name: &'static str,
    /// What stands for it in SQL.
    pub(super) column: &'static str,
    /// The table that it is in, with an index by the column.
    pub(super) relation: TableAlias,
    /// Whether the list can be sorted by it.
    is_sortable: bool,
    /// What filters call it; none: the list cannot be filtered by it.
    pub(super) filter: Option<DeviceField>,
}

const fn field(
    name: &'static str,
    column: &'static str,
    relation: TableAlias,
    is_sortable: bool,
    filter: Option<DeviceField>,
) -> DeviceListField {
    DeviceListField { name, column, relation, is_sortable, filter }
}

/// What devices can be sorted and filtered by, besides the paths beneath their metadata.
pub(super) const DEVICE_FIELDS: &[DeviceListField] = &[
    field("name", "d.name", DEVICE, true, Some(DeviceField::Name)),
    field("description", "coalesce(d.description, '')", DEVICE, true, None),
    field("createdAt", "d.created_at", DEVICE, true, Some(DeviceField::CreatedAt)),
    field("updatedAt", "d.updated_at", DEVICE, true, Some(DeviceField::UpdatedAt)),
    field("lastActive", DEVICE_LAST_ACTIVE, ACTIVITY, true, Some(DeviceField::LastActive)),
    field("statusInt", "d.status", DEVICE, true, Some(DeviceField::Status)),
    field("projectUuid", "d.project_id", DEVICE, false, Some(DeviceField::Project)),
];

const DEVICE_SORT_FIELDS: [SortField; 6] = {
    let (mut fields, mut count, mut at) = ([SortField::unindexed("", ""); 6], 0, 0);
    while at < DEVICE_FIELDS.len() {
        let field = &DEVICE_FIELDS[at];
        if field.is_sortable {
            fields[count] = SortField::indexed(field.name, field.column, field.relation);
            count += 1;
        }
        at += 1;
    }
    assert!(count == fields.len(), "one place for each field");
    fields
};

/// Searched by name, description, id and the values of the metadata.
pub(crate) const DEVICES: Listing = Listing {
    relation: DEVICE,
    joined: " JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
             JOIN device_search s ON s.key = d.key",
    organization: Some("organization_id"),
    search: Some("s.search"),
    fields: &DEVICE_SORT_FIELDS,
    default: "name",
};

/// The place in rising urgency of the most urgent status in the subtree of `o`: each question is one look into an index.
macro_rules! urgency {
    () => {
        "(SELECT CAST(max(CASE \
            WHEN EXISTS (SELECT 1 FROM devices d WHERE d.organization_id = s.id AND d.status = 4) THEN 5 \
            WHEN EXISTS (SELECT 1 FROM devices d WHERE d.organization_id = s.id AND d.status = 3) THEN 4 \
            WHEN EXISTS (SELECT 1 FROM devices d WHERE d.organization_id = s.id AND d.status = 5) THEN 3 \
            WHEN EXISTS (SELECT 1 FROM devices d WHERE d.organization_id = s.id AND d.status = 2) THEN 2 \
            WHEN EXISTS (SELECT 1 FROM devices d WHERE d.organization_id = s.id AND d.status = 1) THEN 1 ELSE 0 END) AS BIGINT) \
            FROM organizations s WHERE s.lineage >= o.lineage AND s.lineage < o.lineage || '~')"
    };
}
pub(crate) use urgency;

const ORGANIZATION_FIELDS: [SortField; 5] = [
    SortField::indexed("name", "o.name", ORGANIZATION),
    SortField::unindexed("description", "coalesce(o.description, '')"),
    SortField::unindexed("createdAt", "o.created_at"),
    SortField::unindexed("updatedAt", "o.updated_at"),
    SortField::unindexed("urgency", urgency!()),
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

const ALARM: TableAlias = TableAlias { table: "alarms", alias: "a" };

const ALARM_FIELDS: [SortField; 10] = [
    SortField::indexed("raisedAt", "a.raised_at", ALARM),
    SortField::unindexed("severity", "a.severity"),
    // The active ones first.
    SortField::unindexed("state", "a.state"),
    SortField::unindexed("acknowledged", "a.acknowledged"),
    SortField::unindexed("deviceName", "d.name"),
    SortField::unindexed("elementName", "a.element"),
    SortField::unindexed("title", "a.title"),
    SortField::unindexed("count", "a.count"),
    SortField::unindexed("createdAt", "a.created_at"),
    SortField::unindexed("updatedAt", "a.updated_at"),
];

/// Those of a part of the tree.
pub(crate) const ALARMS: Listing = Listing {
    relation: ALARM,
    joined: "",
    organization: Some("organization_id"),
    search: None,
    fields: &ALARM_FIELDS,
    default: "-raisedAt",
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
