//! Organizations: a tree whose nodes own everything else.

use crate::access::Lineage;
use crate::check::{Input, Patch};
use crate::error::Result;
use crate::ids::OrganizationId;
use crate::json::{Json, RawJson};
use crate::status::Status;
use crate::time::Timestamp;

/// Deepest organization tree, which bounds the length of a lineage.
pub const LEVELS_MAX: usize = 32;

/// An organization in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Organization {
    /// Its identifier.
    pub id: OrganizationId,
    /// 1 to 80 characters.
    pub name: String,
    /// Up to 200 characters.
    pub description: Option<String>,
    /// The path from the top of the tree to itself.
    pub lineage: Lineage,
    /// Names of the organizations on its lineage.
    pub names: Vec<String>,
    /// True if organizations lie beneath it.
    pub has_children: bool,
    /// The highest status among the devices in its subtree.
    pub status: Status,
    /// The most urgent status among them.
    pub urgent_status: Status,
    /// Number of devices in its subtree.
    pub device_count: u64,
    /// Bytes of payloads stored by the devices in its subtree.
    pub bytes_stored: u64,
    /// Most devices in its subtree; 0: unlimited.
    pub device_count_limit: f64,
    /// Most megabytes of stored data in its subtree; 0: unlimited.
    pub data_usage_mb_limit: f64,
    /// True if organizations beneath it show its dashboard.
    pub children_inherit_dashboard: bool,
    /// Configuration of the device table, free-form.
    pub device_table: Option<RawJson>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Bytes of a megabyte in limits and usage.
pub const BYTES_PER_MB: f64 = 1_000_000.0;

impl Organization {
    /// Returns the megabytes stored by the devices in its subtree.
    pub fn data_usage_mb(&self) -> f64 {
        self.bytes_stored as f64 / BYTES_PER_MB
    }
}

/// The body that creates or updates an organization.
#[derive(Clone, Debug, Default)]
pub struct OrganizationInput {
    /// Required.
    pub name: String,
    /// Parent; `null` or an empty text on creation: the caller's organization.
    pub parent: Patch<OrganizationId>,
    /// Up to 200 characters.
    pub description: Patch<String>,
    /// Default false.
    pub children_inherit_dashboard: Option<bool>,
    /// Free-form object.
    pub device_table: Patch<RawJson>,
    /// Set only from an organization above.
    pub device_count_limit: Option<f64>,
    /// Set only from an organization above.
    pub data_usage_mb_limit: Option<f64>,
}

impl OrganizationInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let parent = input.id_or_empty_patch("parentId");
        let read = Self {
            name: input.required_text("name", 1, 80),
            parent,
            description: input.text_patch("description", 0, 200),
            children_inherit_dashboard: input.boolean("childrenInheritDashboard"),
            device_table: input.object_patch("deviceTable"),
            device_count_limit: input.amount("deviceCountLimit"),
            data_usage_mb_limit: input.amount("dataUsageMbLimit"),
        };
        input.unless_any(read)
    }
}
