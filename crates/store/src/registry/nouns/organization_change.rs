//! Changes organizations: their values, their place in the tree, their removal.

use isobar_model::access::{CanWrite, Lineage};
use isobar_model::ids::OrganizationId;
use isobar_model::organization::{LEVELS_MAX, Organization, OrganizationInput};
use isobar_model::time::Timestamp;

use super::device_creation::device_count_beneath;
use super::organizations::{TOO_DEEP, hold_organization, hold_tree, read, search_of};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::end_of;
use crate::registry::sql::{Connection, Dialect, Sql, all, one, run};

impl Registry {
    /// Changes an organization: values that are left out stay unchanged. With `to`, and regardless of the parent that
    /// the change names, it moves beneath that organization (`None` in it: to the top) with its whole subtree. Also
    /// returns true if its name has changed.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where one of the two is gone; [`StoreError::Limit`] where the move would make a circle or
    /// too deep a tree, or where a new ancestor has no room for the devices.
    pub async fn organization_update(
        &self,
        permit: &CanWrite<OrganizationId>,
        change: &OrganizationInput,
        to: Option<&CanWrite<Option<OrganizationId>>>,
        now: Timestamp,
    ) -> Result<(Organization, bool)> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        if let Some(to) = to {
            relocate(&tx, id, *to.target()).await?;
        }
        hold_organization(&tx, id, self.db.dialect.hold_for_change()).await?;
        let old = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("organization"))?;
        let description = change.description.clone().over(old.description);
        let update = Sql::new(
            "UPDATE organizations SET name = ?, description = ?, children_inherit_dashboard = ?, device_table = ?, \
             device_count_limit = ?, data_usage_mb_limit = ?, search = ?, updated_at = ? WHERE id = ?",
        )
        .bind(change.name.as_str())
        .bind(description.clone())
        .bind(change.children_inherit_dashboard.unwrap_or(old.children_inherit_dashboard))
        .bind(change.device_table.clone().over(old.device_table))
        .bind(change.device_count_limit.unwrap_or(old.device_count_limit))
        .bind(change.data_usage_mb_limit.unwrap_or(old.data_usage_mb_limit))
        .bind(search_of(&change.name, description.as_deref()))
        .bind(now)
        .bind(id);
        run(&tx, update).await?;
        let changed = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("organization"))?;
        tx.commit().await?;
        let is_renamed = changed.name != old.name;
        Ok((changed, is_renamed))
    }

    /// Removes an organization without dependents.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where an organization, a device, a project or a user belongs to it; [`StoreError::Gone`]
    /// where it is gone.
    pub async fn organization_delete(&self, permit: &CanWrite<OrganizationId>) -> Result<()> {
        let tx = self.db.begin().await?;
        hold_tree(&tx).await?;
        // No lighter lock would do: transactions that add dependents wait, and then find it gone.
        hold_organization(&tx, *permit.target(), self.db.dialect.hold_alone()).await?;
        for (table, column, what) in [
            ("organizations", "parent_id", "the organization has organizations beneath it"),
            ("devices", "organization_id", "the organization has devices"),
            ("projects", "organization_id", "the organization has projects"),
            ("users", "organization_id", "the organization has users"),
        ] {
            let query = Sql::new(format!("SELECT id FROM {table} WHERE {column} = ? LIMIT 1")).bind(*permit.target());
            if one(&tx, query).await?.is_some() {
                return Err(StoreError::InUse(what));
            }
        }
        run(&tx, Sql::new("DELETE FROM organizations WHERE id = ?").bind(*permit.target())).await?;
        tx.commit().await
    }
}

/// Moves an organization with its subtree beneath another, or to the top.
async fn relocate(tx: &impl Connection, id: OrganizationId, parent: Option<OrganizationId>) -> Result<()> {
    let dialect = Dialect::of(tx);
    hold_tree(tx).await?;
    let old = hold_organization(tx, id, dialect.hold_alone()).await?;
    let new = match parent {
        None => Lineage::new([], id),
        Some(parent) => hold_organization(tx, parent, dialect.hold_in_place()).await?.child(id),
    };
    if new == old {
        return Ok(());
    }
    if new.ids()[..new.level() - 1].contains(&id) {
        return Err(StoreError::Limit("an organization cannot hang beneath itself"));
    }
    let range = (old.to_string(), end_of(&old.to_string()));
    let beneath = |text: &str| Sql::new(text).bind(range.0.as_str()).bind(range.1.as_str());
    // Transactions that add a device to the branch wait until it has moved, and are then subject to the limits there.
    let hold = beneath("SELECT id, level, device_count FROM organizations WHERE lineage >= ? AND lineage < ?");
    let branch = all(tx, hold.text(" ORDER BY lineage").text(dialect.hold_alone())).await?;
    let (mut deepest, mut devices) = (old.level() as i64, 0);
    for row in &branch {
        deepest = deepest.max(row.number("level")?);
        devices += row.count("device_count")?;
    }
    let down = new.level() as i64 - old.level() as i64;
    if deepest + down > LEVELS_MAX as i64 {
        return Err(StoreError::Limit(TOO_DEEP));
    }
    room_for_devices(tx, &old, &new, devices).await?;
    // The parent first: with its change is noted which tree the branch has left.
    run(tx, Sql::new("UPDATE organizations SET parent_id = ? WHERE id = ?").bind(parent).bind(id)).await?;
    let update = Sql::new(
        "UPDATE organizations SET lineage = ? || substr(lineage, CAST(? AS INTEGER)), \
         level = level + CAST(? AS INTEGER) WHERE lineage >= ? AND lineage < ?",
    )
    .bind(new.to_string())
    .bind(range.0.len() as i64 + 1)
    .bind(down)
    .bind(range.0.as_str())
    .bind(range.1.as_str());
    run(tx, update).await.map(|_| ())
}

/// Refuses a branch with this many devices if a new ancestor has no room for them.
async fn room_for_devices(tx: &impl Connection, old: &Lineage, new: &Lineage, devices: u64) -> Result<()> {
    let dialect = Dialect::of(tx);
    let above = new.ids().iter().filter(|id| !old.contains(**id));
    let query = Sql::new("SELECT lineage, device_count_limit FROM organizations WHERE device_count_limit > 0 AND id")
        .among(dialect, above)
        .text(" ORDER BY lineage")
        .text(dialect.hold_for_change());
    for limited in all(tx, query).await? {
        let (lineage, limit) = (limited.text("lineage")?, limited.float("device_count_limit")?);
        let there = device_count_beneath(tx, &lineage).await?;
        if devices > 0 && (there + devices) as f64 > limit {
            return Err(StoreError::Limit("an organization above has no room for so many devices"));
        }
    }
    Ok(())
}
