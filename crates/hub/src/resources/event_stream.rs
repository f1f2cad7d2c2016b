//! The stream of events as they are committed: behind in history, or live; and of alarms as they change, which are live alone.
//!
//! What a stream holds is little and bounded, however large the events are and however slowly its client reads: a list of
//! what it found in history, and the piece of that, or the event, that is on its way. What that takes of memory beyond a few
//! kilobytes is charged to its tenant. Catching up takes turns with everything else that reads at length.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use isobar_model::access::{Action, Caller, CanList, Lineage};
use isobar_model::alarm::Alarm;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::page::Depth;
use isobar_quota::Claim;
use isobar_store::telemetry::{
    EventWriter, Followed, Following, StreamCursor, StreamMessage, StreamPiece, StreamPosition,
};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};

use crate::delivery::alarm_changes::ChangedAlarm;
use crate::identity::authentication::{Credentials, Principal, UserCredential};
use crate::resources::followed_lists::FollowedList;
use crate::resources::history::HISTORY_LOOK_EVERY;
use crate::supervisor::stopped;
use crate::{Hub, TreeQuery};
use isobar_quota::{TenantShare, TenantShares};

/// What a client names the event by that it had last.
const LAST_EVENT_ID: &str = "header.Last-Event-ID";
/// How far back a stream goes on where another one ended, in seconds: a week.
const PAST_SECONDS: i64 = 7 * 24 * 3600;
/// Events that are looked for in history together, where a stream listens to few devices; and where to many.
pub(super) const FOUND_MIN: usize = 512;
const FOUND_MAX: usize = 4_096;
/// Bytes of them that are read and written at a time.
const STREAM_PIECE_BYTES: usize = 64 << 10;
/// About as many bytes as an event takes besides its payload: names and identifiers.
const EVENT_NAMES_BYTES: usize = 512;
/// An event of fewer bytes on its way to a client is charged to nobody.
const LARGE_BYTES: usize = 16 << 10;
/// Bytes that all streams hold at the same time of what they read, and those of one tenant. Who would go beyond waits.
const STREAMS_BYTES_MAX: usize = 512 << 20;
const STREAMS_OF_ONE_BYTES_MAX: usize = 32 << 20;

/// The bytes that streams hold.
pub(crate) fn stream_bytes() -> Arc<TenantShares> {
    TenantShares::new(STREAMS_BYTES_MAX, STREAMS_OF_ONE_BYTES_MAX)
}

