//! The events of a delivery: devices side by side, the events of each in the order of the body.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use isobar_design::Integration;
use isobar_model::access::Action;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::json::RawJson;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{GONE, TaskReport, Work};
use crate::Hub;
use crate::gate::Principal;

/// Devices of a delivery whose events run at a time.
const DEVICES_AT_ONCE: usize = 64;
/// Events of one device that are under way at a time: they run one after the other, and become durable together.
const EVENTS_AT_ONCE: usize = 16;

/// What came of a task, and whether a store was unavailable for part of it.
struct Ran {
    report: TaskReport,
    unavailable: bool,
}

impl Hub {
    /// Runs the events of all tasks. When the stores took nothing at all the delivery is refused, so that it comes again.
    pub(super) async fn run_all(
        &self,
        principal: &Principal,
        integration: Integration,
        work: Vec<Work>,
    ) -> Result<Vec<TaskReport>> {
        let begin = |work| self.run_task(principal, integration, work).boxed();
        let runs: Vec<BoxFuture<'_, Ran>> = work.into_iter().map(begin).collect();
        let ran: Vec<Ran> = stream::iter(runs).buffered(DEVICES_AT_ONCE).collect().await;
        let did_anything = |ran: &Ran| ran.report.provisioned.is_some() || !ran.report.events.is_empty();
        if ran.iter().any(|ran| ran.unavailable) && !ran.iter().any(did_anything) {
            return Err(Error::Busy);
        }
        Ok(ran.into_iter().map(|ran| ran.report).collect())
    }

    async fn run_task(&self, principal: &Principal, integration: Integration, mut work: Work) -> Ran {
        let (mut events, mut unavailable) = (Vec::new(), false);
        if let Some(device) = work.device {
            match self.elements_of(principal, device, integration).await {
                Ok(elements) if elements.is_empty() => {
                    work.fail(&format!(
                        "the design of the device's project has no deviceEvent element of the integration {}",
                        integration.name()
                    ));
                }
                Ok(elements) => {
                    let ran = self.run_events(principal, device, &elements, &work.task.payloads).await;
                    for (index, payload, made) in ran {
                        match made {
                            Ok(id) => events.push((device, id, payload)),
                            Err(error) => {
                                unavailable |= is_ours(&error);
                                work.errors.push(format!("event block {index}: {}", told(&error)));
                            }
                        }
                    }
                }
                Err(error) => {
                    unavailable |= is_ours(&error);
                    work.fail(&told(&error));
                }
            }
        }
        let Work { task, provisioned, errors, .. } = work;
        let payloads = task.payloads.into_iter().map(|(_, payload)| payload).collect();
        let (tag_value, project) = (task.tag_value, task.project);
        Ran { report: TaskReport { tag_value, project, payloads, provisioned, events, errors }, unavailable }
    }

    /// The elements that take the events of an integration type; an empty design takes them under the type's name.
    async fn elements_of(
        &self,
        principal: &Principal,
        device: DeviceId,
        integration: Integration,
    ) -> Result<Vec<Arc<str>>> {
        let (_, entry) = self.device_write(principal, device, Action::WebhookReceive).await?;
        let plan = &entry.plan.plan;
        match plan.is_empty() {
            true => Ok(vec![Arc::from(integration.name())]),
            false => Ok(plan.device_events(integration).cloned().collect()),
        }
    }

    /// Runs every payload through every element. Each waits until the one before it has run, but not until that is
    /// durable; one that fails does not hold up the next.
    async fn run_events(
        &self,
        principal: &Principal,
        device: DeviceId,
        elements: &[Arc<str>],
        payloads: &[(usize, RawJson)],
    ) -> Vec<(usize, RawJson, Result<EventId>)> {
        let mut before: Option<oneshot::Receiver<()>> = None;
        let all = payloads.iter().flat_map(|payload| elements.iter().map(move |element| (payload, element)));
        let mut runs: Vec<BoxFuture<'_, _>> = Vec::with_capacity(payloads.len() * elements.len());
        for ((index, payload), element) in all {
            let (ran, next) = oneshot::channel();
            let turn = before.replace(next);
            let run = async move {
                if let Some(turn) = turn {
                    // Whether it ran or failed, it is out of the way.
                    let _ = turn.await;
                }
                let ran = Arc::new(Mutex::new(Some(ran)));
                let made = self.event_integrated(principal, device, element, payload, ran).await;
                (*index, payload.clone(), made)
            };
            runs.push(run.boxed());
        }
        stream::iter(runs).buffered(EVENTS_AT_ONCE).collect().await
    }
}

/// Whether it is a store's fault, and the same delivery may do better later.
fn is_ours(error: &Error) -> bool {
    matches!(error, Error::Busy | Error::Internal(_))
}

fn told(error: &Error) -> String {
    match error {
        Error::Missing(_) => GONE.to_owned(),
        Error::Invalid(faults) => faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; "),
        Error::Internal(cause) => {
            tracing::error!(error = %cause, "an event of the webhook failed");
            error.to_string()
        }
        other => other.to_string(),
    }
}
