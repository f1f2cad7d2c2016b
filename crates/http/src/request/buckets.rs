//! Query parameters of requests for buckets (contract: Beyond the specification).

use isobar_hub::{BucketDevices, BucketFill, BucketRequest, BucketWidth, DEVICES_ALIKE_MAX, FilterField, PayloadTime};
use isobar_model::buckets::{Function, Functions, Span, Width, Zone};
use isobar_model::ids::DeviceId;
use isobar_model::page::TimeRange;

use super::filter;
use super::query::{Query, excerpt, whole};

/// Most fields of one request.
const FIELDS_MAX: usize = 10;
/// Limits of `points`, the number of buckets that replaces a width.
const POINTS_MIN: u64 = 2;
pub(crate) const POINTS_MAX: usize = 5_000;
/// Largest and default difference between the time of a payload and `createdAt`, in milliseconds.
const LATE_MILLIS_MAX: i64 = 31 * DAY_MILLIS;
const LATE_MILLIS: i64 = DAY_MILLIS;
const DAY_MILLIS: i64 = 86_400_000;

/// Request for buckets, with the names of its fields as the client wrote them.
pub(crate) struct BucketsAsked {
    pub request: BucketRequest,
    pub names: Vec<String>,
}

impl Query<'_> {
    /// Reads the parameters that apply to each series.
    pub fn buckets(&mut self) -> BucketsAsked {
        let (names, fields) = self.bucket_fields();
        let (filters, found) = filter::filters(&self.pairs);
        self.faults.extend(found);
        let (range, time) = (self.range(), self.payload_time());
        let width = self.bucket_width(range, time.is_some());
        let zone = self.read("zone", "the name of a time zone, like Europe/Paris", |name| name.parse::<Zone>().ok());
        let fill = self.word(
            "fill",
            BucketFill::None,
            &[("none", BucketFill::None), ("null", BucketFill::Null), ("previous", BucketFill::Previous)],
        );
        let functions = self.functions();
        let request =
            BucketRequest { fields, functions, width, zone: zone.unwrap_or_default(), range, filters, time, fill };
        BucketsAsked { request, names }
    }

    /// Reads the devices whose series are requested (`None` if the parameters that name them are faulty), and whether
    /// each device has a series of its own.
    pub fn bucket_devices(&mut self) -> (Option<BucketDevices>, bool) {
        let apart = self.word("groupBy", false, &[("none", false), ("device", true)]);
        let named = ["deviceIds", "projectUuid", "organizationId"].map(|name| self.get(name).is_some());
        let devices = match named {
            [true, false, false] => self.device_ids().map(BucketDevices::These),
            [false, true, false] => self.id("projectUuid").map(BucketDevices::OfProject),
            [false, false, true] => Some(BucketDevices::Beneath(self.tree("organizationId"))),
            [false, false, false] => {
                self.fault("deviceIds", "is required, or projectUuid, or organizationId");
                None
            }
            [of_these, of_project, of_organization] => {
                let sent = [(of_project, "projectUuid"), (of_organization, "organizationId"), (of_these, "deviceIds")];
                let beside = sent.iter().find(|(is_sent, _)| *is_sent).map_or("deviceIds", |(_, name)| *name);
                self.fault(beside, "cannot be combined: devices are named by deviceIds, projectUuid or organizationId");
                None
            }
        };
        (devices, apart)
    }

    /// Reads `elementName`, which is required.
    pub fn element_name_required(&mut self) -> String {
        let name = self.element_name();
        if name.is_none() {
            self.fault("elementName", "is required");
        }
        name.unwrap_or_default()
    }

    /// Reads `deviceIds` without duplicates.
    fn device_ids(&mut self) -> Option<Vec<DeviceId>> {
        // One more than the limit suffices to detect too many.
        let texts: Vec<String> = self
            .values("deviceIds")
            .filter(|id| !id.is_empty())
            .take(DEVICES_ALIKE_MAX + 1)
            .map(str::to_owned)
            .collect();
        let mut ids: Vec<DeviceId> = Vec::with_capacity(texts.len());
        let mut seen = std::collections::HashSet::with_capacity(texts.len());
        for text in &texts {
            match text.parse() {
                Ok(id) if seen.insert(id) => ids.push(id),
                Ok(_) => {}
                Err(_) => {
                    self.fault("deviceIds", format!("must be identifiers, not '{}'", excerpt(text)));
                    return None;
                }
            }
        }
        if texts.is_empty() || texts.len() > DEVICES_ALIKE_MAX {
            self.fault("deviceIds", format!("must be 1 to {DEVICES_ALIKE_MAX} identifiers"));
            return None;
        }
        Some(ids)
    }

    /// Reads `fields` without duplicates, as names and as paths.
    fn bucket_fields(&mut self) -> (Vec<String>, Vec<Vec<String>>) {
        let sent: Vec<String> = self.paths("fields").map(str::to_owned).collect();
        let (mut names, mut paths) = (Vec::new(), Vec::new());
        for name in sent {
            match filter::field(&name) {
                Some(FilterField::Payload(_)) if names.contains(&name) => {}
                Some(FilterField::Payload(path)) if names.len() <= FIELDS_MAX => {
                    names.push(name);
                    paths.push(path);
                }
                Some(FilterField::Payload(_)) => break,
                _ => {
                    self.fault("fields", format!("must be payload or a path beneath it, not '{}'", excerpt(&name)));
                    break;
                }
            }
        }
        if self.get("fields").is_none() {
            self.fault("fields", "is required");
        } else if names.len() > FIELDS_MAX {
            self.fault("fields", format!("must be at most {FIELDS_MAX}"));
        }
        (names, paths)
    }

    fn functions(&mut self) -> Functions {
        let sent: Vec<String> = self.values("functions").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut functions = Vec::with_capacity(Function::ALL.len());
        for name in &sent {
            match name.parse() {
                Ok(function) => functions.push(function),
                Err(()) => {
                    let all = Function::NAMES.join(", ");
                    self.fault("functions", format!("must be among {all}, not '{}'", excerpt(name)));
                    return Functions::default();
                }
            }
        }
        if sent.is_empty() { Functions::default() } else { functions.into_iter().collect() }
    }

    /// Reads `every` or `points`.
    fn bucket_width(&mut self, range: TimeRange, has_payload_time: bool) -> BucketWidth {
        let what = format!("a whole number from {POINTS_MIN} to {POINTS_MAX}");
        let points = self.read("points", &what, |text| {
            whole(text).filter(|points| (POINTS_MIN..=POINTS_MAX as u64).contains(points)).map(|points| points as usize)
        });
        match (self.width("every"), points) {
            (Some(_), Some(_)) => self.fault("points", "cannot be combined with every"),
            (Some(width), None) => return BucketWidth::Every(width),
            (None, Some(points)) => {
                // Only ranges of createdAt are known without a scan of all values.
                for (name, _) in [("from", range.from), ("to", range.to)].iter().filter(|(_, end)| end.is_none()) {
                    if has_payload_time && self.get(name).is_none() {
                        self.fault(name, "is required where points and timeField are given");
                    }
                }
                return BucketWidth::Points(points);
            }
            (None, None) => {}
        }
        BucketWidth::All
    }

    /// Reads `timeField` and `late`.
    fn payload_time(&mut self) -> Option<PayloadTime> {
        let path = self.read("timeField", "payload or a path beneath it", |name| match filter::field(name)? {
            FilterField::Payload(path) => Some(path),
            _ => None,
        });
        let late = self.read("late", "a whole number of s, m, h, d or w, from 1s to 31d", |text| {
            text.parse().map(Span::millis).ok().filter(|late| *late <= LATE_MILLIS_MAX)
        });
        if late.is_some() && self.get("timeField").is_none() {
            self.fault("late", "means nothing without timeField");
        }
        path.map(|path| PayloadTime { path, late_millis: late.unwrap_or(LATE_MILLIS) })
    }

    fn width(&mut self, name: &str) -> Option<Width> {
        match self.get(name)?.parse() {
            Ok(width) => Some(width),
            Err(fault) => {
                self.fault(name, fault.to_string());
                None
            }
        }
    }

    /// Reads one of these words; `default` if the parameter is absent.
    fn word<T: Copy>(&mut self, name: &str, default: T, words: &[(&str, T)]) -> T {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let find = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.read(name, &format!("one of {}", names.join(", ")), find).unwrap_or(default)
    }
}
