//! Runs of a design that no event has caused: an interval has elapsed, a call has ended.

use std::sync::Arc;

use isobar_design::Trigger;
use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;
use isobar_model::json::RawJson;

use super::design_runs::{DesignRuns, RunsEstimate, RunsOutcome, WantedRuns};
use super::{Ingest, LinePlace, RUNS_MAX};
use crate::cache::entries::DeviceEntry;
use crate::designs::Admission;

/// The cause of a run without an event.
#[derive(Clone)]
pub(crate) enum Occasion {
    /// An interval of the device has elapsed.
    Elapsed { element: String },
    /// A call has ended.
    Answered { element: String, response: bool },
}

impl Occasion {
    fn trigger(&self) -> Trigger<'_> {
        match self {
            Occasion::Elapsed { element } => Trigger::Elapsed { element },
            Occasion::Answered { element, response } => Trigger::Answered { element, response: *response },
        }
    }
}

impl Ingest {
    /// Runs a device's design by its installed entry, once for a key if there is one. All effects are durable when this
    /// returns. For a device that was deleted nothing happens.
    ///
    /// # Errors
    /// `Busy` if the run is long and too many wait or hold as much memory as they may, or if the outbox is full.
    pub(crate) async fn run_design(
        self: &Arc<Self>,
        device: DeviceRef,
        occasion: Occasion,
        payload: RawJson,
        key: Option<String>,
    ) -> Result<()> {
        let mut place = LinePlace::default();
        for _ in 0..RUNS_MAX {
            let Some(entry) = self.caches.device_entry(device.id).await? else { return Ok(()) };
            if self.run_design_by(&entry, (&occasion, key.as_deref()), &payload, &mut place).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    async fn run_design_by(
        self: &Arc<Self>,
        entry: &Arc<DeviceEntry>,
        (occasion, key): (&Occasion, Option<&str>),
        payload: &RawJson,
        place: &mut LinePlace,
    ) -> Result<Option<()>> {
        let permit =
            access::system(entry.device, "the device's design runs beside its events").charged_to(&entry.lineage);
        let estimate = entry.plan().map(|plan| RunsEstimate::of_run(&plan, payload.bytes().len()));
        let Some(estimate) = estimate else { return Ok(None) };
        let _held = self.designs.hold(entry.held_by_run(payload.bytes().len()))?;
        let (occasion, payload) = (occasion.clone(), payload.clone());
        let run = move |runs: &mut DesignRuns<'_>| {
            let id = runs.mint();
            runs.run(id, occasion.trigger(), &payload);
        };
        let wanted = WantedRuns { admission: Admission::New, estimate, key, place };
        Ok(match self.design_runs_once(&permit, entry, wanted, run).await? {
            RunsOutcome::Done(()) | RunsOutcome::Repeated => Some(()),
            RunsOutcome::Outdated => None,
        })
    }
}
