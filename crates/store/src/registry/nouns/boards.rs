//! Stores the dashboards of organizations. The oldest is the first; an organization without any shows those of the
//! nearest organization above that has some and shares them.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::appearance::{Dashboard, DashboardInput};
use isobar_model::board::{Board, BoardHead, named_project};
use isobar_model::ids::{DashboardId, OrganizationId};
use isobar_model::time::Timestamp;
use isobar_model::version::IfMatch;

use super::organizations::hold_organization;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

/// Name of a dashboard in errors about a missing one.
const BOARD: &str = "dashboard";
const BOARD_HEAD: &str = "SELECT id, organization_id, version, created_at, updated_at, name, project_id";
const WHOLE: &str =
    "SELECT id, organization_id, version, created_at, updated_at, name, project_id, options, configuration";

impl Registry {
    /// Fetches the first dashboard that an organization shows, its own or an inherited one, or `None`.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn dashboard_fetch(&self, permit: &CanRead<OrganizationId>) -> Result<Option<Dashboard>> {
        let (tx, id) = (self.db.snapshot().await?, *permit.target());
        let Some(owner) = owner_of_shown(&tx, self, id).await? else { return Ok(None) };
        Ok(first(&tx, owner).await?.map(|board| board.dashboard))
    }

    /// Changes an organization's own first dashboard, or creates one with the identifier `new`.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn dashboard_update(
        &self,
        permit: &CanWrite<OrganizationId>,
        input: DashboardInput,
        new: DashboardId,
        now: Timestamp,
    ) -> Result<Dashboard> {
        let (tx, id) = (self.db.begin().await?, *permit.target());
        hold_organization(&tx, id, self.db.dialect.hold_for_change()).await?;
        let written = match first(&tx, id).await? {
            Some(present) => overwrite(&tx, id, present, input, now).await?,
            None => insert(&tx, id, new, input, now).await?,
        };
        tx.commit().await?;
        Ok(written.dashboard)
    }

    /// Lists the dashboards that an organization shows, oldest first: its own, or else inherited ones.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn board_list(&self, permit: &CanRead<OrganizationId>) -> Result<Vec<BoardHead>> {
        let (tx, id) = (self.db.snapshot().await?, *permit.target());
        let Some(owner) = owner_of_shown(&tx, self, id).await? else { return Ok(Vec::new()) };
        let query = Sql::new(BOARD_HEAD).text(" FROM organization_dashboards WHERE organization_id = ? ORDER BY id");
        all(&tx, query.bind(owner)).await?.iter().map(|row| head(row, id)).collect()
    }

    /// Fetches one of the dashboards that an organization shows.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn board_fetch(&self, permit: &CanRead<OrganizationId>, id: DashboardId) -> Result<Option<Board>> {
        let (tx, shown_to) = (self.db.snapshot().await?, *permit.target());
        let Some(owner) = owner_of_shown(&tx, self, shown_to).await? else { return Ok(None) };
        own(&tx, owner, id, shown_to).await
    }

    /// Creates a dashboard of an organization; returns `None` if the organization has `most` already.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization is gone.
    pub async fn board_create(
        &self,
        permit: &CanWrite<OrganizationId>,
        new: DashboardId,
        input: DashboardInput,
        most: u64,
        now: Timestamp,
    ) -> Result<Option<Board>> {
        let (tx, id) = (self.db.begin().await?, *permit.target());
        // The lock on the organization keeps two dashboards from taking the same last place.
        hold_organization(&tx, id, self.db.dialect.hold_for_change()).await?;
        let count =
            Sql::new("SELECT count(*) AS boards FROM organization_dashboards WHERE organization_id = ?").bind(id);
        if one(&tx, count).await?.map_or(Ok(0), |row| row.count("boards"))? >= most {
            return Ok(None);
        }
        let made = insert(&tx, id, new, input, now).await?;
        tx.commit().await?;
        Ok(Some(made))
    }

    /// Changes one of an organization's own dashboards, if its entity tag matches `required`. One of several
    /// simultaneous changes that require the same tag succeeds.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the dashboard or the organization is gone; [`StoreError::Outdated`] where the
    /// dashboard has another tag.
    pub async fn board_update(
        &self,
        permit: &CanWrite<OrganizationId>,
        id: DashboardId,
        input: DashboardInput,
        required: Option<&IfMatch>,
        now: Timestamp,
    ) -> Result<Board> {
        let (tx, owner) = (self.db.begin().await?, *permit.target());
        hold_organization(&tx, owner, self.db.dialect.hold_for_change()).await?;
        let present = required_board(&tx, owner, id, required).await?;
        let written = overwrite(&tx, owner, present, input, now).await?;
        tx.commit().await?;
        Ok(written)
    }

    /// Deletes one of an organization's own dashboards, if its entity tag matches `required`.
    ///
    /// # Errors
    /// Fails like [`Registry::board_update`].
    pub async fn board_delete(
        &self,
        permit: &CanWrite<OrganizationId>,
        id: DashboardId,
        required: Option<&IfMatch>,
    ) -> Result<()> {
        let (tx, owner) = (self.db.begin().await?, *permit.target());
        hold_organization(&tx, owner, self.db.dialect.hold_for_change()).await?;
        required_board(&tx, owner, id, required).await?;
        run(&tx, Sql::new("DELETE FROM organization_dashboards WHERE id = ?").bind(id)).await?;
        tx.commit().await
    }
}

