//! Reads the dashboard of a link for a screen on a wall, and the data of each widget. Only data named in the stored
//! dashboard is read, with the present rights of the link's maker within the dashboard's organization, by the same
//! operations as the interface offers.

use std::sync::Arc;

use isobar_model::access::Caller;
use isobar_model::board::Board;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, ProjectId};
use isobar_model::json::RawJson;
use isobar_model::map::{DeviceCluster, MapBox};
use isobar_model::page::{Depth, ListRequest, PageRequest, SortKey, TimeRange};
use isobar_model::role::Role;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_model::widget::{Figure, WidgetNeeds, WidgetSelection, meaning_at, value_at, widgets_of};
use isobar_store::registry::{DeviceField, DeviceFilter};
use isobar_store::telemetry::{HistoryQuery, Operand, Operator};

use super::devices::LastChoice;
use super::wall_numbers::{WallCourse, WallReading};
use crate::error::if_there;
use crate::identity::authentication::Principal;
use crate::identity::board_links::LinkSession;
use crate::{Hub, TreeQuery};

/// Rows of a table, and events of a device, shown on a screen.
const WALL_ROWS_MAX: u32 = 50;
/// Devices that a figure is computed from.
const WALL_DEVICES_MAX: u32 = 1_000;
/// Projects whose designs are searched for a stored element: those with the most devices.
const WALL_PROJECTS_MAX: usize = 50;
/// The most urgent statuses in order, and then all others, whose numbers are lower.
const WALL_URGENCY: [(Operator, Status); 4] = [
    (Operator::Eq, Status::Critical),
    (Operator::Eq, Status::Warning),
    (Operator::Eq, Status::Missing),
    (Operator::Lt, Status::Warning),
];
/// Cell size of the first overview of a map, in degrees, which finds the area of the devices; and cells on each side of
/// the map.
const WALL_WORLD_CELL_DEGREES: f64 = 30.0;
const WALL_CELLS_A_SIDE: f64 = 40.0;
/// Smallest cell size in degrees: about a hundred metres.
const WALL_CELL_DEGREES_MIN: f64 = 0.001;
/// Length of charts in milliseconds: a day.
const WALL_RANGE_MILLIS: i64 = 86_400_000;

/// The dashboard of a link.
pub struct WallBoard {
    /// The dashboard.
    pub board: Board,
    /// The expiry of the link.
    pub expires_at: Timestamp,
}

/// The data of a widget.
pub struct WallWidget {
    /// The range that the data covers; charts begin at `range.from`.
    pub range: TimeRange,
    /// The data to show.
    pub data: WallData,
}

/// The data to show in a widget.
pub enum WallData {
    /// No data beyond the widget's settings.
    Nothing,
    /// Numbers, with their charts.
    Numbers(Vec<WallReading>),
    /// The most urgent devices, with their last values.
    Table(WallTable),
    /// The devices of a picture.
    Picture(Vec<WallDevice>),
    /// One figure of several devices.
    Figure(WallFigure),
    /// Number of devices by status, in the order of [`Status::ALL`].
    Statuses([u64; Status::ALL.len()]),
    /// The places of devices.
    Map(Vec<DeviceCluster>),
    /// Events to and from a device, newest first; `None` if it is out of reach.
    Events(Option<Vec<Event>>),
}

/// Devices with their last values.
pub struct WallTable {
    /// The devices.
    pub rows: Vec<WallDevice>,
    /// Number of all devices.
    pub total: u64,
    /// A design's description of each path of the table.
    pub meanings: Vec<Option<RawJson>>,
}

/// A device as a screen shows it.
pub struct WallDevice {
    /// Its identifier.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// The time of its last event.
    pub last_active: Option<Timestamp>,
    /// Its last values at the paths of the table; `None` where it has no value.
    pub values: Vec<Option<RawJson>>,
}

/// One figure of several devices.
#[derive(Default)]
pub struct WallFigure {
    /// Number of selected devices.
    pub total: u64,
    /// Number of devices that were read.
    pub looked_at: u64,
    /// Number of devices with such a number.
    pub of: u64,
    /// The mean, minimum or maximum; `None` if devices are counted or none has such a number.
    pub value: Option<f64>,
    /// The device with the minimum or maximum.
    pub device: Option<(DeviceId, String)>,
}

