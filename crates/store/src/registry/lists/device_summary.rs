//! Counts the devices of a part of the tree: by status, by project, by age of the last event, and those with a place.
//!
//! Without filters these are counts of index ranges, the fastest count in both databases; no counters are stored that
//! could differ from the devices. With filters the devices that pass are scanned once. All counts show one moment,
//! including state that the registry does not have yet.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use isobar_model::access::{CanList, Lineage, Scope};
use isobar_model::ids::ProjectId;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use super::device_filters::{DecidedDevice, DeviceSelection, Lookup, ReadyFilters};
use super::devices::extent;
use super::selected_devices::{from, look_at_metadata, lookup_of_all};
use super::{Extent, within};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Row, Sql, all, one};

const HOUR_MILLIS: i64 = 3_600_000;
const DAY_MILLIS: i64 = 24 * HOUR_MILLIS;
const WEEK_MILLIS: i64 = 7 * DAY_MILLIS;
/// Number of age classes of the last event: none, older, within the week, the day, the hour.
const AGES: usize = 5;

/// Counts of the devices in a part of the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSummary {
    /// Number of devices.
    pub total: u64,
    /// Number of devices with each status, in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
    /// Number of devices of each project, largest first, then by name and id; projects without devices are left out.
    pub by_project: Vec<ProjectDevices>,
    /// Number of devices by the time since their last event.
    pub active: ActiveDevices,
    /// Number of devices with coordinates.
    pub located: u64,
}

/// Number of devices of a project.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectDevices {
    /// Identifier of the project.
    pub project: ProjectId,
    /// Name of the project.
    pub name: String,
    /// Lineage of the project's organization: callers who can read that organization may see the name.
    pub lineage: Lineage,
    /// Number of devices.
    pub count: u64,
}

/// Number of devices by the time since their last event; a device within the hour also counts within the day and the
/// week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveDevices {
    /// Within the last hour.
    pub hour: u64,
    /// Within the last 24 hours.
    pub day: u64,
    /// Within the last seven days.
    pub week: u64,
    /// Without any event.
    pub never: u64,
}

/// Accumulator of the counts.
#[derive(Default)]
struct Counts {
    status: [i64; Status::ALL.len()],
    ages: [i64; AGES],
    located: i64,
    projects: HashMap<ProjectId, i64>,
}

impl Registry {
    /// Counts the devices of a part of the tree that pass the filters, at one moment, including the state in
    /// `selection` that the registry does not have yet.
    pub async fn device_summary(
        &self,
        permit: &CanList,
        selection: &DeviceSelection,
        now: Timestamp,
    ) -> Result<DeviceSummary> {
        let tx = self.db.snapshot().await?;
        let (scope, ages) = (permit.scope(), Ages::before(now));
        let extent = extent(&tx, scope).await?;
        let mut filters = ReadyFilters::of(&tx, scope, selection).await?;
        let mut counts = Counts::default();
        let by_project = if selection.filters.is_empty() {
            let uncounted = self.commonest_age.load(Ordering::Relaxed);
            count_all(&tx, scope, &extent, &ages, uncounted, &mut counts).await?;
            if extent.within > extent.everywhere / 2 {
                self.commonest_age.store(counts.commonest_age(), Ordering::Relaxed);
            }
            filters.decided.iter().for_each(|decided| counts.change(decided));
            projects(&tx, scope, &extent).await?
        } else {
            look_at_metadata(&tx, scope, &extent, &mut filters).await?;
            count_passing(&tx, scope, &extent, &filters, &ages, &mut counts).await?;
            let passing = filters.decided.iter().filter(|decided| decided.passes);
            passing.for_each(|decided| counts.add(decided, &ages));
            named(&tx, &counts.projects).await?
        };
        count_heard(&tx, scope, &extent, &filters, selection, &ages, &mut counts).await?;
        Ok(counts.summary(by_project))
    }
}

/// Moments at which the last hour, day and week begin.
pub(super) struct Ages {
    hour: i64,
    day: i64,
    week: i64,
}

