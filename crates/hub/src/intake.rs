//! The main road: a device event arrives, its project's design runs, everything it causes is committed at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use isobar_design::{DeviceView, EventView, Trigger};
use isobar_model::access::{Action, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::event::{Event, EventType};
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use isobar_model::json::{Json, RawJson};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{self, Begun, Commit, Idempotency, Memory, NewEvent, Ran, StreamedEvents};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Hub;
use crate::accepted::{Accepted, waits_for_the_disk};
use crate::effects::{change_view, hold_to_series, queue_up, tell_left_out};
use crate::entries::{Before, DeviceEntry};
use crate::event_input::{accepted_name, check_idempotency_key, element_name};
use crate::gate::Principal;
use crate::otherwise::Otherwise;
use crate::outbox::{Left, Work};
use crate::usage::hold_to_quota;

/// How long an idempotency key is remembered, in seconds (contract: Events).
const IDEMPOTENCY_SECONDS: i64 = 24 * 3600;

/// Runs of one event, when its device changes under it again and again.
pub(crate) const RUNS_MAX: usize = 32;

/// An event as it came in.
struct Incoming<'a> {
    element: Arc<str>,
    payload: RawJson,
    idempotency_key: Option<&'a str>,
    now: Timestamp,
    /// Told when the event has run, before it is durable: its device's next one may run.
    ran: Option<RunSignal>,
}

/// Tells once that an event has run; when it is dropped before, that it never will.
pub(crate) type RunSignal = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// What runs leave besides their commit.
#[derive(Default)]
pub(crate) struct Aftermath {
    id: Option<EventId>,
    queued: bool,
    /// The runs went by an entry that no longer holds, and left nothing.
    pub outdated: bool,
    /// The outbox has no room for what the runs would leave: they left nothing.
    pub refused: bool,
}

