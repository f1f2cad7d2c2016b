//! The commit of one turn of a device, from its begin to the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_design::{DeviceView, Plan};
use isobar_model::error::Error;
use isobar_model::event::{Event, EventError, EventType};
use isobar_model::ids::EventId;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Commit, Committed, Durable, NewEvent, OutboxChange, StreamedEvents, Turn};

use super::Ingest;
use super::device_event::{Incoming, RunSignal, remembered};
use super::effects::{add_left_out, change_view, hold_to_series};
use crate::cache::entries::{DeviceEntry, EntryState};
use crate::cache::held::InRun;
use crate::cache::shared_entries::SharedEntry as _;
use crate::metering::usage::{Usage, hold_to_quota};
use crate::outbox::{RegistryWork, Staging, StagingFailure};

/// The effects of the runs of one turn, collected while the device is locked. If dropped before the commit, it restores
/// the device's entry.
pub(super) struct RunCommit<'a> {
    pub entry: &'a Arc<DeviceEntry>,
    /// The plan that the runs use, even if it is replaced meanwhile.
    pub plan: Arc<Plan>,
    /// `None` once it is committed.
    before: Option<EntryState>,
    /// The device before the turn.
    seen: Arc<DeviceView>,
    /// Protects the entry from eviction.
    _in_run: InRun<'a, DeviceView>,
    pub commit: Commit,
    /// Findings for the registry.
    pub work: RegistryWork,
}

/// A turn's commit, which is not durable yet.
pub(super) struct PendingTurn {
    /// Cloud events were queued.
    pub queued: bool,
    /// Bytes that were committed for which all who write wait.
    pub bytes: usize,
    pub durable: Durable,
}

/// A turn whose commit may still conflict with another: the device stays locked until its outcome is known, and if it
/// left nothing, the device's entry and the outbox are as before.
struct UnsettledTurn {
    _turn: Turn,
    entry: Arc<DeviceEntry>,
    before: Option<EntryState>,
    staging: Option<Staging>,
    /// Where the stored bytes are counted, and their number.
    usage: (Arc<Usage>, u64),
}

impl UnsettledTurn {
    fn settle(self, is_durable: bool) {
        let Self { _turn, entry, before, staging, usage: (usage, stored) } = self;
        if !is_durable {
            // The staging is dropped: its work does not come.
            if let Some(before) = before {
                entry.restore(before);
            }
            return;
        }
        if let Some(staging) = staging {
            staging.comes();
        }
        if stored > 0 {
            usage.stores(&entry, stored);
        }
    }
}

/// The reason for which a turn left nothing.
pub(super) enum TurnFailure {
    /// The runs used an outdated entry.
    Outdated,
    /// Another commit was first: the runs are repeated on a new turn.
    Conflict,
    /// The turn is not repeated.
    Failed(Error),
}

impl From<StoreError> for TurnFailure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict => Self::Conflict,
            error => Self::Failed(error.into()),
        }
    }
}

impl From<StagingFailure> for TurnFailure {
    fn from(failure: StagingFailure) -> Self {
        match failure {
            StagingFailure::Outdated => Self::Outdated,
            StagingFailure::Full => Self::Failed(Error::Busy),
        }
    }
}

/// Signals that the event has run.
pub(super) fn tell(ran: &RunSignal) {
    if let Some(ran) = ran.lock().take() {
        // Nobody waits for the last one.
        let _ = ran.send(());
    }
}

impl<'a> RunCommit<'a> {
    /// Begins the commit of a turn. Returns `None` if the entry is outdated.
    pub fn new(entry: &'a Arc<DeviceEntry>, now: Timestamp) -> Option<Self> {
        if !entry.is_current() {
            return None;
        }
        let plan = entry.plan()?;
        let (view, in_run) = entry.begin_run()?;
        Some(Self {
            entry,
            plan,
            before: Some(entry.state(Arc::clone(&view))),
            seen: view,
            _in_run: in_run,
            commit: Commit::default(),
            work: RegistryWork::of(entry.device.id, now),
        })
    }

    /// Begins the commit of an event's turn; also returns the device as its design sees it. Any event ends `missing` and
    /// restores the status before it (contract: The project design). Returns `None` if the entry is outdated.
    pub fn of_event(entry: &'a Arc<DeviceEntry>, now: Timestamp) -> Option<(Self, Arc<DeviceView>)> {
        let mut run = Self::new(entry, now)?;
        let view = Arc::clone(&run.seen);
        entry.heard.store(now.millis(), Ordering::Relaxed);
        if view.status != Status::Missing {
            return Some((run, view));
        }
        let number = entry.before_missing.load(Ordering::Relaxed);
        let status = Status::numbered(number.into()).unwrap_or_default();
        run.work.status = Some(status.number());
        change_view(entry, |view| view.status = status);
        let view = run.view();
        Some((run, view))
    }

