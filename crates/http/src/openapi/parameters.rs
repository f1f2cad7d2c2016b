//! Parameters as the OpenAPI document describes them; `query` reads them.

use isobar_model::buckets::Function;
use isobar_model::map::{CELL_DEGREES_MAX, CELL_DEGREES_MIN, CELLS_MAX};
use isobar_model::page::{LIMIT_DEFAULT, LIMIT_MAX};
use serde_json::json;
use utoipa::PartialSchema as _;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, Required};

use crate::request::alarm_fields;
use crate::request::buckets::POINTS_MAX;
use crate::request::device_fields::{self, DeviceColumn};
use crate::request::lists::{CSV_COLUMNS_MAX, SORT_KEYS_MAX};
use crate::request::query::{UNIX_MILLIS_MAX, UNIX_MILLIS_MIN};
use crate::resources::values::{Id, Time};

/// Pattern of the edges of a box, each within its limits.
const BOX_FORM: &str = concat!(
    r"^-?(180|(1[0-7]|[1-9])?[0-9](\.[0-9]{1,9})?),-?(90|[1-8]?[0-9](\.[0-9]{1,9})?)",
    r",-?(180|(1[0-7]|[1-9])?[0-9](\.[0-9]{1,9})?),-?(90|[1-8]?[0-9](\.[0-9]{1,9})?)$"
);

/// Makes the pattern of one key of a path: these characters after a dot, or a quoted name in brackets.
macro_rules! path_key {
    ($signs:literal) => {
        concat!(r"(\.", $signs, r#"+|\["([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9A-CEFa-cef][0-9A-Fa-f]{3}))*"\])"#)
    };
}
/// Makes the pattern of one key of a path in a comma-separated list.
macro_rules! listed_path_key {
    () => {
        path_key!(r"[^.,\[]")
    };
}

/// Type of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Texts,
    Id,
    /// An identifier, or an empty text, which counts as absent.
    IdOrNothing,
    Time,
    Boolean(bool),
    Whole {
        min: usize,
        max: Option<usize>,
        default: Option<usize>,
    },
    /// `*`, or a list of entity tags (RFC 9110, 13.1.1).
    EntityTags,
    Filter,
    Depth,
    /// Side length of a cell of the map.
    Degrees,
    /// A text of at most so many characters.
    Short(usize),
    /// Sort keys: these fields, each with an optional sign.
    Order(&'static [&'static str]),
    /// Fields of a stored value, at most `most`; `signed` ones are sort keys.
    Fields {
        most: usize,
        signed: bool,
    },
    /// Columns of a CSV of devices.
    DeviceColumns,
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
    /// Some of these words.
    Words(&'static [&'static str]),
    /// A text that matches this pattern.
    Form(&'static str),
    Ids,
}

/// Description of a parameter.
#[derive(Clone, Copy)]
enum Description {
    Text(&'static str),
    /// Built from declarations in the code.
    Made(fn() -> String),
}

/// A query parameter or a header.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub name: &'static str,
    kind: Kind,
    says: Description,
    pub is_header: bool,
    required: bool,
}

pub(crate) const fn query(name: &'static str, kind: Kind, says: &'static str) -> Param {
    Param { name, kind, says: Description::Text(says), is_header: false, required: false }
}

const fn query_made(name: &'static str, kind: Kind, says: fn() -> String) -> Param {
    Param { name, kind, says: Description::Made(says), is_header: false, required: false }
}

const SORT_SAYS: &str = "Fields, primary first; prefix + ascending (default) or - descending";

const fn sort_by(fields: &'static [&'static str]) -> Param {
    query("sortBy", Kind::Order(fields), SORT_SAYS)
}

pub(crate) const fn header(name: &'static str, kind: Kind, says: &'static str) -> Param {
    Param { name, kind, says: Description::Text(says), is_header: true, required: false }
}

