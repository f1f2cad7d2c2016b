//! Retention of stored values (contract: Beyond the specification): values that are too old, or too many, are hidden
//! for good, even if the design is changed later.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Longest retention of a storage element, in days: ten years.
pub const RETENTION_DAYS_MAX: u32 = 3_650;
/// Largest retention of a storage element, in values.
pub const RETENTION_VALUES_MAX: u64 = 1_000_000_000;
/// Most former bounds of one element; each allowed more than the one before it.
const FORMER_MAX: usize = 16;
/// Most elements of a project with stored bounds.
const RETENTION_ELEMENTS_MAX: usize = 2_000;
/// Tolerance for former bounds that ended ahead of the clock, in milliseconds, as clocks may be set back a little.
const BOUND_AHEAD_MILLIS_MAX: i64 = 1_000 * SECONDS_A_DAY;

const SECONDS_A_DAY: i64 = 86_400;

/// The retention of a storage element by its design; without bounds all values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Maximum age, in days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Maximum number of values; the newest are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<u64>,
}

impl Retention {
    /// Returns true if all values are kept.
    pub fn is_unbounded(&self) -> bool {
        self.days.is_none() && self.values.is_none()
    }
}

/// Retention of a design's bounded storage elements, by name.
pub type DesignRetention = BTreeMap<Arc<str>, Retention>;

/// The visible part of a series at a moment; the default shows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Start of the visible part.
    pub not_before: Option<Timestamp>,
    /// Number of the newest values that are visible.
    pub values: Option<u64>,
    /// Number of the newest visible values among those before each moment.
    pub of_former: Vec<(Timestamp, u64)>,
}

impl Kept {
    /// Returns true if all values are visible.
    pub fn is_everything(&self) -> bool {
        self.not_before.is_none() && self.values.is_none() && self.of_former.is_empty()
    }

    /// Returns the part of the values that came before a moment, and all that came later.
    pub fn as_of(self, moment: Timestamp) -> Self {
        let newest = self.values.map(|most| (moment, most));
        Self { values: None, of_former: self.of_former.into_iter().chain(newest).collect(), ..self }
    }
}

/// A bound that applied until a moment; what it had hidden by then stays hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    until: i64,
    #[serde(flatten)]
    bound: Retention,
}

/// The bounds of an element: the current one, and former ones that still hide values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ElementBounds {
    #[serde(flatten)]
    today: Retention,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<Former>,
}

/// The bounds of all storage elements of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectRetention(BTreeMap<Arc<str>, ElementBounds>);

/// The error for bounds that were loosened too often before hidden values were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bounds of retention are remembered")]
pub struct TooManyBounds;

impl ProjectRetention {
    /// Parses the text of [`ProjectRetention::text`].
    ///
    /// # Errors
    /// The text has another form.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Serializes the bounds for storage; `None` if there are no current and no former ones.
    ///
    /// # Errors
    /// None is known: names, numbers and lists can be serialized.
    pub fn text(&self) -> serde_json::Result<Option<String>> {
        if self.0.is_empty() { Ok(None) } else { serde_json::to_string(self).map(Some) }
    }

    /// Returns the bounds after a new design.
    ///
    /// # Errors
    /// Too many former bounds would have to be stored.
    pub fn replaced(mut self, design: &DesignRetention, now: Timestamp) -> Result<Self, TooManyBounds> {
        for element in design.keys() {
            self.0.entry(Arc::clone(element)).or_default();
        }
        for (element, bounds) in &mut self.0 {
            bounds.replace(design.get(element).copied().unwrap_or_default(), now);
        }
        self.forget_empty();
        let is_too_much =
            self.0.len() > RETENTION_ELEMENTS_MAX || self.0.values().any(|it| it.former.len() > FORMER_MAX);
        if is_too_much { Err(TooManyBounds) } else { Ok(self) }
    }

    /// Drops former bounds, after all that they hid was deleted.
    pub fn settled(mut self) -> Self {
        self.0.values_mut().for_each(|bounds| bounds.former.clear());
        self.forget_empty();
        self
    }

    /// Returns true if all former bounds ended before `believed`, a trusted time, so that they hide no more values. One
    /// that ended far ahead of `clock` was written by a wrong clock and counts as ended.
    pub fn have_ended(&self, believed: Timestamp, clock: Timestamp) -> bool {
        let wrong = clock.millis().saturating_add(BOUND_AHEAD_MILLIS_MAX);
        let mut former = self.0.values().flat_map(|bounds| &bounds.former);
        former.all(|former| former.until <= believed.millis() || former.until > wrong)
    }

    /// Returns true if there are former bounds.
    pub fn remembers(&self) -> bool {
        self.0.values().any(|bounds| !bounds.former.is_empty())
    }

