//! Usage of an organization, measured by its limits (contract: Resources).

/// The usage of a limit that an organization's administrators were last notified of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fill {
    /// Below nine tenths.
    #[default]
    Below = 0,
    /// Nine tenths are used.
    Near = 1,
    /// All is used.
    Full = 2,
}

/// Share of a limit at which it is near.
const NEAR: f64 = 0.9;
/// Hysteresis: share of a limit by which usage must fall below a mark before it can cross it again.
const SLACK: f64 = 0.1;

impl Fill {
    /// Returns its number in the registry.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Returns the fill with that number.
    pub fn numbered(number: i64) -> Option<Self> {
        [Fill::Below, Fill::Near, Fill::Full].into_iter().find(|fill| fill.number() == number)
    }

    /// Returns the share of the limit that it stands for, in percent.
    pub const fn percent(self) -> u8 {
        match self {
            Fill::Below => 0,
            Fill::Near => 90,
            Fill::Full => 100,
        }
    }

    /// Returns the fill after a change of usage; `limit` 0 is unlimited. It rises at a mark, and falls only well below
    /// it, so that usage that fluctuates around a mark crosses it once.
    pub fn after(self, used: f64, limit: f64) -> Self {
        if limit <= 0.0 {
            return Fill::Below;
        }
        let share = used / limit;
        let reached = |slack: f64| match share {
            share if share >= 1.0 - slack => Fill::Full,
            share if share >= NEAR - slack => Fill::Near,
            _ => Fill::Below,
        };
        self.min(reached(SLACK)).max(reached(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_crossed_again_only_after_a_fall() {
        let story = [
            (89.0, Fill::Below),
            (90.0, Fill::Near),
            (99.9, Fill::Near),
            (100.0, Fill::Full),
            (91.0, Fill::Full),
            (101.0, Fill::Full),
            (89.0, Fill::Near),
            (100.0, Fill::Full),
            (81.0, Fill::Near),
            (79.0, Fill::Below),
            (200.0, Fill::Full),
            (0.0, Fill::Below),
        ];
        let mut fill = Fill::default();
        for (used, expected) in story {
            fill = fill.after(used, 100.0);
            assert_eq!(fill, expected, "{used}");
            assert_eq!(Fill::numbered(fill.number()), Some(fill));
        }
        assert_eq!(Fill::Full.after(5.0, 0.0), Fill::Below);
    }
}