    /// Returns the device in the state that the turn has left so far.
    pub fn view(&self) -> Arc<DeviceView> {
        // An entry keeps its view as long as a run uses it.
        self.entry.view().unwrap_or_else(|| Arc::clone(&self.seen))
    }

    /// Adds the event to history, before its effects.
    pub fn add_event(&mut self, id: EventId, event: &Incoming<'_>) {
        self.commit.history.push(NewEvent {
            id,
            kind: EventType::DeviceEvent,
            element: Arc::clone(&event.element),
            payload: event.payload.clone(),
            errors: Vec::new(),
        });
        self.commit.idempotency = event.idempotency_key.as_deref().map(|key| remembered(key, id, event.now));
    }

    /// Adds an event that was refused to history, with the reason.
    pub fn add_refused(&mut self, id: EventId, event: &Incoming<'_>, why: &str) {
        self.add_event(id, event);
        self.add_errors(vec![EventError { element: String::new(), message: why.to_owned() }]);
    }

    /// Adds the errors of the event's run.
    pub fn add_errors(&mut self, errors: Vec<EventError>) {
        if let Some(event) = self.commit.history.first_mut() {
            event.errors = errors;
        }
    }
}

impl Drop for RunCommit<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.entry.restore(before);
        }
    }
}

impl Ingest {
    /// Commits the effects of a turn's runs, or nothing if their entry is outdated by now, or the outbox is full. Ends the
    /// turn, unless its commit may still conflict with another.
    pub(super) fn commit(&self, mut run: RunCommit<'_>, mut turn: Turn) -> Result<PendingTurn, TurnFailure> {
        let mut commit = std::mem::take(&mut run.commit);
        hold_to_series(turn.memory(), &mut commit);
        let stored = hold_to_quota(run.entry, &mut commit);
        add_left_out(turn.memory(), &mut commit);
        let staging = match self.stage(&mut run)? {
            Some((outbox, staging)) => {
                commit.outbox = outbox;
                Some(staging)
            }
            None => None,
        };
        self.add_followed(run.entry, &mut commit);
        let queued = !commit.queue.is_empty();
        let Committed { bytes, durable, .. } = turn.commit(commit)?;
        // The device is still locked: its next turn sees all of this.
        let before = run.before.take();
        if durable.may_conflict() {
            let settles = (Arc::clone(&self.usage), stored);
            let unsettled =
                UnsettledTurn { _turn: turn, entry: Arc::clone(run.entry), before, staging, usage: settles };
            durable.settle_with(move |is_durable| unsettled.settle(is_durable));
            return Ok(PendingTurn { queued, bytes, durable });
        }
        if let Some(staging) = staging {
            staging.comes();
        }
        if stored > 0 {
            self.usage.stores(run.entry, stored);
        }
        Ok(PendingTurn { queued, bytes, durable })
    }

    /// Stages the findings for the registry in the outbox, if there are any; returns its changes for the commit.
    fn stage(&self, run: &mut RunCommit<'_>) -> Result<Option<(Vec<OutboxChange>, Staging)>, TurnFailure> {
        if run.work.is_empty() {
            return Ok(None);
        }
        let (entry, work) = (run.entry, std::mem::take(&mut run.work));
        let device = (entry.device, entry.lineage.top());
        let (store, now) = (self.env.telemetry(), self.env.now());
        let staged = self.outbox.stage(device, || entry.is_current(), work, store, now)?;
        self.env.reaches("hand_over");
        Ok(Some(staged))
    }

    /// Adds the events that streams show of a commit, if there are streams.
    pub(super) fn add_followed(&self, entry: &DeviceEntry, commit: &mut Commit) {
        if self.env.telemetry().is_followed() {
            let events = commit.history.iter().map(|event| Arc::new(to_event(entry, event))).collect();
            commit.streamed = Some(Arc::new(StreamedEvents { lineage: Arc::new(entry.lineage.clone()), events }));
        }
    }

    /// Wakes long polls after a durable commit. The store notifies event streams.
    pub(super) fn publish(&self, entry: &DeviceEntry, queued: bool) {
        if queued {
            self.bells.ring(entry.device.key);
        }
    }
}

fn to_event(entry: &DeviceEntry, event: &NewEvent) -> Event {
    Event {
        id: event.id,
        received_at: event.id.minted_at(),
        kind: event.kind,
        device: entry.device.id,
        element: Arc::clone(&event.element),
        payload: event.payload.clone(),
        errors: event.errors.clone(),
    }
}