impl Ages {
    pub(super) fn before(now: Timestamp) -> Self {
        // No event is older than the epoch; 0 means no event.
        let since = |millis: i64| now.millis().saturating_sub(millis).max(1);
        Self { hour: since(HOUR_MILLIS), day: since(DAY_MILLIS), week: since(WEEK_MILLIS) }
    }

    /// Returns the age class of a last event.
    fn of(&self, heard: Option<Timestamp>) -> usize {
        match heard.map_or(0, Timestamp::millis) {
            at if at >= self.hour => 4,
            at if at >= self.day => 3,
            at if at >= self.week => 2,
            at if at > 0 => 1,
            _ => 0,
        }
    }

    /// Returns the age class as an SQL expression.
    fn case(&self, column: &str) -> String {
        let Self { hour, day, week } = self;
        format!(
            "CAST(CASE WHEN {column} >= {hour} THEN 4 WHEN {column} >= {day} THEN 3 WHEN {column} >= {week} THEN 2 \
             WHEN {column} > 0 THEN 1 ELSE 0 END AS BIGINT)"
        )
    }

    /// Returns the condition of each age class, as a range of the index.
    fn ranges(&self) -> [String; AGES] {
        let Self { hour, day, week } = self;
        [
            "a.last_active = 0".to_owned(),
            format!("a.last_active > 0 AND a.last_active < {week}"),
            format!("a.last_active >= {week} AND a.last_active < {day}"),
            format!("a.last_active >= {day} AND a.last_active < {hour}"),
            format!("a.last_active >= {hour}"),
        ]
    }
}

impl Counts {
    /// Adds a device that passes and was not counted by the database.
    fn add(&mut self, decided: &DecidedDevice, ages: &Ages) {
        let device = &decided.device;
        self.status[usize::from(device.status.number())] += 1;
        self.ages[ages.of(device.last_active)] += 1;
        self.located += i64::from(device.coordinates().is_some());
        *self.projects.entry(device.project).or_default() += 1;
    }

    /// Corrects the counts by a device that the database counted with its state in the registry.
    fn change(&mut self, decided: &DecidedDevice) {
        let (status, is_located) = decided.written;
        self.status[usize::from(status.number())] -= 1;
        self.status[usize::from(decided.device.status.number())] += 1;
        self.located += i64::from(decided.device.coordinates().is_some()) - i64::from(is_located);
    }

    /// Returns the age class with most devices.
    fn commonest_age(&self) -> usize {
        (0..AGES).max_by_key(|age| self.ages[*age]).unwrap_or_default()
    }

    fn summary(self, by_project: Vec<ProjectDevices>) -> DeviceSummary {
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        let [never, _, week, day, hour] = self.ages;
        DeviceSummary {
            total: count(self.status.iter().sum()),
            by_status: self.status.map(count),
            by_project,
            active: ActiveDevices {
                hour: count(hour),
                day: count(hour + day),
                week: count(hour + day + week),
                never: count(never),
            },
            located: count(self.located),
        }
    }
}

/// Counts all devices, by ranges of indexes.
async fn count_all(
    tx: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    ages: &Ages,
    uncounted: usize,
    counts: &mut Counts,
) -> Result<()> {
    if extent.within == 0 {
        return Ok(());
    }
    let is_everything = extent.within == extent.everywhere;
    let row = one(tx, ranges(scope, is_everything, ages, uncounted)).await?.ok_or(StoreError::Gone("counts"))?;
    for status in Status::ALL.into_iter().skip(1) {
        counts.status[usize::from(status.number())] = row.number(&format!("status_{}", status.number()))?;
    }
    for age in (0..AGES).filter(|age| *age != uncounted) {
        counts.ages[age] = row.number(&format!("age_{age}"))?;
    }
    // Organizations store their number of devices; subtracting the counts gives those of the first status and of the
    // age class that is not counted.
    let others = |counts: &[i64]| i64::try_from(extent.within).unwrap_or(i64::MAX) - counts.iter().sum::<i64>();
    counts.status[usize::from(Status::None.number())] = others(&counts.status);
    counts.ages[uncounted] = others(&counts.ages);
    counts.located = row.number("located")?;
    Ok(())
}

