//! Streams events as they are committed, from history or live, and alarms as they change, which are only live.
//!
//! A stream uses little memory, bounded whatever the size of the events and the speed of its client: a list of
//! positions in history, and the piece of text, or the event, that is being sent. Memory beyond a few kilobytes is
//! charged to its tenant. Catching up takes turns with all other long reads.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use isobar_model::access::{Action, Caller, CanList, Lineage};
use isobar_model::alarm::Alarm;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, OrganizationId};
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
use crate::resources::stream_start::{IdentifiedPlace, ResumeAfter, StreamStart};
use crate::supervisor::stopped;
use crate::{Hub, TreeQuery};
use isobar_quota::{TenantShare, TenantShares, limits};

/// Events found in one search of history: at least for few devices, and at most for many.
pub(super) const FOUND_MIN: usize = 512;
const FOUND_MAX: usize = 4_096;
/// Bytes of events read and written at a time.
const STREAM_PIECE_BYTES: usize = 64 << 10;
/// Approximate size of an event besides its payload, in bytes: names and identifiers.
const EVENT_NAMES_BYTES: usize = 512;
/// Largest event in bytes that is not charged to a tenant while it is sent.
const LARGE_BYTES: usize = 16 << 10;

/// Makes the shares of the memory of streams.
pub(crate) fn stream_bytes() -> Arc<TenantShares> {
    TenantShares::new(&limits::STREAM_BYTES)
}

/// Writes the messages of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamWriter {
    /// Writes an event.
    pub event: EventWriter,
    /// Writes a changed alarm.
    pub alarm: fn(&Alarm, &mut Vec<u8>),
    /// Writes the identifier of a place, if readers need it.
    pub id: fn(&str, &mut Vec<u8>),
}

/// Selects the events that a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamScope {
    /// One device.
    Device(DeviceId),
    /// An organization, the caller's own if `None`, and everything beneath it.
    Organization(Option<OrganizationId>),
}

