//! Runs the events of a delivery: devices concurrently, the events of each in the order of the body. Events are made
//! one by one as memory allows; other calls have their turn in between.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use isobar_design::{Integration, Plan};
use isobar_model::access::{Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, EventId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::task::Block;
use super::{EventsAmount, GONE, TaskReport, TaskRun, too_many_events};
use crate::Hub;
use crate::error::{OrderedItems, is_ours, of_one_of_many};
use crate::ingest::device_event::IntegratedEvent;
use crate::ingest::incoming::RunSignal;
use crate::support::pace::Pace;

/// Devices of a delivery whose events run at the same time.
const WEBHOOK_DEVICES_AT_ONCE: usize = 64;
/// Concurrent events of one device: they run one after the other, and become durable together.
const WEBHOOK_EVENTS_AT_ONCE: usize = 16;

/// The outcome of a task, and if a store was unavailable for part of it.
struct TaskOutcome {
    report: TaskReport,
    unavailable: bool,
}

/// A delivery whose events are being made.
struct EventRun<'a> {
    hub: &'a Hub,
    caller: &'a Caller,
    integration: Integration,
    pace: Pace,
    /// The events that it has made so far.
    makes: Mutex<EventsAmount>,
}

/// Returns the elements that receive events of an integration type; an empty design receives them under the type's
/// name.
pub(super) fn elements_of(plan: &Plan, integration: Integration) -> Vec<Arc<str>> {
    match plan.is_empty() {
        true => vec![Arc::from(integration.name())],
        false => plan.device_events(integration).cloned().collect(),
    }
}

impl Hub {
    /// Runs the events of all tasks. If the stores accepted nothing at all, the delivery is refused, so that it is sent
    /// again.
    pub(super) async fn run_all(
        &self,
        caller: &Caller,
        integration: Integration,
        work: Vec<TaskRun>,
    ) -> Result<Vec<TaskReport>> {
        let delivery = EventRun { hub: self, caller, integration, pace: Pace::default(), makes: Mutex::default() };
        let (mut work, mut runs, mut ran) = (VecDeque::from(work), FuturesOrdered::new(), Vec::new());
        loop {
            while runs.len() < WEBHOOK_DEVICES_AT_ONCE
                && let Some(next) = work.pop_front()
            {
                runs.push_back(delivery.run_task(next).boxed());
            }
            let Some(next) = runs.next().await else { break };
            ran.push(next);
        }
        let did_anything = |ran: &TaskOutcome| ran.report.provisioned.is_some() || !ran.report.events.is_empty();
        if ran.iter().any(|ran| ran.unavailable) && !ran.iter().any(did_anything) {
            return Err(Error::Busy);
        }
        Ok(ran.into_iter().map(|ran| ran.report).collect())
    }
}

