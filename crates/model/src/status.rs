//! Status of devices and organizations (contract: Resources).

/// A status, in rising priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Unknown.
    #[default]
    None,
    /// Normal.
    Good,
    /// For information.
    Info,
    /// Needs attention.
    Warning,
    /// Needs attention now.
    Critical,
    /// Silent for too long.
    Missing,
}

impl Status {
    /// Every status, lowest priority first.
    pub const ALL: [Status; 6] =
        [Status::None, Status::Good, Status::Info, Status::Warning, Status::Critical, Status::Missing];

    /// Every status by urgency, the most urgent first: a warning is not hidden by a missing device.
    pub const BY_URGENCY: [Status; 6] =
        [Status::Critical, Status::Warning, Status::Missing, Status::Info, Status::Good, Status::None];

    /// Returns the status at a position in rising urgency, from 0.
    pub fn of_urgency(urgency: i64) -> Option<Status> {
        let place = usize::try_from(urgency).ok()?;
        Status::BY_URGENCY.into_iter().rev().nth(place)
    }

    /// Returns its `statusInt`.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns its `statusText`.
    pub const fn name(self) -> &'static str {
        match self {
            Status::None => "none",
            Status::Good => "good",
            Status::Info => "info",
            Status::Warning => "warning",
            Status::Critical => "critical",
            Status::Missing => "missing",
        }
    }

    /// Returns the status with that `statusInt`.
    pub fn numbered(number: i64) -> Option<Status> {
        usize::try_from(number).ok().and_then(|index| Status::ALL.get(index).copied())
    }

    /// Returns the status with that `statusText`.
    pub fn named(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_puts_missing_below_warnings() {
        let rising: Vec<_> = (0..6).filter_map(Status::of_urgency).map(Status::name).collect();
        assert_eq!(rising, ["none", "good", "info", "missing", "warning", "critical"]);
        assert_eq!([-1, 6].map(Status::of_urgency), [None, None]);
    }
}
