//! Event history, and the stream of events as they are committed.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use isobar_model::access::{self, Action, Caller, CanList, CanRead};
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, DeviceRef, EventId, OrganizationId};
use isobar_model::page::{Depth, LIMIT_MAX, ListRequest, Page, PageRequest, TimeRange};
use isobar_store::telemetry::HistoryQuery;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::error::Told as _;
use crate::gate::{Credentials, Principal, Shown};
use crate::live::LiveEvent;
use crate::{Hub, TreeQuery, stopped};

/// Between two looks whether a stream in which nothing happens may go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events read from history at a time while a stream catches up.
const CATCH_UP_EVENTS: usize = 500;
/// Identifiers remembered so that no event is streamed twice; more than the live buffer holds.
const STREAMED_MAX: usize = 16_384;

/// Which part of a device's history is wanted.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRequest {
    /// With device events.
    pub device_events: bool,
    /// With cloud events.
    pub cloud_events: bool,
    /// When they were received.
    pub range: TimeRange,
    /// Which page.
    pub page: PageRequest,
}

/// Whose events a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamScope {
    /// One device.
    Device(DeviceId),
    /// An organization (none: the caller's) and everything beneath it.
    Organization(Option<OrganizationId>),
}

impl Hub {
    /// A page of a device's history, newest first.
    pub async fn history(&self, caller: &Caller, id: DeviceId, request: HistoryRequest) -> Result<Page<Event>> {
        let (pass, _) = self.device_read(&Principal::User(Arc::new(caller.clone())), id).await?;
        let query = HistoryQuery {
            device_events: request.device_events,
            cloud_events: request.cloud_events,
            range: request.range,
            not_before: self.history_begins(),
            page: request.page,
        };
        self.0.telemetry.history(&pass, query).await.told()
    }

    /// One event of a device's history.
    pub async fn history_event(&self, caller: &Caller, id: DeviceId, event: EventId) -> Result<Event> {
        let (pass, _) = self.device_read(&Principal::User(Arc::new(caller.clone())), id).await?;
        let found = self.0.telemetry.history_event(&pass, event).await.told()?;
        found.filter(|event| event.received_at() >= self.history_begins()).ok_or(Error::Missing("event"))
    }

    /// Events of the scope as they are committed; with `after`, first those of history that came after it.
    /// The stream ends when the credentials would be refused, when the scope is out of reach, and when the hub stops.
    pub async fn event_stream(
        &self,
        credentials: &Credentials<'_>,
        scope: StreamScope,
        after: Option<EventId>,
    ) -> Result<impl Stream<Item = Arc<Event>> + Send + 'static + use<>> {
        let shown = self.shown(credentials)?;
        let (caller, _) = self.bearer(&shown).await?;
        let listens = match scope {
            StreamScope::Device(id) => Listens::Device(id),
            StreamScope::Organization(organization) => {
                Listens::Beneath(organization.unwrap_or_else(|| caller.organization()))
            }
        };
        self.allow_listening(&caller, listens).await?;
        let tail = Tail {
            catching_up: after.is_some(),
            cursor: after.unwrap_or_else(|| self.new_id()),
            live: self.0.live.subscribe(),
            stop: self.0.stop.subscribe(),
            hub: self.clone(),
            shown,
            listens,
            waiting: VecDeque::new(),
            streamed: Streamed::default(),
        };
        Ok(futures::stream::unfold(tail, |mut tail| async move {
            let event = tail.next().await?;
            Some((event, tail))
        }))
    }

    /// Whether the caller may hear what is listened to.
    async fn allow_listening(&self, caller: &Arc<Caller>, listens: Listens) -> Result<()> {
        match listens {
            Listens::Device(id) => {
                self.allow_device(&Principal::User(Arc::clone(caller)), id, Action::DeviceRead).await
            }
            Listens::Beneath(organization) => self.list_beneath(caller, organization).await.map(|_| ()),
        }
    }

    /// The pass to list all devices of an organization and those beneath it.
    async fn list_beneath(&self, caller: &Caller, organization: OrganizationId) -> Result<CanList> {
        let tree = TreeQuery { organization: Some(organization), depth: Depth::All };
        self.list_pass(caller, tree, Action::DeviceRead).await
    }
}

/// What a stream listens to.
#[derive(Clone, Copy)]
enum Listens {
    Device(DeviceId),
    Beneath(OrganizationId),
}

