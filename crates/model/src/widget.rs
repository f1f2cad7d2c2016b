//! Widgets of a dashboard, as the console writes them into its configuration, and the data that each needs. Malformed
//! parts are ignored.

use std::collections::HashSet;

use crate::ids::{DeviceId, ProjectId};
use crate::json::{self, Json, RawJson};
use crate::path::path_beneath;

/// Most widgets of a dashboard on a screen.
pub const SCREEN_WIDGETS_MAX: usize = 200;
/// Most keys of one widget on a screen.
pub const WIDGET_KEYS_MAX: usize = 20;
/// Most paths of one table on a screen.
pub const WIDGET_PATHS_MAX: usize = 20;
/// Most devices on one picture.
const WIDGET_PLACES_MAX: usize = 20;

/// A widget in the configuration of its dashboard.
#[derive(Clone, Debug)]
pub struct Widget<'a> {
    /// Its own identifier, or else a unique one by its position.
    pub id: String,
    /// Its type in the console.
    pub kind: &'a str,
    raw: &'a Json<'a>,
}

/// The source of a number that a device stored last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WidgetKey {
    /// The device.
    pub device: DeviceId,
    /// The storage element.
    pub element: String,
    /// Path beneath the stored payload, as the console writes it: `door.open`; empty for the whole payload.
    pub path: String,
}

/// A figure over a selection of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Number of devices.
    Count,
    /// Mean of their last values.
    Mean,
    /// Maximum of their last values.
    Highest,
    /// Minimum of their last values.
    Lowest,
}

/// A selection of devices.
#[derive(Clone, Debug, PartialEq)]
pub struct WidgetSelection {
    /// The figure to show.
    pub figure: Figure,
    /// Element and path of the number; `None` to count devices.
    pub key: Option<WidgetKey>,
    /// Restricts it to devices of this project.
    pub project: Option<ProjectId>,
    /// Restricts it to devices with this value at these keys of their labels.
    pub label: Option<(Vec<String>, String)>,
}

/// The data that a widget needs.
#[derive(Clone, Debug, PartialEq)]
pub enum WidgetNeeds {
    /// None: all it shows is in its settings, or its type is unknown.
    Nothing,
    /// Numbers, and their history where it is drawn.
    Numbers {
        /// Sources of the numbers.
        keys: Vec<WidgetKey>,
        /// Points of history to draw.
        points: Option<usize>,
        /// Path of the time in payloads, if it replaces the time of receipt.
        time: Option<Vec<String>>,
    },
    /// The most urgent devices, with their last values.
    Table {
        /// The storage element.
        element: String,
        /// Paths beneath the stored payload.
        paths: Vec<String>,
    },
    /// One figure over several devices.
    Selection(WidgetSelection),
    /// Number of devices per status.
    Statuses,
    /// Locations of devices.
    Map,
    /// The statuses of these devices.
    Picture(Vec<DeviceId>),
    /// Events of a device, in both directions.
    Events(DeviceId),
}

/// Points of history beneath a value, and of the lines of a chart: as many as there are pixels for.
const VALUE_POINTS: usize = 60;
const LINE_POINTS: usize = 300;

