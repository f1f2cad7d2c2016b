//! Lists the devices of a part of the tree for streams that resume.
//!
//! The list may be long, and after an interruption all streams of an organization need it at once. It is therefore made
//! in slots of its own, on low-priority threads; and while one waits for a slot, all streams that need the same list
//! share it.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use isobar_model::access::{self, Action, Caller, CanList};
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_store::telemetry::Followed;
use parking_lot::Mutex;

use crate::Hub;
use crate::support::bounded_jobs::BoundedJobs;
use isobar_quota::limits;

/// Name of the threads that make lists.
const FOLLOWED_THREAD: &str = "isobar-followed";
/// Organizations remembered before those without a waiting list are removed.
const REMEMBERED_LISTS: usize = 64;

/// The devices beneath an organization, and the tenant's number of departures before they were listed.
#[derive(Clone)]
pub(crate) struct FollowedList {
    pub devices: Followed,
    pub moves: u64,
}

/// A list that is being made for all streams that wait for it.
type ListMaking = BoxFuture<'static, std::result::Result<FollowedList, Arc<Error>>>;

/// Makes the lists of devices for streams.
pub(crate) struct FollowedLists {
    jobs: BoundedJobs,
    /// Lists without a slot: their content will be newer than anything that the streams waiting for them have seen.
    waiting: Mutex<HashMap<OrganizationId, WeakShared<ListMaking>>>,
    /// Number of lists made.
    #[cfg(test)]
    made: std::sync::atomic::AtomicUsize,
}

impl FollowedLists {
    pub(crate) fn new() -> Result<Self> {
        // The queue is unbounded: there is at most one list for each organization.
        let jobs = BoundedJobs::giving_way(FOLLOWED_THREAD, &limits::FOLLOWED_LISTS)?;
        Ok(Self {
            jobs,
            waiting: Mutex::default(),
            #[cfg(test)]
            made: Default::default(),
        })
    }

    /// Returns the list that waits for a slot, or else begins one.
    fn join(&self, organization: OrganizationId, begin: impl FnOnce() -> ListMaking) -> Shared<ListMaking> {
        let mut waiting = self.waiting.lock();
        if let Some(list) = waiting.get(&organization).and_then(WeakShared::upgrade) {
            return list;
        }
        if waiting.len() >= REMEMBERED_LISTS {
            waiting.retain(|_, list| list.upgrade().is_some());
        }
        let list = begin().shared();
        waiting.extend(list.downgrade().map(|list| (organization, list)));
        list
    }

    /// Prevents further streams from joining a list that begins, because it may miss later changes.
    fn begins(&self, organization: OrganizationId) {
        self.waiting.lock().remove(&organization);
    }
}

impl Hub {
    /// Returns the devices beneath an organization of this tenant, which the caller may list. Waits for a slot.
    ///
    /// Streams that share a list have each shown a permit for the same organization; it is made with that of the first.
    pub(super) async fn followed_beneath(
        &self,
        caller: &Arc<Caller>,
        (organization, permit): (OrganizationId, CanList),
        tenant: OrganizationId,
    ) -> Result<FollowedList> {
        let making = || {
            let (hub, caller) = (self.clone(), Arc::clone(caller));
            let steps = {
                let hub = hub.clone();
                async move { hub.make_followed_list(&caller, (organization, permit), tenant).await }
            };
            let made = async move { hub.0.followed_lists.jobs.drive(tenant, "followed_list", steps).await };
            made.map(|made| made.map_err(Arc::new)).boxed()
        };
        let made = self.0.followed_lists.join(organization, making).await;
        made.map_err(|error| match &*error {
            Error::Missing(noun) => Error::Missing(noun),
            Error::Busy => Error::Busy,
            other => Error::internal(other.to_string()),
        })
    }

