//! What is kept of stored values (contract: Beyond the specification): what is older, or more, is not shown and comes never back, whatever
//! the design says later.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Most days that a storage element may name: ten years.
pub const RETENTION_DAYS_MAX: u32 = 3_650;
/// Most values that a storage element may name.
pub const RETENTION_VALUES_MAX: u64 = 1_000_000_000;
/// Former bounds that are remembered of one element: each has let more values than the one before it.
const FORMER_MAX: usize = 16;
/// Elements of a project whose bounds are remembered.
const RETENTION_ELEMENTS_MAX: usize = 2_000;
/// How far ahead of the clock a former bound may end that a right clock has ended: clocks are set back a little now and then.
const BOUND_AHEAD_MILLIS_MAX: i64 = 1_000 * SECONDS_A_DAY;

const SECONDS_A_DAY: i64 = 86_400;

/// What a design says is kept of a storage element; none of either: everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// What is older than so many days is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Of more values than these only the newest are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<u64>,
}

impl Retention {
    /// Whether everything is kept.
    pub fn is_unbounded(&self) -> bool {
        self.days.is_none() && self.values.is_none()
    }
}

/// The retention of the storage elements of a design that bound it, by name.
pub type DesignRetention = BTreeMap<Arc<str>, Retention>;

/// From where on a series is shown, as a reader of this moment is told; the default shows all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What came before this moment is not shown.
    pub not_before: Option<Timestamp>,
    /// Only so many of the newest are.
    pub values: Option<u64>,
    /// Of what had come before a moment only so many of the newest are.
    pub of_former: Vec<(Timestamp, u64)>,
}

impl Kept {
    /// Whether it shows everything.
    pub fn is_everything(&self) -> bool {
        self.not_before.is_none() && self.values.is_none() && self.of_former.is_empty()
    }
}

/// A bound that was in force until a moment: what it had hidden by then stays hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    until: i64,
    #[serde(flatten)]
    bound: Retention,
}

/// The bounds of one element: that of today, and what former ones have hidden.
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

/// A project's bounds were loosened so often that no more can be remembered before what they hid is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bounds of retention are remembered")]
pub struct TooManyBounds;

impl ProjectRetention {
    /// Reads what [`ProjectRetention::text`] has written.
    ///
    /// # Errors
    /// It is something else.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// As a text to be kept; none: nothing is bounded, and nothing was.
    ///
    /// # Errors
    /// None that is known: names, numbers and lists can be written.
    pub fn text(&self) -> serde_json::Result<Option<String>> {
        if self.0.is_empty() { Ok(None) } else { serde_json::to_string(self).map(Some) }
    }

    /// The bounds after a design with these takes the place of the one before.
    ///
    /// # Errors
    /// More of the former ones would have to be remembered than can be.
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

    /// What former bounds have hidden is dropped for good, everywhere: they need not be remembered.
    pub fn settled(mut self) -> Self {
        self.0.values_mut().for_each(|bounds| bounds.former.clear());
        self.forget_empty();
        self
    }

    /// Whether all former bounds have ended, by a clock that is believed: they have hidden all that they will. One that ended
    /// far later than `clock` says it is was ended by a clock that was wrong: else it would be in force until then.
    pub fn have_ended(&self, believed: Timestamp, clock: Timestamp) -> bool {
        let wrong = clock.millis().saturating_add(BOUND_AHEAD_MILLIS_MAX);
        let mut former = self.0.values().flat_map(|bounds| &bounds.former);
        former.all(|former| former.until <= believed.millis() || former.until > wrong)
    }

    /// Whether former bounds are remembered.
    pub fn remembers(&self) -> bool {
        self.0.values().any(|bounds| !bounds.former.is_empty())
    }

    /// About what it takes in memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        // A node of the map is half full at least, and a text and a list are blocks of their own.
        let beside = 2 * (size_of::<Arc<str>>() + size_of::<ElementBounds>()) + 4 * size_of::<usize>();
        let former = |bounds: &ElementBounds| bounds.former.capacity() * size_of::<Former>();
        self.0.iter().map(|(element, bounds)| element.len() + former(bounds) + beside).sum()
    }

    /// What is shown of an element now.
    pub fn kept(&self, element: &str, now: Timestamp) -> Kept {
        self.0.get(element).map(|bounds| bounds.kept(now)).unwrap_or_default()
    }

    /// What is shown now of every element that has bounds.
    pub fn all_kept(&self, now: Timestamp) -> Vec<(Arc<str>, Kept)> {
        self.0.iter().map(|(element, bounds)| (Arc::clone(element), bounds.kept(now))).collect()
    }

    fn forget_empty(&mut self) {
        self.0.retain(|_, bounds| !bounds.today.is_unbounded() || !bounds.former.is_empty());
    }
}

