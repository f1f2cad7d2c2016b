//! Writes findings of runs of designs: of many devices at once, in one transaction.

use std::collections::{HashMap, HashSet};

use isobar_model::access::CanWrite;
use isobar_model::alarm::AlarmFinding;
use isobar_model::device::{Device, Location};
use isobar_model::ids::{DeviceId, DeviceRef};
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use serde_json::json;

use super::alarm_findings;
use super::alarms::{self, AlarmWrite};
use super::delivery_quota::{self, LimitedDelivery};
use super::devices::{follow_metas, hold_devices, labelled, read};
use super::settings::{self, SettingWrite};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Column, Connection, Dialect, Sql, all, one, run};

/// Bytes of metadata that one statement carries, plus at most one device's.
const STATEMENT_BYTES: usize = 1 << 20;
/// Comparisons of labels beyond which they are indexed.
const COMPARED_MAX: usize = 256;
/// Places of devices that one statement sets.
const PLACES_AT_ONCE: usize = 200;

/// Findings of a design about a device. Values that are left out stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReport {
    /// Status. A device that goes missing keeps its previous status besides.
    pub status: Option<Status>,
    /// Status that a missing device gets when it is active again, if it differs from the present one; only a missing
    /// device stores it.
    pub status_before: Option<Status>,
    /// Labels to set in the metadata.
    pub meta: Vec<(String, RawJson)>,
    /// Location of the device.
    pub location: Option<Location>,
}

impl DeviceReport {
    /// Merges a newer report into this one.
    pub fn then(mut self, newer: Self) -> Self {
        if let Some(status) = newer.status {
            // Only a report of a missing device has a status to restore, and only as long as the device is missing.
            let was_missing = self.status.is_none_or(|status| status == Status::Missing);
            self.status = Some(status);
            self.status_before = match status {
                Status::Missing if was_missing => newer.status_before.or(self.status_before),
                _ => newer.status_before,
            };
        } else {
            self.status_before = newer.status_before.or(self.status_before);
        }
        self.meta = newest(self.meta, newer.meta);
        self.location = newer.location.or(self.location);
        self
    }

    /// Applies the report to a device as of `at`. Returns false if nothing changes.
    pub fn over(&self, device: &mut Device, at: Timestamp) -> bool {
        let status = self.status.unwrap_or(device.status);
        let status_before = match (device.status, status) {
            (Status::Missing, Status::Missing) => self.status_before.unwrap_or(device.status_before),
            (_, Status::Missing) => self.status_before.unwrap_or(device.status),
            _ => Status::None,
        };
        let location = self.location.or(device.location);
        let meta = if self.meta.is_empty() { device.meta.clone() } else { labelled(&device.meta, &self.meta) };
        let kept = (device.status, device.status_before, device.location, &device.meta);
        if (status, status_before, location, &meta) == kept {
            return false;
        }
        (device.status, device.status_before, device.location, device.meta) = (status, status_before, location, meta);
        device.updated_at = at.max(device.updated_at);
        true
    }
}

/// Merges labels with newer values, each in its first position.
fn newest(mut labels: Vec<(String, RawJson)>, newer: Vec<(String, RawJson)>) -> Vec<(String, RawJson)> {
    if labels.len() * newer.len() + newer.len() * newer.len() <= COMPARED_MAX {
        for (tag, value) in newer {
            match labels.iter_mut().find(|(present, _)| *present == tag) {
                Some((_, present)) => *present = value,
                None => labels.push((tag, value)),
            }
        }
        return labels;
    }
    let mut places: HashMap<String, usize> =
        labels.iter().enumerate().map(|(place, (tag, _))| (tag.clone(), place)).collect();
    for (tag, value) in newer {
        match places.get(&tag).and_then(|place| labels.get_mut(*place)) {
            Some((_, present)) => *present = value,
            None => {
                places.insert(tag.clone(), labels.len());
                labels.push((tag, value));
            }
        }
    }
    labels
}