impl Hub {
    /// Fetches the dashboard of a link.
    ///
    /// Needs that the link's maker may change it.
    ///
    /// # Errors
    /// `Forbidden`: the maker may not change it any more. `Unauthenticated`: the dashboard was deleted, and the link
    /// with it.
    pub async fn wall_fetch(&self, session: &LinkSession) -> Result<WallBoard> {
        let permit = self.0.identity.link_permit(session).await?;
        let board = self.registry().board_fetch(&permit, session.link.board).await?;
        Ok(WallBoard { board: board.ok_or(Error::Unauthenticated)?, expires_at: session.link.expires_at })
    }

    /// Reads the data of one widget of a link's dashboard.
    ///
    /// Needs what [`Hub::wall_fetch`] needs; devices out of reach of the maker or of the dashboard's organization are
    /// left out.
    ///
    /// # Errors
    /// Those of [`Hub::wall_fetch`]; `Missing` if the dashboard has no such widget; `Busy` if too many calls are running.
    pub async fn wall_widget_fetch(&self, session: &LinkSession, widget: &str) -> Result<WallWidget> {
        let WallBoard { board, .. } = self.wall_fetch(session).await?;
        let needs = {
            let configuration = board.dashboard.configuration.tree();
            let found = widgets_of(&configuration).into_iter().find(|found| found.id == widget);
            found.ok_or(Error::Missing("widget"))?.needs()
        };
        let now = self.now();
        let from = Timestamp::from_millis(now.millis() - WALL_RANGE_MILLIS);
        let range = TimeRange { from: Some(from), to: Some(now) };
        let tree = TreeQuery { organization: Some(session.link.organization), depth: Depth::All };
        let reader = &self.wall_reader(session).await?;
        let data = match needs {
            WidgetNeeds::Nothing => WallData::Nothing,
            WidgetNeeds::Numbers { keys, points, time } => {
                let course = points.map(|points| WallCourse { range, points, time });
                let reader = Principal::User(Arc::clone(reader));
                WallData::Numbers(self.wall_readings(&reader, keys, course).await?)
            }
            WidgetNeeds::Table { element, paths } => self.wall_table(reader, tree, &element, &paths).await?,
            WidgetNeeds::Selection(selection) => WallData::Figure(self.wall_figure(reader, tree, selection).await?),
            WidgetNeeds::Statuses => WallData::Statuses(self.device_summary(reader, tree, Vec::new()).await?.by_status),
            WidgetNeeds::Map => WallData::Map(self.wall_map(reader, tree).await?),
            WidgetNeeds::Picture(devices) => self.wall_picture(reader, devices).await?,
            WidgetNeeds::Events(device) => WallData::Events(self.wall_events(reader, device).await?),
        };
        Ok(WallWidget { range, data })
    }

    /// Returns the reader for a screen: the link's maker, as if it belonged to the dashboard's organization. A user of
    /// that organization alone may change the dashboard later, and name devices that only a maker from above would
    /// reach.
    async fn wall_reader(&self, session: &LinkSession) -> Result<Arc<Caller>> {
        let LinkSession { link, maker } = session;
        let lineage = self.0.caches.lineage_of(link.organization).await?.ok_or(Error::Unauthenticated)?;
        let role = maker.role.min(Role::Developer);
        Ok(Arc::new(Caller { role, lineage, ..Caller::clone(maker) }))
    }

    /// Reads the most urgent devices; those with values in the element come first.
    async fn wall_table(&self, reader: &Caller, tree: TreeQuery, element: &str, paths: &[String]) -> Result<WallData> {
        let (projects, fields) = self.projects_storing(reader, tree, element).await?;
        let meanings = meanings_at(fields.as_ref(), paths);
        let (mut devices, mut total) = (Vec::new(), 0);
        for (operator, status) in WALL_URGENCY {
            let number = Operand::Number(status.number().to_string());
            let of_status = DeviceFilter { field: DeviceField::Status, operator, operands: vec![number] };
            let filters = projects.iter().cloned().chain([of_status]).collect();
            let sort = vec![latest("statusInt"), latest("lastActive")];
            let page = PageRequest::new(1, WALL_ROWS_MAX);
            let found = self.device_list(reader, tree, ListRequest { page, sort, ..ListRequest::default() }, filters);
            let found = found.await?;
            total += found.total;
            devices.extend(found.items);
        }
        devices.truncate(WALL_ROWS_MAX as usize);
        let mut rows = Vec::with_capacity(devices.len());
        for device in devices {
            rows.push(self.wall_row(reader, device, element, paths).await?);
        }
        rows.sort_by_key(|row| row.values.iter().all(Option::is_none));
        Ok(WallData::Table(WallTable { rows, total, meanings }))
    }

