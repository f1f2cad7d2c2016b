//! Indexes labels: the members of devices' metadata, by which devices are found.

use std::collections::{HashMap, HashSet};

use isobar_model::access::{CanList, CanWrite, Scope};
use isobar_model::device::{Device, LABEL_CHARACTERS_MAX, LABEL_VALUE_CHARACTERS_MAX};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId};
use isobar_model::json::{Json, RawJson, with_members};
use isobar_model::meta::{MetaPatch, MetaSize};
use isobar_model::time::Timestamp;
use serde_json::json;

use super::devices::{hold_devices, read, write_meta};
use super::findings::write_changed;
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::lists::within;
use crate::registry::sql::{Column, Connection, Dialect, Sql, all, run};

/// Bounds the labels by which one device is found: the first ones of its metadata.
const LABELS_MAX: usize = 1_000;
/// Labels that one statement adds.
const LABELS_INSERTED_AT_ONCE: usize = 2_000;

/// Comparison of the values of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagCase {
    /// Exact comparison.
    #[default]
    Sensitive,
    /// Comparison regardless of the case of the letters A to Z.
    Insensitive,
}

impl TagCase {
    /// Returns a text that is the same for all values that compare equal.
    pub fn fold(self, value: &str) -> String {
        match self {
            Self::Sensitive => value.to_owned(),
            Self::Insensitive => value.to_ascii_lowercase(),
        }
    }
}

/// Label by which devices are searched.
#[derive(Clone, Copy, Debug)]
pub struct Tag<'t> {
    /// Name of the label.
    pub label: &'t str,
    /// Comparison of its values.
    pub case: TagCase,
}

/// Result of a search for a value of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagCarrier {
    /// Device with the value, and its project.
    Device(DeviceRef, ProjectId),
    /// Several devices have equal values, and none has the exact spelling.
    Ambiguous,
}

impl TagCarrier {
    /// Returns the device, if there is one.
    pub fn device(self) -> Option<DeviceRef> {
        match self {
            Self::Device(device, _) => Some(device),
            Self::Ambiguous => None,
        }
    }
}

/// Labels to set in the metadata of devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewLabels {
    /// Labels added to devices that have none of that name.
    pub missing: Vec<(String, RawJson)>,
    /// Labels set in any case.
    pub set: Vec<(String, RawJson)>,
}

impl NewLabels {
    /// Merges these labels into metadata. Metadata that would exceed its limits ([`isobar_model::meta`]) stays
    /// unchanged, and the limit is returned with it.
    pub fn over(&self, meta: &RawJson) -> (RawJson, Option<&'static str>) {
        let tree = meta.tree();
        let present: HashMap<&str, &Json<'_>> = match &tree {
            Json::Object(members) => members.iter().map(|(name, value)| (name.as_ref(), value)).collect(),
            _ => HashMap::new(),
        };
        let missing = self.missing.iter().filter(|(name, _)| !present.contains_key(name.as_str()));
        let labels: Vec<_> = missing.chain(&self.set).collect();
        // Labels that stay equal keep their text.
        let changes = |(name, value): &&(String, RawJson)| present.get(name.as_str()) != Some(&&value.tree());
        if !labels.iter().any(changes) {
            return (meta.clone(), None);
        }
        let labelled = with_members(meta, labels.into_iter().map(|(name, value)| (name.as_str(), value)));
        match MetaSize::of(&labelled).exceeds(MetaSize::of(meta)) {
            None => (labelled, None),
            Some(most) => (meta.clone(), Some(most)),
        }
    }
}

/// Changes of the labels of one device.
#[derive(Clone, Debug)]
pub struct MetaChange<'p> {
    /// Permit for the device.
    pub permit: CanWrite<DeviceRef>,
    /// Organization of the device when the change was authorized. If the device has moved since, nothing is changed.
    pub decided_in: OrganizationId,
    /// Patches, applied in order.
    pub patches: Vec<&'p MetaPatch>,
}

/// Outcome of changes of one device's labels.
#[derive(Clone, Debug)]
pub struct MetaChanged {
    /// Device after the changes.
    pub device: Device,
    /// Limit of the metadata for each patch that was refused, because there was no room for it.
    pub refused: Vec<Option<&'static str>>,
}

