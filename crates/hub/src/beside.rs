//! What sets a design off though no event came: an interval that has elapsed, a call that has ended.

use std::sync::Arc;

use isobar_design::Trigger;
use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::json::RawJson;

use crate::Hub;
use crate::entries::DeviceEntry;
use crate::intake::RUNS_MAX;

/// Why a design runs beside its events.
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

impl Hub {
    /// Runs a device's design beside its events, by the entry that is in force; what may take long in its project's turn, on
    /// the threads for that. For a device that is gone nothing happens.
    pub(crate) async fn beside(&self, device: DeviceRef, occasion: Occasion, payload: RawJson) -> Result<()> {
        for _ in 0..RUNS_MAX {
            let Some(entry) = self.device_entry(device.id).await? else { return Ok(()) };
            let ran = if entry.runs_aside(payload.bytes().len()) {
                let (hub, plan) = (self.clone(), Arc::clone(&entry.plan));
                let (occasion, payload) = (occasion.clone(), payload.clone());
                let run = async move { hub.run_beside(device, &entry, &occasion, &payload).await };
                self.0.code.run(&plan.line, run).await??
            } else {
                self.run_beside(device, &entry, &occasion, &payload).await?
            };
            if ran.is_some() {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    async fn run_beside(
        &self,
        device: DeviceRef,
        entry: &Arc<DeviceEntry>,
        occasion: &Occasion,
        payload: &RawJson,
    ) -> Result<Option<EventId>> {
        let pass = access::system(device, "the device's design runs beside its events");
        self.side_run(&pass, entry, occasion.trigger(), payload, |_| Vec::new()).await
    }
}
