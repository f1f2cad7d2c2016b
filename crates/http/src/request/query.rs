//! Query parameters (specification: Shared query parameters; contract: Conventions). Collects all faults as
//! `query.<name>`; ignores unknown parameters.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use isobar_hub::{LastChoice, NO_NAME, TreeQuery};
use isobar_model::check::Faults;
use isobar_model::error::Result;
use isobar_model::page::{Depth, LIMIT_MAX, PageRequest, TimeRange};
use isobar_model::path;
use isobar_model::time::Timestamp;
use smallvec::SmallVec;

use super::percent;

/// Repeatable parameters. Some clients write a list as `name[]=a&name[]=b`, or with numbers in the brackets.
const LISTS: [&str; 7] = ["sortBy", "entityList", "lastValues", "columns", "fields", "functions", "deviceIds"];
/// Most parameters that are read.
const PARAMETERS_MAX: usize = 1024;
/// Range of a time in milliseconds since 1970: from 1973 to the end of the year 9999.
pub(crate) const UNIX_MILLIS_MIN: u64 = 100_000_000_000;
pub(crate) const UNIX_MILLIS_MAX: u64 = 253_402_300_799_999;
/// Longest wait for an event, in seconds.
const WAIT_SECONDS_MAX: u64 = 60;

/// Parameters of a request, and the faults found so far.
pub(crate) struct Query<'a> {
    /// Raw query string.
    raw: &'a str,
    pub(super) pairs: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 2]>,
    pub(super) faults: Faults,
}

impl<'a> Query<'a> {
    /// Splits and decodes the parameters without checks. A value that is not UTF-8 becomes U+0000, which no name
    /// contains.
    pub fn of(raw: Option<&'a str>) -> Self {
        let raw = raw.unwrap_or_default();
        let mut pairs: SmallVec<[_; 2]> = form_urlencoded::parse(raw.as_bytes()).take(PARAMETERS_MAX).collect();
        for (name, _) in &mut pairs {
            if let Some(list) = list_of(name) {
                *name = Cow::Borrowed(list);
            }
        }
        // Invalid UTF-8 was decoded to this character, which may also have been sent.
        let may_be_none = |value: &str| value.contains(char::REPLACEMENT_CHARACTER);
        if pairs.iter().any(|(_, value): &(_, Cow<'_, str>)| matches!(value, Cow::Owned(value) if may_be_none(value))) {
            let sent = raw.split('&').filter(|pair| !pair.is_empty());
            for ((_, value), pair) in pairs.iter_mut().zip(sent) {
                if percent::decoded(pair.split_once('=').unwrap_or_default().1, true).is_none() {
                    *value = Cow::Borrowed("\0");
                }
            }
        }
        Self { raw, pairs, faults: Faults::new() }
    }

    /// Returns what was read, or the faults if there are any.
    pub fn end<T>(self, read: T) -> Result<T> {
        self.faults.unless_any(read)
    }

    /// Reads the optional `elementName`.
    pub fn element_name(&mut self) -> Option<String> {
        let name = self.text("elementName")?;
        if name.contains('\0') {
            self.fault("elementName", NO_NAME);
        }
        Some(name)
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Returns a text; an empty one counts as absent.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Returns all values of a parameter, repeated or comma-separated.
    pub(super) fn values<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.pairs.iter().filter(move |(key, _)| key == name).flat_map(|(_, value)| value.split(','))
    }

    /// Returns all paths of a parameter, repeated or comma-separated; a comma within a quoted name is part of it.
    pub(super) fn paths<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.pairs.iter().filter(move |(key, _)| key == name).flat_map(|(_, value)| path::split(value))
    }

