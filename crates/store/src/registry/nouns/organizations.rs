//! Stores organizations, which form the tree that owns everything. A lineage is stored as text, so that a subtree is a
//! range.

use isobar_model::access::{CanList, CanRead, CanWrite, Lineage, Scope};
use isobar_model::ids::OrganizationId;
use isobar_model::json::RawJson;
use isobar_model::organization::{LEVELS_MAX, Organization};
use isobar_model::page::{ListRequest, Page};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use super::device_creation::left_beneath;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{ORGANIZATIONS, names_of, page_of, read_by_id, searched, urgency};
use crate::registry::sql::AdvisoryLock;
use crate::registry::sql::{Connection, Dialect, Row, Sql, all, one, run};

/// Selects organizations with the sums over their subtrees.
const SELECT_ORGANIZATIONS: &str = concat!(
    "SELECT o.id, o.name, o.description, o.lineage, o.device_count_limit, o.data_usage_mb_limit, \
    o.children_inherit_dashboard, o.device_table, o.created_at, o.updated_at, \
    (SELECT count(*) FROM organizations c WHERE c.parent_id = o.id) AS children, \
    (SELECT CAST(coalesce(sum(s.device_count), 0) AS BIGINT) FROM organizations s \
        WHERE s.lineage >= o.lineage AND s.lineage < o.lineage || '~') AS devices, \
    (SELECT CAST(coalesce(sum(s.bytes_stored), 0) AS BIGINT) FROM organizations s \
        WHERE s.lineage >= o.lineage AND s.lineage < o.lineage || '~') AS bytes, \
    (SELECT coalesce(max((SELECT max(d.status) FROM devices d WHERE d.organization_id = s.id)), 0) \
        FROM organizations s WHERE s.lineage >= o.lineage AND s.lineage < o.lineage || '~') AS status, ",
    urgency!(),
    " AS urgency FROM organizations o WHERE o.id"
);

/// Message of the refusal of one more device.
pub const DEVICE_LIMIT_REACHED: &str = "the device limit of the organization is reached";
/// Message of the refusal of a tree that is too deep.
pub(crate) const TOO_DEEP: &str = "the organization tree may not be deeper than 32 levels";

/// Organization to be created.
#[derive(Clone, Debug)]
pub struct NewOrganization {
    /// Identifier.
    pub id: OrganizationId,
    /// Name: 1 to 80 characters.
    pub name: String,
    /// Description: up to 200 characters.
    pub description: Option<String>,
    /// True if organizations beneath it inherit its dashboard.
    pub children_inherit_dashboard: bool,
    /// Configuration of the device table.
    pub device_table: Option<RawJson>,
}

impl Registry {
    /// Returns the lineage of an organization; only for authorization.
    pub async fn organization_lineage(&self, id: OrganizationId) -> Result<Option<Lineage>> {
        let row = one(&self.db.read, Sql::new("SELECT lineage FROM organizations WHERE id = ?").bind(id)).await?;
        row.map(|row| row.lineage("lineage")).transpose()
    }

    /// Creates an organization beneath the permit's, or at the top if the permit names none.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization above is gone; [`StoreError::Limit`] where the tree would be too deep.
    pub async fn organization_create(
        &self,
        parent: &CanWrite<Option<OrganizationId>>,
        new: NewOrganization,
        now: Timestamp,
    ) -> Result<Organization> {
        let tx = self.db.begin().await?;
        insert(&tx, *parent.target(), &new, now).await?;
        let made = read(&tx, &[new.id]).await?.pop().ok_or(StoreError::Gone("organization"))?;
        tx.commit().await?;
        Ok(made)
    }

    /// Fetches an organization, with the sums over its subtree.
    pub async fn organization_fetch(&self, permit: &CanRead<OrganizationId>) -> Result<Option<Organization>> {
        Ok(read(&self.db.read, &[*permit.target()]).await?.pop())
    }

    /// Lists the organizations of a part of the tree, with or without its base.
    pub async fn organization_list(
        &self,
        permit: &CanList,
        include_base: bool,
        request: &ListRequest,
    ) -> Result<Page<Organization>> {
        let condition = match permit.scope() {
            Scope::Beneath { base, .. } if !include_base => Sql::new("o.id <> ?").bind(base.own()),
            _ => Sql::new("1 = 1"),
        };
        let tx = self.db.snapshot().await?;
        ORGANIZATIONS.allow_after(&tx, permit.scope(), request).await?;
        let (ids, total) = ORGANIZATIONS.page_within(&tx, permit.scope(), condition, request).await?;
        let organizations = read(&tx, &ids).await?;
        Ok(page_of(request, (&ids, organizations, total), |organization| organization.id))
    }
}

