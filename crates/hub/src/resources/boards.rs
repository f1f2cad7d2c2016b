//! Manages dashboards of organizations: any number, the first of which is the one of the specification (contract:
//! Beyond the specification).

use std::cmp::Ordering;

use isobar_model::access::{Action, Caller};
use isobar_model::appearance::{Dashboard, DashboardInput};
use isobar_model::board::{Board, BoardHead};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DashboardId, OrganizationId};
use isobar_model::page::{ListRequest, Page, SortKey};
use isobar_model::version::IfMatch;

use crate::Hub;
use crate::support::sorting::by_fields;

/// Dashboards of one organization, at most.
const DASHBOARDS_MAX: u64 = 100;
/// Name of the resource in errors.
const BOARD: &str = "dashboard";

impl Hub {
    /// Fetches the first dashboard that an organization shows, its own or one shared from above; an empty one if there
    /// is neither.
    ///
    /// Needs `OrganizationRead`.
    pub async fn dashboard_fetch(&self, caller: &Caller, id: OrganizationId) -> Result<Dashboard> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        Ok(self.registry().dashboard_fetch(&permit).await?.unwrap_or_default())
    }

    /// Changes an organization's own first dashboard, or creates it.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    pub async fn dashboard_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        input: DashboardInput,
    ) -> Result<Dashboard> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        let new = DashboardId(self.0.env.new_id().0);
        Ok(self.registry().dashboard_update(&permit, input, new, self.now()).await?)
    }

    /// Lists the dashboards that an organization shows, oldest first by default: its own, or else those shared from
    /// above.
    ///
    /// Needs `OrganizationRead`.
    pub async fn board_list(
        &self,
        caller: &Caller,
        id: OrganizationId,
        request: ListRequest,
    ) -> Result<Page<BoardHead>> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        let mut boards = self.registry().board_list(&permit).await?;
        if !request.sort.is_empty() {
            boards.sort_by(|left, right| by_keys(&request.sort, left, right));
        }
        Ok(Page::of(boards, request.page))
    }

    /// Fetches one of the dashboards that an organization shows.
    ///
    /// Needs `OrganizationRead`.
    ///
    /// # Errors
    /// `Missing`: it shows no such dashboard.
    pub async fn board_fetch(&self, caller: &Caller, id: OrganizationId, board: DashboardId) -> Result<Board> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        self.registry().board_fetch(&permit, board).await?.ok_or(Error::Missing(BOARD))
    }

    /// Creates one more dashboard of an organization.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: it has 100 already.
    pub async fn board_create(&self, caller: &Caller, id: OrganizationId, input: DashboardInput) -> Result<Board> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        let new = DashboardId(self.0.env.new_id().0);
        let made = self.registry().board_create(&permit, new, input, DASHBOARDS_MAX, self.now()).await?;
        made.ok_or_else(|| Error::invalid("body", format!("the organization has {DASHBOARDS_MAX} dashboards already")))
    }

    /// Checks that the caller may change a dashboard of an organization: it exists, and the role is high enough.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_board(&self, caller: &Caller, id: OrganizationId, board: DashboardId) -> Result<()> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationRead).await?.reading();
        let boards = self.registry().board_list(&permit).await?;
        boards.iter().find(|head| head.id == board).ok_or(Error::Missing(BOARD))?;
        self.allow_organization(caller, id, Action::OrganizationUpdate).await
    }

    /// Changes one of an organization's own dashboards.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: the organization has no such dashboard of its own. `Outdated`: it is not as `required`.
    pub async fn board_update(
        &self,
        caller: &Caller,
        id: OrganizationId,
        board: DashboardId,
        input: DashboardInput,
        required: Option<&IfMatch>,
    ) -> Result<Board> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        Ok(self.registry().board_update(&permit, board, input, required, self.now()).await?)
    }

    /// Deletes one of an organization's own dashboards. If it was the first, the next oldest becomes the first.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    ///
    /// # Errors
    /// As of [`Hub::board_update`].
    pub async fn board_delete(
        &self,
        caller: &Caller,
        id: OrganizationId,
        board: DashboardId,
        required: Option<&IfMatch>,
    ) -> Result<()> {
        let permit = self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await?;
        Ok(self.registry().board_delete(&permit, board, required).await?)
    }
}

/// Compares two dashboards by these keys.
fn by_keys(keys: &[SortKey], left: &BoardHead, right: &BoardHead) -> Ordering {
    let by_field = |field: &str| match field {
        "name" => left.name.cmp(&right.name),
        "updatedAt" => left.updated_at.cmp(&right.updated_at),
        _ => left.created_at.cmp(&right.created_at),
    };
    by_fields(keys, by_field, left.id.cmp(&right.id))
}
