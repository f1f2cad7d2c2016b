//! Everything that waits, shares or is refused because there is too much of it, as instances of five rules.
//!
//! - [`SharedAmount`]: a tenant may hold at most twice what is then left for others. [`TenantShares`] counts what is
//!   held under that rule (bytes, places) and refuses what exceeds it.
//! - [`FairQueue`]: a few slots, which go to the tenant that has the fewest; the rest wait in line.
//! - [`TenantLru`]: a cache in which the tenant that has most loses what it has not used for the longest.
//! - [`WaitPlaces`]: places of calls that wait long and hold nothing else.
//! - When all is full, the tenant that has most gives up its youngest waiting place to one that has fewer, in queue and
//!   places alike ([`Holding::yields_to`]).
//!
//! Each instance of a rule has a row in the table of [`limits`], and metrics ([`LimitMeter`]).
//!
//! Tenants of one site (see [`isobar_model::site`]) count together against others.

mod fair_queue;
mod holdings;
pub mod limits;
mod meter;
mod shared_amount;
mod tenant_lru;
mod tenant_shares;
mod wait_places;

use isobar_model::error::Error;
use isobar_model::ids::OrganizationId;
use uuid::Uuid;

pub use fair_queue::{Claim, FairQueue, Holder, QueueSlot, Slice};
pub use holdings::{Holding, TenantAmounts};
pub use limits::{Limit, UNLIMITED};
pub use meter::LimitMeter;
pub use shared_amount::SharedAmount;
pub use tenant_lru::{LruChange, LruLimits, LruPlace, TENANT_BYTES, TenantLru};
pub use tenant_shares::{TenantShare, TenantShares};
pub use wait_places::{WaitPlace, WaitPlaces};

/// The tenant that is charged for work without one: of callers without credentials, and of the system.
pub const NOBODY: OrganizationId = OrganizationId(Uuid::nil());

/// A refusal: the limit is reached, and nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit {limit} is reached")]
pub struct Full {
    /// Name of the limit.
    pub limit: &'static str,
}

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        Self::Busy
    }
}