    async fn make_followed_list(
        &self,
        caller: &Caller,
        (organization, permit): (OrganizationId, CanList),
        tenant: OrganizationId,
    ) -> Result<FollowedList> {
        self.0.followed_lists.begins(organization);
        #[cfg(test)]
        self.0.followed_lists.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // Read before the devices are listed, so that a later departure is noticed.
        let moves = self.0.caches.departures().count(tenant);
        let mut permits = Vec::new();
        for (lineage, devices) in self.registry().devices_beneath(&permit).await? {
            for device in devices {
                let permit = access::read(caller, Action::DeviceRead, device, &lineage);
                permits.push(permit.map_err(|refusal| refusal.into_error("device"))?);
            }
        }
        Ok(FollowedList { devices: Followed::of(permits), moves })
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use futures::{Stream, StreamExt as _};
    use isobar_model::event::Event;
    use isobar_model::ids::EventId;
    use isobar_model::secret::Secret;
    use isobar_model::user::ApiKeyInput;

    use super::super::event_stream::FOUND_MIN;
    use super::*;
    use crate::identity::authentication::Credentials;
    use crate::stage::{Stage, until};

    const AT_ONCE: usize = limits::FOLLOWED_LISTS.at_once;
    use crate::{StreamScope, StreamWriter};

    const STREAMS: usize = 8;

    /// Writes a line with the event's identifier and payload.
    fn told(event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{} {}\n", event.id, event.payload.text()).as_bytes());
    }

    const TOLD: StreamWriter = StreamWriter { event: told, alarm: |_, _| {}, id: |_, _| {} };

    fn id_of(told: &[u8]) -> EventId {
        std::str::from_utf8(told).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    /// Reads this many events, each once, whose payloads are 2.
    async fn tell_twos(mut stream: impl Stream<Item = Result<Bytes>> + Unpin, count: usize) {
        let mut ids = BTreeSet::new();
        while ids.len() < count {
            let piece = stream.next().await.unwrap().unwrap();
            for line in piece.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                assert!(line.ends_with(b" 2") && ids.insert(id_of(line)));
            }
        }
        assert_eq!(ids.len(), count);
    }

    /// Makes an API key of the follower.
    async fn key(stage: &Stage) -> Secret {
        let input = ApiKeyInput { name: "k".to_owned(), role: None, expires_at: None };
        stage.hub.api_key_create(&stage.admin, stage.admin.user, input).await.unwrap().1
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn resumed_stream_lists_its_devices_once() {
        // Several times the number of events found in one search of history.
        const MISSED: usize = 3 * FOUND_MIN;
        let stage = Stage::set().await;
        let (device, secret) = (stage.device("{}").await, key(&stage).await);
        let credentials = Credentials { api_auth_token: Some(secret.reveal().as_bytes()), ..Credentials::default() };
        let listens = async |after| {
            let scope = StreamScope::Organization(None);
            Box::pin(stage.hub.event_stream(&credentials, scope, after, TOLD).await.unwrap())
        };
        let mut live = listens(None).await;
        stage.posts(&device, "1").await;
        let first = id_of(&live.next().await.unwrap().unwrap()).to_string();
        drop(live);
        futures::future::join_all((0..MISSED).map(|_| stage.posts(&device, "2"))).await;
        tell_twos(listens(Some(stage.hub.resume_after(&first).unwrap())).await, MISSED).await;
        assert_eq!(stage.hub.0.followed_lists.made.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn resumed_stream_catches_up_while_devices_move() {
        const MISSED: usize = 100;
        let stage = Stage::set().await;
        let (device, secret) = (stage.device("{}").await, key(&stage).await);
        let credentials = Credentials { api_auth_token: Some(secret.reveal().as_bytes()), ..Credentials::default() };
        let scope = || StreamScope::Organization(None);
        let mut live = Box::pin(stage.hub.event_stream(&credentials, scope(), None, TOLD).await.unwrap());
        stage.posts(&device, "1").await;
        let first = id_of(&live.next().await.unwrap().unwrap()).to_string();
        drop(live);
        futures::future::join_all((0..MISSED).map(|_| stage.posts(&device, "2"))).await;
        let after = Some(stage.hub.resume_after(&first).unwrap());
        let mut resumed = Box::pin(stage.hub.event_stream(&credentials, scope(), after, TOLD).await.unwrap());
        // A device of the tenant leaves between any two steps of the stream.
        let heard = futures::stream::poll_fn(|context| {
            stage.hub.0.caches.departures().note(stage.admin.organization());
            let lists = stage.hub.0.followed_lists.made.load(Ordering::Relaxed);
            assert!(lists < 10, "it begins anew again and again");
            resumed.poll_next_unpin(context)
        });
        tell_twos(heard, MISSED).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn resumed_streams_share_one_list() {
        let stage = Stage::set().await;
        let (device, secret) = (stage.device("{}").await, key(&stage).await);
        let credentials = Credentials { api_auth_token: Some(secret.reveal().as_bytes()), ..Credentials::default() };
        let mut live =
            Box::pin(stage.hub.event_stream(&credentials, StreamScope::Organization(None), None, TOLD).await.unwrap());
        stage.posts(&device, "1").await;
        let first = id_of(&live.next().await.unwrap().unwrap()).to_string();
        stage.posts(&device, "2").await;
        // Other jobs occupy all slots.
        let lists = &stage.hub.0.followed_lists;
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let others: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (hub, ended) = (stage.hub.clone(), Arc::clone(&ended));
                let wait = async move { Ok(ended.lock().recv().is_ok()) };
                tokio::spawn(async move { hub.0.followed_lists.jobs.drive(isobar_quota::NOBODY, "test", wait).await })
            })
            .collect();
        while lists.jobs.running_and_waiting() != (AT_ONCE, 0) {
            tokio::task::yield_now().await;
        }
        let mut resumed = Vec::new();
        for _ in 0..STREAMS {
            let scope = StreamScope::Organization(None);
            let after = Some(stage.hub.resume_after(&first).unwrap());
            let stream = stage.hub.event_stream(&credentials, scope, after, TOLD).await.unwrap();
            let mut stream = Box::pin(stream);
            resumed.push(tokio::spawn(async move { stream.next().await.unwrap().unwrap() }));
        }
        let sharing =
            || lists.waiting.lock().values().filter_map(WeakShared::upgrade).next().and_then(|it| it.strong_count());
        // One of the references is the test's, the others belong to the streams.
        until("all of them wait for one list", async || {
            assert!(!resumed.iter().any(|stream| stream.is_finished()), "a stream has listed devices in nobody's slot");
            sharing() == Some(STREAMS + 1)
        })
        .await;
        assert_eq!(lists.jobs.running_and_waiting(), (AT_ONCE, 1));
        for _ in &others {
            end.send(()).unwrap();
        }
        for stream in resumed {
            assert!(stream.await.unwrap().ends_with(b" 2\n"));
        }
        for other in others {
            assert!(other.await.unwrap().unwrap());
        }
        assert!(lists.waiting.lock().is_empty());
    }
}