/// Counts and names the projects of all devices by one query. Projects store their number of devices, but not by
/// organization.
async fn projects(tx: &impl Connection, scope: &Scope, extent: &Extent) -> Result<Vec<ProjectDevices>> {
    let query = if extent.within == 0 {
        return Ok(Vec::new());
    } else if extent.within == extent.everywhere {
        Sql::new(
            "SELECT p.id, p.name, o.lineage, p.device_count AS devices FROM projects p \
             JOIN organizations o ON o.id = p.organization_id WHERE p.device_count > 0",
        )
    } else {
        Sql::new(
            "SELECT p.id, p.name, l.lineage, t.devices FROM (SELECT d.project_id AS project, count(*) AS devices \
             FROM organizations o CROSS JOIN devices d WHERE d.organization_id = o.id AND ",
        )
        .then(within(scope))
        .text(
            " GROUP BY d.project_id) t JOIN projects p ON p.id = t.project \
             JOIN organizations l ON l.id = p.organization_id",
        )
    };
    let rows = all(tx, query).await?;
    let counted = rows.iter().map(|row| project_devices(row, row.count("devices")?));
    let mut projects = counted.collect::<Result<Vec<_>>>()?;
    order(&mut projects);
    Ok(projects)
}

/// Builds the query for the counts of all ranges but one age class: of all devices, or summed up over the organizations
/// of the part.
pub(super) fn ranges(scope: &Scope, is_everything: bool, ages: &Ages, uncounted: usize) -> Sql {
    let mut sql = String::from("SELECT ");
    let count = |table: &str, condition: &str| {
        let alias = table.split(' ').next_back().unwrap_or_default();
        if is_everything {
            format!("(SELECT count(*) FROM {table} WHERE {condition})")
        } else {
            let own = format!("(SELECT count(*) FROM {table} WHERE {alias}.organization_id = o.id AND {condition})");
            format!("CAST(coalesce(sum({own}), 0) AS BIGINT)")
        }
    };
    for status in Status::ALL.into_iter().skip(1) {
        let number = status.number();
        // Writing to a string cannot fail.
        let _ = write!(sql, "{} AS status_{number}, ", count("devices d", &format!("d.status = {number}")));
    }
    for (age, range) in ages.ranges().iter().enumerate().filter(|(age, _)| *age != uncounted) {
        let _ = write!(sql, "{} AS age_{age}, ", count("device_activity a", range));
    }
    let _ = write!(sql, "{} AS located", count("devices d", "d.place_latitude IS NOT NULL"));
    if is_everything {
        return Sql::new(sql);
    }
    Sql::new(sql + " FROM organizations o WHERE o.device_count > 0 AND ").then(within(scope))
}

/// Counts the devices that pass filters, without those that are decided in this program.
async fn count_passing(
    tx: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    filters: &ReadyFilters<'_>,
    ages: &Ages,
    counts: &mut Counts,
) -> Result<()> {
    let lookup = lookup_of_all(tx, filters, scope, extent).await?;
    for row in all(tx, passing_of_projects(scope, extent, filters, ages, lookup)).await? {
        let devices = row.number("devices")?;
        let mut others = 0;
        for status in Status::ALL.into_iter().skip(1).map(Status::number) {
            let own = row.number(&format!("status_{status}"))?;
            counts.status[usize::from(status)] += own;
            others += own;
        }
        counts.status[usize::from(Status::None.number())] += devices - others;
        for age in 0..AGES {
            counts.ages[age] += row.number(&format!("age_{age}"))?;
        }
        counts.located += row.number("located")?;
        *counts.projects.entry(row.id("project")?).or_default() += devices;
    }
    Ok(())
}