pub(crate) const PAGE: Param = query("page", Kind::Whole { min: 1, max: None, default: Some(1) }, "Which page, from 1");
pub(crate) const AFTER: Param = query(
    "after",
    Kind::Id,
    "Begin after this item, meta.after of the page before, whatever was made or deleted since; instead of page, \
     and with sortBy=createdAt or sortBy=-createdAt alone",
);
pub(crate) const LIMIT: Param = query(
    "limit",
    Kind::Whole { min: 1, max: Some(LIMIT_MAX as usize), default: Some(LIMIT_DEFAULT as usize) },
    "Items a page",
);
pub(crate) const FROM: Param = query("from", Kind::Time, "Start, inclusive");
pub(crate) const TO: Param = query("to", Kind::Time, "End, not inclusive");
pub(crate) const TO_REQUIRED: Param = Param { required: true, ..TO };
pub(crate) const UNREAD: Param = query("unread", Kind::Boolean(false), "Only what was not read yet");
pub(crate) const SORT_ALARMS: Param = sort_by(crate::resources::alarms::ALARMS_SORTED_BY);
pub(crate) const SORT_DEVICES: Param = sort_by(crate::resources::devices::DEVICES_SORTED_BY);
pub(crate) const SORT_ORGANIZATIONS: Param = sort_by(crate::resources::organizations::ORGANIZATIONS_SORTED_BY);
pub(crate) const SORT_PROJECTS: Param = sort_by(crate::resources::projects::PROJECTS_SORTED_BY);
pub(crate) const SORT_USERS: Param = sort_by(crate::resources::users::USERS_SORTED_BY);
pub(crate) const SORT_STORAGE: Param = sort_by(crate::resources::data::STORAGE_SORTED_BY);
pub(crate) const SORT_SETTINGS: Param = sort_by(crate::resources::settings::SETTINGS_SORTED_BY);
pub(crate) const SORT_SETTING_HISTORY: Param = sort_by(crate::resources::settings::SETTING_HISTORY_SORTED_BY);
pub(crate) const SORT_VERSIONS: Param = sort_by(crate::resources::specifications::VERSIONS_SORTED_BY);
pub(crate) const SORT_BOARDS: Param = sort_by(crate::resources::boards::BOARDS_SORTED_BY);
pub(crate) const SORT_VALUES: Param = query(
    "sortBy",
    Kind::Fields { most: SORT_KEYS_MAX, signed: true },
    "Fields, primary first; prefix + ascending (default) or - descending. An order by payload reaches 100,000 values: a page \
     that ends behind them is 400",
);
pub(crate) const DEPTH: Param =
    query("depth", Kind::Depth, "Generations of the organization tree, from 1 (default), or all");
pub(crate) const ORGANIZATION_ID: Param = query("organizationId", Kind::Id, "Only what belongs to this organization");
pub(crate) const BOX: Param = query(
    "box",
    Kind::Form(BOX_FORM),
    "west,south,east,north in degrees (WGS 84), the whole world by default; across the date line where the west is \
     more than the east",
);
pub(crate) const CELL_SIZE: Param = Param {
    required: true,
    ..query_made("cellSize", Kind::Degrees, || {
        format!("The side of a cell in degrees; the box may have at most {CELLS_MAX} cells")
    })
};
pub(crate) const PARENT_ID: Param = query("parentId", Kind::Id, "The organization whose children are listed");
pub(crate) const SEARCH_TEXT: Param = query("searchText", Kind::Text, "Case-insensitive substring");
pub(crate) const LAST_VALUES: Param =
    query("lastValues", Kind::Text, "all, or comma-separated names of storage elements whose last values are added");
pub(crate) const ENTITY_LIST: Param = query("entityList", Kind::Texts, "Only these ids");
pub(crate) const FILTER: Param =
    query_made("filter", Kind::Filter, || filter_says(&format!("createdAt, id, payload, payload.<path>{QUOTED_SAYS}")));
pub(crate) const COLUMNS: Param = query(
    "columns",
    Kind::Fields { most: CSV_COLUMNS_MAX, signed: false },
    "Columns of the CSV: createdAt, id, payload (these three by default), payload.<path> or payload[\"<name>\"]",
);
pub(crate) const SERIES_NAME: Param = Param {
    required: true,
    ..query("elementName", Kind::Form(r"[\s\S]"), "The storage element whose values are asked")
};
pub(crate) const BUCKET_FIELDS: Param = Param {
    required: true,
    ..query(
        "fields",
        Kind::Form(concat!("^payload", listed_path_key!(), "*(,payload", listed_path_key!(), "*)*$")),
        "Where the numbers are, comma-separated, 1 to 10: payload, payload.<path> or payload[\"<name>\"]",
    )
};
pub(crate) const FUNCTIONS: Param = query(
    "functions",
    Kind::Words(&Function::NAMES),
    "What is told of them, comma-separated; by default count, mean, min, max. Percentiles are within 1 % of the value",
);
pub(crate) const EVERY: Param = query(
    "every",
    Kind::Form("^0*[1-9][0-9]*(s|m|h|d|w|mo|y)$"),
    "How wide a bucket is: a whole number and s, m, h (up to a day), d, w, mo or y. Neither this nor points: one bucket",
);
pub(crate) const POINTS: Param = query(
    "points",
    Kind::Whole { min: 2, max: Some(POINTS_MAX), default: None },
    "The narrowest round width that gives so many at most",
);
pub(crate) const ZONE: Param =
    query("zone", Kind::Text, "The IANA name of the time zone whose clock and calendar buckets follow; by default UTC");
pub(crate) const FILL: Param =
    query("fill", Kind::Word(&["none", "null", "previous"]), "What stands for buckets that hold nothing");
