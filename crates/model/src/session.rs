//! Sessions: one login, its refresh token and the access tokens made from it.

use crate::ids::{SessionId, UserId};
use crate::secret::Digest;
use crate::time::Timestamp;

/// Lifetime of a JWT, in seconds (specification: Limits).
pub const JWT_SECONDS: i64 = 15 * 60;
/// Lifetime of a refresh token, in seconds from login (specification: Limits).
pub const REFRESH_SECONDS: i64 = 14 * 24 * 3600;

/// A session in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its identifier, which every JWT made from it carries.
    pub id: SessionId,
    /// Its user.
    pub user: UserId,
    /// Digest of its refresh token; `None` once revoked.
    pub refresh: Option<Digest>,
    /// Time of login.
    pub created_at: Timestamp,
    /// Expiry of its refresh token.
    pub expires_at: Timestamp,
}