/// Adds an organization and returns its lineage.
pub(crate) async fn insert(
    tx: &impl Connection,
    parent: Option<OrganizationId>,
    new: &NewOrganization,
    now: Timestamp,
) -> Result<Lineage> {
    hold_tree(tx).await?;
    let lineage = match parent {
        None => Lineage::new([], new.id),
        Some(parent) => hold_organization(tx, parent, Dialect::of(tx).hold_in_place()).await?.child(new.id),
    };
    if lineage.level() > LEVELS_MAX {
        return Err(StoreError::Limit(TOO_DEEP));
    }
    let insert = Sql::new(
        "INSERT INTO organizations (id, parent_id, name, description, lineage, level, search, \
         children_inherit_dashboard, device_table, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(new.id)
    .bind(parent)
    .bind(new.name.as_str())
    .bind(new.description.clone())
    .bind(lineage.to_string())
    .bind(lineage.level() as i64)
    .bind(search_of(&new.name, new.description.as_deref()))
    .bind(new.children_inherit_dashboard)
    .bind(new.device_table.clone())
    .bind(now)
    .bind(now);
    run(tx, insert).await?;
    Ok(lineage)
}

/// Locks the shape of the tree until the transaction ends: moving a branch moves its whole subtree.
pub(crate) async fn hold_tree(tx: &impl Connection) -> Result<()> {
    AdvisoryLock::Tree.hold(tx).await
}

pub(crate) fn search_of(name: &str, description: Option<&str>) -> String {
    searched([name, description.unwrap_or_default()])
}

/// Locks an organization that must exist until the transaction ends, and returns its lineage.
pub(crate) async fn hold_organization(tx: &impl Connection, id: OrganizationId, hold: &str) -> Result<Lineage> {
    let query = Sql::new("SELECT lineage FROM organizations WHERE id = ?").bind(id).text(hold);
    one(tx, query).await?.ok_or(StoreError::Gone("organization"))?.lineage("lineage")
}

/// Refuses one more device if an organization on the lineage has reached its limit; see [`devices_left`].
pub(crate) async fn room_for_a_device(
    tx: &impl Connection,
    lineage: &Lineage,
    having: &[OrganizationId],
    touched: &[OrganizationId],
) -> Result<()> {
    match devices_left(tx, lineage, having, touched).await? {
        0 => Err(StoreError::Limit(DEVICE_LIMIT_REACHED)),
        _ => Ok(()),
    }
}

/// Returns how many more devices the organizations on the lineage may have. `having` are the organizations that own
/// them already; `touched` are those whose count will change. All are locked from the top down: two devices never take
/// the same last place, and transactions never deadlock.
pub(crate) async fn devices_left(
    tx: &impl Connection,
    lineage: &Lineage,
    having: &[OrganizationId],
    touched: &[OrganizationId],
) -> Result<u64> {
    let dialect = Dialect::of(tx);
    let query =
        Sql::new("SELECT id, lineage, device_count_limit FROM organizations WHERE (device_count_limit > 0 AND id")
            .among(dialect, lineage.ids())
            .text(") OR id")
            .among(dialect, touched)
            .text(" ORDER BY lineage")
            .text(dialect.hold_for_change());
    let mut left = u64::MAX;
    for held in all(tx, query).await? {
        let (id, limit) = (held.id::<OrganizationId>("id")?, held.float("device_count_limit")?);
        if limit <= 0.0 || having.contains(&id) || !lineage.contains(id) {
            continue;
        }
        left = left.min(left_beneath(tx, &held.text("lineage")?, limit).await?);
    }
    Ok(left)
}

/// Changes the stored number of an organization's own devices.
pub(crate) async fn count_devices(tx: &impl Connection, id: OrganizationId, more: i64) -> Result<()> {
    let update = Sql::new("UPDATE organizations SET device_count = device_count + ? WHERE id = ?").bind(more).bind(id);
    run(tx, update).await.map(|_| ())
}

pub(crate) async fn read(connection: &impl Connection, ids: &[OrganizationId]) -> Result<Vec<Organization>> {
    let mut organizations = read_by_id(connection, SELECT_ORGANIZATIONS, ids, organization).await?;
    let lineages = organizations.iter().flat_map(|organization| organization.lineage.ids().iter().copied());
    let names = names_of(connection, lineages).await?;
    for organization in &mut organizations {
        let path = organization.lineage.ids().iter();
        organization.names = path.map(|id| names.get(id).cloned().unwrap_or_default()).collect();
    }
    Ok(organizations)
}

/// Reads an organization from a row, without the names of its lineage.
fn organization(row: &Row) -> Result<Organization> {
    Ok(Organization {
        id: row.id("id")?,
        name: row.text("name")?,
        description: row.text_if("description")?,
        lineage: row.lineage("lineage")?,
        names: Vec::new(),
        has_children: row.count("children")? > 0,
        status: row.named("status", Status::numbered)?,
        urgent_status: row.named("urgency", Status::of_urgency)?,
        device_count: row.count("devices")?,
        bytes_stored: row.count("bytes")?,
        device_count_limit: row.float("device_count_limit")?,
        data_usage_mb_limit: row.float("data_usage_mb_limit")?,
        children_inherit_dashboard: row.truth("children_inherit_dashboard")?,
        device_table: row.json_if("device_table")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