pub(crate) const TIME_FIELD: Param = query(
    "timeField",
    Kind::Form(concat!("^payload", path_key!(r"[^.\[]"), "*$")),
    "Where payloads tell the time (RFC 3339, Unix seconds or milliseconds) that counts instead of createdAt",
);
pub(crate) const LATE: Param = query(
    "late",
    Kind::Form("^0*[1-9][0-9]*(s|m|h|d|w)$"),
    "How far createdAt may be from that time, at most 31d; by default 1d",
);
pub(crate) const DEVICE_IDS: Param =
    query("deviceIds", Kind::Ids, "These devices; either this, projectUuid or organizationId");
pub(crate) const PROJECT_UUID: Param = query("projectUuid", Kind::Id, "The devices of this project that are in reach");
pub(crate) const BUCKETS_ORGANIZATION_ID: Param =
    query("organizationId", Kind::Id, "The devices of this organization, and with depth of those beneath it");
pub(crate) const GROUP_BY: Param = query(
    "groupBy",
    Kind::Word(&["none", "device"]),
    "device: a series for each of at most 100 devices; none: one over all of at most 1,000",
);
pub(crate) const DEVICE_FILTER: Param = query_made("filter", Kind::Filter, || {
    let names = device_fields::filter_names().join(", ");
    filter_says(&format!("{names}, meta.<path>{QUOTED_SAYS}; lastActive is also null: never"))
});
pub(crate) const ALARM_FILTER: Param = query_made("filter", Kind::Filter, || {
    let names = alarm_fields::filter_names().collect::<Vec<_>>().join(", ");
    filter_says(&format!("{names}; severities are in the order info, warning, critical; assigneeId is also null"))
});
pub(crate) const DEVICE_COLUMNS: Param = query_made("columns", Kind::DeviceColumns, || {
    let usual = device_fields::USUAL_COLUMNS;
    let others: Vec<_> = DeviceColumn::names().filter(|name| !usual.contains(name)).collect();
    format!(
        "Columns of the CSV: {} (these by default), {}, meta.<path>{QUOTED_SAYS}",
        usual.join(", "),
        others.join(", ")
    )
});
pub(crate) const TEST: Param = query("test", Kind::Boolean(false), "Only check what could be created");
pub(crate) const USABLE: Param = query(
    "usable",
    Kind::Boolean(false),
    "Also those of organizations above, which devices there can use; what is out of reach of them is null",
);
pub(crate) const FILTER_TYPE: Param = query("filter[type]", Kind::Text, "Only projects of this type");
pub(crate) const DEVICE_ID: Param =
    query("deviceId", Kind::Id, "The device; required unless a device token says which it is");
pub(crate) const DEVICE_ID_REQUIRED: Param = Param { required: true, ..query("deviceId", Kind::Id, "The device") };
pub(crate) const STREAM_DEVICE_ID: Param = query("deviceId", Kind::Id, "Only events of this device");
pub(crate) const ELEMENT_NAME: Param = query("elementName", Kind::Text, "Only events of this element");
pub(crate) const ELEMENT_NAME_REQUIRED: Param =
    Param { required: true, ..query("elementName", Kind::Short(128), "The element of the design") };
pub(crate) const EMAIL_OR_USERNAME: Param =
    query("emailOrUsername", Kind::Text, "The account; it may also stand in a JSON body");
pub(crate) const PEEK: Param = query("peek", Kind::Boolean(false), "Leave what is read in the queue");
pub(crate) const WAIT: Param = query(
    "wait",
    Kind::Whole { min: 0, max: Some(60), default: Some(0) },
    "Seconds to wait for an event when there is none",
);
pub(crate) const DEVICE_EVENTS: Param = query("deviceEvents", Kind::Boolean(true), "With device events");
pub(crate) const CLOUD_EVENTS: Param = query("cloudEvents", Kind::Boolean(true), "With cloud events");
pub(crate) const IDEMPOTENCY_KEY_PARAMETER: Param =
    header("Idempotency-Key", Kind::Short(64), "The same key for the same device within 24 hours does nothing again");
pub(crate) const IF_NONE_MATCH: Param =
    header("If-None-Match", Kind::Text, "The entity tag of what is at hand; 304 when it is still the same");
pub(crate) const IF_MATCH: Param = header(
    "If-Match",
    Kind::EntityTags,
    "The entity tag that what is changed must have, or several; 412 when it has another one. *: whatever it is",
);
pub(crate) const LAST_EVENT_ID_PARAMETER: Param =
    header("Last-Event-ID", Kind::Text, "Resume after this id of a stream, which may be a week old");

/// Describes the quoting of names with characters that a dotted path cannot have.
const QUOTED_SAYS: &str = " (or, for names with other signs, [\"a.b\"][\"c d\"])";