    /// Returns the values of a parameter with encoded commas, which may be part of a value.
    fn values_with_comma(&self, name: &str) -> Vec<String> {
        let decoded = |text: &str| {
            let pair = format!("={text}");
            form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let pairs = self.raw.split('&').take(PARAMETERS_MAX).filter_map(|pair| pair.split_once('='));
        let sent =
            pairs.filter(|(key, _)| list_of(&decoded(key)) == Some(name)).flat_map(|(_, value)| value.split(','));
        sent.map(decoded).filter(|value| value.contains(',')).collect()
    }

    pub(super) fn fault(&mut self, name: &str, message: impl Into<String>) {
        self.faults.add(format!("query.{name}"), message);
    }

    /// Reads a parameter with `read`; `what` completes "must be" in the fault.
    pub(super) fn read<T>(&mut self, name: &str, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.get(name)?;
        let value = read(text);
        if value.is_none() {
            self.fault(name, format!("must be {what}"));
        }
        value
    }

    /// Reads an identifier.
    pub fn id<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.read(name, "an identifier", |text| text.parse().ok())
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, name: &str, default: bool) -> bool {
        let read = |text: &str| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        self.read(name, "true or false", read).unwrap_or(default)
    }

    /// Reads `page` and `limit`.
    pub fn page(&mut self) -> PageRequest {
        let default = PageRequest::default();
        let page = self.read("page", "a whole number of at least 1", |text| whole(text).filter(|page| *page >= 1));
        let limit = self.read("limit", &format!("a whole number from 1 to {LIMIT_MAX}"), |text| {
            whole(text).and_then(|limit| u32::try_from(limit).ok()).filter(|limit| (1..=LIMIT_MAX).contains(limit))
        });
        PageRequest::new(page.unwrap_or(default.page), limit.unwrap_or(default.limit))
    }

    /// Reads `from` and `to`.
    pub fn range(&mut self) -> TimeRange {
        // An unescaped `+` before an offset arrives as a space.
        let mut moment = |name| {
            self.read(name, "an RFC 3339 date-time, or milliseconds since 1970", |text| {
                unix_millis(text).or_else(|| text.parse().ok()).or_else(|| text.replace(' ', "+").parse().ok())
            })
        };
        TimeRange { from: moment("from"), to: moment("to") }
    }

    /// Reads `from`, and `to`, which is required.
    pub fn range_with_end(&mut self) -> TimeRange {
        if self.get("to").is_none() {
            self.fault("to", "is required");
        }
        self.range()
    }

    /// Reads `depth`.
    pub fn depth(&mut self) -> Depth {
        let read = |text: &str| match text {
            "all" => Some(Depth::All),
            text => whole(text)
                .filter(|levels| *levels >= 1)
                .map(|levels| Depth::Levels(levels.try_into().unwrap_or(u32::MAX))),
        };
        self.read("depth", "a whole number of at least 1, or all", read).unwrap_or_default()
    }

    /// Reads `wait`, in seconds.
    pub fn wait(&mut self) -> Duration {
        let what = format!("a whole number of seconds from 0 to {WAIT_SECONDS_MAX}");
        let seconds = self.read("wait", &what, |text| whole(text).filter(|seconds| *seconds <= WAIT_SECONDS_MAX));
        Duration::from_secs(seconds.unwrap_or(0))
    }

    /// Reads `lastValues`.
    pub fn last_values(&mut self) -> LastChoice {
        match self.get("lastValues") {
            None | Some("") => LastChoice::None,
            Some("all") => LastChoice::All,
            Some(_) => {
                let mut names: Vec<String> =
                    self.values("lastValues").filter(|name| !name.is_empty()).map(str::to_owned).collect();
                // A name may contain a comma. The reading that matches nothing has no effect.
                names.extend(self.values_with_comma("lastValues"));
                names.sort_unstable();
                names.dedup();
                LastChoice::Elements(names)
            }
        }
    }

    /// Reads the organization by the parameter `base`, and `depth`.
    pub fn tree(&mut self, base: &str) -> TreeQuery {
        TreeQuery { organization: self.id(base), depth: self.depth() }
    }
}

/// Returns the list that a parameter belongs to: `sortBy`, `sortBy[]` and `sortBy[0]` belong to the same.
fn list_of(name: &str) -> Option<&'static str> {
    let list = LISTS.into_iter().find(|list| name.starts_with(list))?;
    let brackets = name.strip_prefix(list)?;
    let inner = brackets.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_place = inner.is_some_and(|place| place.bytes().all(|digit| digit.is_ascii_digit()));
    (brackets.is_empty() || is_place).then_some(list)
}

