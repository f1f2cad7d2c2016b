//! Event history, and the stream of events as they are committed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use isobar_model::access::{self, Action, Caller, CanList, CanRead};
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, DeviceRef, EventId, OrganizationId};
use isobar_model::page::{Depth, LIMIT_MAX, ListRequest, Page, PageRequest, TimeRange};
use isobar_store::telemetry::{Following, HistoryQuery, Place, Shown, Told};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::error::Told as _;
use crate::gate::{Credentials, Principal};
use crate::{Hub, TreeQuery, gate, stopped};

/// Between two looks whether a call in which nothing happens may go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What a client names the event by that it had last.
const LAST_EVENT_ID: &str = "header.Last-Event-ID";
/// Events read from history at a time while a stream catches up.
const CATCH_UP_EVENTS: usize = 500;

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

    /// Events of the scope in the order in which they become durable, each once; with `after`, from the one on that
    /// followed it there. The stream ends when the credentials would be refused, when the scope is out of reach, when history
    /// cannot be read, and when the hub stops. An error is its last word.
    pub async fn event_stream(
        &self,
        credentials: &Credentials<'_>,
        scope: StreamScope,
        after: Option<EventId>,
    ) -> Result<impl Stream<Item = Result<Arc<Event>>> + Send + 'static + use<>> {
        let shown = self.shown(credentials)?;
        let (caller, _) = self.bearer(&shown).await?;
        let listens = match scope {
            StreamScope::Device(id) => Listens::Device(id),
            StreamScope::Organization(organization) => {
                Listens::Beneath(organization.unwrap_or_else(|| caller.organization()))
            }
        };
        self.allow_listening(&caller, listens).await?;
        let Following { from, told } = self.0.telemetry.follow();
        let after = match after {
            Some(after) => self.place_to_resume(after, from).await?,
            None => from,
        };
        let (hub, stop) = (self.clone(), self.0.stop.subscribe());
        let (until, reached) = (from, after);
        let tail = Tail { hub, shown, listens, told, stop, after, until, reached, waiting: VecDeque::new() };
        Ok(futures::stream::unfold(Some(tail), |tail| async move {
            let mut tail = tail?;
            match tail.next().await {
                Ok(event) => Some((Ok(event?), Some(tail))),
                Err(error) => {
                    tracing::debug!(%error, "an event stream ends");
                    Some((Err(error), None))
                }
            }
        }))
    }

    /// The place after which a stream goes on whose client had this event last. What history no longer has cannot be
    /// made up for; and an event that has not been yet is of another server, or of one that was set back.
    async fn place_to_resume(&self, after: EventId, newest: Place) -> Result<Place> {
        let begins = self.history_begins();
        if after.minted_at() < begins {
            return Err(Error::invalid(LAST_EVENT_ID, format!("is older than history, which begins at {begins}")));
        }
        let place = self.0.telemetry.history_place(after).await.told()?;
        if place > newest {
            return Err(Error::invalid(LAST_EVENT_ID, "is newer than all events of this server"));
        }
        Ok(place)
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
    /// The next event that it listens to, and what it is of; none: something was not told. `after` goes along.
    async fn hear(
        self,
        told: &mut broadcast::Receiver<Told>,
        after: &mut Place,
    ) -> std::result::Result<Option<(Arc<Event>, Arc<Shown>)>, RecvError> {
        loop {
            let Told::Event { place, event, of } = told.recv().await? else { return Ok(None) };
            if place <= *after {
                continue;
            }
            *after = place;
            let is_heard = match self {
                Listens::Device(id) => event.device == id,
                Listens::Beneath(organization) => of.lineage.contains(organization),
            };
            if is_heard {
                return Ok(Some((event, of)));
            }
        }
    }
}

/// A stream's place: behind in history, or live.
struct Tail {
    hub: Hub,
    /// By what its caller was let in.
    shown: gate::Shown,
    listens: Listens,
    told: broadcast::Receiver<Told>,
    stop: watch::Receiver<bool>,
    /// Everything up to here was streamed, or is none of its business.
    after: Place,
    /// What is told comes after this.
    until: Place,
    /// Events of history that wait to be streamed, and the place up to which they are all.
    waiting: VecDeque<(Place, Event)>,
    reached: Place,
}

impl Tail {
    /// The next event; none when the hub stops.
    async fn next(&mut self) -> Result<Option<Arc<Event>>> {
        loop {
            // Asked again each time: what the caller has shown, and its reach, may have ended while this waited.
            let caller = self.caller().await?;
            if let Some((place, event)) = self.waiting.pop_front() {
                self.after = place;
                return Ok(Some(Arc::new(event)));
            }
            self.after = self.after.max(self.reached);
            if self.after < self.until {
                self.catch_up(&caller).await?;
                continue;
            }
            let heard = tokio::select! {
                heard = self.listens.hear(&mut self.told, &mut self.after) => heard,
                () = tokio::time::sleep(LOOK_EVERY) => continue,
                () = stopped(&mut self.stop) => return Ok(None),
            };
            match heard {
                Ok(Some((event, of))) => {
                    if self.caller().await?.reaches(&of.lineage) {
                        return Ok(Some(event));
                    }
                }
                Ok(None) | Err(RecvError::Lagged(_)) => self.follow_anew(),
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// What was missed is in history.
    fn follow_anew(&mut self) {
        let Following { from, told } = self.hub.0.telemetry.follow();
        (self.until, self.told) = (from, told);
    }

    /// The caller as it is now, if it may still listen.
    async fn caller(&self) -> Result<Arc<Caller>> {
        let (caller, _) = self.hub.bearer(&self.shown).await?;
        self.hub.allow_listening(&caller, self.listens).await?;
        Ok(caller)
    }

    async fn catch_up(&mut self, caller: &Caller) -> Result<()> {
        let devices = self.passes(caller).await?;
        let (telemetry, limit) = (&self.hub.0.telemetry, CATCH_UP_EVENTS);
        let stretch = telemetry.history_between(&devices, self.after, self.until, limit).await.told()?;
        self.reached = stretch.until;
        self.waiting.extend(stretch.events);
        Ok(())
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