impl Hub {
    /// Streams the events of the scope in the order in which they become durable, each once, as `write` writes them;
    /// with `after`, starting with the event that followed it. An identifier of the place where it begins comes first, and
    /// again after an hour without one that is newer. Past events come in pieces of many. The stream ends when
    /// the credentials would be refused, the scope is out of reach, history cannot be read, or the hub stops. An error
    /// is its last item.
    ///
    /// Alarms of the scope are sent as they change from now on. Earlier changes must be listed, and a stream whose
    /// client leaves too many unread ends.
    ///
    /// Needs `DeviceRead` on the device, or on the part of the tree.
    ///
    /// # Errors
    /// `Invalid`: `after` is too old, or newer than all that there is.
    pub async fn event_stream(
        &self,
        credentials: &Credentials<'_>,
        scope: StreamScope,
        after: Option<ResumeAfter>,
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
        let StreamStart { following: Following { from, messages }, after, identified } =
            self.follow_after(after).await?;
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
            identified,
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

    /// Checks that the caller may follow the events of a subject.
    async fn allow_listening(&self, caller: &Arc<Caller>, listens: Listens) -> Result<()> {
        match listens {
            Listens::Device(id) => {
                self.allow_device(&Principal::User(Arc::clone(caller)), id, Action::DeviceRead).await
            }
            Listens::Beneath(organization) => self.list_beneath(caller, organization).await.map(|_| ()),
        }
    }

    /// Returns the permit to list all devices of an organization and those beneath it.
    async fn list_beneath(&self, caller: &Caller, organization: OrganizationId) -> Result<CanList> {
        let tree = TreeQuery { organization: Some(organization), depth: Depth::All };
        self.0.identity.list_permit(caller, tree, Action::DeviceRead).await
    }

    /// Returns the devices that a stream follows.
    async fn followed(&self, caller: &Arc<Caller>, listens: Listens, tenant: OrganizationId) -> Result<FollowedList> {
        match listens {
            Listens::Device(id) => {
                // Read before the permit, so that a later departure of the device is noticed.
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

    /// Returns the tenant of the followed devices, whose departures must be checked.
    async fn tenant_of(&self, caller: &Caller, listens: Listens) -> Result<OrganizationId> {
        let Listens::Beneath(organization) = listens else { return Ok(caller.lineage.top()) };
        let lineage = self.0.caches.lineage_of(organization).await?.ok_or(Error::Missing("organization"))?;
        Ok(lineage.top())
    }
}

/// The subject that a stream follows.
#[derive(Clone, Copy)]
enum Listens {
    Device(DeviceId),
    Beneath(OrganizationId),
}

/// A message that a stream receives.
enum Heard {
    /// An event of the subject, with its position and its lineage; without the event if it is not in memory any more.
    Event(StreamPosition, Option<Arc<Event>>, Arc<Lineage>),
    /// A message was skipped.
    Gap,
    /// An alarm has changed, or too many have.
    Alarm(std::result::Result<Arc<ChangedAlarm>, RecvError>),
}

impl Listens {
    /// Waits for the next message of the subject. Advances `after` over the events of other subjects before it.
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

/// The state of a stream: catching up from history, or live.
struct Tail {
    hub: Hub,
    /// The credential of its caller.
    credential: UserCredential,
    listens: Listens,
    write: StreamWriter,
    messages: broadcast::Receiver<StreamMessage>,
    alarms: broadcast::Receiver<Arc<ChangedAlarm>>,
    stop: watch::Receiver<bool>,
    /// The position up to which all events were streamed or skipped.
    after: StreamPosition,
    /// The position after which messages are received.
    until: StreamPosition,
    identified: IdentifiedPlace,
    /// The state of catching up, if the stream is behind.
    behind: Option<Behind>,
    /// Memory of the last item, which is being sent until the next one is polled.
    on_its_way: Option<TenantShare>,
}

/// The state of catching up from history.
struct Behind {
    devices: Followed,
    /// The tenant of the devices, and its number of departures when they were listed.
    tenant: OrganizationId,
    moves: u64,
    /// True if a device has left its organization since: the place of each event's device is checked.
    has_moved: bool,
    /// The found positions that are not read yet; `None` while there is a search to do.
    stretch: Option<StreamCursor>,
}

impl Tail {
    /// Returns the next event, or a piece of past events; `None` when the hub stops.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.on_its_way = None;
        loop {
            // Checked each time, because the caller's credential and its reach may have ended while this waited.
            let caller = self.caller().await?;
            if let Some(text) = self.place_due()? {
                return Ok(Some(text));
            }
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
                        // The event is read from history when there is room for it: until then none of its memory is
                        // used.
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

    /// Writes the identifier of the stream's place, if it is due.
    fn place_due(&mut self) -> Result<Option<Bytes>> {
        let is_live = self.behind.is_none() && self.after >= self.until;
        let Some(at) = self.identified.take_due(self.hub.now(), is_live) else { return Ok(None) };
        let mut text = Vec::new();
        (self.write.id)(&self.hub.resume_id(at, self.after)?, &mut text);
        Ok(Some(text.into()).filter(|text: &Bytes| !text.is_empty()))
    }

    /// Writes the next changed alarm of the subject that has arrived meanwhile.
    ///
    /// # Errors
    /// `Busy`: some changes were lost. The client must list the alarms.
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

    /// Writes an alarm, if it belongs to the subject and the caller may see it.
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

    /// Follows again from now on; missed events are read from history.
    fn follow_anew(&mut self) {
        let Following { from, messages } = self.hub.telemetry().follow();
        (self.until, self.messages) = (from, messages);
    }

    /// Waits for a while. Returns true if the hub stops.
    async fn pause(&mut self) -> bool {
        self.hub.0.env.clock().timeout(HISTORY_LOOK_EVERY, stopped(&mut self.stop)).await.is_ok()
    }

    /// Returns the caller as it is now, if it may still follow.
    async fn caller(&self) -> Result<Arc<Caller>> {
        let (caller, _) = self.hub.0.identity.bearer(&self.credential).await?;
        self.hub.allow_listening(&caller, self.listens).await?;
        Ok(caller)
    }

    /// Reserves memory of the tenant; small events need none. Returns [`Error::Busy`] if none is left for now.
    fn hold(&self, caller: &Caller, bytes: usize) -> Result<Option<TenantShare>> {
        if bytes <= LARGE_BYTES {
            return Ok(None);
        }
        Ok(Some(self.hub.0.stream_bytes.take(caller.lineage.top(), bytes)?))
    }

    /// Continues to catch up.
    async fn catch_up(&mut self, caller: &Arc<Caller>) -> Result<CaughtUp> {
        // Each stream waits for a slot, whatever their number, and uses no memory meanwhile.
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

    /// Returns true if a device is still part of the subject.
    async fn is_heard_now(&self, caller: &Caller, device: DeviceId) -> Result<bool> {
        let Some(entry) = self.hub.0.caches.device_entry(device).await? else { return Ok(false) };
        let is_there = match self.listens {
            Listens::Device(_) => true,
            Listens::Beneath(organization) => entry.lineage.contains(organization),
        };
        Ok(is_there && caller.reaches(&entry.lineage))
    }

    /// Searches history for the next events; the first time it lists the devices.
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

    /// Reads a piece of the found events, if there is memory for it.
    async fn read(&mut self, caller: &Caller, claim: Claim) -> Result<CaughtUp> {
        let (hub, tenant) = (&self.hub, caller.lineage.top());
        let Ok(mut room) = hub.0.stream_bytes.take(tenant, STREAM_PIECE_BYTES) else { return Ok(CaughtUp::NoRoom) };
        let Some(behind) = &mut self.behind else { return Ok(CaughtUp::Further) };
        let Some(stretch) = &mut behind.stretch else { return Ok(CaughtUp::Further) };
        let piece = hub.telemetry().history_next(stretch, (STREAM_PIECE_BYTES, self.write.event), claim).await?;
        if piece.text.len() > STREAM_PIECE_BYTES + LARGE_BYTES {
            // A single large event.
            drop(room);
            let Ok(larger) = hub.0.stream_bytes.take(tenant, piece.text.len()) else {
                // The event is searched for again.
                behind.stretch = None;
                return Ok(CaughtUp::NoRoom);
            };
            room = larger;
        }
        let Some(last) = piece.events.last().map(|event| event.position) else { return Ok(CaughtUp::Further) };
        // The credential may have ended while this waited for the slot.
        let caller = self.caller().await?;
        let text = if self.has_moved() { self.heard_of(&caller, &piece).await? } else { piece.text };
        self.after = last;
        if text.is_empty() {
            return Ok(CaughtUp::Further);
        }
        self.on_its_way = Some(room);
        Ok(CaughtUp::Piece(text))
    }

    /// Returns true if a found event may belong to a device that has moved out of reach; the caller must not await
    /// between this and its use. Found events are not discarded: if devices move all the time, no event would ever be
    /// sent.
    fn has_moved(&mut self) -> bool {
        let Some(behind) = &mut self.behind else { return false };
        behind.has_moved |= self.hub.0.caches.departures().count(behind.tenant) != behind.moves;
        behind.has_moved
    }

    /// Returns a piece without the events of devices that have left the subject.
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

/// The progress of catching up.
enum CaughtUp {
    /// The next events, as text.
    Piece(Bytes),
    /// There may be more events.
    Further,
    /// The tenant's streams use all the memory they may.
    NoRoom,
}