/// Parses a whole number in digits, saturating at 64 bits.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses a time in milliseconds since 1970, as charting tools send it. Smaller numbers are refused: they would be
/// seconds, or a year.
fn unix_millis(text: &str) -> Option<Timestamp> {
    let millis = whole(text).filter(|millis| (UNIX_MILLIS_MIN..=UNIX_MILLIS_MAX).contains(millis))?;
    i64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Returns the first 64 characters of a client's text, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use isobar_model::error::Error;
    use isobar_model::page::SortKey;
    use proptest::prelude::*;

    use super::*;

    fn faults<T>(raw: &str, read: impl FnOnce(&mut Query<'_>) -> T) -> Vec<String> {
        let mut query = Query::of(Some(raw));
        read(&mut query);
        match query.end(()) {
            Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn value_that_is_not_utf8_names_nothing() {
        let name = |raw| Query::of(Some(raw)).get("elementName").map(str::to_owned);
        for broken in ["elementName=%ff", "a=%EF%BF%BD&&elementName=a%C3", "elementName=%ED%A0%80&b=1"] {
            assert_eq!(name(broken).as_deref(), Some("\0"), "{broken}");
            assert_eq!(faults(broken, |query| query.element_name()), ["query.elementName"], "{broken}");
        }
        assert_eq!(name("elementName=a%EF%BF%BD+%C3%A9&b=%ff").as_deref(), Some("a\u{fffd} \u{e9}"));
        assert_eq!(faults("elementName=a%00b", |query| query.element_name()), ["query.elementName"]);
        assert_eq!(faults("elementName=a", |query| query.element_name()), [] as [&str; 0]);
    }

    // Holds: query.page, query.limit
    #[test]
    fn pages_are_bounded() {
        assert_eq!(Query::of(None).page(), PageRequest::new(1, 100));
        assert_eq!(Query::of(Some("page=3&limit=10000")).page(), PageRequest::new(3, 10_000));
        for bad in ["page=0", "page=-1", "page=", "page=1.5", "page=x", "page=%2B1"] {
            assert_eq!(faults(bad, |query| query.page()), ["query.page"], "{bad}");
        }
        for bad in ["limit=0", "limit=10001", "limit=99999999999999999999"] {
            assert_eq!(faults(bad, |query| query.page()), ["query.limit"], "{bad}");
        }
        assert_eq!(faults("page=0&limit=0", |query| query.page()), ["query.page", "query.limit"]);
    }

    // Holds: query.sortBy, c1.sortBy
    #[test]
    fn sort_order_has_several_spellings() {
        let key = |field: &str, descending| SortKey { field: field.into(), descending };
        for raw in ["sortBy=-name,id", "sortBy=-name&sortBy=+id", "sortBy=-name&sortBy=%2Bid", "sortBy=-name,%20id"] {
            let sort = Query::of(Some(raw)).list(&["name", "id"]).sort;
            assert_eq!(sort, [key("name", true), key("id", false)], "{raw}");
        }
        for bad in ["sortBy=size", "sortBy=", "sortBy=name,", "sortBy=--name"] {
            assert_eq!(faults(bad, |query| query.list(&["name"])), ["query.sortBy"], "{bad}");
        }
    }

    #[test]
    fn times_take_offsets_even_unescaped() {
        let range = Query::of(Some("from=2026-01-02T03:04:05%2B01:00&to=2026-01-02T03:04:05+01:00")).range();
        assert_eq!(range.from, range.to);
        assert_eq!(faults("from=yesterday&to=1", |query| query.range()), ["query.from", "query.to"]);
    }

    #[test]
    fn times_are_also_milliseconds() {
        let range = Query::of(Some("from=1800000000123&to=2027-01-15T08:00:00.123Z")).range();
        assert_eq!(range.from, range.to);
        let range = Query::of(Some("from=100000000000&to=253402300799999")).range();
        let texts = [range.from, range.to].map(|time| time.unwrap().to_string());
        assert_eq!(texts, ["1973-03-03T09:46:40.000Z", "9999-12-31T23:59:59.999Z"]);
        for bad in ["2026", "1800000000", "99999999999", "253402300800000", "1800000000123.0", "-1800000000123"] {
            assert_eq!(faults(&format!("from={bad}"), |query| query.range()), ["query.from"], "{bad}");
        }
    }

    // Holds: query.depth
    #[test]
    fn depth_is_a_number_or_all() {
        assert_eq!(Query::of(None).depth(), Depth::Levels(1));
        assert_eq!(Query::of(Some("depth=all")).depth(), Depth::All);
        assert_eq!(Query::of(Some("depth=3")).depth(), Depth::Levels(3));
        for bad in ["depth=0", "depth=-1", "depth=ALL", "depth="] {
            assert_eq!(faults(bad, |query| query.depth()), ["query.depth"], "{bad}");
        }
    }

    // Holds: query.entityList, c1.entityList
    #[test]
    fn lists_are_repeated_or_comma_separated() {
        let ids = Query::of(Some("entityList=a,b&entityList=c")).list(&[]).ids;
        assert_eq!(ids, Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
        let last = Query::of(Some("lastValues=b%20c,a,a")).last_values();
        assert_eq!(last, LastChoice::Elements(vec!["a".to_owned(), "b c".to_owned()]));
        assert_eq!(Query::of(Some("lastValues=all")).last_values(), LastChoice::All);
        let last = Query::of(Some("x=1,2&lastValues=a%2Cb,c+d&page=1")).last_values();
        assert_eq!(last, LastChoice::Elements(["a", "a,b", "b", "c d"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn list_with_brackets_in_its_name_is_read() {
        for name in ["sortBy[]", "sortBy%5B%5D", "sortBy%5b0%5d", "sortBy[12]"] {
            let sort = Query::of(Some(&format!("{name}=-name&{name}=id"))).list(&["name", "id"]).sort;
            let named: Vec<_> = sort.iter().map(|key| (key.field.as_ref(), key.descending)).collect();
            assert_eq!(named, [("name", true), ("id", false)], "{name}");
            assert_eq!(faults(&format!("{name}=size"), |query| query.list(&["name"])), ["query.sortBy"], "{name}");
        }
        let ids = Query::of(Some("entityList[]=a&entityList[]=b")).list(&[]).ids;
        assert_eq!(ids, Some(vec!["a".to_owned(), "b".to_owned()]));
        let last = Query::of(Some("lastValues[]=a&lastValues[]=b%2Cc")).last_values();
        assert_eq!(last, LastChoice::Elements(["a", "b", "b,c", "c"].map(str::to_owned).to_vec()));
        let columns = Query::of(Some("columns[]=id&columns[]=payload.a")).columns();
        assert_eq!(columns.iter().map(|column| &*column.name).collect::<Vec<_>>(), ["id", "payload.a"]);
        // Other parameters than lists have no brackets.
        for other in ["limit[]=0", "sortBy[x]=y", "sortByX=y", "sortBy[=y", "filter[]"] {
            let mut query = Query::of(Some(other));
            assert!(query.list(&["name"]).sort.is_empty() && query.end(()).is_ok(), "{other}");
        }
    }

    #[test]
    fn long_poll_wait_is_bounded() {
        assert_eq!(Query::of(Some("wait=60")).wait(), Duration::from_secs(60));
        assert_eq!(faults("wait=61", |query| query.wait()), ["query.wait"]);
        assert_eq!(faults("peek=yes", |query| query.boolean("peek", false)), ["query.peek"]);
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(raw in "[ -~]{0,200}", names in prop::collection::vec(
            prop::sample::select(vec!["page", "limit", "from", "to", "sortBy", "depth", "wait", "lastValues",
                "fields", "functions", "every", "points", "zone", "fill", "timeField", "late", "groupBy", "deviceIds",
                "filter[payload.a][in]", "filter[createdAt][lt]", "filter[", "filter[][", "columns",
                "filter[meta.a][nin]", "filter[statusInt][gt]", "filter[lastActive][eq]", "box", "cellSize"]), 0..6)) {
            let raw = names.iter().map(|name| format!("{name}={raw}&")).collect::<String>() + &raw;
            let mut query = Query::of(Some(&raw));
            query.values_list(true);
            query.device_filters();
            query.alarm_filters();
            query.device_columns();
            query.list(&["name"]);
            query.tree("organizationId");
            query.wait();
            query.last_values();
            query.buckets();
            query.bucket_devices();
            query.map_cells();
            let _ = query.end(());
        }
    }
}
