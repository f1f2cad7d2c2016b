//! The verbs of the interface, a file per resource. They are methods of [`crate::Hub`], and use what the rooms below give.

pub(crate) mod alarms;
pub(crate) mod api_keys;
pub(crate) mod appearance;
pub(crate) mod boards;
pub(crate) mod bucket_rows;
pub(crate) mod buckets;
pub(crate) mod data;
pub(crate) mod device_creation;
pub(crate) mod device_labels;
pub(crate) mod device_selection;
pub(crate) mod devices;
pub(crate) mod dry_runs;
pub(crate) mod event_stream;
pub(crate) mod export;
pub(crate) mod followed_lists;
pub(crate) mod history;
pub(crate) mod images;
pub(crate) mod notifications;
pub(crate) mod organizations;
pub(crate) mod picture;
pub(crate) mod projects;
pub(crate) mod queue;
pub(crate) mod specifications;
pub(crate) mod user_updates;
pub(crate) mod users;
pub(crate) mod views;