impl Listens {
    /// The next event that it listens to.
    async fn hear(self, live: &mut broadcast::Receiver<LiveEvent>) -> std::result::Result<LiveEvent, RecvError> {
        loop {
            let live = live.recv().await?;
            let heard = match self {
                Listens::Device(id) => live.event.device == id,
                Listens::Beneath(organization) => live.lineage.contains(organization),
            };
            if heard {
                return Ok(live);
            }
        }
    }
}

/// A stream's place: behind in history, or live.
struct Tail {
    hub: Hub,
    /// By what its caller was let in.
    shown: Shown,
    listens: Listens,
    live: broadcast::Receiver<LiveEvent>,
    stop: watch::Receiver<bool>,
    /// The newest event streamed, or the moment the stream began.
    cursor: EventId,
    catching_up: bool,
    waiting: VecDeque<Arc<Event>>,
    streamed: Streamed,
}

impl Tail {
    async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            // Asked again each time: what the caller has shown, and its reach, may have ended while this waited.
            let caller = self.caller().await?;
            if let Some(event) = self.waiting.pop_front() {
                if self.streamed.first_time(event.id) {
                    self.cursor = self.cursor.max(event.id);
                    return Some(event);
                }
                continue;
            }
            if self.catching_up {
                self.catch_up(&caller).await?;
                continue;
            }
            let received = tokio::select! {
                received = self.listens.hear(&mut self.live) => received,
                () = tokio::time::sleep(LOOK_EVERY) => continue,
                () = stopped(&mut self.stop) => return None,
            };
            match received {
                Ok(live) => {
                    if self.caller().await?.reaches(&live.lineage) {
                        self.waiting.push_back(live.event);
                    }
                }
                Err(RecvError::Lagged(_)) => self.catching_up = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The caller as it is now; none when it may no longer listen.
    async fn caller(&self) -> Option<Arc<Caller>> {
        let may = async {
            let (caller, _) = self.hub.bearer(&self.shown).await?;
            self.hub.allow_listening(&caller, self.listens).await?;
            Ok::<_, Error>(caller)
        };
        may.await.inspect_err(|error| tracing::debug!(%error, "an event stream ends")).ok()
    }

    async fn catch_up(&mut self, caller: &Caller) -> Option<()> {
        let devices = match self.passes(caller).await {
            Ok(devices) => devices,
            Err(error) => {
                tracing::debug!(%error, "an event stream ends: its devices are out of reach");
                return None;
            }
        };
        let events = self.hub.0.telemetry.history_after(&devices, self.cursor, CATCH_UP_EVENTS).await;
        match events {
            Ok(events) => {
                self.catching_up = events.len() == CATCH_UP_EVENTS;
                self.waiting.extend(events.into_iter().map(Arc::new));
                Some(())
            }
            Err(error) => {
                tracing::warn!(%error, "an event stream ends: history cannot be read");
                None
            }
        }
    }

    /// Passes for every device that the stream listens to.
    async fn passes(&self, caller: &Caller) -> Result<Vec<CanRead<DeviceRef>>> {
        match self.listens {
            Listens::Device(id) => {
                let principal = Principal::User(Arc::new(caller.clone()));
                Ok(vec![self.hub.device_read(&principal, id).await?.0])
            }
            Listens::Beneath(organization) => {
                let list = self.hub.list_beneath(caller, organization).await?;
                self.hub.passes_of_list(caller, &list).await
            }
        }
    }
}

impl Hub {
    async fn passes_of_list(&self, caller: &Caller, list: &CanList) -> Result<Vec<CanRead<DeviceRef>>> {
        let mut request = ListRequest { page: PageRequest { page: 1, limit: LIMIT_MAX }, ..ListRequest::default() };
        let mut passes = Vec::new();
        loop {
            let page = self.0.registry.device_list(list, &request).await.told()?;
            for device in &page.items {
                let pass = access::read(caller, Action::DeviceRead, device.reference(), &device.lineage);
                passes.push(pass.map_err(|refusal| refusal.into_error("device"))?);
            }
            if !page.meta().has_next_page {
                return Ok(passes);
            }
            request.page.page += 1;
        }
    }
}

/// The identifiers streamed last.
#[derive(Default)]
struct Streamed {
    order: VecDeque<EventId>,
    known: HashSet<EventId>,
}

impl Streamed {
    /// Whether the event has not been streamed yet; from now on it has.
    fn first_time(&mut self, id: EventId) -> bool {
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > STREAMED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
