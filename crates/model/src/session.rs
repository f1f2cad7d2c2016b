//! Sessions: one login, its refresh token and the access tokens made from it.

use crate::ids::{SessionId, UserId};
use crate::secret::Digest;
use crate::time::Timestamp;

/// Seconds that a jwt lives (specification: Limits).
pub const JWT_SECONDS: i64 = 15 * 60;
/// Seconds that a refresh token lives, from login (specification: Limits).
pub const REFRESH_SECONDS: i64 = 14 * 24 * 3600;

/// A session as the registry keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its identifier, which every jwt made from it carries.
    pub id: SessionId,
    /// Whose it is.
    pub user: UserId,
    /// The digest of its refresh token; none once that was revoked.
    pub refresh: Option<Digest>,
    /// When it began.
    pub created_at: Timestamp,
    /// When its refresh token ends.
    pub expires_at: Timestamp,
}
