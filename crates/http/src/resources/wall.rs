//! Dashboards on wall screens by their link: the dashboard, and the data of each widget.

use axum::http::header::IF_NONE_MATCH;
use bytes::Bytes;
use isobar_hub::{WallBoard, WallData, WallDevice, WallFigure, WallPoint, WallReading, WallTable, WallWidget};
use isobar_model::event::Event;
use isobar_model::json::RawJson;
use isobar_model::widget::{Widget, widgets_of};
use serde::Serialize;
use utoipa::ToSchema;

use super::devices::StatusCountsJson;
use super::locations::DeviceClusterJson;
use super::values::{AnyJson, Id, Raw, Time};
use crate::request::Call;
use crate::response::{self, Answer, EntityTags};

/// Characters of an event's payload that a screen shows.
const WALL_EVENT_CHARACTERS_MAX: usize = 200;

pub(crate) async fn wall_fetch(call: &mut Call) -> Answer {
    let shown = call.hub().wall_fetch(call.principal.link()?).await?;
    let tag = shown.board.head.tag().to_string();
    // A malformed list of tags matches nothing.
    if let Ok(Some(known)) = EntityTags::read(&call.head.headers, &IF_NONE_MATCH)
        && let Some(known_by) = known.name_by(&tag)
    {
        return Ok(response::not_modified(&known_by));
    }
    Ok(response::tagged(response::ok(&WallBoardJson::from(shown))?, &tag))
}

pub(crate) async fn wall_widget_fetch(call: &mut Call) -> Answer {
    let shown = call.hub().wall_widget_fetch(call.principal.link()?, call.name("widgetId")).await?;
    response::ok(&WallWidgetDataJson::from(shown))
}

/// The dashboard that a link shows.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallBoard)]
pub(crate) struct WallBoardJson {
    name: Option<String>,
    /// The end of the link.
    expires_at: Time,
    /// At most 200.
    widgets: Vec<WallWidgetJson>,
}

/// A widget, as far as a screen shows it.
#[derive(Serialize, ToSchema)]
#[schema(as = WallWidget)]
struct WallWidgetJson {
    /// The identifier by which its data is asked for.
    id: String,
    r#type: String,
    title: String,
    /// Its place on the grid, in cells, where that is told.
    x: Option<i64>,
    y: Option<i64>,
    w: Option<i64>,
    h: Option<i64>,
    /// The stored settings, without those that would act; empty if screens do not draw widgets of the type.
    settings: Raw,
}

impl From<&Widget<'_>> for WallWidgetJson {
    fn from(widget: &Widget<'_>) -> Self {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| widget.side(side));
        let (id, title) = (widget.id.clone(), widget.title().to_owned());
        Self { id, r#type: widget.kind.to_owned(), title, x, y, w, h, settings: Raw(widget.settings()) }
    }
}

impl From<WallBoard> for WallBoardJson {
    fn from(WallBoard { board, expires_at }: WallBoard) -> Self {
        let configuration = board.dashboard.configuration.tree();
        let widgets = widgets_of(&configuration).iter().map(WallWidgetJson::from).collect();
        Self { name: board.head.name, expires_at: Time(expires_at), widgets }
    }
}

/// The data of a widget, according to its type. Data out of reach of the link's maker is left out.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallWidgetData)]
pub(crate) struct WallWidgetDataJson {
    /// The time at which series of numbers begin, a day before they end.
    from: Option<Time>,
    to: Option<Time>,
    /// Numbers of the types line, bar, value and gauge, in the order of its keys, at most 20.
    readings: Vec<WallReadingJson>,
    /// Devices of the types table and picture, at most 50.
    devices: Vec<WallDeviceJson>,
    /// The number of devices, of the type table.
    total: Option<u64>,
    /// The design's description of each path, of the type table, like `fields` of a storage element; null without one.
    #[schema(value_type = Vec<AnyJson>)]
    meanings: Vec<Raw>,
    /// The figure of the type selection.
    figure: Option<WallFigureJson>,
    /// The number of devices with each status, of the type status.
    statuses: Option<StatusCountsJson>,
    /// Places of devices, of the type map.
    places: Vec<DeviceClusterJson>,
    /// Events of the type events, newest first, at most 50; null if the device is out of reach.
    events: Option<Vec<WallEventJson>>,
}