/// Findings that one transaction stores.
#[derive(Clone, Debug, Default)]
pub struct Findings<'a> {
    /// Reports about devices, with their moments; those of one device in order.
    pub reports: Vec<(CanWrite<DeviceRef>, &'a DeviceReport, Timestamp)>,
    /// Changes of settings; those of one device in order.
    pub settings: Vec<(CanWrite<DeviceRef>, SettingWrite)>,
    /// Changes of alarms by users; those of one alarm in order. They are applied before findings of designs.
    pub alarm_writes: Vec<(CanWrite<DeviceRef>, AlarmWrite)>,
    /// Findings about alarms; those of one device in order.
    pub alarms: Vec<(CanWrite<DeviceRef>, &'a AlarmFinding)>,
    /// Outgoing e-mails and calls.
    pub deliveries: Vec<LimitedDelivery>,
    /// The revisions of all devices with findings here, where processes share the telemetry store.
    pub revisions: Vec<(CanWrite<DeviceRef>, u64)>,
}

impl Registry {
    /// Stores findings of designs, all or none: storing the same again, in order, changes nothing. Skips devices that
    /// were removed. Returns the indexes of deliveries that were left out because their source has reached its limit.
    ///
    /// # Errors
    /// [`StoreError::Overtaken`] with the devices whose findings another process has taken over: see
    /// [`Registry::findings_take`].
    pub async fn findings_write(&self, findings: &Findings<'_>, now: Timestamp) -> Result<Vec<usize>> {
        let tx = self.db.begin().await?;
        let reported = findings.reports.iter().map(|(permit, ..)| permit.target().id);
        let set = findings.settings.iter().map(|(permit, _)| permit.target().id);
        let raised = findings.alarms.iter().map(|(permit, _)| permit.target().id);
        let written = findings.alarm_writes.iter().map(|(permit, _)| permit.target().id);
        let others = findings.revisions.iter().map(|(permit, _)| permit.target().id);
        let devices =
            hold_devices(&tx, reported.chain(set).chain(raised).chain(written).chain(others).collect()).await?;
        must_be_newest(&tx, &findings.revisions).await?;
        report(&tx, &devices, findings).await?;
        alarms::change(&tx, &devices, &findings.alarm_writes).await?;
        alarm_findings::apply(&tx, &devices, findings.alarms.iter().map(|(permit, alarm)| (permit, *alarm))).await?;
        settings::write(&tx, &devices, &findings.settings).await?;
        let left_out = delivery_quota::put_within(&tx, &findings.deliveries, now).await?;
        tx.commit().await?;
        Ok(left_out)
    }
}

impl Registry {
    /// Makes the caller the one that writes the findings of a device: those of revisions before this one, which may still
    /// come from another process, are refused from now on. If they were taken at a later revision, nothing changes, and
    /// that one is returned: the caller gives up, unless the telemetry store knows no such revision because it was restored.
    /// Then it calls again with that as `outlived`, and reads the findings afterwards.
    pub async fn findings_take(
        &self,
        permit: &CanWrite<DeviceRef>,
        revision: u64,
        outlived: Option<u64>,
    ) -> Result<Option<u64>> {
        let key = permit.target().key;
        let take = "UPDATE devices SET findings_from = ? WHERE key = ? AND (findings_from <= ? OR findings_from = ?)";
        let take = Sql::new(take).bind(revision).bind(key).bind(revision).bind(outlived.unwrap_or(revision));
        let tx = self.db.begin().await?;
        let later = match run(&tx, take).await? {
            0 => one(&tx, Sql::new("SELECT findings_from FROM devices WHERE key = ?").bind(key)).await?,
            _ => None,
        };
        tx.commit().await?;
        later.map(|row| row.count("findings_from")).transpose()
    }
}

/// Fails if the findings of a locked device were taken over at a later revision than that of these, or these have none: the
/// caller knows that they were taken over.
async fn must_be_newest(tx: &impl Connection, revisions: &[(CanWrite<DeviceRef>, u64)]) -> Result<()> {
    if revisions.is_empty() {
        return Ok(());
    }
    let rows = revisions.iter().map(|(permit, revision)| json!([permit.target().key.0, revision]));
    let columns = [Column::Number("device"), Column::Number("revision")];
    let query = Sql::new("SELECT devices.key AS key FROM devices JOIN ").relation(Dialect::of(tx), &columns, rows);
    let rows = all(
        tx,
        query.text(" AS t ON devices.key = t.device WHERE devices.findings_from > t.revision OR t.revision = 0"),
    )
    .await?;
    match rows.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Overtaken(rows.iter().map(|row| row.key("key")).collect::<Result<_>>()?)),
    }
}

