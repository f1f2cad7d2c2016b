//! Links that show one dashboard on a screen, without an account (contract: Beyond the specification).

use crate::check::Input;
use crate::error::Result;
use crate::ids::{BoardLinkId, DashboardId, OrganizationId, UserId};
use crate::json::Json;
use crate::time::Timestamp;

/// Longest name of a link, in characters.
pub const BOARD_LINK_NAME_MAX: usize = 80;
/// Name of a link that is created without one.
const BOARD_LINK_NAME: &str = "Screen";
/// Longest lifetime of a link, in milliseconds: 366 days, a year, leap or not.
const BOARD_LINK_MILLIS_MAX: i64 = 366 * 86_400_000;

/// A link that shows a dashboard until it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardLink {
    /// Its identifier.
    pub id: BoardLinkId,
    /// The dashboard that it shows.
    pub board: DashboardId,
    /// The organization that owns the dashboard.
    pub organization: OrganizationId,
    /// The user who made it, whose rights apply to what it shows.
    pub maker: UserId,
    /// Its name.
    pub name: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time from which it is refused.
    pub expires_at: Timestamp,
}

/// The body that makes a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardLinkInput {
    /// 1 to 80 characters.
    pub name: String,
    /// Expiry, at most a year ahead.
    pub expires_at: Timestamp,
}

impl BoardLinkInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>, now: Timestamp) -> Result<Self> {
        let mut input = Input::body(body)?;
        let expires_at = input.time("expiresAt");
        let latest = Timestamp::from_millis(now.millis().saturating_add(BOARD_LINK_MILLIS_MAX));
        match expires_at {
            Some(end) if end <= now => input.fault("expiresAt", "must lie in the future"),
            Some(end) if end > latest => input.fault("expiresAt", "must lie within a year"),
            None if matches!(input.member("expiresAt"), None | Some(Json::Null)) => {
                input.fault("expiresAt", "is required");
            }
            _ => {}
        }
        let name = input.text("name", 1, BOARD_LINK_NAME_MAX).unwrap_or_else(|| BOARD_LINK_NAME.to_owned());
        input.unless_any(Self { name, expires_at: expires_at.unwrap_or(now) })
    }
}