/// Builds the query that counts by project, in one pass over the devices that pass.
fn passing_of_projects(
    scope: &Scope,
    extent: &Extent,
    filters: &ReadyFilters<'_>,
    ages: &Ages,
    lookup: Lookup<'_>,
) -> Sql {
    let mut select = String::from("SELECT d.project_id AS project, count(*) AS devices, ");
    for status in Status::ALL.into_iter().skip(1).map(Status::number) {
        // Writing to a string cannot fail.
        let _ = write!(select, "count(CASE WHEN d.status = {status} THEN 1 END) AS status_{status}, ");
    }
    for (age, range) in ages.ranges().iter().enumerate() {
        let _ = write!(select, "count(CASE WHEN {range} THEN 1 END) AS age_{age}, ");
    }
    Sql::new(select + "count(d.place_latitude) AS located")
        .then(from(filters.dialect, scope, extent, true))
        .then(filters.condition_of_written(lookup))
        // Grouping along the index of the projects would look up every device in the table.
        .text(&format!(" GROUP BY {}", filters.dialect.unindexed("d.project_id")))
}

/// Returns the counter at the index in a column.
fn place<'c>(counts: &'c mut [i64], row: &Row, column: &str) -> Result<&'c mut i64> {
    let at = row.count(column)?;
    let found = usize::try_from(at).ok().and_then(|at| counts.get_mut(at));
    found.ok_or_else(|| StoreError::Damaged(format!("column {column}: {at} is out of its range")))
}

/// Moves devices with a later event than the registry has to their age class.
async fn count_heard(
    tx: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    filters: &ReadyFilters<'_>,
    selection: &DeviceSelection,
    ages: &Ages,
    counts: &mut Counts,
) -> Result<()> {
    if selection.heard.is_empty() || extent.within == 0 {
        return Ok(());
    }
    let dialect = Dialect::of(tx);
    let later = format!("{}(a.last_active, t.moment)", dialect.larger());
    let select = format!(
        "SELECT h.was AS was, h.becomes AS becomes, count(*) AS devices FROM (SELECT {} AS was, {} AS becomes FROM ",
        ages.case("a.last_active"),
        ages.case(&later),
    );
    let mut query = Sql::new(select)
        .moments(dialect, selection.heard.iter().map(|(key, at)| (key.0.into(), *at)))
        .text(
            " AS t JOIN device_activity a ON a.key = CAST(t.item AS BIGINT) JOIN devices d ON d.key = a.key \
             JOIN organizations o ON o.id = d.organization_id WHERE ",
        )
        .then(within(scope));
    if !selection.filters.is_empty() {
        query = query.text(" AND ").then(filters.condition_of_written(Lookup::Along("")));
    }
    let query = query.text(") h WHERE h.was <> h.becomes GROUP BY h.was, h.becomes");
    for row in all(tx, query).await? {
        let devices = row.number("devices")?;
        *place(&mut counts.ages, &row, "was")? -= devices;
        *place(&mut counts.ages, &row, "becomes")? += devices;
    }
    Ok(())
}

/// Reads the names of the projects that have devices.
async fn named(tx: &impl Connection, counts: &HashMap<ProjectId, i64>) -> Result<Vec<ProjectDevices>> {
    let present = counts.iter().filter(|(_, count)| **count > 0).map(|(project, _)| *project);
    let query = Sql::new(
        "SELECT p.id, p.name, o.lineage FROM projects p JOIN organizations o ON o.id = p.organization_id WHERE p.id",
    );
    let rows = all(tx, query.among(Dialect::of(tx), present)).await?;
    let count = |row: &Row| -> Result<i64> { Ok(counts.get(&row.id("id")?).copied().unwrap_or_default()) };
    let named = rows.iter().map(|row| project_devices(row, u64::try_from(count(row)?).unwrap_or_default()));
    let mut projects = named.collect::<Result<Vec<_>>>()?;
    order(&mut projects);
    Ok(projects)
}

fn project_devices(row: &Row, count: u64) -> Result<ProjectDevices> {
    Ok(ProjectDevices { project: row.id("id")?, name: row.text("name")?, lineage: row.lineage("lineage")?, count })
}

/// Sorts projects by number of devices, largest first, then by name and id.
fn order(projects: &mut [ProjectDevices]) {
    projects.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.name, a.project).cmp(&(&b.name, b.project))));
}