impl From<WallWidget> for WallWidgetDataJson {
    fn from(WallWidget { range, data }: WallWidget) -> Self {
        let mut shown = Self {
            from: range.from.map(Time),
            to: range.to.map(Time),
            readings: Vec::new(),
            devices: Vec::new(),
            total: None,
            meanings: Vec::new(),
            figure: None,
            statuses: None,
            places: Vec::new(),
            events: None,
        };
        match data {
            WallData::Nothing => {}
            WallData::Numbers(readings) => shown.readings = each(readings),
            WallData::Table(WallTable { rows, total, meanings }) => {
                (shown.devices, shown.total) = (each(rows), Some(total));
                shown.meanings = meanings.into_iter().map(value_or_null).collect();
            }
            WallData::Picture(devices) => shown.devices = each(devices),
            WallData::Figure(figure) => shown.figure = Some(figure.into()),
            WallData::Statuses(statuses) => shown.statuses = Some(statuses.into()),
            WallData::Map(clusters) => shown.places = each(clusters),
            WallData::Events(events) => shown.events = events.map(each),
        }
        shown
    }
}

fn each<T, V: From<T>>(all: Vec<T>) -> Vec<V> {
    all.into_iter().map(V::from).collect()
}

/// Returns a value as it was sent, or null.
fn value_or_null(value: Option<RawJson>) -> Raw {
    Raw(value.unwrap_or_else(|| RawJson::trusted(Bytes::from_static(b"null"))))
}

/// A number of a device, and its course.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallReading)]
struct WallReadingJson {
    device_id: Id,
    element_name: String,
    /// The path beneath what is stored, as the widget has it.
    path: String,
    /// False where the device or its element is out of reach, or not there.
    is_in_reach: bool,
    /// The time at which a value was last stored in the element.
    updated_at: Option<Time>,
    /// The value at the path; null without one.
    #[schema(value_type = AnyJson)]
    value: Raw,
    /// The design's description of the path, like `fields` of a storage element; null without one.
    #[schema(value_type = AnyJson)]
    meaning: Raw,
    /// Its course, in order of time, where the type shows one.
    points: Vec<WallPointJson>,
}

impl From<WallReading> for WallReadingJson {
    fn from(WallReading { key, known }: WallReading) -> Self {
        let is_in_reach = known.is_some();
        let known = known.unwrap_or_default();
        Self {
            device_id: Id(key.device.0),
            element_name: key.element,
            path: key.path,
            is_in_reach,
            updated_at: known.updated_at.map(Time),
            value: value_or_null(known.value),
            meaning: value_or_null(known.meaning),
            points: each(known.points),
        }
    }
}

/// The value of a series in a stretch of time.
#[derive(Serialize, ToSchema)]
#[schema(as = WallPoint)]
struct WallPointJson {
    from: Time,
    to: Time,
    count: u64,
    mean: f64,
    min: f64,
    max: f64,
}

impl From<WallPoint> for WallPointJson {
    fn from(WallPoint { from, to, count, mean, min, max }: WallPoint) -> Self {
        Self { from: Time(from), to: Time(to), count, mean, min, max }
    }
}

/// A device of a table or a picture.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallDevice)]
struct WallDeviceJson {
    id: Id,
    name: String,
    status_text: &'static str,
    last_active: Option<Time>,
    /// The last stored value at each path of the table; null without one.
    #[schema(value_type = Vec<AnyJson>)]
    values: Vec<Raw>,
}

impl From<WallDevice> for WallDeviceJson {
    fn from(WallDevice { id, name, status, last_active, values }: WallDevice) -> Self {
        let values = values.into_iter().map(value_or_null).collect();
        Self { id: Id(id.0), name, status_text: status.name(), last_active: last_active.map(Time), values }
    }
}

/// One figure over several devices.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallFigure)]
struct WallFigureJson {
    /// The number of selected devices.
    total: u64,
    /// The number of devices that were read, at most 1,000.
    looked_at: u64,
    /// The number of devices read that have such a number.
    of: u64,
    /// The mean, or the end that is asked for; null where they are counted, or none has such a number.
    value: Option<f64>,
    /// The name of the device that has it, where it is of one.
    device_name: Option<String>,
}

impl From<WallFigure> for WallFigureJson {
    fn from(WallFigure { total, looked_at, of, value, device }: WallFigure) -> Self {
        Self { total, looked_at, of, value, device_name: device.map(|(_, name)| name) }
    }
}

/// An event that a device sent or received.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WallEvent)]
struct WallEventJson {
    id: Id,
    received_at: Time,
    element_name: String,
    /// The beginning of its payload: 200 characters at most.
    text: String,
}

impl From<Event> for WallEventJson {
    fn from(event: Event) -> Self {
        Self {
            id: Id(event.id.0),
            received_at: Time(event.received_at),
            element_name: event.element.to_string(),
            text: event.payload.text().chars().take(WALL_EVENT_CHARACTERS_MAX).collect(),
        }
    }
}
