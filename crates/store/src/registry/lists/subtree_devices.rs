//! Lists all devices of a part of the tree by their names only, for subscribers to it.

use isobar_model::access::{CanList, Lineage};
use isobar_model::ids::{DeviceRef, OrganizationId, ProjectId};

use super::devices::gathered;
use super::{limit_offset, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all};

/// Devices that are read at a time, approximately: other tasks on the thread get a turn in between.
const READ_AT_ONCE: u64 = 1_000;

impl Registry {
    /// Reads the devices of a part of the tree at one moment, with their organizations.
    pub async fn devices_beneath(&self, permit: &CanList) -> Result<Vec<(Lineage, Vec<DeviceRef>)>> {
        let tx = self.db.snapshot().await?;
        let query =
            Sql::new("SELECT o.id, o.lineage, o.device_count FROM organizations o WHERE o.device_count > 0 AND ");
        let mut owners = Vec::new();
        for row in all(&tx, query.then(within(permit.scope())).text(" ORDER BY o.lineage")).await? {
            owners.push(Owner {
                id: row.id("id")?,
                lineage: row.lineage("lineage")?,
                count: row.count("device_count")?,
                devices: Vec::new(),
            });
        }
        let mut rest = owners.as_mut_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at_mut(so_many(rest));
            read(&tx, some).await?;
            rest = others;
        }
        Ok(owners.into_iter().map(|owner| (owner.lineage, owner.devices)).collect())
    }

    /// Lists devices of a part of the tree (of a project, if one is named), each with the lineage of its organization,
    /// by their ids; `None` if there are more than `most`.
    pub async fn devices_up_to(
        &self,
        permit: &CanList,
        project: Option<ProjectId>,
        most: u32,
    ) -> Result<Option<Vec<(DeviceRef, Lineage)>>> {
        let select = Sql::new("SELECT d.id, d.key, o.lineage");
        let query = match project {
            None => select.then(gathered(self.db.dialect, None, permit.scope(), None)),
            Some(project) => select
                .text(" FROM devices d JOIN organizations o ON o.id = d.organization_id WHERE d.project_id = ? AND ")
                .bind(project)
                .then(within(permit.scope())),
        };
        let rows = all(&self.db.read, query.then(limit_offset(most.saturating_add(1), 0))).await?;
        if rows.len() as u64 > u64::from(most) {
            return Ok(None);
        }
        let mut devices = Vec::with_capacity(rows.len());
        for row in &rows {
            devices.push((DeviceRef { id: row.id("id")?, key: row.key("key")? }, row.lineage("lineage")?));
        }
        devices.sort_unstable_by_key(|(device, _)| device.id);
        Ok(Some(devices))
    }
}

/// Organization that owns devices.
struct Owner {
    id: OrganizationId,
    lineage: Lineage,
    count: u64,
    devices: Vec<DeviceRef>,
}

/// Returns how many of these organizations are read together: at least one.
fn so_many(owners: &[Owner]) -> usize {
    let mut left = READ_AT_ONCE;
    let fitting = owners.iter().take_while(|owner| {
        let fits = owner.count <= left;
        left = left.saturating_sub(owner.count);
        fits
    });
    fitting.count().max(1)
}

/// Reads the devices of a few small organizations, or of a large one in pieces.
async fn read(tx: &impl Connection, owners: &mut [Owner]) -> Result<()> {
    let mut after: Option<(String, String)> = None;
    loop {
        let query = Sql::new("SELECT d.id, d.key, d.name, d.organization_id FROM devices d WHERE d.organization_id");
        // A piece follows the index of one organization; for several organizations there is only one piece.
        let query = match (&*owners, &after) {
            ([owner], None) => query.text(" = ?").bind(owner.id),
            ([owner], Some((name, id))) => {
                let query = query.text(" = ? AND (d.name, d.id) > (?, ?)").bind(owner.id);
                query.bind(name.as_str()).bind(id.as_str())
            }
            (several, _) => query.among(Dialect::of(tx), several.iter().map(|owner| owner.id)),
        };
        let query = match owners {
            [_] => query.text(" ORDER BY d.name, d.id LIMIT ?").bind(READ_AT_ONCE),
            _ => query,
        };
        let rows = all(tx, query).await?;
        for row in &rows {
            let device = DeviceRef { id: row.id("id")?, key: row.key("key")? };
            let of: OrganizationId = row.id("organization_id")?;
            owners.iter_mut().filter(|owner| owner.id == of).for_each(|owner| owner.devices.push(device));
        }
        match rows.last() {
            Some(last) if owners.len() == 1 && rows.len() as u64 == READ_AT_ONCE => {
                after = Some((last.text("name")?, last.text("id")?));
            }
            _ => return Ok(()),
        }
    }
}
