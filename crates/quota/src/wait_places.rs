//! Places of calls that wait long and hold nothing else: long polls and streams. A tenant may have at most twice what is
//! left. When nothing is left, the tenant that has most loses its youngest place to one that has fewer: that wait ends as
//! if nothing had come, and its client asks again.

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{Full, Limit, LimitMeter, NOBODY, SharedAmount, TenantAmounts};

type Result<T> = std::result::Result<T, Full>;

/// The places of all tenants.
#[derive(Debug)]
pub struct WaitPlaces {
    amount: SharedAmount,
    meter: LimitMeter,
    state: Mutex<WaitState>,
}

#[derive(Debug, Default)]
struct WaitState {
    held: TenantAmounts,
    /// Increments with each place that is taken.
    number: u64,
    /// Places of each tenant by their number, oldest first.
    waits: BTreeMap<OrganizationId, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A place; dropping it returns it.
#[derive(Debug)]
pub struct WaitPlace {
    places: Arc<WaitPlaces>,
    tenant: OrganizationId,
    number: u64,
}

impl WaitPlaces {
    /// Makes as many places as the limit has.
    pub fn new(limit: &Limit) -> Arc<Self> {
        let (amount, meter) = (SharedAmount::of(limit.of_all), LimitMeter::new(limit));
        Arc::new(Self { amount, meter, state: Mutex::default() })
    }

    /// Takes a place for a tenant; the future ends if the place is given to another. [`Full`] if there is none.
    pub fn take(
        self: &Arc<Self>,
        tenant: Option<OrganizationId>,
    ) -> Result<(WaitPlace, impl Future<Output = ()> + Send + use<>)> {
        let (tenant, (end, ended)) = (tenant.unwrap_or(NOBODY), oneshot::channel());
        let mut state = self.state.lock();
        let evicted = state.make_room(tenant, self)?;
        state.number += 1;
        let number = state.number;
        state.held.change(tenant, 0, 1);
        state.waits.entry(tenant).or_default().insert(number, end);
        drop(state);
        self.meter.change(usize::from(evicted.is_some()), 1);
        // Its future ends.
        drop(evicted);
        let place = WaitPlace { places: Arc::clone(self), tenant, number };
        Ok((place, async { drop(ended.await) }))
    }
}

impl WaitState {
    /// Makes room for one more place of a tenant; returns the place that was evicted for it. While places are left for
    /// other sites, only a tenant without one may evict another of its own site.
    fn make_room(&mut self, tenant: OrganizationId, of: &WaitPlaces) -> Result<Option<oneshot::Sender<()>>> {
        let (own, all) = (self.held.of(tenant), self.held.all() + 1);
        if of.amount.allows(own.plus(1), all) {
            return Ok(None);
        }
        let may_yield = |id: &OrganizationId| {
            let (theirs, is_same_site) = (self.held.of(*id), id.site() == tenant.site());
            let is_asked = of.amount.is_spent(all) || (is_same_site && own.of_tenant == 0);
            (is_asked && theirs.yields_to(own, is_same_site)).then_some((theirs, *id))
        };
        let (_, heaviest) = self.waits.keys().filter_map(may_yield).max().ok_or_else(|| of.meter.refuse())?;
        Ok(self.leave(heaviest, None))
    }