    /// Returns a filter for the projects that may store an element, or no filter if no design declares it; and the
    /// description of its keys by the first design that has one.
    async fn projects_storing(
        &self,
        reader: &Caller,
        tree: TreeQuery,
        element: &str,
    ) -> Result<(Option<DeviceFilter>, Option<RawJson>)> {
        let summary = self.device_summary(reader, tree, Vec::new()).await?;
        let (mut found, mut fields): (Vec<ProjectId>, _) = (Vec::new(), None);
        for (project, ..) in summary.by_project.into_iter().take(WALL_PROJECTS_MAX) {
            let plan = self.0.caches.plan_of_project(project).await?;
            let stored = plan.storage_elements();
            // A design without storage elements stores every event.
            if stored.is_empty() || stored.iter().any(|name| &**name == element) {
                found.push(project);
                fields = fields.or_else(|| plan.storage_fields(element).cloned());
            }
        }
        let operands: Vec<_> = found.into_iter().map(|project| Operand::Text(project.to_string())).collect();
        let is_any = !operands.is_empty();
        let filter = DeviceFilter { field: DeviceField::Project, operator: Operator::In, operands };
        Ok((is_any.then_some(filter), fields))
    }

    async fn wall_row(&self, reader: &Caller, device: Device, element: &str, paths: &[String]) -> Result<WallDevice> {
        let choice = LastChoice::Elements(vec![element.to_owned()]);
        let mut view = self.device_with_last(reader, device, &choice).await?;
        let last = view.last.next().await?.map(|(_, last)| last.values);
        let tree = last.as_ref().map(RawJson::tree);
        let value = |path: &String| tree.as_ref().and_then(|tree| value_at(tree, path)).map(RawJson::from);
        let values = paths.iter().map(value).collect();
        let Device { id, name, status, last_active, .. } = view.device;
        Ok(WallDevice { id, name, status, last_active, values })
    }

    /// Computes one figure of the devices of a selection.
    async fn wall_figure(
        &self,
        reader: &Caller,
        tree: TreeQuery,
        WidgetSelection { figure, key, project, label }: WidgetSelection,
    ) -> Result<WallFigure> {
        let of_project = project.map(|project| (DeviceField::Project, Operand::Text(project.to_string())));
        let of_label = label.map(|(keys, value)| (DeviceField::Meta(keys), Operand::of_text(&value)));
        let equal = |(field, operand)| DeviceFilter { field, operator: Operator::Eq, operands: vec![operand] };
        let filters = of_project.into_iter().chain(of_label).map(equal).collect();
        let limit = if key.is_some() { WALL_DEVICES_MAX } else { 1 };
        let sort = vec![SortKey { field: "name".to_owned(), descending: false }];
        let list = ListRequest { page: PageRequest::new(1, limit), sort, ..ListRequest::default() };
        let found = self.device_list(reader, tree, list, filters).await?;
        let mut told = WallFigure { total: found.total, ..WallFigure::default() };
        let Some(key) = key else { return Ok(told) };
        for device in found.items {
            told.looked_at += 1;
            let row = self.wall_row(reader, device, &key.element, std::slice::from_ref(&key.path)).await?;
            let number = row.values.first().and_then(Option::as_ref).and_then(|value| value.tree().as_f64());
            if let Some(number) = number.filter(|number| number.is_finite()) {
                told.take(figure, number, (row.id, row.name));
            }
        }
        Ok(told)
    }

