//! Runs of a design that no event has caused: an interval has elapsed, a call has ended.

use std::sync::Arc;

use isobar_design::Trigger;
use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;
use isobar_model::json::RawJson;

use super::design_runs::RunsEstimate;
use super::{Ingest, RUNS_MAX};
use crate::cache::entries::DeviceEntry;

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
    /// Runs a device's design by its installed entry; what may take long on the threads for that, when it is its turn in its
    /// project's queue. What it causes is durable when this returns. For a device that was deleted nothing happens.
    pub(crate) async fn run_design(
        self: &Arc<Self>,
        device: DeviceRef,
        occasion: Occasion,
        payload: RawJson,
    ) -> Result<()> {
        for _ in 0..RUNS_MAX {
            let Some(entry) = self.caches.device_entry(device.id).await? else { return Ok(()) };
            let ran = if entry.runs_aside(payload.bytes().len()) {
                let (ingest, plan) = (Arc::clone(self), Arc::clone(&entry.plan));
                let held = entry.held_by_run(payload.bytes().len());
                let (occasion, payload) = (occasion.clone(), payload.clone());
                let run = async move { ingest.run_design_here(device, &entry, &occasion, &payload).await };
                self.code.run(&plan.queue, held, run).await??
            } else {
                self.run_design_here(device, &entry, &occasion, &payload).await?
            };
            if ran.is_some() {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    async fn run_design_here(
        &self,
        device: DeviceRef,
        entry: &Arc<DeviceEntry>,
        occasion: &Occasion,
        payload: &RawJson,
    ) -> Result<Option<()>> {
        let permit = access::system(device, "the device's design runs beside its events").charged_to(&entry.lineage);
        let estimate = entry.plan().map(|plan| RunsEstimate::of_run(&plan, payload.bytes().len()));
        let Some(estimate) = estimate else { return Ok(None) };
        self.design_runs(&permit, entry, estimate, |runs| {
            let id = runs.mint();
            runs.run(id, occasion.trigger(), payload);
        })
        .await
    }
}