/// Returns the organization whose dashboards an organization shows, or `None` if none has any for it.
async fn owner_of_shown(
    tx: &impl Connection,
    registry: &Registry,
    id: OrganizationId,
) -> Result<Option<OrganizationId>> {
    let lineage = hold_organization(tx, id, "").await?;
    let query = Sql::new(
        "SELECT o.id FROM organizations o WHERE (o.id = ? OR o.children_inherit_dashboard <> 0) \
         AND EXISTS (SELECT 1 FROM organization_dashboards b WHERE b.organization_id = o.id) AND o.id",
    )
    .bind(id)
    .among(registry.db.dialect, lineage.ids())
    .text(" ORDER BY o.level DESC LIMIT 1");
    one(tx, query).await?.map(|row| row.id("id")).transpose()
}

async fn first(connection: &impl Connection, owner: OrganizationId) -> Result<Option<Board>> {
    let query = Sql::new(WHOLE).text(" FROM organization_dashboards WHERE organization_id = ? ORDER BY id LIMIT 1");
    one(connection, query.bind(owner)).await?.as_ref().map(|row| board(row, owner)).transpose()
}

async fn own(
    connection: &impl Connection,
    owner: OrganizationId,
    id: DashboardId,
    shown_to: OrganizationId,
) -> Result<Option<Board>> {
    let query = Sql::new(WHOLE).text(" FROM organization_dashboards WHERE id = ? AND organization_id = ?");
    one(connection, query.bind(id).bind(owner)).await?.as_ref().map(|row| board(row, shown_to)).transpose()
}

/// Locks the organization, and requires that this dashboard is its own.
pub(super) async fn hold_own_board(
    tx: &impl Connection,
    owner: OrganizationId,
    id: DashboardId,
    hold: &str,
) -> Result<()> {
    hold_organization(tx, owner, hold).await?;
    let query = Sql::new("SELECT id FROM organization_dashboards WHERE id = ? AND organization_id = ?");
    one(tx, query.bind(id).bind(owner)).await?.map(|_| ()).ok_or(StoreError::Gone(BOARD))
}

async fn required_board(
    tx: &impl Connection,
    owner: OrganizationId,
    id: DashboardId,
    required: Option<&IfMatch>,
) -> Result<Board> {
    let present = own(tx, owner, id, owner).await?.ok_or(StoreError::Gone(BOARD))?;
    match required {
        Some(required) if !required.holds(present.head.tag()) => Err(StoreError::Outdated("the dashboard")),
        _ => Ok(present),
    }
}

async fn insert(
    tx: &impl Connection,
    owner: OrganizationId,
    id: DashboardId,
    input: DashboardInput,
    now: Timestamp,
) -> Result<Board> {
    let made = input.over(Dashboard::default());
    let project = named_project(&made);
    let Dashboard { name, options, configuration } = made;
    let insert = Sql::new(
        "INSERT INTO organization_dashboards (id, organization_id, version, created_at, updated_at, name, project_id, \
         options, configuration) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(owner)
    .bind(now)
    .bind(now)
    .bind(name)
    .bind(project)
    .bind(options)
    .bind(configuration);
    run(tx, insert).await?;
    own(tx, owner, id, owner).await?.ok_or(StoreError::Gone(BOARD))
}

async fn overwrite(
    tx: &impl Connection,
    owner: OrganizationId,
    Board { head, dashboard }: Board,
    input: DashboardInput,
    now: Timestamp,
) -> Result<Board> {
    let changed = input.over(dashboard);
    let project = named_project(&changed);
    let Dashboard { name, options, configuration } = changed;
    let update = Sql::new(
        "UPDATE organization_dashboards SET version = version + 1, updated_at = ?, name = ?, project_id = ?, \
         options = ?, configuration = ? WHERE id = ?",
    )
    .bind(now)
    .bind(name)
    .bind(project)
    .bind(options)
    .bind(configuration)
    .bind(head.id);
    run(tx, update).await?;
    own(tx, owner, head.id, owner).await?.ok_or(StoreError::Gone(BOARD))
}

fn head(row: &Row, shown_to: OrganizationId) -> Result<BoardHead> {
    Ok(BoardHead {
        id: row.id("id")?,
        name: row.text_if("name")?,
        project: row.id_if("project_id")?,
        is_inherited: row.id::<OrganizationId>("organization_id")? != shown_to,
        version: row.count("version")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

fn board(row: &Row, shown_to: OrganizationId) -> Result<Board> {
    let options = row.json("options")?;
    let dashboard = Dashboard { name: row.text_if("name")?, options, configuration: row.json("configuration")? };
    Ok(Board { head: head(row, shown_to)?, dashboard })
}
