//! Links that show one dashboard on a screen, without an account (contract: Beyond the specification).

use isobar_model::access::{Action, Caller, CanWrite};
use isobar_model::board_link::{BoardLink, BoardLinkInput};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{BoardLinkId, DashboardId, OrganizationId};
use isobar_model::page::{Page, PageRequest};
use isobar_model::secret::Secret;

use crate::Hub;

/// Links of one dashboard, at most.
const BOARD_LINKS_MAX: u64 = 20;

impl Hub {
    /// Creates a link of one of an organization's own dashboards; the secret is shown only this once.
    ///
    /// Needs what [`Hub::allow_board_link`] says. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: the organization has no such dashboard of its own. `Invalid`: it has 20 links already.
    pub async fn board_link_create(
        &self,
        caller: &Caller,
        organization: OrganizationId,
        board: DashboardId,
        BoardLinkInput { name, expires_at }: BoardLinkInput,
    ) -> Result<(BoardLink, Secret)> {
        self.allow_board_link(caller, organization, board).await?;
        let permit = self.links_permit(caller, organization).await?;
        let (id, secret) = (BoardLinkId(self.0.env.new_id().0), Secret::new(self.0.env.chance()));
        let (maker, created_at) = (caller.user, self.now());
        let link = BoardLink { id, board, organization, maker, name, created_at, expires_at };
        let made = self.registry().board_link_create(&permit, &link, &secret.digest(), BOARD_LINKS_MAX).await?;
        let full = || Error::invalid("body", format!("the dashboard has {BOARD_LINKS_MAX} links already"));
        if made { Ok((link, secret)) } else { Err(full()) }
    }

    /// Checks that the caller may create a link of a dashboard: it may change that dashboard and has all rights of its
    /// user. An API key with a role or an expiry of its own cannot create one, because the link would exceed its
    /// rights.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_board_link(&self, caller: &Caller, id: OrganizationId, board: DashboardId) -> Result<()> {
        self.allow_board(caller, id, board).await?;
        match caller.key {
            None => Ok(()),
            Some(_) => Err(Error::Forbidden("an API key with a role or an end of its own makes no link".to_owned())),
        }
    }

    /// Lists the links of one of an organization's own dashboards, oldest first, including expired ones.
    ///
    /// Needs `OrganizationUpdate`.
    ///
    /// # Errors
    /// `Missing`: the organization has no such dashboard of its own.
    pub async fn board_link_list(
        &self,
        caller: &Caller,
        id: OrganizationId,
        board: DashboardId,
        page: PageRequest,
    ) -> Result<Page<BoardLink>> {
        self.allow_board(caller, id, board).await?;
        let permit = self.links_permit(caller, id).await?;
        Ok(Page::of(self.registry().board_link_list(&permit, board).await?, page))
    }

    /// Deletes a link of one of an organization's own dashboards: it is refused from the next call on.
    ///
    /// Needs `OrganizationUpdate`. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: there is no such link.
    pub async fn board_link_delete(
        &self,
        caller: &Caller,
        id: OrganizationId,
        board: DashboardId,
        link: BoardLinkId,
    ) -> Result<()> {
        self.allow_board(caller, id, board).await?;
        let permit = self.links_permit(caller, id).await?;
        let was_there = self.registry().board_link_delete(&permit, board, link).await?;
        if was_there { Ok(()) } else { Err(Error::Missing("link")) }
    }

    async fn links_permit(&self, caller: &Caller, id: OrganizationId) -> Result<CanWrite<OrganizationId>> {
        self.0.identity.organization_write(caller, id, Action::OrganizationUpdate).await
    }
}
