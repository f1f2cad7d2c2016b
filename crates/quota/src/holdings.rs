//! Holdings of tenants and of their sites in one amount.

use std::collections::BTreeMap;

use isobar_model::ids::OrganizationId;
use isobar_model::site::Site;

/// The holdings of a tenant and of its whole site in a shared amount. Holdings are compared by site first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// Sum over all tenants of the site.
    pub of_site: usize,
    /// The tenant's own.
    pub of_tenant: usize,
}

impl Holding {
    /// Returns the holding plus `more`.
    pub const fn plus(self, more: usize) -> Self {
        Self { of_site: self.of_site.saturating_add(more), of_tenant: self.of_tenant.saturating_add(more) }
    }

    /// Returns true if a slot of this tenant should go to another, which then still has no more than this one: sites
    /// compete with sites, and tenants with those of their own site.
    pub const fn yields_to(self, other: Self, is_same_site: bool) -> bool {
        match is_same_site {
            true => self.of_tenant > other.of_tenant + 1,
            false => self.of_site > other.of_site + 1,
        }
    }
}

/// Holdings of a shared amount by tenant.
#[derive(Debug, Default)]
pub struct TenantAmounts {
    all: usize,
    /// Sites and tenants with a holding above 0.
    of_sites: BTreeMap<Site, usize>,
    of_tenants: BTreeMap<OrganizationId, usize>,
}

impl TenantAmounts {
    /// Returns the sum of all holdings.
    pub const fn all(&self) -> usize {
        self.all
    }

    /// Returns the holding of a tenant.
    pub fn of(&self, tenant: OrganizationId) -> Holding {
        let of_site = self.of_sites.get(&tenant.site()).copied().unwrap_or_default();
        Holding { of_site, of_tenant: self.of_tenants.get(&tenant).copied().unwrap_or_default() }
    }

    /// Replaces `before`, a part of a tenant's holding, by `after`.
    pub fn change(&mut self, tenant: OrganizationId, before: usize, after: usize) {
        let Holding { of_site, of_tenant } = self.of(tenant);
        self.all = self.all - before + after;
        note(&mut self.of_sites, tenant.site(), of_site - before + after);
        note(&mut self.of_tenants, tenant, of_tenant - before + after);
    }

    /// Removes all holdings.
    pub fn clear(&mut self) {
        self.all = 0;
        self.of_sites.clear();
        self.of_tenants.clear();
    }

    /// Returns true if there are no holdings and no entries.
    pub fn is_nothing(&self) -> bool {
        self.all == 0 && self.of_sites.is_empty() && self.of_tenants.is_empty()
    }
}

fn note<K: Ord>(held: &mut BTreeMap<K, usize>, holder: K, amount: usize) {
    match amount {
        0 => held.remove(&holder),
        _ => held.insert(holder, amount),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_yields_to_one_that_has_two_fewer() {
        let holding = |of_site, of_tenant| Holding { of_site, of_tenant };
        assert!(holding(2, 1).yields_to(holding(0, 0), false) && !holding(1, 1).yields_to(holding(0, 0), false));
        assert!(!holding(9, 1).yields_to(holding(9, 0), true) && holding(9, 2).yields_to(holding(9, 0), true));
        assert!(holding(9, 1) > holding(8, 8) && holding(9, 2) > holding(9, 1));
    }
}
