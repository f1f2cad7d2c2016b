//! What the registry remembers, a file per noun.

pub(crate) mod alarms;
pub(crate) mod api_keys;
pub(crate) mod appearance;
pub(crate) mod credentials;
pub(crate) mod deliveries;
pub(crate) mod delivery_quota;
pub(crate) mod device_change;
pub(crate) mod devices;
pub(crate) mod findings;
pub(crate) mod images;
pub(crate) mod labels;
pub(crate) mod nonces;
pub(crate) mod notices;
pub(crate) mod notifications;
pub(crate) mod organization_change;
pub(crate) mod organizations;
pub(crate) mod packed_design;
pub(crate) mod projects;
pub(crate) mod provisioning;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod sign_ins;
pub(crate) mod specification_versions;
pub(crate) mod specifications;
pub(crate) mod usage;
pub(crate) mod users;
