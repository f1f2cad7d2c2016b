//! Authenticates links of dashboards: a caller that presents a link's secret reads its dashboard with the rights of the
//! user who made the link (contract: Beyond the specification).

use std::sync::Arc;

use isobar_model::access::{Action, Caller, CanRead};
use isobar_model::board_link::BoardLink;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{BoardLinkId, OrganizationId};
use isobar_model::secret::Digest;

use super::Identity;
use super::authentication::{Credential, Credentials};

/// A link that has presented its secret. It is not a user: it opens its own dashboard, and nothing else.
pub struct LinkSession {
    pub(crate) link: BoardLink,
    /// The user who made the link, as that user is now.
    pub(crate) maker: Arc<Caller>,
}

impl Identity {
    /// Finds the link that calls. Links are not cached: a deleted one is refused at once.
    pub(super) async fn link_session(&self, credentials: &Credentials<'_>) -> Result<Arc<LinkSession>> {
        let Credential::Link(shown) = credentials.first() else { return Err(Error::Unauthenticated) };
        let (id, secret) = parts_of(shown).ok_or(Error::Unauthenticated)?;
        let found = self.env.registry().board_link_by_id(id).await?;
        let is_good =
            |(link, digest): &(BoardLink, Digest)| *digest == Digest::of(secret) && link.expires_at > self.env.now();
        let (link, _) = found.filter(is_good).ok_or(Error::Unauthenticated)?;
        let account = self.caches.account_entry(link.maker).await?.filter(|account| !account.disabled);
        let maker = Arc::clone(&account.ok_or(Error::Unauthenticated)?.caller);
        Ok(Arc::new(LinkSession { link, maker }))
    }

    /// Returns the permit to read the organization whose dashboard a link shows, if the link's maker may still change
    /// that dashboard.
    ///
    /// # Errors
    /// Returns `Forbidden` if the maker may not change it any more.
    pub(crate) async fn link_permit(&self, session: &LinkSession) -> Result<CanRead<OrganizationId>> {
        let LinkSession { link, maker } = session;
        match self.organization_write(maker, link.organization, Action::OrganizationUpdate).await {
            Ok(permit) => Ok(permit.reading()),
            Err(Error::Missing(_) | Error::Forbidden(_)) => {
                Err(Error::Forbidden("whoever made this link may no longer change its dashboard".to_owned()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Splits `<id>.<secret>`.
fn parts_of(shown: &[u8]) -> Option<(BoardLinkId, &[u8])> {
    let (id, secret) = shown.split_at_checked(shown.iter().position(|byte| *byte == b'.')?)?;
    Some((std::str::from_utf8(id).ok()?.parse().ok()?, &secret[1..]))
}
