//! The effects of the runs of one turn of a device, until they are committed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_design::{DeviceView, Plan};
use isobar_model::error::Error;
use isobar_model::event::{EventError, EventType};
use isobar_model::ids::EventId;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Commit, Durable, NewEvent, Turn};

use super::incoming::{Incoming, remembered};
use crate::cache::Caches;
use crate::cache::entries::{DeviceEntry, EntryState};
use crate::cache::held::InRun;
use crate::env::Env;
use crate::metering::usage::Usage;
use crate::outbox::{RegistryWork, Staging, StagingFailure};

/// The effects of the runs of one turn, collected while the device is locked. If dropped before the commit, it restores
/// the device's entry.
pub(super) struct RunCommit<'a> {
    pub env: &'a Env,
    pub caches: &'a Caches,
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
    /// The registry must have the findings before the turn is acknowledged, because other processes read them there.
    pub reports: bool,
    /// Bytes that were committed for which all who write wait.
    pub bytes: usize,
    pub durable: Durable,
}

/// A turn whose commit may still conflict with another: the device stays locked until its outcome is known, and if it
/// left nothing, the device's entry and the outbox are as before.
pub(super) struct UnsettledTurn {
    pub turn: Turn,
    pub entry: Arc<DeviceEntry>,
    pub before: Option<EntryState>,
    pub staging: Option<Staging>,
    /// Where the stored bytes are counted, and their number.
    pub usage: (Arc<Usage>, u64),
    /// The revision of the device that the commit makes.
    pub revision: u64,
}

impl UnsettledTurn {
    /// Ends the turn: its commit is durable, or has left nothing.
    pub fn settle(self, is_durable: bool) {
        let Self { turn: _turn, entry, before, staging, usage: (usage, stored), revision } = self;
        if !is_durable {
            // The staging is dropped: its work does not come.
            if let Some(before) = before {
                entry.restore(before);
            }
            return;
        }
        entry.reaches(revision);
        if let Some(staging) = staging {
            staging.comes(revision);
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

impl<'a> RunCommit<'a> {
    /// Begins the commit of a turn of a device at this revision. Returns `None` if the entry is outdated.
    pub fn new(
        (env, caches): (&'a Env, &'a Caches),
        (entry, revision): (&'a Arc<DeviceEntry>, u64),
        now: Timestamp,
    ) -> Option<Self> {
        if !entry.is_current() || !entry.is_at(revision) {
            return None;
        }
        let plan = entry.plan()?;
        let (view, in_run) = entry.begin_run()?;
        Some(Self {
            env,
            caches,
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
    pub fn of_event(
        of: (&'a Env, &'a Caches),
        at: (&'a Arc<DeviceEntry>, u64),
        now: Timestamp,
    ) -> Option<(Self, Arc<DeviceView>)> {
        let mut run = Self::new(of, at, now)?;
        let entry = run.entry;
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

    /// Marks the turn as committed: the device's entry keeps what the runs left. Returns its state from before.
    pub fn keep(mut self) -> Option<EntryState> {
        self.before.take()
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

/// Changes a device's view.
pub(super) fn change_view(entry: &DeviceEntry, change: impl FnOnce(&mut DeviceView)) {
    #[cfg(test)]
    CHANGED.set(CHANGED.get() + 1);
    entry.change_view(change);
}

#[cfg(test)]
thread_local! {
    /// Number of changes of a device's view.
    pub(super) static CHANGED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