/// Returns the widgets of a configuration that a screen shows.
pub fn widgets_of<'a>(configuration: &'a Json<'a>) -> Vec<Widget<'a>> {
    let all = configuration.get("widgets").and_then(Json::as_array).unwrap_or_default();
    let found = all.iter().filter_map(|raw| Some((raw, raw.get("type")?.as_text()?)));
    let found: Vec<_> = found.take(SCREEN_WIDGETS_MAX).collect();
    let mut taken = HashSet::new();
    let given: HashSet<&str> = found.iter().filter_map(|(raw, _)| raw.get("id")?.as_text()).collect();
    let own = |(place, (raw, kind)): (usize, &(&'a Json<'a>, &'a str))| {
        let own = raw.get("id").and_then(Json::as_text).filter(|id| taken.insert((*id).to_owned()));
        let free = || (place..).map(|number| format!("widget-{number}")).find(|id| !given.contains(&**id));
        let id = own.map(str::to_owned).or_else(|| free().filter(|id| taken.insert(id.clone())))?;
        Some(Widget { id, kind, raw })
    };
    found.iter().enumerate().filter_map(own).collect()
}

impl<'a> Widget<'a> {
    /// Returns its title, empty if it has none.
    pub fn title(&self) -> &'a str {
        self.raw.get("title").and_then(Json::as_text).unwrap_or_default()
    }

    /// Returns its position or size on the grid, in cells: `x`, `y`, `w` or `h`.
    pub fn side(&self, name: &str) -> Option<i64> {
        self.raw.get(name)?.as_f64().filter(|side| side.is_finite()).map(|side| side.round() as i64)
    }

    /// Returns the settings that a screen may see. Those of actions are left out, as a screen cannot act.
    pub fn settings(&self) -> RawJson {
        let told: Vec<_> = match (self.kind, self.raw.get("settings")) {
            ("button" | "switch", Some(settings)) => ["device", "elementName", "settingName"]
                .into_iter()
                .filter_map(|name| Some((name.into(), settings.get(name)?.clone())))
                .collect(),
            (kind, Some(Json::Object(members))) if is_known(kind) => {
                members.iter().filter(|(name, _)| name != "payload").cloned().collect()
            }
            _ => Vec::new(),
        };
        RawJson::from(&Json::Object(told))
    }

    /// Returns the data that it needs.
    pub fn needs(&self) -> WidgetNeeds {
        let Some(settings) = self.raw.get("settings") else { return self.needs_without_settings() };
        let time = settings.get("timePath").and_then(Json::as_text).map(names_in);
        let numbers = |points| {
            let keys = keys_of(settings);
            WidgetNeeds::Numbers { keys, points, time: time.clone() }
        };
        match self.kind {
            "line" => numbers(Some(LINE_POINTS)),
            "value" => first_of(numbers(Some(VALUE_POINTS))),
            "gauge" => first_of(numbers(None)),
            "bar" => numbers(None),
            "table" => match element_of(settings) {
                Some(element) => WidgetNeeds::Table { element, paths: paths_of(settings) },
                None => WidgetNeeds::Nothing,
            },
            "selection" => WidgetNeeds::Selection(selection_of(settings)),
            "picture" => WidgetNeeds::Picture(places_of(settings)),
            "events" => device_of(settings.get("device")).map_or(WidgetNeeds::Nothing, WidgetNeeds::Events),
            _ => self.needs_without_settings(),
        }
    }

    fn needs_without_settings(&self) -> WidgetNeeds {
        match self.kind {
            "status" => WidgetNeeds::Statuses,
            "map" => WidgetNeeds::Map,
            "selection" => WidgetNeeds::Selection(selection_of(&Json::Null)),
            _ => WidgetNeeds::Nothing,
        }
    }
}

/// Returns true if a screen draws widgets of this type.
fn is_known(kind: &str) -> bool {
    let drawn = ["line", "value", "gauge", "bar", "table", "selection", "map", "picture", "status", "events"];
    drawn.contains(&kind) || ["markdown", "text"].contains(&kind)
}

/// Keeps only the first key.
fn first_of(mut numbers: WidgetNeeds) -> WidgetNeeds {
    if let WidgetNeeds::Numbers { keys, .. } = &mut numbers {
        keys.truncate(1);
    }
    numbers
}

fn text_of<'a>(settings: &'a Json<'_>, name: &str) -> Option<&'a str> {
    settings.get(name).and_then(Json::as_text).filter(|text| !text.is_empty())
}

/// Returns the element that is named; names are not empty and have no U+0000.
fn element_of(settings: &Json<'_>) -> Option<String> {
    text_of(settings, "elementName").filter(|name| !name.contains('\0')).map(str::to_owned)
}

fn device_of(device: Option<&Json<'_>>) -> Option<DeviceId> {
    device?.get("id")?.as_text()?.parse().ok()
}