async fn report(tx: &impl Connection, there: &HashSet<DeviceRef>, findings: &Findings<'_>) -> Result<()> {
    let reports = || findings.reports.iter().filter(|(permit, ..)| there.contains(permit.target()));
    let ids: HashSet<DeviceId> = reports().map(|(permit, ..)| permit.target().id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let before = read(tx, &ids.into_iter().collect::<Vec<_>>()).await?;
    let mut after: HashMap<DeviceId, Device> = before.iter().map(|device| (device.id, device.clone())).collect();
    for (permit, report, at) in reports() {
        if let Some(device) = after.get_mut(&permit.target().id) {
            report.over(device, *at);
        }
    }
    let mut changed: Vec<(&Device, Device)> = Vec::with_capacity(before.len());
    for before in &before {
        changed.extend(after.remove(&before.id).filter(|after| after != before).map(|after| (before, after)));
    }
    write_changed(tx, &changed).await
}

/// Writes locked devices, from their state before and after the changes.
pub(crate) async fn write_changed(tx: &impl Connection, changed: &[(&Device, Device)]) -> Result<()> {
    let mut rest = changed;
    while !rest.is_empty() {
        let (together, later) = rest.split_at(few(rest));
        rest = later;
        write(tx, together).await?;
    }
    let moved: Vec<_> = changed.iter().filter(|(before, after)| stands(before) != stands(after)).collect();
    for moved in moved.chunks(PLACES_AT_ONCE) {
        place(tx, moved.iter().map(|(_, after)| after)).await?;
    }
    Ok(())
}

/// Returns how many of the changed devices fit into one statement: at least one.
fn few(changed: &[(&Device, Device)]) -> usize {
    let sizes = changed.iter().scan(0, |bytes, (_, device)| {
        let before = *bytes;
        *bytes += device.meta.bytes().len();
        Some(before)
    });
    sizes.take_while(|before| *before < STATEMENT_BYTES).count()
}

/// Returns where a device is located, and where it is shown.
fn stands(device: &Device) -> (Option<Location>, Option<Location>) {
    (device.location, device.coordinates())
}

async fn write(tx: &impl Connection, changed: &[(&Device, Device)]) -> Result<()> {
    let columns = [
        Column::Number("device"),
        Column::Number("present"),
        Column::Number("earlier"),
        Column::Text("labels"),
        Column::Number("moment"),
    ];
    let rows = changed.iter().map(|(_, device)| {
        let (status, before) = (device.status.number(), device.status_before.number());
        json!([device.key.0, status, before, device.meta.text(), device.updated_at.millis()])
    });
    let update = Sql::new(
        "UPDATE devices SET status = t.present, status_before = t.earlier, meta = t.labels, updated_at = t.moment FROM ",
    )
    .relation(Dialect::of(tx), &columns, rows)
    .text(" AS t WHERE devices.key = t.device");
    run(tx, update).await?;
    let labelled: Vec<_> =
        changed.iter().filter(|(before, after)| before.meta != after.meta).map(|(b, a)| (*b, &a.meta)).collect();
    follow_metas(tx, &labelled).await
}

/// Writes locations of devices. Degrees are bound as numbers: text might change them.
async fn place<'d>(tx: &impl Connection, moved: impl ExactSizeIterator<Item = &'d Device>) -> Result<()> {
    // The first row tells PostgreSQL the types of the columns.
    let typed = "(CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION), \
                 CAST(? AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION))";
    let mut rows = vec!["(?, ?, ?, ?, ?)"; moved.len()];
    rows[0] = typed;
    let mut update = Sql::new(format!(
        "UPDATE devices SET latitude = t.column2, longitude = t.column3, place_latitude = t.column4, \
         place_longitude = t.column5 FROM (VALUES {}) AS t WHERE devices.key = t.column1",
        rows.join(", ")
    ));
    for device in moved {
        let (location, place) = stands(device);
        update = update
            .bind(device.key)
            .bind(location.map(|location| location.latitude))
            .bind(location.map(|location| location.longitude))
            .bind(place.map(|place| place.latitude))
            .bind(place.map(|place| place.longitude));
    }
    run(tx, update).await.map(|_| ())
}
