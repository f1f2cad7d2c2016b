//! Settings of devices: one by one, and in bulk.

pub(crate) mod bulk;
pub(crate) mod device;