    /// Returns its approximate size in memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        // A map node is at least half full, and a text and a list are allocations of their own.
        let beside = 2 * (size_of::<Arc<str>>() + size_of::<ElementBounds>()) + 4 * size_of::<usize>();
        let former = |bounds: &ElementBounds| bounds.former.capacity() * size_of::<Former>();
        self.0.iter().map(|(element, bounds)| element.len() + former(bounds) + beside).sum()
    }

    /// Returns the visible part of an element now.
    pub fn kept(&self, element: &str, now: Timestamp) -> Kept {
        self.0.get(element).map(|bounds| bounds.kept(now)).unwrap_or_default()
    }

    /// Returns the visible part now of every element with bounds.
    pub fn all_kept(&self, now: Timestamp) -> Vec<(Arc<str>, Kept)> {
        self.0.iter().map(|(element, bounds)| (Arc::clone(element), bounds.kept(now))).collect()
    }

    fn forget_empty(&mut self) {
        self.0.retain(|_, bounds| !bounds.today.is_unbounded() || !bounds.former.is_empty());
    }
}

/// Returns the start of the visible part by a bound of `days`, as of a moment.
fn cutoff(days: u32, as_of: Timestamp) -> Timestamp {
    as_of.plus_seconds(-(i64::from(days) * SECONDS_A_DAY))
}

/// Returns the next millisecond.
fn behind(moment: Timestamp) -> Timestamp {
    Timestamp::from_millis(moment.millis().saturating_add(1))
}

impl ElementBounds {
    fn kept(&self, now: Timestamp) -> Kept {
        // A design written by a clock ahead of this one hides no more than it does now.
        let until = |former: &Former| Timestamp::from_millis(former.until).min(now);
        let former = |former: &Former| former.bound.days.map(|days| cutoff(days, until(former)));
        let today = self.today.days.map(|days| cutoff(days, now));
        Kept {
            not_before: self.former.iter().filter_map(former).chain(today).max(),
            values: self.today.values,
            // Values of the same millisecond came before the change of the design, which takes longer.
            of_former: self.former.iter().filter_map(|it| Some((behind(until(it)), it.bound.values?))).collect(),
        }
    }

    fn replace(&mut self, bound: Retention, now: Timestamp) {
        let before = std::mem::replace(&mut self.today, bound);
        if before != bound && !before.is_unbounded() {
            self.former.push(Former { until: now.millis(), bound: before });
        }
        self.forget_what_others_hide(now);
    }