/// The moment before which nothing is shown by a bound of so many days, as of a moment.
fn cutoff(days: u32, as_of: Timestamp) -> Timestamp {
    as_of.plus_seconds(-(i64::from(days) * SECONDS_A_DAY))
}

/// The next millisecond.
fn behind(moment: Timestamp) -> Timestamp {
    Timestamp::from_millis(moment.millis().saturating_add(1))
}

impl ElementBounds {
    fn kept(&self, now: Timestamp) -> Kept {
        // A design that was written by a clock ahead of this one hides no more than it does now.
        let until = |former: &Former| Timestamp::from_millis(former.until).min(now);
        let former = |former: &Former| former.bound.days.map(|days| cutoff(days, until(former)));
        let today = self.today.days.map(|days| cutoff(days, now));
        Kept {
            not_before: self.former.iter().filter_map(former).chain(today).max(),
            values: self.today.values,
            // What came in the very millisecond came before the design was changed, which takes longer.
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

    /// A former bound goes where a later one, or that of today, hides at least as much.
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
    fn what_is_bounded_moves_with_time() {
        let project = after(&[(100, Some(30), Some(5))]);
        let kept = project.kept("log", day(200));
        assert_eq!(kept, Kept { not_before: Some(day(170)), values: Some(5), of_former: Vec::new() });
        assert!(project.kept("other", day(200)).is_everything());
        assert_eq!(after(&[(100, None, None)]).text().unwrap(), None);
    }

    #[test]
    fn a_longer_retention_brings_nothing_back() {
        let longer = after(&[(100, Some(30), None), (110, Some(365), None)]);
        assert_eq!(longer.kept("log", day(111)).not_before, Some(day(80)));
        assert_eq!(longer.kept("log", day(1_000)).not_before, Some(day(635)));
        let unbounded = after(&[(100, Some(30), None), (110, None, None)]);
        assert_eq!(unbounded.kept("log", day(500)).not_before, Some(day(80)));
        let more = after(&[(100, None, Some(10)), (110, None, Some(100)), (120, None, None)]);
        assert_eq!(more.kept("log", day(500)).of_former, [(behind(day(110)), 10), (behind(day(120)), 100)]);
        // By a clock that is behind the one that wrote them.
        assert_eq!(more.kept("log", day(115)).of_former, [(behind(day(110)), 10), (behind(day(115)), 100)]);
    }

    #[test]
    fn a_bound_has_ended_by_a_believed_clock_or_was_ended_by_a_wrong_one() {
        let loosened = after(&[(100, Some(30), None), (110, None, None)]);
        // What time it is believed to be, and what the clock says.
        for (believed, clock, has_ended) in
            [(110, 110, true), (109, 110, false), (50, 500, false), (109, 109, false), (108, 108, true), (20, 20, true)]
        {
            assert_eq!(loosened.have_ended(day(believed), day(clock)), has_ended, "{believed}, {clock}");
        }
        // Each by itself: one that is waited for is waited for beside one that is not.
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
    fn what_a_later_bound_hides_is_not_remembered_twice() {
        assert!(!after(&[(100, Some(365), Some(100)), (110, Some(30), Some(10))]).remembers());
        assert!(!after(&[(100, Some(30), Some(10)), (110, Some(30), Some(10))]).remembers());
        let often: Vec<_> = (0..100).map(|n| (n, Some(30 + n as u32 % 2), Some(10 + n as u64 % 2))).collect();
        let project = after(&often);
        assert_eq!(project.0.values().map(|bounds| bounds.former.len()).sum::<usize>(), 1, "{project:?}");
        assert!(!project.settled().remembers());
    }

    #[test]
    fn as_many_bounds_are_remembered_as_can_be() {
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
    fn it_is_read_as_it_was_written() {
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
        /// Whatever designs come one after the other: what one of them has hidden no later reader is shown, and nothing
        /// else is hidden.
        #[test]
        fn what_is_hidden_is_what_was_hidden_once(
            steps in proptest::collection::vec((proptest::option::of(1u32..40), proptest::option::of(1u64..40)), 1..12),
            stored in proptest::collection::btree_set(0i64..120, 0..60),
        ) {
            // Values come at the middle of a day, designs at its beginning, every tenth day.
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
                    // Until this moment the design before was in force.
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