impl MetaChange<'_> {
    fn over(&self, device: &Device, now: Timestamp) -> MetaChanged {
        let (mut after, mut refused) = (device.clone(), Vec::with_capacity(self.patches.len()));
        for patch in &self.patches {
            let patched = patch.over(&after.meta);
            refused.push(patched.as_ref().err().copied());
            after.meta = patched.unwrap_or(after.meta);
        }
        if after.meta != device.meta {
            after.updated_at = now.max(device.updated_at);
        }
        MetaChanged { device: after, refused }
    }
}

impl Registry {
    /// Changes labels of devices, each device at most once, in one transaction: concurrent changes of other labels
    /// stay. The outcome of a device that is gone, or has moved since its change was authorized, is `None`.
    pub async fn devices_patch(&self, changes: &[MetaChange<'_>], now: Timestamp) -> Result<Vec<Option<MetaChanged>>> {
        let ids: HashSet<DeviceId> = changes.iter().map(|change| change.permit.target().id).collect();
        let tx = self.db.begin().await?;
        let held: Vec<DeviceId> = hold_devices(&tx, ids).await?.into_iter().map(|device| device.id).collect();
        let before: HashMap<DeviceId, Device> =
            read(&tx, &held).await?.into_iter().map(|device| (device.id, device)).collect();
        let there = |change: &MetaChange<'_>| {
            before.get(&change.permit.target().id).filter(|device| device.organization == change.decided_in)
        };
        let done: Vec<Option<MetaChanged>> =
            changes.iter().map(|change| there(change).map(|device| change.over(device, now))).collect();
        let changed: Vec<(&Device, Device)> = done
            .iter()
            .flatten()
            .filter_map(|done| Some((before.get(&done.device.id)?, &done.device)))
            .filter(|(before, after)| before.meta != after.meta)
            .map(|(before, after)| (before, after.clone()))
            .collect();
        write_changed(&tx, &changed).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Finds the devices of a part of the tree that have a label with one of these values, by value, and the project of
    /// each. Among several with the same value the oldest is returned. An exact match precedes one that differs in
    /// case.
    pub async fn devices_labelled(
        &self,
        permit: &CanList,
        tag: Tag<'_>,
        values: &[&str],
    ) -> Result<HashMap<String, TagCarrier>> {
        find(&self.db.read, permit.scope(), tag, values).await
    }

    /// Sets labels of devices, all or none; returns the devices that changed. Skips devices that are gone, and those
    /// without room for the labels.
    pub async fn devices_label(
        &self,
        permits: &[CanWrite<DeviceRef>],
        labels: &NewLabels,
        now: Timestamp,
    ) -> Result<Vec<DeviceId>> {
        let ids: Vec<DeviceId> = permits.iter().map(|permit| permit.target().id).collect();
        let tx = self.db.begin().await?;
        let dialect = Dialect::of(&tx);
        let hold = Sql::new("SELECT key FROM devices WHERE id").among(dialect, &ids);
        all(&tx, hold.text(" ORDER BY key").text(dialect.hold_for_change())).await?;
        let mut changed = Vec::new();
        for device in read(&tx, &ids).await? {
            let (meta, _) = labels.over(&device.meta);
            if meta == device.meta {
                continue;
            }
            write_meta(&tx, &device, &meta, now).await?;
            changed.push(device.id);
        }
        tx.commit().await?;
        Ok(changed)
    }
}

/// Finds the devices of a part of the tree that have a label with one of these values, by value; the oldest for each.
pub(crate) async fn find(
    connection: &impl Connection,
    scope: &Scope,
    tag: Tag<'_>,
    values: &[&str],
) -> Result<HashMap<String, TagCarrier>> {
    if values.is_empty() {
        return Ok(HashMap::new());
    }
    let mut carried: HashMap<String, Vec<(String, TagCarrier)>> = HashMap::new();
    for row in all(connection, carriers(Dialect::of(connection), scope, tag, values)).await? {
        let value = row.text("value")?;
        let device = DeviceRef { id: row.id("id")?, key: row.key("key")? };
        let of_value = carried.entry(tag.case.fold(&value)).or_default();
        of_value.push((value, TagCarrier::Device(device, row.id("project_id")?)));
    }
    let found = |value: &&str| {
        let carried = carried.get(&tag.case.fold(value))?;
        let found = match (carried.iter().find(|(written, _)| written == value), carried.as_slice()) {
            (Some((_, exactly)), _) => *exactly,
            (None, [(_, only)]) => *only,
            (None, _) => TagCarrier::Ambiguous,
        };
        Some(((*value).to_owned(), found))
    };
    Ok(values.iter().filter_map(found).collect())
}

/// Builds the query for the values found, in their spelling, and the oldest device of each.
fn carriers(dialect: Dialect, scope: &Scope, tag: Tag<'_>, values: &[&str]) -> Sql {
    Sql::new(
        "SELECT f.value, d.id, d.key, d.project_id FROM (SELECT l.value AS value, min(l.device_key) AS oldest FROM (",
    )
    .then(labelled(dialect, tag, values))
    .text(") l JOIN devices d ON d.key = l.device_key JOIN organizations o ON o.id = d.organization_id WHERE ")
    .then(within(scope))
    .text(" GROUP BY l.value) f JOIN devices d ON d.key = f.oldest")
}

/// Builds the query for the labels with these values, in the whole tree.
fn labelled(dialect: Dialect, tag: Tag<'_>, values: &[&str]) -> Sql {
    let folded: HashSet<String> = values.iter().map(|value| tag.case.fold(value)).collect();
    let labels = |condition: &str| {
        let labels = Sql::new("SELECT value, device_key FROM device_labels WHERE label = ? AND ").bind(tag.label);
        labels.text(condition).among(dialect, &folded)
    };
    match tag.case {
        TagCase::Sensitive => labels("value"),
        // Each part has an index of its own.
        TagCase::Insensitive => {
            labels("value").text(" UNION ALL ").then(labels("value <> lower(value) AND lower(value)"))
        }
    }
}

/// Adds the labels of devices that have none yet.
pub(crate) async fn insert(tx: &impl Connection, metas: &[(DeviceKey, &RawJson)]) -> Result<()> {
    let labels: Vec<_> =
        metas.iter().flat_map(|(key, meta)| labels_of(meta).into_iter().map(|label| (*key, label))).collect();
    add(tx, &labels).await
}

async fn add(tx: &impl Connection, labels: &[(DeviceKey, (String, String))]) -> Result<()> {
    for labels in labels.chunks(LABELS_INSERTED_AT_ONCE) {
        let mut insert = Sql::new("INSERT INTO device_labels (device_key, label, value)").values(labels.len(), 3);
        for (key, (label, value)) in labels {
            insert = insert.bind(*key).bind(label.as_str()).bind(value.as_str());
        }
        run(tx, insert).await?;
    }
    Ok(())
}

/// Updates the labels of devices from their metadata before and after a change.
pub(crate) async fn follow(tx: &impl Connection, changed: &[(DeviceKey, &RawJson, &RawJson)]) -> Result<()> {
    let (mut values, mut added, mut anew) = (Vec::new(), Vec::new(), Vec::new());
    for (key, before, after) in changed {
        let mut had: HashMap<String, String> = labels_of(before).into_iter().collect();
        let (mut other, mut more) = (Vec::new(), Vec::new());
        for (label, value) in labels_of(after) {
            match had.remove(&label) {
                Some(same) if same == value => {}
                Some(old) => other.push(json!([key.0, label, old, value])),
                None => more.push((*key, (label, value))),
            }
        }
        // Removed labels are rare.
        if had.is_empty() {
            values.append(&mut other);
            added.append(&mut more);
        } else {
            anew.push((*key, *after));
        }
    }
    if !values.is_empty() {
        let columns = [Column::Number("device"), Column::Text("label"), Column::Text("was"), Column::Text("becomes")];
        let update = Sql::new("UPDATE device_labels SET value = t.becomes FROM ")
            .relation(Dialect::of(tx), &columns, values)
            .text(" AS t WHERE device_labels.label = t.label AND device_labels.value = t.was")
            .text(" AND device_labels.device_key = t.device");
        run(tx, update).await?;
    }
    add(tx, &added).await?;
    if anew.is_empty() {
        return Ok(());
    }
    let keys: Vec<i64> = anew.iter().map(|(key, _)| i64::try_from(key.0).unwrap_or(i64::MAX)).collect();
    let delete = Sql::new("DELETE FROM device_labels WHERE device_key").among_numbers(Dialect::of(tx), &keys);
    run(tx, delete).await?;
    insert(tx, &anew).await
}

/// Returns the labels by which a device is found. A text too long for the index can be left out: no search can name it.
fn labels_of(meta: &RawJson) -> Vec<(String, String)> {
    let Json::Object(members) = meta.tree() else { return Vec::new() };
    let fits = |text: &str, most: usize| !text.contains('\0') && text.chars().count() <= most;
    let labels = members.into_iter().filter_map(|(name, value)| {
        let value = value.scalar_text()?.into_owned();
        let sound = fits(&name, LABEL_CHARACTERS_MAX) && fits(&value, LABEL_VALUE_CHARACTERS_MAX);
        sound.then(|| (name.into_owned(), value))
    });
    labels.take(LABELS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::support::OwnDatabase;

    /// Checks that the look-up uses an index for each of its parts, and reads no other labels.
    async fn values_are_found_along_indexes(registry: &Registry) {
        let tx = registry.db.begin().await.unwrap();
        let dialect = Dialect::of(&tx);
        let (explain, column) = match dialect {
            Dialect::Sqlite => ("EXPLAIN QUERY PLAN ", "detail"),
            Dialect::Postgres => ("EXPLAIN (COSTS OFF) ", "QUERY PLAN"),
        };
        if dialect == Dialect::Postgres {
            // PostgreSQL plans by the rows it has: labels of a fleet, half of them in upper case, of devices that no
            // query names.
            for fill in [
                "SET LOCAL session_replication_role = replica",
                "INSERT INTO device_labels (label, value, device_key) SELECT 'eui', CASE WHEN n % 2 = 0 THEN \
                 upper(md5(CAST(n AS TEXT))) ELSE md5(CAST(n AS TEXT)) END, n FROM generate_series(1, 20000) AS n",
                "ANALYZE device_labels",
                // A full scan would be as fast for so few rows.
                "SET LOCAL enable_seqscan = off",
                "SET LOCAL enable_hashjoin = off",
                "SET LOCAL enable_mergejoin = off",
            ] {
                run(&tx, Sql::new(fill)).await.unwrap();
            }
        }
        for (case, indexes) in [
            (TagCase::Sensitive, &["device_labels"][..]),
            (TagCase::Insensitive, &["device_labels", "device_labels_folded"]),
        ] {
            let statement = labelled(dialect, Tag { label: "eui", case }, &["A", "b"]);
            let rows = all(&tx, Sql::new(explain).then(statement)).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.text(column).unwrap()).collect();
            let plan = plan.join("\n");
            for index in indexes {
                let names = match dialect {
                    Dialect::Sqlite => [format!("INDEX {index} ("), format!("INDEX sqlite_autoindex_{index}_1 (")],
                    Dialect::Postgres => [format!("{index} on"), format!("{index}_pkey on")],
                };
                assert!(names.iter().any(|name| plan.contains(name.as_str())), "{case:?} {index}:\n{plan}");
            }
            assert!(!plan.contains("(label=?)") && !plan.contains("(label = 'eui'::text)\n"), "{case:?}:\n{plan}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn values_are_found_along_indexes_on_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", folder.path().join("registry.db").display());
        let registry = Registry::open(&address).await.unwrap();
        values_are_found_along_indexes(&registry).await;
        registry.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn values_are_found_along_indexes_on_postgres() {
        let database = OwnDatabase::new().await;
        let registry = Registry::open(&database.address).await.unwrap();
        values_are_found_along_indexes(&registry).await;
        registry.close().await.unwrap();
        database.remove().await;
    }
}