    /// Removes former bounds that a later one, or the current one, makes redundant.
    fn forget_what_others_hide(&mut self, now: Timestamp) {
        let hidden_days = |it: &Former| it.bound.days.map(|days| cutoff(days, Timestamp::from_millis(it.until)));
        let (mut days_hidden, mut values_hidden) = (self.today.days.map(|days| cutoff(days, now)), self.today.values);
        for former in self.former.iter_mut().rev() {
            match hidden_days(former) {
                Some(own) if days_hidden.is_none_or(|by_others| own > by_others) => days_hidden = Some(own),
                _ => former.bound.days = None,
            }
            match former.bound.values {
                Some(own) if values_hidden.is_none_or(|by_others| own < by_others) => values_hidden = Some(own),
                _ => former.bound.values = None,
            }
        }
        self.former.retain(|former| !former.bound.is_unbounded());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = SECONDS_A_DAY * 1_000;

    fn day(number: i64) -> Timestamp {
        Timestamp::from_millis(number * DAY)
    }

    fn design(days: Option<u32>, values: Option<u64>) -> DesignRetention {
        let bound = Retention { days, values };
        if bound.is_unbounded() { DesignRetention::new() } else { DesignRetention::from([("log".into(), bound)]) }
    }

    fn after(steps: &[(i64, Option<u32>, Option<u64>)]) -> ProjectRetention {
        steps.iter().fold(ProjectRetention::default(), |project, (at, days, values)| {
            project.replaced(&design(*days, *values), day(*at)).unwrap()
        })
    }

    #[test]
    fn visible_part_moves_with_time() {
        let project = after(&[(100, Some(30), Some(5))]);
        let kept = project.kept("log", day(200));
        assert_eq!(kept, Kept { not_before: Some(day(170)), values: Some(5), of_former: Vec::new() });
        assert!(project.kept("other", day(200)).is_everything());
        assert_eq!(after(&[(100, None, None)]).text().unwrap(), None);
    }

    #[test]
    fn longer_retention_restores_nothing() {
        let longer = after(&[(100, Some(30), None), (110, Some(365), None)]);
        assert_eq!(longer.kept("log", day(111)).not_before, Some(day(80)));
        assert_eq!(longer.kept("log", day(1_000)).not_before, Some(day(635)));
        let unbounded = after(&[(100, Some(30), None), (110, None, None)]);
        assert_eq!(unbounded.kept("log", day(500)).not_before, Some(day(80)));
        let more = after(&[(100, None, Some(10)), (110, None, Some(100)), (120, None, None)]);
        assert_eq!(more.kept("log", day(500)).of_former, [(behind(day(110)), 10), (behind(day(120)), 100)]);
        // By a clock behind the one that wrote them.
        assert_eq!(more.kept("log", day(115)).of_former, [(behind(day(110)), 10), (behind(day(115)), 100)]);
    }

    #[test]
    fn former_bound_ends_by_trusted_time_or_wrong_clock() {
        let loosened = after(&[(100, Some(30), None), (110, None, None)]);
        // The trusted time, and the clock's.
        for (believed, clock, has_ended) in
            [(110, 110, true), (109, 110, false), (50, 500, false), (109, 109, false), (108, 108, true), (20, 20, true)]
        {
            assert_eq!(loosened.have_ended(day(believed), day(clock)), has_ended, "{believed}, {clock}");
        }
        // Independently of others, some of which have not ended.
        let twice = after(&[(100, None, Some(10)), (110, None, Some(100)), (150, None, None)]);
        for (believed, clock, have_ended) in [
            (105, 105, true),
            (120, 120, true),
            (150, 150, true),
            (109, 112, false),
            (109, 149, false),
            (110, 149, false),
        ] {
            assert_eq!(twice.have_ended(day(believed), day(clock)), have_ended, "{believed}, {clock}");
        }
        assert!(ProjectRetention::default().have_ended(day(0), day(0)));
    }

    #[test]
    fn redundant_former_bound_is_removed() {
        assert!(!after(&[(100, Some(365), Some(100)), (110, Some(30), Some(10))]).remembers());
        assert!(!after(&[(100, Some(30), Some(10)), (110, Some(30), Some(10))]).remembers());
        let often: Vec<_> = (0..100).map(|n| (n, Some(30 + n as u32 % 2), Some(10 + n as u64 % 2))).collect();
        let project = after(&often);
        assert_eq!(project.0.values().map(|bounds| bounds.former.len()).sum::<usize>(), 1, "{project:?}");
        assert!(!project.settled().remembers());
    }

    #[test]
    fn former_bounds_above_the_limit_are_refused() {
        let loosened = |times: u64| {
            (1..=times).try_fold(ProjectRetention::default(), |project, n| {
                project.replaced(&design(None, Some(n)), day(n as i64))
            })
        };
        let most = loosened(FORMER_MAX as u64 + 1).unwrap();
        assert_eq!(loosened(FORMER_MAX as u64 + 2), Err(TooManyBounds));
        let settled = most.settled();
        assert!(settled.replaced(&design(None, None), day(1_000)).unwrap().remembers());
    }

    #[test]
    fn values_that_came_later_hide_none_as_of_a_moment() {
        let former = vec![(day(3), 7)];
        let kept = Kept { not_before: Some(day(1)), values: Some(10), of_former: former.clone() };
        let of_former = [former, vec![(day(9), 10)]].concat();
        assert_eq!(kept.as_of(day(9)), Kept { not_before: Some(day(1)), values: None, of_former });
        assert!(Kept::default().as_of(day(9)).is_everything());
    }

    #[test]
    fn retention_survives_storage() {
        for project in [
            after(&[(100, Some(30), Some(10)), (110, None, Some(100))]),
            after(&[(100, Some(30), None), (110, None, None)]),
        ] {
            let text = project.text().unwrap().unwrap();
            assert_eq!(ProjectRetention::read(&text).unwrap(), project, "{text}");
        }
        assert!(ProjectRetention::read("[]").is_err());
    }

    proptest::proptest! {
        /// Checks for any sequence of designs that values hidden once stay hidden, and no others are.
        #[test]
        fn hidden_values_stay_hidden_and_no_others(
            steps in proptest::collection::vec((proptest::option::of(1u32..40), proptest::option::of(1u64..40)), 1..12),
            stored in proptest::collection::btree_set(0i64..120, 0..60),
        ) {
            // Values come at noon, designs at midnight of every tenth day.
            let designs: Vec<_> = steps.iter().enumerate().map(|(n, (days, values))| (n as i64 * 10, *days, *values)).collect();
            let project = after(&designs);
            let now = steps.len() as i64 * 10;
            let stored: Vec<i64> = stored.into_iter().filter(|at| *at < now).collect();
            let mut first = 0;
            for today in 0..=now {
                let (_, days, values) = designs[((today / 10) as usize).min(designs.len() - 1)];
                let hides = |days: Option<u32>, values: Option<u64>| {
                    let by_then = stored.iter().filter(|at| **at < today).count();
                    let too_many = values.map_or(0, |most| by_then.saturating_sub(most as usize));
                    let too_old = days.map_or(0, |most| {
                        stored.iter().filter(|at| day(**at).millis() + DAY / 2 < day(today - i64::from(most)).millis()).count()
                    });
                    too_many.max(too_old)
                };
                first = first.max(hides(days, values));
                if today % 10 == 0 && today > 0 {
                    // Until this moment the previous design applied.
                    let (_, days, values) = designs[(today / 10 - 1) as usize];
                    first = first.max(hides(days, values));
                }
            }
            let kept = project.kept("log", day(now));
            let came = |moment: Timestamp| stored.iter().filter(|at| day(**at).millis() + DAY / 2 < moment.millis()).count();
            let shown = kept.of_former.iter().map(|(until, most)| came(*until).saturating_sub(*most as usize))
                .chain(kept.not_before.map(came))
                .chain(kept.values.map(|most| stored.len().saturating_sub(most as usize)))
                .max().unwrap_or_default();
            proptest::prop_assert_eq!(shown, first);
        }
    }
}