/// Writes what a stream carries, as it goes out.
#[derive(Clone, Copy, Debug)]
pub struct StreamWriter {
    /// Writes an event.
    pub event: EventWriter,
    /// Writes an alarm that has changed.
    pub alarm: fn(&Alarm, &mut Vec<u8>),
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
    /// Events of the scope in the order in which they become durable, each once, as `write` writes them; with `after`, from the
    /// one on that followed it there. What lies behind comes in pieces of many. The stream ends when the credentials would be refused, when the scope is out of reach, when history
    /// cannot be read, and when the hub stops. An error is its last word.
    ///
    /// Alarms of the scope come as they change from here on. What changed earlier is listed, and a stream that leaves too many
    /// unread ends.
    ///
    /// Needs `DeviceRead` on the device, or on the part of the tree.
    ///
    /// # Errors
    /// `Invalid`: `after` is too old, or newer than all events.
    pub async fn event_stream(
        &self,
        credentials: &Credentials<'_>,
        scope: StreamScope,
        after: Option<EventId>,
        write: StreamWriter,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static + use<>> {
        let credential = self.0.identity.user_credential(credentials)?;
        let (caller, _) = self.0.identity.bearer(&credential).await?;
        let listens = match scope {
            StreamScope::Device(id) => Listens::Device(id),
            StreamScope::Organization(organization) => {
                Listens::Beneath(organization.unwrap_or_else(|| caller.organization()))
            }
        };
        self.allow_listening(&caller, listens).await?;
        let Following { from, messages } = self.telemetry().follow();
        let after = match after {
            Some(after) => self.position_to_resume(after, from).await?,
            None => from,
        };
        let tail = Tail {
            hub: self.clone(),
            credential,
            listens,
            write,
            messages,
            alarms: self.0.delivery.alarm_changes().follow(),
            stop: self.0.supervisor.stopping(),
            after,
            until: from,
            behind: None,
            on_its_way: None,
        };
        Ok(futures::stream::unfold(Some(tail), |tail| async move {
            let mut tail = tail?;
            match tail.next().await {
                Ok(text) => Some((Ok(text?), Some(tail))),
                Err(error) => {
                    tracing::debug!(%error, "an event stream ends");
                    Some((Err(error), None))
                }
            }
        }))
    }

    /// The position after which a stream goes on whose client had this event last. What lies too far back cannot be made up
    /// for; and an event that has not been yet is of another server, or of one that was set back.
    async fn position_to_resume(&self, after: EventId, newest: StreamPosition) -> Result<StreamPosition> {
        let begins = self.0.jobs.history_begins();
        if after.minted_at() < begins {
            return Err(Error::invalid(LAST_EVENT_ID, format!("is older than history, which begins at {begins}")));
        }
        let reaches = self.now().plus_seconds(-PAST_SECONDS);
        if after.minted_at() < reaches {
            let why = format!("is too old: a stream goes back to {reaches}. What is older is in history");
            return Err(Error::invalid(LAST_EVENT_ID, why));
        }
        let position = self.telemetry().history_position(after).await?;
        if position > newest {
            return Err(Error::invalid(LAST_EVENT_ID, "is newer than all events of this server"));
        }
        Ok(position)
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

    /// The permit to list all devices of an organization and those beneath it.
    async fn list_beneath(&self, caller: &Caller, organization: OrganizationId) -> Result<CanList> {
        let tree = TreeQuery { organization: Some(organization), depth: Depth::All };
        self.0.identity.list_permit(caller, tree, Action::DeviceRead).await
    }

    /// The devices that are listened to.
    async fn followed(&self, caller: &Arc<Caller>, listens: Listens, tenant: OrganizationId) -> Result<FollowedList> {
        match listens {
            Listens::Device(id) => {
                // Before its permit: should it leave from here on, that is noticed.
                let moves = self.0.caches.departures().count(tenant);
                let principal = Principal::User(Arc::clone(caller));
                let devices = Followed::of([self.0.identity.device_read(&principal, id).await?.0]);
                Ok(FollowedList { devices, moves })
            }
            Listens::Beneath(organization) => {
                let permit = self.list_beneath(caller, organization).await?;
                self.followed_beneath(caller, (organization, permit), tenant).await
            }
        }
    }

    /// Whose devices are listened to: moves of theirs may take one away.
    async fn tenant_of(&self, caller: &Caller, listens: Listens) -> Result<OrganizationId> {
        let Listens::Beneath(organization) = listens else { return Ok(caller.lineage.top()) };
        let lineage = self.0.caches.lineage_of(organization).await?.ok_or(Error::Missing("organization"))?;
        Ok(lineage.top())
    }
}

/// What a stream listens to.
#[derive(Clone, Copy)]
enum Listens {
    Device(DeviceId),
    Beneath(OrganizationId),
}

/// What a stream hears.
enum Heard {
    /// An event that it listens to, where that belongs, and its position; without the event if that is no longer kept.
    Event(StreamPosition, Option<Arc<Event>>, Arc<Lineage>),
    /// Something was not sent.
    Gap,
    /// An alarm has changed, or too many have.
    Alarm(std::result::Result<Arc<ChangedAlarm>, RecvError>),
}

impl Listens {
    /// The next that it hears of. `after` goes along, up to before it.
    async fn hear(
        self,
        messages: &mut broadcast::Receiver<StreamMessage>,
        after: &mut StreamPosition,
    ) -> std::result::Result<Heard, RecvError> {
        loop {
            let StreamMessage::Event { position, device, lineage, event } = messages.recv().await? else {
                return Ok(Heard::Gap);
            };
            if position <= *after {
                continue;
            }
            let is_heard = match self {
                Listens::Device(id) => device == id,
                Listens::Beneath(organization) => lineage.contains(organization),
            };
            if is_heard {
                return Ok(Heard::Event(position, event.upgrade(), lineage));
            }
            *after = position;
        }
    }
}

/// A stream's state: behind in history, or live.
struct Tail {
    hub: Hub,
    /// By what its caller was let in.
    credential: UserCredential,
    listens: Listens,
    write: StreamWriter,
    messages: broadcast::Receiver<StreamMessage>,
    alarms: broadcast::Receiver<Arc<ChangedAlarm>>,
    stop: watch::Receiver<bool>,
    /// Everything up to here was streamed, or is none of its business.
    after: StreamPosition,
    /// What is received comes after this.
    until: StreamPosition,
    /// What it is behind with.
    behind: Option<Behind>,
    /// What that takes which was streamed last: until the next is asked for, it is on its way.
    on_its_way: Option<TenantShare>,
}

/// What a stream has found that lies behind.
struct Behind {
    devices: Followed,
    /// Whose they are, and how often devices of its had left an organization when these were found out.
    tenant: OrganizationId,
    moves: u64,
    /// Some have left theirs since: of each event it is asked where its device is now.
    has_moved: bool,
    /// What is not read yet; none: the search goes on.
    stretch: Option<StreamCursor>,
}

impl Tail {
    /// The next event, or a piece of those that lie behind; none when the hub stops.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.on_its_way = None;
        loop {
            // Asked again each time: what the caller has shown, and its reach, may have ended while this waited.
            let caller = self.caller().await?;
            if let Some(text) = self.alarm_that_waits(&caller)? {
                return Ok(Some(text));
            }
            if self.behind.is_some() || self.after < self.until {
                match self.catch_up(&caller).await? {
                    CaughtUp::Piece(text) => return Ok(Some(text)),
                    CaughtUp::Further => continue,
                    CaughtUp::NoRoom => {
                        if self.pause().await {
                            return Ok(None);
                        }
                        continue;
                    }
                }
            }
            let heard = tokio::select! {
                heard = self.listens.hear(&mut self.messages, &mut self.after) => heard,
                alarm = self.alarms.recv() => Ok(Heard::Alarm(alarm)),
                () = self.hub.0.env.clock().sleep(HISTORY_LOOK_EVERY) => continue,
                () = stopped(&mut self.stop) => return Ok(None),
            };
            match heard {
                Ok(Heard::Event(position, event, lineage)) => {
                    let caller = self.caller().await?;
                    if !caller.reaches(&lineage) {
                        self.after = position;
                    } else if let Some(event) = event
                        && let Ok(share) = self.hold(&caller, event.payload.bytes().len())
                    {
                        (self.after, self.on_its_way) = (position, share);
                        return Ok(Some(self.written(&event)));
                    } else {
                        // It is read when there is room for it: until then nothing of it is held.
                        self.follow_anew();
                    }
                }
                Ok(Heard::Alarm(alarm)) => {
                    let alarm = alarm.map_err(|_| Error::Busy)?;
                    let caller = self.caller().await?;
                    if let Some(text) = self.alarm_written(&caller, &alarm) {
                        return Ok(Some(text));
                    }
                }
                Ok(Heard::Gap) | Err(RecvError::Lagged(_)) => self.follow_anew(),
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// Writes the next alarm that has changed meanwhile and is listened to.
    ///
    /// # Errors
    /// `Busy`: some that changed are no longer kept. Its client lists them.
    fn alarm_that_waits(&mut self, caller: &Caller) -> Result<Option<Bytes>> {
        loop {
            match self.alarms.try_recv() {
                Ok(alarm) => {
                    if let Some(text) = self.alarm_written(caller, &alarm) {
                        return Ok(Some(text));
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(None),
                Err(TryRecvError::Lagged(_)) => return Err(Error::Busy),
            }
        }
    }

    /// Writes an alarm, if it is listened to and the caller may see it.
    fn alarm_written(&self, caller: &Caller, changed: &ChangedAlarm) -> Option<Bytes> {
        let ChangedAlarm { alarm, lineage } = changed;
        let is_heard = match self.listens {
            Listens::Device(id) => alarm.device == id,
            Listens::Beneath(organization) => lineage.contains(organization),
        };
        if !is_heard || !caller.reaches(lineage) {
            return None;
        }
        let mut text = Vec::with_capacity(EVENT_NAMES_BYTES);
        (self.write.alarm)(alarm, &mut text);
        Some(text.into())
    }

    /// What was missed is in history.
    fn follow_anew(&mut self) {
        let Following { from, messages } = self.hub.telemetry().follow();
        (self.until, self.messages) = (from, messages);
    }

    /// Waits for a while. True: the hub stops.
    async fn pause(&mut self) -> bool {
        self.hub.0.env.clock().timeout(HISTORY_LOOK_EVERY, stopped(&mut self.stop)).await.is_ok()
    }

    /// The caller as it is now, if it may still listen.
    async fn caller(&self) -> Result<Arc<Caller>> {
        let (caller, _) = self.hub.0.identity.bearer(&self.credential).await?;
        self.hub.allow_listening(&caller, self.listens).await?;
        Ok(caller)
    }

    /// Room for so many bytes of the tenant's; small events need none. [`Error::Busy`]: there is no more for now.
    fn hold(&self, caller: &Caller, bytes: usize) -> Result<Option<TenantShare>> {
        if bytes <= LARGE_BYTES {
            return Ok(None);
        }
        Ok(Some(self.hub.0.stream_bytes.take(caller.lineage.top(), bytes)?))
    }

    /// Goes on with what lies behind.
    async fn catch_up(&mut self, caller: &Arc<Caller>) -> Result<CaughtUp> {
        // However many streams there are, each waits for a slot: it holds nothing meanwhile.
        let claim = Claim::go_on(caller.lineage.top());
        let Some(behind) = &mut self.behind else {
            self.look(caller, claim).await?;
            return Ok(CaughtUp::Further);
        };
        if behind.stretch.as_ref().is_some_and(|stretch| stretch.left() > 0) {
            return self.read(caller, claim).await;
        }
        if let Some(stretch) = behind.stretch.take() {
            self.after = self.after.max(stretch.until());
        }
        self.behind.take_if(|behind| behind.has_moved || self.after >= self.until);
        if self.after < self.until {
            self.look(caller, claim).await?;
        }
        Ok(CaughtUp::Further)
    }

    /// Whether a device is where it is listened to.
    async fn is_heard_now(&self, caller: &Caller, device: DeviceId) -> Result<bool> {
        let Some(entry) = self.hub.0.caches.device_entry(device).await? else { return Ok(false) };
        let is_there = match self.listens {
            Listens::Device(_) => true,
            Listens::Beneath(organization) => entry.lineage.contains(organization),
        };
        Ok(is_there && caller.reaches(&entry.lineage))
    }

    /// Looks for what comes next in history; for the first time it finds out of which devices.
    async fn look(&mut self, caller: &Arc<Caller>, claim: Claim) -> Result<()> {
        let hub = &self.hub;
        let behind = match &mut self.behind {
            Some(behind) => behind,
            none => {
                let tenant = hub.tenant_of(caller, self.listens).await?;
                let FollowedList { devices, moves } = hub.followed(caller, self.listens, tenant).await?;
                none.insert(Behind { devices, tenant, moves, has_moved: false, stretch: None })
            }
        };
        let most = behind.devices.count().clamp(FOUND_MIN, FOUND_MAX);
        let found = hub.telemetry().history_between(&behind.devices, self.after, self.until, most, claim).await;
        behind.stretch = Some(found?);
        Ok(())
    }

    /// Reads a piece of what was found, if there is room for it.
    async fn read(&mut self, caller: &Caller, claim: Claim) -> Result<CaughtUp> {
        let (hub, tenant) = (&self.hub, caller.lineage.top());
        let Ok(mut room) = hub.0.stream_bytes.take(tenant, STREAM_PIECE_BYTES) else { return Ok(CaughtUp::NoRoom) };
        let Some(behind) = &mut self.behind else { return Ok(CaughtUp::Further) };
        let Some(stretch) = &mut behind.stretch else { return Ok(CaughtUp::Further) };
        let piece = hub.telemetry().history_next(stretch, (STREAM_PIECE_BYTES, self.write.event), claim).await?;
        if piece.text.len() > STREAM_PIECE_BYTES + LARGE_BYTES {
            // A single large one.
            drop(room);
            let Ok(larger) = hub.0.stream_bytes.take(tenant, piece.text.len()) else {
                // It is looked for again.
                behind.stretch = None;
                return Ok(CaughtUp::NoRoom);
            };
            room = larger;
        }
        let Some(last) = piece.events.last().map(|event| event.position) else { return Ok(CaughtUp::Further) };
        // The slot may have been waited for: what the caller has shown may have ended meanwhile.
        let caller = self.caller().await?;
        let text = if self.has_moved() { self.heard_of(&caller, &piece).await? } else { piece.text };
        self.after = last;
        if text.is_empty() {
            return Ok(CaughtUp::Further);
        }
        self.on_its_way = Some(room);
        Ok(CaughtUp::Piece(text))
    }

    /// Whether what was found may be of a device that is out of reach by now: nothing may be waited for between this and what is
    /// done by it. What was found is not thrown away: where devices come and go all the time, nothing would ever get through.
    fn has_moved(&mut self) -> bool {
        let Some(behind) = &mut self.behind else { return false };
        behind.has_moved |= self.hub.0.caches.departures().count(behind.tenant) != behind.moves;
        behind.has_moved
    }

    /// What is left of a piece without those events whose devices are no longer where they are listened to.
    async fn heard_of(&self, caller: &Caller, piece: &StreamPiece) -> Result<Bytes> {
        let (mut text, mut begin) = (Vec::new(), 0);
        for event in &piece.events {
            if self.is_heard_now(caller, event.device).await? {
                text.extend_from_slice(&piece.text[begin..event.end]);
            }
            begin = event.end;
        }
        Ok(text.into())
    }

    fn written(&self, event: &Event) -> Bytes {
        let mut text = Vec::with_capacity(event.payload.bytes().len() + EVENT_NAMES_BYTES);
        (self.write.event)(event, &mut text);
        text.into()
    }
}

/// How far a stream has come with what lies behind.
enum CaughtUp {
    /// The next events, as they are written.
    Piece(Bytes),
    /// There may be more.
    Further,
    /// The tenant's streams hold all that they may.
    NoRoom,
}