impl EventRun<'_> {
    async fn run_task(&self, mut work: TaskRun) -> TaskOutcome {
        let (mut events, mut unavailable) = (Vec::new(), false);
        if let Some(device) = work.device {
            match self.elements_of_run(device, &mut work).await {
                Ok(elements) => {
                    for (block, made) in self.run_events(device, &elements, &work.task.blocks).await {
                        match made {
                            Ok(Some(id)) => events.push((device, id, block.payload.clone())),
                            Ok(None) => {}
                            Err(error) => {
                                unavailable |= is_ours(&error);
                                work.errors.push(format!("event block {}: {}", block.index, message_of(&error)));
                            }
                        }
                    }
                }
                Err(error) => {
                    unavailable |= is_ours(&error);
                    work.fail(&message_of(&error));
                }
            }
        }
        let TaskRun { task, provisioned, errors, .. } = work;
        let payloads = task.events().map(|block| block.payload.clone()).collect();
        let (tag_value, project) = (task.tag_value, task.project);
        TaskOutcome { report: TaskReport { tag_value, project, payloads, provisioned, events, errors }, unavailable }
    }

    /// Returns the elements that receive the events of a task's device. If there are none, or the delivery would make
    /// too many events, the events are refused.
    async fn elements_of_run(&self, device: DeviceId, work: &mut TaskRun) -> Result<Vec<Arc<str>>> {
        match self.elements_for(device, &work.task.blocks).await {
            Ok(elements) if elements.is_empty() => {
                work.refuse(&format!(
                    "the design of the device's project has no deviceEvent element of the integration {}",
                    self.integration.name()
                ));
                Ok(elements)
            }
            Err(refusal @ Error::Invalid(_)) => {
                work.refuse(&message_of(&refusal));
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// Returns the elements that receive the events of a device, if the delivery may make that many.
    async fn elements_for(&self, device: DeviceId, blocks: &[Block]) -> Result<Vec<Arc<str>>> {
        let (_, entry) = self.hub.0.identity.user_device_write(self.caller, device, Action::WebhookReceive).await?;
        let elements = elements_of(&*self.hub.0.caches.plan_of_device(&entry).await?, self.integration);
        let mut makes = self.makes.lock();
        let all = makes.and(EventsAmount::of(blocks, elements.len()));
        if !all.is_allowed() {
            // The delivery had fewer events when it was checked.
            return Err(Error::invalid(
                "body",
                format!("{CHANGED}: the delivery {}", too_many_events(all, self.integration)),
            ));
        }
        *makes = all;
        Ok(elements)
    }

    /// Runs every block through every element; a refused one is only stored. Each event waits until the one before has
    /// run, but not until it is durable. One with a fault does not stop the next; after one that the stores did not take,
    /// no other runs.
    async fn run_events<'b>(
        &self,
        device: DeviceId,
        elements: &[Arc<str>],
        blocks: &'b [Block],
    ) -> Vec<(&'b Block, Result<Option<EventId>>)> {
        let keeper = elements.first().cloned().unwrap_or_else(|| Arc::from(self.integration.name()));
        let mut before: Option<oneshot::Receiver<()>> = None;
        let mut runs: FuturesOrdered<BoxFuture<'_, _>> = FuturesOrdered::new();
        let (stopped, mut order, mut made) =
            (Arc::new(Mutex::new(OrderedItems::default())), OrderedItems::default(), Vec::new());
        let mut add = |(block, result)| made.push((block, order.next(result)));
        for block in blocks {
            let elements = if block.refused.is_some() { std::slice::from_ref(&keeper) } else { elements };
            for element in elements {
                if runs.len() >= WEBHOOK_EVENTS_AT_ONCE {
                    runs.next().await.into_iter().for_each(&mut add);
                }
                let (ran, next) = oneshot::channel();
                let (turn, stopped) = (before.replace(next), Arc::clone(&stopped));
                let run = async move {
                    if let Some(turn) = turn {
                        // Proceeds when the event before has run or failed.
                        let _ = turn.await;
                    }
                    if let Some(failure) = stopped.lock().failure() {
                        return (block, Err(failure));
                    }
                    self.pace.next().await;
                    let ran = Arc::new(Mutex::new(Some(ran)));
                    let made = self.run_event(device, element, block, Arc::clone(&ran)).await;
                    // Before the next one proceeds, which it does when `ran` is dropped.
                    let made = made.inspect_err(|error| stopped.lock().note(error));
                    drop(ran);
                    (block, made)
                };
                runs.push_back(run.boxed());
            }
        }
        while let Some(next) = runs.next().await {
            add(next);
        }
        made
    }

    /// Makes an event of a block, or stores it as refused; returns `None` for a block that was already refused.
    async fn run_event(
        &self,
        device: DeviceId,
        element: &Arc<str>,
        block: &Block,
        ran: RunSignal,
    ) -> Result<Option<EventId>> {
        // Each element makes an event of its own.
        let key = block.key.as_ref().map(|key| format!("{element}\0{key}"));
        let event = IntegratedEvent {
            element,
            payload: &block.payload,
            idempotency_key: key.as_deref(),
            refused: block.refused.as_deref(),
            ran,
        };
        let ingest = &self.hub.0.ingest;
        match ingest.event_integrated(self.caller, device, &event).await {
            Err(refusal @ Error::Invalid(_)) => {
                let why = message_of(&refusal);
                let event = IntegratedEvent { idempotency_key: None, refused: Some(&why), ..event };
                ingest.event_integrated(self.caller, device, &event).await?;
                Err(refusal)
            }
            made => made.map(|id| block.refused.is_none().then_some(id)),
        }
    }
}

/// Error of an event whose design has changed since the delivery was checked.
const CHANGED: &str = "the project's design has changed meanwhile";

fn message_of(error: &Error) -> String {
    match error {
        Error::Missing(_) => GONE.to_owned(),
        other => of_one_of_many(other, "an event of the webhook", |fault| fault.message.clone()),
    }
}