fn filter_says(fields: &str) -> String {
    format!(
        "filter[<field>][<operator>]=<value>, all of which must hold. Fields: {fields}. \
         Operators: eq, ne, lt, lte, gt, gte, in, nin (the last two take a comma-separated list)"
    )
}

impl Param {
    pub(crate) fn describe(self) -> Parameter {
        let place = if self.is_header { ParameterIn::Header } else { ParameterIn::Query };
        let parameter = ParameterBuilder::new()
            .name(self.name)
            .parameter_in(place)
            .required(if self.required { Required::True } else { Required::False })
            .description(Some(match self.says {
                Description::Text(text) => text.to_owned(),
                Description::Made(made) => made(),
            }))
            .schema(Some(self.kind.schema()));
        match self.kind {
            Kind::Filter => parameter.style(Some(ParameterStyle::DeepObject)).explode(Some(true)).build(),
            _ => parameter.build(),
        }
    }
}

impl Kind {
    fn schema(self) -> RefOr<Schema> {
        let of = |kind| ObjectBuilder::new().schema_type(kind);
        match self {
            Kind::Text => of(Type::String).into(),
            Kind::Texts => ArrayBuilder::new().items(of(Type::String)).into(),
            Kind::Id => Id::schema(),
            Kind::IdOrNothing => {
                AnyOfBuilder::new().item(Id::schema()).item(of(Type::String).max_length(Some(0))).into()
            }
            Kind::Time => {
                let millis = of(Type::Integer).minimum(Some(UNIX_MILLIS_MIN)).maximum(Some(UNIX_MILLIS_MAX));
                AnyOfBuilder::new().item(Time::schema()).item(millis).into()
            }
            Kind::Boolean(default) => of(Type::Boolean).default(Some(json!(default))).into(),
            Kind::Whole { min, max, default } => {
                of(Type::Integer).minimum(Some(min)).maximum(max).default(default.map(|default| json!(default))).into()
            }
            Kind::EntityTags => {
                const TAG: &str = r#"(W/)?"[!#-~]*""#;
                let pattern = format!(r"^ *(\*|[ ,]*{TAG}([ ,]*,[ ,]*{TAG})*[ ,]*) *$");
                of(Type::String).pattern(Some(pattern)).into()
            }
            Kind::Filter => of(Type::Object).into(),
            Kind::Degrees => of(Type::Number).minimum(Some(CELL_DEGREES_MIN)).maximum(Some(CELL_DEGREES_MAX)).into(),
            Kind::Depth => AnyOfBuilder::new()
                .item(of(Type::Integer).minimum(Some(1)))
                .item(of(Type::String).enum_values(Some(["all"])))
                .default(Some(json!(1)))
                .into(),
            Kind::Short(most) => of(Type::String).min_length(Some(1)).max_length(Some(most)).into(),
            Kind::Order(fields) => listed(&fields.join("|"), SORT_KEYS_MAX, true),
            Kind::Fields { most, signed } => {
                listed(concat!("createdAt|id|payload", listed_path_key!(), "*"), most, signed)
            }
            Kind::Words(words) => {
                let one = words.join("|");
                let item = of(Type::String).pattern(Some(format!("^({one})?(,({one})?)*$")));
                ArrayBuilder::new().items(item).into()
            }
            Kind::Form(pattern) => of(Type::String).pattern(Some(pattern)).into(),
            Kind::Ids => ArrayBuilder::new().items(Id::schema()).into(),
            Kind::DeviceColumns => {
                let names: Vec<_> = DeviceColumn::names().collect();
                listed(&format!("{}|meta{}+", names.join("|"), listed_path_key!()), CSV_COLUMNS_MAX, false)
            }
            Kind::Word(words) => of(Type::String)
                .enum_values(Some(words.iter().copied()))
                .default(words.first().map(|word| json!(word)))
                .into(),
        }
    }
}

/// Builds the schema of a list of at most `most` of these patterns; an item may hold several, comma-separated.
fn listed(pattern: &str, most: usize, signed: bool) -> RefOr<Schema> {
    // An unescaped plus arrives as a space. An empty column is ignored, an empty sort key is not.
    let one = if signed { format!("[-+ ]?({pattern})") } else { format!("({pattern})?") };
    let item = ObjectBuilder::new().schema_type(Type::String).pattern(Some(format!("^{one}(,{one})*$")));
    ArrayBuilder::new().items(item).max_items(Some(most)).into()
}

/// Returns the variable parts of a path as parameters.
pub(crate) fn of_path(path: &str) -> impl Iterator<Item = Parameter> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let kind = match name {
            "id" | "deviceId" | "keyId" | "dashboardId" | "linkId" => Kind::Id,
            "number" => Kind::Whole { min: 1, max: None, default: None },
            _ => Kind::Text,
        };
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
        parameter.required(Required::True).schema(Some(kind.schema())).build()
    })
}