    /// Returns the places of the devices: an overview of the whole world decides which area is shown.
    async fn wall_map(&self, reader: &Caller, tree: TreeQuery) -> Result<Vec<DeviceCluster>> {
        let world = self.device_clusters(reader, tree, MapBox::WORLD, WALL_WORLD_CELL_DEGREES).await?;
        let Some(around) = world.iter().map(|cluster| cluster.bounds).reduce(around) else { return Ok(world) };
        let side = (around.east - around.west).max(around.north - around.south) / WALL_CELLS_A_SIDE;
        let side = side.clamp(WALL_CELL_DEGREES_MIN, WALL_WORLD_CELL_DEGREES);
        let edges = [
            (around.west - side).max(-180.0),
            (around.south - side).max(-90.0),
            (around.east + side).min(180.0),
            (around.north + side).min(90.0),
        ];
        let within = MapBox::new(edges).unwrap_or(MapBox::WORLD);
        self.device_clusters(reader, tree, within, side).await
    }

    /// Returns the devices of a picture that are within reach.
    async fn wall_picture(&self, reader: &Arc<Caller>, devices: Vec<DeviceId>) -> Result<WallData> {
        let (reader, mut rows) = (Principal::User(Arc::clone(reader)), Vec::with_capacity(devices.len()));
        for id in devices {
            let found = if_there(self.device_fetch(&reader, id, LastChoice::None).await)?;
            if let Some(Device { id, name, status, last_active, .. }) = found.map(|view| view.device) {
                rows.push(WallDevice { id, name, status, last_active, values: Vec::new() });
            }
        }
        Ok(WallData::Picture(rows))
    }

    async fn wall_events(&self, reader: &Caller, device: DeviceId) -> Result<Option<Vec<Event>>> {
        let page = PageRequest::new(1, WALL_ROWS_MAX);
        let query = HistoryQuery {
            device_events: true,
            cloud_events: true,
            range: TimeRange::default(),
            not_before: Timestamp::default(),
            page,
        };
        Ok(if_there(self.history(reader, device, query).await)?.map(|page| page.items))
    }
}

impl WallFigure {
    /// Adds one more number.
    fn take(&mut self, figure: Figure, number: f64, device: (DeviceId, String)) {
        self.of += 1;
        let is_worse = match (figure, self.value) {
            (Figure::Count, _) => return,
            // Each term is divided first, because the sum of large numbers would overflow.
            (Figure::Mean, mean) => {
                let (mean, of) = (mean.unwrap_or_default(), self.of as f64);
                self.value = Some(mean - mean / of + number / of);
                return;
            }
            (_, None) => true,
            (Figure::Highest, Some(known)) => number > known,
            (Figure::Lowest, Some(known)) => number < known,
        };
        if is_worse {
            (self.value, self.device) = (Some(number), Some(device));
        }
    }
}

/// Returns the description of each of these paths.
fn meanings_at(fields: Option<&RawJson>, paths: &[String]) -> Vec<Option<RawJson>> {
    let fields = fields.map(RawJson::tree);
    paths.iter().map(|path| fields.as_ref().and_then(|all| meaning_at(all, path)).map(RawJson::from)).collect()
}

fn latest(field: &str) -> SortKey {
    SortKey { field: field.to_owned(), descending: true }
}

/// Returns the smallest box around two boxes.
fn around(one: MapBox, other: MapBox) -> MapBox {
    MapBox {
        west: one.west.min(other.west),
        south: one.south.min(other.south),
        east: one.east.max(other.east),
        north: one.north.max(other.north),
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::ids::DeviceId;

    use super::*;

    fn figure_of(figure: Figure, numbers: &[f64]) -> (Option<f64>, Option<u128>) {
        let mut told = WallFigure::default();
        for (place, number) in numbers.iter().enumerate() {
            let id = DeviceId(uuid::Uuid::from_u128(place as u128));
            told.take(figure, *number, (id, String::new()));
        }
        assert_eq!(told.of, numbers.len() as u64);
        (told.value, told.device.map(|(id, _)| id.0.as_u128()))
    }

    #[test]
    fn figure_is_mean_minimum_or_maximum() {
        let numbers = [3.0, 9.0, -6.0, 9.0];
        assert_eq!(figure_of(Figure::Highest, &numbers), (Some(9.0), Some(1)));
        assert_eq!(figure_of(Figure::Lowest, &numbers), (Some(-6.0), Some(2)));
        assert_eq!(figure_of(Figure::Mean, &numbers), (Some(3.75), None));
        assert_eq!(figure_of(Figure::Count, &numbers), (None, None));
        assert_eq!(figure_of(Figure::Mean, &[]), (None, None));
        assert!(figure_of(Figure::Mean, &[f64::MAX, f64::MAX]).0.unwrap().is_finite());
    }
}
