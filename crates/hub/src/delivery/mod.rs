//! What happens after a commit: what designs found out goes into the registry, people are told, servers are called.

pub(crate) mod calls;
pub(crate) mod device_notices;
pub(crate) mod emails;
pub(crate) mod mail_queue;
pub(crate) mod notifications;
