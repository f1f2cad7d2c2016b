//! What comes due by itself: intervals and the look for missing devices, the end of what is old.

pub(crate) mod retention;
pub(crate) mod scheduler;
