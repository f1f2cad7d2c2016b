//! What one turn of a device commits, from its beginning to the commit that goes into the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_design::{DeviceView, Plan};
use isobar_model::event::{Event, EventError, EventType};
use isobar_model::ids::EventId;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{Commit, Memory, NewEvent, StreamedEvents};

use super::Ingest;
use super::device_event::{Incoming, RunSignal, remembered};
use super::effects::{add_left_out, change_view, hold_to_series};
use crate::cache::entries::{DeviceEntry, EntryState};
use crate::cache::held::InRun;
use crate::cache::shared_entries::SharedEntry as _;
use crate::metering::usage::hold_to_quota;
use crate::outbox::{RegistryWork, Staged};
use crate::support::scope_guard::ScopeGuard;

/// What the runs of one turn have caused so far. It is built while the device is locked.
pub(super) struct RunCommit<'a> {
    pub entry: &'a Arc<DeviceEntry>,
    /// What the runs go by, even if it is let go meanwhile.
    pub plan: Arc<Plan>,
    before: EntryState,
    /// As long as this lasts the entry does not have to make room for others.
    in_run: InRun<'a, DeviceView>,
    pub commit: Commit,
    /// What the registry must learn.
    pub work: RegistryWork,
}

/// What a turn has come to, besides its commit.
#[derive(Default)]
pub(super) struct RunReport {
    pub id: Option<EventId>,
    /// Cloud events were queued.
    pub queued: bool,
    /// The runs went by an outdated entry, and left nothing.
    pub outdated: bool,
    /// The outbox has no room for what the runs would leave: they left nothing.
    pub refused: bool,
    /// Bytes that were committed for which all who write wait.
    pub bytes: usize,
    /// The run takes too long for a thread that serves calls, or leaves too much: it has left nothing.
    pub too_long: bool,
}

impl RunReport {
    /// The entry is outdated: nothing is committed.
    pub fn outdated(&mut self) -> Commit {
        *self = Self { outdated: true, ..Self::default() };
        Commit::default()
    }

    /// The run is to be made anew where it holds up nobody: nothing is committed.
    pub fn too_long(&mut self) -> Commit {
        *self = Self { too_long: true, ..Self::default() };
        Commit::default()
    }

    /// Tells whoever waits for it that the event has run, if it has left anything.
    pub fn tell(&self, ran: Option<&RunSignal>) {
        if !self.outdated
            && !self.refused
            && let Some(ran) = ran.and_then(|ran| ran.lock().take())
        {
            // Nobody waits for the last one.
            let _ = ran.send(());
        }
    }
}

impl<'a> RunCommit<'a> {
    /// A turn of the device begins. None: the entry is outdated.
    pub fn new(entry: &'a Arc<DeviceEntry>, now: Timestamp) -> Option<Self> {
        if !entry.is_current() {
            return None;
        }
        let plan = entry.plan()?;
        let (view, in_run) = entry.begin_run()?;
        let before = entry.state(view);
        Some(Self {
            entry,
            plan,
            before,
            in_run,
            commit: Commit::default(),
            work: RegistryWork::of(entry.device.id, now),
        })
    }

    /// A turn of the device begins for an event, and the device as its design sees it. Any event ends `missing` and gives
    /// back the status before it (contract: The project design). None: the entry is outdated.
    pub fn of_event(entry: &'a Arc<DeviceEntry>, now: Timestamp) -> Option<(Self, Arc<DeviceView>)> {
        let mut run = Self::new(entry, now)?;
        let view = run.before.view();
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

    /// The device as the turn has left it so far.
    pub fn view(&self) -> Arc<DeviceView> {
        // An entry keeps what it says as long as a run goes by it.
        self.entry.view().unwrap_or_else(|| self.before.view())
    }

    /// The turn comes to nothing: the entry says again what it said before.
    pub fn give_up(self) {
        self.entry.restore(self.before);
    }

    /// The event goes into history, before whatever it causes.
    pub fn add_event(&mut self, id: EventId, event: &Incoming<'_>) {
        self.commit.history.push(NewEvent {
            id,
            kind: EventType::DeviceEvent,
            element: Arc::clone(&event.element),
            payload: event.payload.clone(),
            errors: Vec::new(),
        });
        self.commit.idempotency = event.idempotency_key.map(|key| remembered(key, id, event.now));
    }

    /// Adds an event that was refused to history, with the reason.
    pub fn add_refused(&mut self, id: EventId, event: &Incoming<'_>, why: &str) {
        self.add_event(id, event);
        self.add_errors(vec![EventError { element: String::new(), message: why.to_owned() }]);
    }

    /// What went wrong in the run of the event.
    pub fn add_errors(&mut self, errors: Vec<EventError>) {
        if let Some(event) = self.commit.history.first_mut() {
            event.errors = errors;
        }
    }
}

impl Ingest {
    /// What is committed in the end: nothing, if the entry that the runs went by was outdated meanwhile, or the outbox has no
    /// room for what they leave.
    pub(super) fn seal(&self, run: RunCommit<'_>, memory: &dyn Memory, report: &mut RunReport) -> Commit {
        let RunCommit { entry, plan: _, before, in_run: _in_run, mut commit, work } = run;
        hold_to_series(memory, &mut commit);
        let bytes = hold_to_quota(entry, &mut commit);
        add_left_out(memory, &mut commit);
        report.queued = !commit.queue.is_empty();
        if !work.is_empty() {
            let device = (entry.device, entry.lineage.top());
            let (store, now) = (self.env.telemetry(), self.env.now());
            match self.outbox.stage(device, || entry.is_current(), work, store, now) {
                Staged::Goes { outbox, sets_out } => (commit.outbox, commit.sets_out) = (outbox, sets_out),
                Staged::Outdated => return report.outdated(),
                Staged::Full => {
                    entry.restore(before);
                    *report = RunReport { refused: true, ..RunReport::default() };
                    return Commit::default();
                }
            }
            self.env.reaches("hand_over");
        }
        if bytes > 0 {
            self.usage.stores(entry, bytes);
        }
        self.add_followed(entry, &mut commit);
        commit
    }

    /// Adds what event streams are shown of a commit, when there are any.
    pub(super) fn add_followed(&self, entry: &DeviceEntry, commit: &mut Commit) {
        if self.env.telemetry().is_followed() {
            let events = commit.history.iter().map(|event| Arc::new(to_event(entry, event))).collect();
            commit.streamed = Some(Arc::new(StreamedEvents { lineage: Arc::new(entry.lineage.clone()), events }));
        }
    }

    /// Wakes those who wait for what a durable commit has caused. Event streams are told by the store.
    pub(super) fn publish(&self, entry: &DeviceEntry, report: &RunReport) {
        if report.queued {
            self.bells.ring(entry.device.key);
        }
    }

    /// A run that panics may have changed what the entry says of its device, and nothing of it is committed: another entry
    /// is loaded for the next.
    pub(super) fn reload_if_a_run_panics<'a>(&'a self, entry: &'a DeviceEntry) -> ScopeGuard<impl FnOnce() + use<'a>> {
        ScopeGuard::new(move || {
            if std::thread::panicking() {
                self.caches.device_changed(entry.device.id);
            }
        })
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