    /// Removes a place of a tenant, by default its youngest.
    fn leave(&mut self, tenant: OrganizationId, number: Option<u64>) -> Option<oneshot::Sender<()>> {
        let waits = self.waits.get_mut(&tenant)?;
        let left = match number {
            Some(number) => waits.remove(&number),
            None => waits.pop_last().map(|(_, end)| end),
        };
        if waits.is_empty() {
            self.waits.remove(&tenant);
        }
        if left.is_some() {
            self.held.change(tenant, 1, 0);
        }
        left
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let left = self.places.state.lock().leave(self.tenant, Some(self.number));
        self.places.meter.change(usize::from(left.is_some()), 0);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use isobar_model::site::Site;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::UNLIMITED;

    fn places(of_all: usize) -> Arc<WaitPlaces> {
        WaitPlaces::new(&UNLIMITED.with_total(of_all))
    }

    type Wait = (WaitPlace, BoxFuture<'static, ()>);

    fn tenant(number: u128) -> OrganizationId {
        OrganizationId(Uuid::from_u128(number))
    }

    fn take(places: &Arc<WaitPlaces>, tenant: OrganizationId) -> Option<Wait> {
        let (place, ended) = places.take(Some(tenant)).ok()?;
        Some((place, ended.boxed()))
    }

    /// Takes as many places as the tenant may have.
    fn fill(places: &Arc<WaitPlaces>, tenant: OrganizationId) -> Vec<Wait> {
        std::iter::from_fn(|| take(places, tenant)).take(1_000).collect()
    }

    fn ended(waits: &mut [Wait]) -> Vec<usize> {
        let ended = waits.iter_mut().enumerate().filter_map(|(at, (_, ended))| ended.now_or_never().map(|()| at));
        ended.collect()
    }

    #[test]
    fn tenant_with_most_gives_up_its_youngest_place_when_full() {
        let places = places(100);
        let mut first = fill(&places, tenant(1));
        let mut others: Vec<Wait> = (2..5).flat_map(|number| fill(&places, tenant(number))).collect();
        others.push(take(&places, tenant(5)).unwrap());
        assert_eq!((first.len(), places.state.lock().held.all()), (66, 99));
        assert!(ended(&mut first).is_empty() && ended(&mut others).is_empty());
        let victims: Vec<Wait> = (20..40).map(|number| take(&places, tenant(number)).unwrap()).collect();
        assert_eq!(places.state.lock().held.all(), 99);
        assert!(ended(&mut others).is_empty());
        assert_eq!(first.iter_mut().filter_map(|(_, ended)| ended.now_or_never()).count(), 20);
        assert!(first.iter_mut().take(46).all(|(_, ended)| ended.now_or_never().is_none()));
        // An evicted tenant still has most, and is refused.
        assert!(take(&places, tenant(1)).is_none());
        drop((first, others, victims));
        assert!(places.state.lock().held.is_nothing() && places.state.lock().waits.is_empty());
    }

    #[test]
    fn free_places_are_given_before_any_is_evicted() {
        let places = places(100);
        let mut first = fill(&places, tenant(1));
        let second = fill(&places, tenant(2));
        assert_eq!((second.len(), ended(&mut first).len()), (22, 0));
    }

    #[test]
    fn tenants_of_one_site_leave_places_to_others_and_to_each_other() {
        let places = places(100);
        let crowd = |number: u128| Site::of_tag(7).founds(Uuid::from_u128(number << 32));
        let mut first = fill(&places, crowd(1));
        let (second, third) = (fill(&places, crowd(2)), fill(&places, crowd(3)));
        assert_eq!((first.len(), second.len(), third.len()), (66, 11, 2));
        assert!(ended(&mut first).is_empty());
        // One more from there has a place of theirs.
        let own = take(&places, crowd(4)).unwrap();
        assert_eq!(ended(&mut first), [65]);
        let other = fill(&places, tenant(1));
        assert_eq!(other.len(), 14);
        drop((first, second, third, own, other));
        assert!(places.state.lock().held.is_nothing());
    }

    proptest! {
        #[test]
        fn tenant_without_a_place_is_refused_only_if_none_has_two(
            steps in prop::collection::vec((0..9_u128, any::<bool>(), 0..20_usize), 0..200),
        ) {
            let (places, mut held) = (places(12), Vec::<(OrganizationId, Wait)>::new());
            for (number, gives_back, at) in steps {
                let asks = Site::of_tag(number as u32 / 3).founds(Uuid::from_u128(number << 32));
                if gives_back && !held.is_empty() {
                    drop(held.remove(at % held.len()));
                    continue;
                }
                match take(&places, asks) {
                    Some(wait) => held.push((asks, wait)),
                    None => {
                        let state = places.state.lock();
                        let has_one = state.held.of(asks).of_site > 0;
                        prop_assert!(has_one || state.waits.keys().all(|id| state.held.of(*id).of_site < 2));
                    }
                }
                held.retain_mut(|(_, (_, ended))| ended.now_or_never().is_none());
                let state = places.state.lock();
                prop_assert_eq!(state.held.all(), held.len());
                prop_assert!(held.len() < 12);
            }
            drop(held);
            prop_assert!(places.state.lock().held.is_nothing());
        }
    }
}
