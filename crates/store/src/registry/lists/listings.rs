//! Describes the order and the search of each list. Every list can be restricted to ids, too.

use super::device_filters::DeviceField;
use super::order::{SortField, TableAlias, names};

/// Description of the list of a noun.
pub(crate) struct Listing {
    /// Table of the noun.
    pub(crate) relation: TableAlias,
    /// Tables that the conditions and the order need besides, as joins; `o` is the organization of a row.
    pub(crate) joined: &'static str,
    /// Column of the organization of a row, in each table that has an index in an order of the list; `None`: the rows
    /// are organizations themselves, or are not selected by the tree.
    pub(crate) organization: Option<&'static str>,
    /// Column that a search reads, in lower case, of the list's own table or of a joined one; `None`: the list has no
    /// search.
    pub(crate) search: Option<&'static str>,
    /// Fields by which the list can be sorted.
    pub(crate) fields: &'static [SortField],
    /// Default order.
    pub(crate) default: &'static str,
}

/// Fields by which each list can be sorted, by their API names.
pub mod sortable {
    use super::names;

    /// Fields of the list of alarms.
    pub const ALARMS: &[&str] = &names(&super::ALARM_FIELDS);
    /// Fields of the list of devices.
    pub const DEVICES: &[&str] = &names(&super::DEVICE_SORT_FIELDS);
    /// Fields of the list of organizations.
    pub const ORGANIZATIONS: &[&str] = &names(&super::ORGANIZATION_FIELDS);
    /// Fields of the list of projects.
    pub const PROJECTS: &[&str] = &names(&super::PROJECT_FIELDS);
    /// Fields of the list of replaced settings.
    pub const SETTING_HISTORY: &[&str] = &names(&super::SETTING_HISTORY_FIELDS);
    /// Fields of the list of users.
    pub const USERS: &[&str] = &names(&super::USER_FIELDS);
}

const DEVICE: TableAlias = TableAlias { table: "devices", alias: "d" };
/// Table of the activity of devices, which has its own index because it is written with every event.
const ACTIVITY: TableAlias = TableAlias { table: "device_activity", alias: "a" };
const ORGANIZATION: TableAlias = TableAlias { table: "organizations", alias: "o" };
const PROJECT: TableAlias = TableAlias { table: "projects", alias: "p" };
const USER: TableAlias = TableAlias { table: "users", alias: "u" };

/// Column with the moment of a device's last event.
pub(super) const DEVICE_LAST_ACTIVE: &str = "a.last_active";

/// Field of the list of devices, declared once: the orders, the filters, their SQL and the API's description of both
/// derive from [`DEVICE_FIELDS`].
pub(super) struct DeviceListField {
    /// Name in the API.
    pub(super) name: &'static str,
    /// SQL expression of the field.
    pub(super) column: &'static str,
    /// Table of the column, with an index by it.
    pub(super) relation: TableAlias,
    /// True if the list can be sorted by the field.
    is_sortable: bool,
    /// Filter on the field; `None`: the list cannot be filtered by it.
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

/// Fields by which devices can be sorted and filtered, besides the paths in their metadata.
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

/// List of devices, searched by name, description, id and the values of the metadata.
pub(crate) const DEVICES: Listing = Listing {
    relation: DEVICE,
    joined: " JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
             JOIN device_search s ON s.key = d.key",
    organization: Some("organization_id"),
    search: Some("s.search"),
    fields: &DEVICE_SORT_FIELDS,
    default: "name",
};

/// Expression for the rank of the most urgent status in the subtree of `o`: each subquery is one look-up in an index.
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
    SortField::indexed("createdAt", "o.created_at", ORGANIZATION),
    SortField::unindexed("updatedAt", "o.updated_at"),
    SortField::unindexed("urgency", urgency!()),
];

/// List of organizations, searched by name and description.
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
    SortField::indexed("createdAt", "p.created_at", PROJECT),
    SortField::unindexed("updatedAt", "p.updated_at"),
];

/// List of projects, searched by name and id; a condition restricts it to a type.
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

/// List of users, searched by username, e-mail address, names and company.
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
    // The last change of a replaced record was its replacement.
    SortField::unindexed("updatedAt", "s.changed_at"),
    SortField::unindexed("name", "s.name"),
];

/// List of the replaced settings of one device, newest first.
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
    // Active alarms come first.
    SortField::unindexed("state", "a.state"),
    SortField::unindexed("acknowledged", "a.acknowledged"),
    SortField::unindexed("deviceName", "d.name"),
    SortField::unindexed("elementName", "a.element"),
    SortField::unindexed("title", "a.title"),
    SortField::unindexed("count", "a.count"),
    SortField::indexed("createdAt", "a.created_at", ALARM),
    SortField::unindexed("updatedAt", "a.updated_at"),
];

/// List of the alarms of a part of the tree.
pub(crate) const ALARMS: Listing = Listing {
    relation: ALARM,
    joined: "",
    organization: Some("organization_id"),
    search: None,
    fields: &ALARM_FIELDS,
    default: "-raisedAt",
};

/// List of the API keys of one user.
pub(crate) const API_KEYS: Listing = Listing {
    relation: TableAlias { table: "api_keys", alias: "k" },
    joined: "",
    organization: None,
    search: None,
    fields: &[SortField::unindexed("createdAt", "k.created_at")],
    default: "createdAt",
};
