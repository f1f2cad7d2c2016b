//! Manages views of the device list, of which each user has its own (contract: Beyond the specification, Views).

use isobar_model::access::{self, Caller};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::ViewId;
use isobar_model::page::{Page, PageRequest};
use isobar_model::view::{View, ViewInput};

use crate::Hub;
use crate::error::{ORGANIZATION, naming};

/// Views of one user, at most.
const VIEWS_MAX: usize = 50;
/// Name of the resource in errors.
const VIEW: &str = "view";

impl Hub {
    /// Lists the caller's views, by name.
    ///
    /// Each user lists its own.
    pub async fn view_list(&self, caller: &Caller, page: PageRequest) -> Result<Page<View>> {
        Ok(Page::of(self.registry().view_list(&access::own(caller).reading()).await?, page))
    }

    /// Creates a view of the caller.
    ///
    /// Each user creates its own. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: the caller has 50 already, or one of that name; or the organization is out of reach.
    pub async fn view_create(&self, caller: &Caller, input: ViewInput) -> Result<View> {
        self.view_reaches(caller, &input).await?;
        let (id, now) = (ViewId(self.0.env.new_id().0), self.now());
        let made = self.registry().view_create(&access::own(caller), id, input, VIEWS_MAX, now).await;
        let full = || Error::invalid("body", format!("you have {VIEWS_MAX} views already"));
        made.map_err(naming(&[ORGANIZATION]))?.ok_or_else(full)
    }

    /// Checks that a view belongs to the caller.
    ///
    /// # Errors
    /// `Missing`: the caller has no such view.
    pub async fn allow_view(&self, caller: &Caller, id: ViewId) -> Result<()> {
        let found = self.registry().view_fetch(&access::own(caller).reading(), id).await?;
        found.map(|_| ()).ok_or(Error::Missing(VIEW))
    }

    /// Changes one of the caller's views. The last write wins.
    ///
    /// Each user changes its own. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: the caller has no such view. `Invalid`: another one has the name, or the organization is out of
    /// reach.
    pub async fn view_update(&self, caller: &Caller, id: ViewId, input: ViewInput) -> Result<View> {
        self.view_reaches(caller, &input).await?;
        let changed = self.registry().view_update(&access::own(caller), id, input, self.now()).await;
        changed.map_err(naming(&[ORGANIZATION]))
    }

    /// Deletes one of the caller's views.
    ///
    /// Each user deletes its own. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: the caller has no such view.
    pub async fn view_delete(&self, caller: &Caller, id: ViewId) -> Result<()> {
        let was_there = self.registry().view_delete(&access::own(caller), id).await?;
        if was_there { Ok(()) } else { Err(Error::Missing(VIEW)) }
    }

    /// Refuses an organization that is out of reach, as if it did not exist.
    async fn view_reaches(&self, caller: &Caller, input: &ViewInput) -> Result<()> {
        let Patch::Set(organization) = input.organization else { return Ok(()) };
        let lineage = self.0.caches.lineage_of(organization).await?.filter(|lineage| caller.reaches(lineage));
        lineage.map(|_| ()).ok_or_else(|| Error::invalid("organizationId", "no such organization"))
    }
}
