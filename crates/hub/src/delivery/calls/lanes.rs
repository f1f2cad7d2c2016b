//! The lanes in which calls wait: one for the calls of a tenant to a host.

use isobar_model::ids::OrganizationId;
use isobar_outlets::calls::host_of;

/// Follows the tenant's name in that of a lane; what comes behind all lanes of a tenant has the character after it.
const LANE_SPACE: char = ' ';
pub(super) const BEHIND_LANES: char = '!';

/// The lane in which a call of a tenant stands.
pub(super) fn lane_of(tenant: Option<OrganizationId>, url: &str) -> String {
    let (tenant, host) = (tenant.map(|id| id.to_string()).unwrap_or_default(), host_of(url).unwrap_or_default());
    format!("{tenant}{LANE_SPACE}{host}")
}

/// Whose a lane is.
pub(super) fn tenant_of(lane: &str) -> &str {
    lane.split_once(LANE_SPACE).map_or(lane, |(tenant, _)| tenant)
}
