//! What the rooms above need of the registry again and again, in bounded caches: entries of devices, plans and accounts, and devices as they are read.

pub(crate) mod departures;
pub(crate) mod device_entries;
pub(crate) mod entries;
pub(crate) mod loading_cache;
pub(crate) mod single_flight;
pub(crate) mod snapshots;
