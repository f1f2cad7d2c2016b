//! The commit of a turn of a device, and what others hear of it.

use std::sync::Arc;

use isobar_model::error::Error;
use isobar_model::event::Event;
use isobar_store::telemetry::{Commit, Committed, NewEvent, OutboxChange, StreamedEvents, Turn};

use super::effects::{add_left_out, hold_to_series};
use super::queue_bells::QueueBells;
use super::run_commit::{PendingTurn, RunCommit, TurnFailure, UnsettledTurn};
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::metering::usage::{Usage, hold_to_quota};
use crate::outbox::{Outbox, Staging};

/// Commits turns of devices, and tells of them.
pub(super) struct Committer {
    env: Arc<Env>,
    outbox: Arc<Outbox>,
    usage: Arc<Usage>,
    pub bells: QueueBells,
}

impl Committer {
    pub fn new(env: Arc<Env>, outbox: Arc<Outbox>, usage: Arc<Usage>) -> Self {
        Self { env, outbox, usage, bells: QueueBells::new() }
    }

    /// Commits the effects of a turn's runs, or nothing if their entry is outdated by now, or the outbox is full. Ends the
    /// turn, unless its commit may still conflict with another.
    pub fn commit(&self, mut run: RunCommit<'_>, mut turn: Turn) -> Result<PendingTurn, TurnFailure> {
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
        let entry = run.entry;
        let before = run.keep();
        if durable.may_conflict() {
            let (usage, revision, reports) =
                ((Arc::clone(&self.usage), stored), turn.memory().revision(), staging.is_some());
            let unsettled = UnsettledTurn { turn, entry: Arc::clone(entry), before, staging, usage, revision };
            durable.settle_with(move |is_durable| unsettled.settle(is_durable));
            return Ok(PendingTurn { queued, reports, bytes, durable });
        }
        if let Some(staging) = staging {
            staging.comes(0);
        }
        if stored > 0 {
            self.usage.stores(entry, stored);
        }
        Ok(PendingTurn { queued, reports: false, bytes, durable })
    }

    /// Waits until a durable turn may be acknowledged: where other processes serve too, until the registry has its findings.
    ///
    /// # Errors
    /// `Busy` if that takes too long: the turn is done nevertheless.
    pub async fn reported(&self, entry: &DeviceEntry, turn: &PendingTurn) -> isobar_model::error::Result<()> {
        match !turn.reports || self.outbox.findings_visible(self.env.telemetry(), entry.device.key).await? {
            true => Ok(()),
            false => Err(Error::Busy),
        }
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
    pub fn add_followed(&self, entry: &DeviceEntry, commit: &mut Commit) {
        if self.env.telemetry().is_followed() {
            let events = commit.history.iter().map(|event| Arc::new(to_event(entry, event))).collect();
            commit.streamed = Some(Arc::new(StreamedEvents { lineage: Arc::new(entry.lineage.clone()), events }));
        }
    }

    /// Wakes long polls after a durable commit. The store notifies event streams.
    pub fn publish(&self, entry: &DeviceEntry, queued: bool) {
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
