//! Destinations of calls: a tenant and a host. Calls to one destination wait for each other, but not for calls to
//! others.

use isobar_model::ids::OrganizationId;
use isobar_outlets::calls::host_of;

/// Separates tenant and host. The character after it sorts behind all destinations of a tenant.
const DESTINATION_SPACE: char = ' ';
pub(super) const BEHIND_DESTINATIONS: char = '!';

/// Returns the destination of a tenant's call.
pub(super) fn destination_of(tenant: Option<OrganizationId>, url: &str) -> String {
    let (tenant, host) = (tenant.map(|id| id.to_string()).unwrap_or_default(), host_of(url).unwrap_or_default());
    format!("{tenant}{DESTINATION_SPACE}{host}")
}

/// Returns the tenant of a destination.
pub(super) fn tenant_of(destination: &str) -> &str {
    destination.split_once(DESTINATION_SPACE).map_or(destination, |(tenant, _)| tenant)
}