/// Returns the keys in settings without duplicates.
fn keys_of(settings: &Json<'_>) -> Vec<WidgetKey> {
    let all = settings.get("keys").and_then(Json::as_array).unwrap_or_default();
    let mut keys = Vec::new();
    for key in all.iter().filter_map(key_of) {
        if keys.len() < WIDGET_KEYS_MAX && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn key_of(key: &Json<'_>) -> Option<WidgetKey> {
    let text = |name: &str| key.get(name).and_then(Json::as_text);
    let device = text("deviceId")?.parse().ok()?;
    Some(WidgetKey { device, element: element_of(key)?, path: text("path")?.to_owned() })
}

fn paths_of(settings: &Json<'_>) -> Vec<String> {
    let all = settings.get("paths").and_then(Json::as_array).unwrap_or_default();
    let mut paths: Vec<String> = Vec::new();
    for path in all.iter().filter_map(Json::as_text) {
        if paths.len() < WIDGET_PATHS_MAX && paths.iter().all(|known| known != path) {
            paths.push(path.to_owned());
        }
    }
    paths
}

fn places_of(settings: &Json<'_>) -> Vec<DeviceId> {
    let all = settings.get("places").and_then(Json::as_array).unwrap_or_default();
    all.iter().filter_map(|place| device_of(Some(place))).take(WIDGET_PLACES_MAX).collect()
}

fn selection_of(settings: &Json<'_>) -> WidgetSelection {
    let figure = match text_of(settings, "figure") {
        Some("mean") => Figure::Mean,
        Some("highest") => Figure::Highest,
        Some("lowest") => Figure::Lowest,
        _ => Figure::Count,
    };
    let label = text_of(settings, "label").and_then(|label| {
        let field = if label.starts_with('[') { format!("meta{label}") } else { format!("meta.{label}") };
        let value = text_of(settings, "labelValue").unwrap_or_default();
        Some((path_beneath("meta", &field)?, value.to_owned()))
    });
    WidgetSelection {
        figure,
        key: keys_of(settings).into_iter().next().filter(|_| figure != Figure::Count),
        project: text_of(settings, "projectUuid").and_then(|id| id.parse().ok()),
        label,
    }
}

/// Splits a path of the console into names: `door.open`, with quotes around names that contain a point.
pub fn names_in(path: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), path);
    loop {
        rest = rest.trim_start_matches('.');
        if rest.is_empty() {
            return names;
        }
        let end = quoted_end(rest).or_else(|| rest.find('.')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        names.push(match json::parse(name) {
            Ok(Json::Text(text)) if name.starts_with('"') => text.into_owned(),
            _ => name.to_owned(),
        });
        rest = after;
    }
}

/// Returns the end of a leading quoted name, or `None` if there is none.
fn quoted_end(text: &str) -> Option<usize> {
    let mut signs = text.strip_prefix('"')?.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '"' => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Returns the value at a path of the console, or `None`. Names with points are found without quotes too.
pub fn value_at<'v, 'a>(value: &'v Json<'a>, path: &str) -> Option<&'v Json<'a>> {
    let found = names_in(path).iter().try_fold(value, |inner, name| inner.get(name));
    found.or_else(|| plainly_at(value, path))
}

fn plainly_at<'v, 'a>(value: &'v Json<'a>, path: &str) -> Option<&'v Json<'a>> {
    let (mut value, mut path) = (value, path);
    loop {
        if let Some(found) = value.get(path) {
            return Some(found);
        }
        let (name, rest) = path.split_once('.')?;
        (value, path) = (value.get(name)?, rest);
    }
}

/// Returns the meaning of the key at a path of the console, from a design's meanings by path.
pub fn meaning_at<'v, 'a>(fields: &'v Json<'a>, path: &str) -> Option<&'v Json<'a>> {
    let Json::Object(members) = fields else { return None };
    let names = names_in(path);
    let is_meant = |field: &str| match names.is_empty() {
        true => field == "payload",
        false => path_beneath("payload", field).is_some_and(|keys| keys == names),
    };
    members.iter().find(|(field, _)| is_meant(field)).map(|(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn paths_are_read_as_the_console_writes_them() {
        for (path, names) in [
            ("", &[][..]),
            ("door.open", &["door", "open"]),
            (r#""a.b".c"#, &["a.b", "c"]),
            (r#""a\"b""#, &["a\"b"]),
            (r#"a"b"#, &["a\"b"]),
            ("..a..b.", &["a", "b"]),
            (r#""open"#, &["\"open"]),
        ] {
            assert_eq!(names_in(path), names, "{path}");
        }
    }

    #[test]
    fn values_are_found_at_their_paths() {
        let text = r#"{"a":{"b":1},"a.c":2,"d":{"e.f":3},"l":[4]}"#;
        let tree = json::parse(text).unwrap();
        for (path, found) in [
            ("a.b", Some(1.0)),
            ("a.c", Some(2.0)),
            (r#""a.c""#, Some(2.0)),
            ("d.e.f", Some(3.0)),
            ("l.0", None),
            ("x", None),
        ] {
            assert_eq!(value_at(&tree, path).and_then(Json::as_f64), found, "{path}");
        }
        assert_eq!(value_at(&tree, ""), Some(&tree));
    }

    #[test]
    fn meanings_are_found_by_any_form_of_their_path() {
        let tree = json::parse(r#"{"payload":1,"payload.a":2,"payload[\"b.c\"].d":3}"#).unwrap();
        for (path, found) in [("", Some(1.0)), ("a", Some(2.0)), (r#""b.c".d"#, Some(3.0)), ("b.c.d", None)] {
            assert_eq!(meaning_at(&tree, path).and_then(Json::as_f64), found, "{path}");
        }
    }

    #[test]
    fn widgets_have_unique_identifiers() {
        let text = r#"{"widgets":[{"type":"text","id":"a"},{"type":"text","id":"a"},{"type":"text"},5,{"id":"x"},
            {"type":"text","id":"widget-2"},{"type":7}]}"#;
        let tree = json::parse(text).unwrap();
        let ids: Vec<_> = widgets_of(&tree).into_iter().map(|widget| widget.id).collect();
        assert_eq!(ids.len(), 4);
        assert_eq!((&*ids[0], &*ids[3]), ("a", "widget-2"));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4);
        for nothing in ["{}", "[]", "5", r#"{"widgets":{}}"#] {
            assert!(widgets_of(&json::parse(nothing).unwrap()).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn widget_keys_are_valid_and_unique() {
        let key = format!(r#"{{"deviceId":"{DEVICE}","elementName":"e","path":"t"}}"#);
        let text =
            format!(r#"{{"widgets":[{{"type":"bar","settings":{{"keys":[{key},{key},{{"deviceId":"x"}},7]}}}}]}}"#);
        let tree = json::parse(&text).unwrap();
        let WidgetNeeds::Numbers { keys, points, time } = widgets_of(&tree)[0].needs() else { panic!("no numbers") };
        assert_eq!((keys.len(), points, time), (1, None, None));
        assert_eq!((keys[0].device.to_string(), &*keys[0].element, &*keys[0].path), (DEVICE.to_owned(), "e", "t"));
    }

    #[test]
    fn settings_of_actions_are_left_out() {
        let text = r#"{"widgets":[{"type":"button","settings":{"device":{"name":"d"},"payload":"1","elementName":"e"}},
            {"type":"value","settings":{"payload":"2","keys":[]}},{"type":"theirs","settings":{"secret":1}}]}"#;
        let tree = json::parse(text).unwrap();
        let told: Vec<_> = widgets_of(&tree).iter().map(|widget| widget.settings().text().to_owned()).collect();
        assert_eq!(told, [r#"{"device":{"name":"d"},"elementName":"e"}"#, r#"{"keys":[]}"#, "{}"]);
    }
}