impl Hub {
    /// Accepts a device event: processed when this returns; durable and in history when what it returns is done.
    pub async fn event_accept(
        &self,
        principal: &Principal,
        device: Option<&str>,
        element: Option<&str>,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<Accepted> {
        let mut faults = Faults::new();
        let target = self.event_device(principal, device, &mut faults).await?;
        let element = element_name(element, &mut faults);
        check_idempotency_key(idempotency_key, &mut faults);
        let read = self.payload_read(principal.lineage(), &body, &mut faults).await?;
        let (Some((payload, mut tree)), Some(element)) = (read, element) else {
            return Err(faults.end().err().unwrap_or(Error::Busy));
        };
        let Some((pass, mut entry)) = target else { return Err(faults.end().err().unwrap_or(Error::Busy)) };
        let now = self.0.clock.now();
        let name = accepted_name(&entry, element, &mut faults);
        faults.end()?;
        let element = name.unwrap_or_else(|| Arc::from(element));
        let event = Incoming { element, payload, idempotency_key, now, ran: None };
        for _ in 0..RUNS_MAX {
            if let Some(accepted) = self.accept(&pass, &entry, &event, tree.take()).await? {
                return Ok(accepted);
            }
            let newer = Box::pin(self.device_entry(entry.device.id)).await?;
            entry = newer.ok_or_else(|| Error::invalid("query.deviceId", "no such device"))?;
            let mut faults = Faults::new();
            accepted_name(&entry, &event.element, &mut faults);
            faults.end()?;
        }
        Err(Error::Busy)
    }

    /// Accepts an event that came by the webhook, as one of a deviceEvent element. `ran` is told when it has run.
    pub(crate) async fn event_integrated(
        &self,
        principal: &Principal,
        device: DeviceId,
        element: &Arc<str>,
        payload: &RawJson,
        ran: RunSignal,
    ) -> Result<EventId> {
        let (element, payload, now) = (Arc::clone(element), payload.clone(), self.0.clock.now());
        let event = Incoming { element, payload, idempotency_key: None, now, ran: Some(ran) };
        for _ in 0..RUNS_MAX {
            let (pass, entry) = self.device_write(principal, device, Action::WebhookReceive).await?;
            if !entry.plan.plan.accepts(&event.element) {
                return Err(Error::invalid("body", "the project's design has changed meanwhile"));
            }
            if let Some(accepted) = self.accept(&pass, &entry, &event, None).await? {
                return accepted.await;
            }
        }
        Err(Error::Busy)
    }

    /// None: the entry no longer holds, and nothing happened. The payload's tree may be there already.
    async fn accept(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
        tree: Option<Json<'_>>,
    ) -> Result<Option<Accepted>> {
        if entry.runs_aside(event.payload.bytes().len()) {
            // A tree takes many times what its text does: it is made again when the event has its turn.
            drop(tree);
            return Box::pin(self.accept_aside(pass, entry, event)).await;
        }
        let tree = tree.unwrap_or_else(|| event.payload.tree());
        self.accept_here(pass, entry, event, &tree).await
    }

    /// The same, on the threads for what takes long, when it is the event's turn in its project's line.
    async fn accept_aside(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
    ) -> Result<Option<Accepted>> {
        let (hub, pass, plan, entry) = (self.clone(), pass.clone(), &entry.plan, Arc::clone(entry));
        let (element, payload, now) = (Arc::clone(&event.element), event.payload.clone(), event.now);
        let (key, ran) = (event.idempotency_key.map(str::to_owned), event.ran.clone());
        let accepted = async move {
            let _place = hub.0.code.place(&entry.plan.plan).await?;
            let kept = payload.clone();
            let event = Incoming { element, payload, idempotency_key: key.as_deref(), now, ran };
            hub.accept_here(&pass, &entry, &event, &kept.tree()).await
        };
        self.0.code.run_and_wait(&plan.line, accepted, waits_for_the_disk).await?
    }

    async fn accept_here(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
        tree: &Json<'_>,
    ) -> Result<Option<Accepted>> {
        let mut after = Aftermath::default();
        let half_changed = self.if_a_run_panics(entry);
        let mut work = |memory: &dyn Memory| self.process(entry, (event, tree), memory, &mut after);
        let begun = telemetry::begin(&*self.0.telemetry, pass, event.idempotency_key, event.now, &mut work).await;
        half_changed.call_off();
        match begun.map_err(crate::error::from_store)? {
            Begun::Repeated(first) => {
                self.0.activity.device(entry, event.now);
                Ok(Some(Accepted::before(first)))
            }
            Begun::Committed { .. } if after.outdated => Ok(None),
            Begun::Committed { .. } if after.refused => Err(Error::Busy),
            Begun::Committed { durable, .. } => {
                let id = after.id.ok_or_else(|| Error::internal("a run was committed that never ran"))?;
                Ok(Some(Accepted::now(id, self, entry, event.now, after, durable)))
            }
        }
    }

    /// A run that panics may have changed what the entry says of its device, and nothing of it is committed: another entry
    /// is loaded for the next.
    pub(crate) fn if_a_run_panics<'a>(&'a self, entry: &'a DeviceEntry) -> Otherwise<impl FnOnce() + use<'a>> {
        Otherwise::new(move || {
            if std::thread::panicking() {
                self.device_changed(entry.device.id);
            }
        })
    }

    /// Runs the design on the event and gathers what must be written. The device's runs are serialised here, so ids
    /// grow and what expressions see is what the run before has left.
    fn process(
        &self,
        entry: &Arc<DeviceEntry>,
        (event, tree): (&Incoming<'_>, &Json<'_>),
        memory: &dyn Memory,
        after: &mut Aftermath,
    ) -> Commit {
        if !entry.fresh() {
            after.outdated = true;
            return Commit::default();
        }
        let id = self.new_id();
        let mut work = Work::of(entry.device.id, event.now);
        let found = Arc::clone(&entry.view.lock());
        let before = entry.before(Arc::clone(&found));
        entry.heard.store(event.now.millis(), Ordering::Relaxed);
        let view = if found.status == Status::Missing { heard_again(entry, &mut work) } else { found };
        let seen =
            EventView { id, element: &event.element, received_at: id.minted_at(), payload: &event.payload, tree };
        let trigger = Trigger::DeviceEvent { element: &event.element };
        let outcome = self.0.code.carry(&entry.plan.plan, trigger, &seen, &view, &Remembered(memory));
        entry.note_run(outcome.units);
        let mut commit = Commit::default();
        commit.history.push(NewEvent {
            id,
            kind: EventType::DeviceEvent,
            element: Arc::clone(&event.element),
            payload: event.payload.clone(),
            errors: Vec::new(),
        });
        commit.idempotency = event.idempotency_key.map(|key| Idempotency {
            key: key.to_owned(),
            answer: id,
            expires_at: event.now.plus_seconds(IDEMPOTENCY_SECONDS),
        });
        if entry.plan.plan.runs_code() {
            self.0.code.note(outcome.engines);
        }
        self.carry_out(entry, id, outcome.effects, &mut commit, &mut work);
        if let Some(event) = commit.history.first_mut() {
            event.errors = outcome.errors;
        }
        after.id = Some(id);
        let commit = self.hand_over(entry, before, memory, commit, work, after);
        if !after.outdated
            && !after.refused
            && let Some(ran) = event.ran.as_ref().and_then(|ran| ran.lock().take())
        {
            // Nobody waits for the last one.
            let _ = ran.send(());
        }
        commit
    }

    /// What is committed in the end: nothing, if the entry that the runs went by was overtaken, or the outbox has no room
    /// for what they leave.
    pub(crate) fn hand_over(
        &self,
        entry: &Arc<DeviceEntry>,
        before: Before,
        memory: &dyn Memory,
        mut commit: Commit,
        work: Work,
        after: &mut Aftermath,
    ) -> Commit {
        hold_to_series(memory, &mut commit);
        let bytes = hold_to_quota(entry, &mut commit);
        tell_left_out(memory, &mut commit);
        after.queued = !commit.queue.is_empty();
        if !work.is_empty() {
            match self.0.outbox.leave(entry, work, &*self.0.telemetry, self.0.clock.now()) {
                Left::Goes { outbox, sets_out } => (commit.outbox, commit.sets_out) = (outbox, sets_out),
                Left::Outdated => {
                    *after = Aftermath { outdated: true, ..Aftermath::default() };
                    return Commit::default();
                }
                Left::Full => {
                    entry.put_back(before);
                    *after = Aftermath { refused: true, ..Aftermath::default() };
                    return Commit::default();
                }
            }
            self.reaches("hand_over");
        }
        if bytes > 0 {
            self.0.usage.stores(entry, bytes);
        }
        self.show(entry, &mut commit);
        commit
    }

    /// What event streams are shown of a commit, when there are any.
    fn show(&self, entry: &DeviceEntry, commit: &mut Commit) {
        if self.0.telemetry.is_followed() {
            let events = commit.history.iter().map(|event| Arc::new(shown(entry, event))).collect();
            commit.streamed = Some(Arc::new(StreamedEvents { lineage: Arc::new(entry.lineage.clone()), events }));
        }
    }

    /// Tells who waits for what a commit has caused. Event streams are told by the store.
    pub(crate) fn tell(&self, entry: &DeviceEntry, after: &Aftermath) {
        if after.queued {
            self.0.live.ring(entry.device.key);
        }
    }

    /// Queues a cloud event that somebody sends through the API. None: the entry no longer holds, and nothing happened.
    pub(crate) async fn queue_cloud_event(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        element: &str,
        payload: RawJson,
        idempotency_key: Option<&str>,
    ) -> Result<Option<EventId>> {
        let now = self.0.clock.now();
        let mut after = Aftermath { queued: true, ..Aftermath::default() };
        let mut work = |_: &dyn Memory| {
            // In its turn: what comes after this and before the device is forgotten goes with it.
            if !entry.fresh() {
                after.outdated = true;
                return Commit::default();
            }
            let mut commit = Commit::default();
            let cloud_event = self.new_cloud_event(Arc::from(element), payload.clone(), None);
            let id = cloud_event.id;
            queue_up(cloud_event, &mut commit);
            commit.idempotency = idempotency_key.map(|key| Idempotency {
                key: key.to_owned(),
                answer: id,
                expires_at: now.plus_seconds(IDEMPOTENCY_SECONDS),
            });
            after.id = Some(id);
            self.show(entry, &mut commit);
            commit
        };
        let ran = self.0.telemetry.run(pass, idempotency_key, now, &mut work).await;
        match ran.map_err(crate::error::from_store)? {
            Ran::Repeated(first) => Ok(Some(first)),
            Ran::Committed { .. } if after.outdated => Ok(None),
            Ran::Committed { .. } => {
                self.tell(entry, &after);
                Ok(after.id)
            }
        }
    }
}

fn shown(entry: &DeviceEntry, event: &NewEvent) -> Event {
    Event {
        id: event.id,
        kind: event.kind,
        device: entry.device.id,
        element: Arc::clone(&event.element),
        payload: event.payload.clone(),
        errors: event.errors.clone(),
    }
}

/// Any event ends `missing` and gives back the status before it (contract: The project design).
fn heard_again(entry: &DeviceEntry, work: &mut Work) -> Arc<DeviceView> {
    let number = entry.before_missing.load(Ordering::Relaxed);
    let status = Status::numbered(number.into()).unwrap_or_default();
    work.status = Some(status.number());
    change_view(entry, |view| view.status = status);
    Arc::clone(&entry.view.lock())
}

/// What earlier runs left, as the design asks for it.
pub(crate) struct Remembered<'a>(pub &'a dyn Memory);

impl isobar_design::Memory for Remembered<'_> {
    fn last(&self, element: &str) -> Option<RawJson> {
        self.0.last(element).map(|kept| kept.values())
    }

    fn last_bytes(&self, element: &str) -> usize {
        self.0.last_bytes(element)
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        self.0.state(element)
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        self.0.states()
    }

    fn states_bytes(&self) -> usize {
        self.0.states_bytes()
    }
}
