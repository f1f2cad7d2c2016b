//! Reads and fills the cloud-event queue of a device (specification: Events; contract: Events and the cloud-event
//! queue).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use isobar_model::access::{Action, Caller, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::page::PageRequest;
use isobar_store::telemetry::{Looked, QueueQuery};

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::identity::authentication::{Credentials, HeldCredential, Principal};
use crate::ingest::event_input::{check_idempotency_key, element_name};
use crate::ingest::{LinePlace, RUNS_MAX};
use crate::resources::history::HISTORY_LOOK_EVERY;
use crate::supervisor::stopped;

/// Returns true if there is memory for an answer of this many bytes; the last size asked for is the one used.
pub type QueueBudget = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// Options for reading a queue.
#[derive(Clone, Debug, Default)]
pub struct QueueRead {
    /// Only events of this element.
    pub element: Option<String>,
    /// The page, counted before any event is taken.
    pub page: PageRequest,
    /// True to leave the events in the queue.
    pub peek: bool,
    /// Longest time to wait for an event if there is none.
    pub wait: Duration,
}

impl Hub {
    /// Reads queued cloud events, oldest first, for `principal`, who was authenticated by `credentials`. Events that
    /// are not peeked at are removed durably before this returns. A waiting caller is refused as soon as its
    /// credentials end, and no event is taken for it then. A waiting caller gets nothing once `given_up` is done,
    /// because later events might be taken for a caller that has disconnected; and no event is taken for which there is
    /// no memory.
    ///
    /// Needs `CloudEventRead`; a device reads its own. Waits for at most `read.wait`.
    ///
    /// # Errors
    /// `Unauthenticated`: the credentials have ended meanwhile. `Busy`: there is no memory for the events, or too much
    /// has changed.
    pub async fn cloud_events(
        &self,
        credentials: &Credentials<'_>,
        principal: &Principal,
        device: Option<&str>,
        (read, budget): (QueueRead, QueueBudget),
        given_up: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Event>> {
        let (held, mut principal) = (self.0.identity.held(credentials)?, principal.clone());
        let mut target = self.queue_device(&principal, device, Action::CloudEventRead).await?;
        let bell = self.0.ingest.queue_bell(target.0.target().key);
        let mut stop = self.0.closing.subscribe();
        let clock = self.0.env.clock();
        let waited = clock.sleep_until(clock.instant() + read.wait);
        tokio::pin!(waited, given_up);
        let (mut is_over, mut changes, looked) = (read.wait.is_zero(), 0, Looked::default());
        loop {
            let mut rung = std::pin::pin!(bell.notified());
            // Enabled first, so that an event that arrives during the read below is noticed.
            rung.as_mut().enable();
            match self.look(&held, &principal, target, (&read, &budget), &looked).await? {
                Some(events) if is_over || !events.is_empty() => return Ok(events),
                Some(_) => {
                    changes = 0;
                    tokio::select! {
                        biased;
                        () = &mut given_up => return Ok(Vec::new()),
                        () = rung => {}
                        ended = self.ended(&held, device) => return Err(ended),
                        () = &mut waited => is_over = true,
                        () = stopped(&mut stop) => return Ok(Vec::new()),
                    }
                }
                None if changes == RUNS_MAX => return Err(Error::Busy),
                None => changes += 1,
            }
            principal = self.0.identity.holder(&held).await?;
            target = self.queue_device(&principal, device, Action::CloudEventRead).await?;
        }
    }

    /// Waits until the caller may no longer read the queue, and returns the reason. The end of a device's token rings
    /// the bell; a user's credentials are checked regularly, without reading the queue.
    async fn ended(&self, held: &HeldCredential, device: Option<&str>) -> Error {
        loop {
            match held {
                HeldCredential::User(_) => self.0.env.clock().sleep(HISTORY_LOOK_EVERY).await,
                HeldCredential::Device(_) => std::future::pending().await,
            }
            let target = async {
                let principal = self.0.identity.holder(held).await?;
                self.queue_device(&principal, device, Action::CloudEventRead).await
            };
            if let Err(error) = target.await {
                return error;
            }
        }
    }

    /// Reads the queue once. Returns `None` if the caller or the device has changed, and no event was taken.
    async fn look(
        &self,
        held: &HeldCredential,
        principal: &Principal,
        (permit, entry): (CanWrite<DeviceRef>, Arc<DeviceEntry>),
        (read, budget): (&QueueRead, &QueueBudget),
        looked: &Looked,
    ) -> Result<Option<Vec<Event>>> {
        let (element, looked) = (read.element.clone(), looked.clone());
        let query = QueueQuery { element, page: read.page, now: self.now(), looked };
        let (hub, held, principal) = (self.clone(), held.clone(), principal.clone());
        let stands = move || entry.is_current() && hub.0.identity.stands(&held, &principal);
        if read.peek {
            let events = self.telemetry().queue_peek(&permit.reading(), query).await?;
            return Ok(stands().then_some(events));
        }
        let is_full = Arc::new(AtomicBool::new(false));
        let may = {
            let (budget, is_full) = (Arc::clone(budget), Arc::clone(&is_full));
            move |bytes| {
                let fits = budget(bytes);
                is_full.fetch_or(!fits, Ordering::Relaxed);
                fits && stands()
            }
        };
        let taken = self.telemetry().queue_take_while(&permit, query, Box::new(may)).await?;
        if is_full.load(Ordering::Relaxed) { Err(Error::Busy) } else { Ok(taken) }
    }

    /// Queues a cloud event for a device.
    ///
    /// Needs `CloudEventCreate`. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: all faults of the request.
    pub async fn cloud_event_send(
        &self,
        caller: &Caller,
        device: Option<&str>,
        element: Option<&str>,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<EventId> {
        let mut faults = Faults::new();
        let target = faults.gather(self.target_of_user(caller, device).await)?;
        let element = element_name(element, &mut faults);
        check_idempotency_key(idempotency_key, &mut faults);
        let payload = self.0.env.bodies().payload(Some(caller.lineage.top()), &body, &mut faults).await?;
        faults.end()?;
        let (Some((permit, mut entry)), Some(element), Some((payload, _))) = (target, element, payload) else {
            return Err(Error::Busy);
        };
        let mut place = LinePlace::default();
        for _ in 0..RUNS_MAX {
            let event = (element, payload.clone(), idempotency_key);
            let sent = self.0.ingest.queue_cloud_event(&permit, &entry, event, &mut place).await?;
            if let Some(id) = sent {
                return Ok(id);
            }
            entry = self.0.caches.device_entry(entry.device.id).await?.ok_or(Error::Missing("device"))?;
        }
        Err(Error::Busy)
    }

    /// Finds the faults in the parameters of a cloud event whose body is already known to be invalid.
    ///
    /// Needs `CloudEventCreate`.
    ///
    /// # Errors
    /// `Invalid`: all faults of the parameters.
    pub async fn cloud_event_parameters(
        &self,
        caller: &Caller,
        device: Option<&str>,
        element: Option<&str>,
    ) -> Result<()> {
        let mut faults = Faults::new();
        faults.gather(self.target_of_user(caller, device).await)?;
        element_name(element, &mut faults);
        faults.end()
    }

    /// Checks that the caller may read the queue of the device that it names.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`; `Invalid` if a user names no device.
    pub async fn allow_queue(&self, principal: &Principal, device: Option<&str>) -> Result<()> {
        self.queue_device(principal, device, Action::CloudEventRead).await.map(|_| ())
    }

    /// Removes one queued event.
    ///
    /// Needs `CloudEventRead`. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: it is not in the queue.
    pub async fn cloud_event_delete(&self, principal: &Principal, device: Option<&str>, id: EventId) -> Result<()> {
        let (permit, _) = self.queue_device(principal, device, Action::CloudEventRead).await?;
        let was_there = self.telemetry().queue_delete(&permit, id).await?;
        if was_there { Ok(()) } else { Err(Error::Missing("cloud event")) }
    }

    /// Returns the device that a user sends a cloud event to. Devices only receive them (contract: Authentication).
    async fn target_of_user(
        &self,
        caller: &Caller,
        device: Option<&str>,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        self.queue_device_of_user(caller, device, Action::CloudEventCreate).await
    }

    /// Returns the device of a queue: that of the token, or else the named one.
    pub(crate) async fn queue_device(
        &self,
        principal: &Principal,
        device: Option<&str>,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        if let Principal::Device(session) = principal {
            return self.0.identity.device_write(principal, session.device().id, action).await;
        }
        self.queue_device_of_user(principal.user()?, device, action).await
    }

    async fn queue_device_of_user(
        &self,
        caller: &Caller,
        device: Option<&str>,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        let Some(text) = device else {
            self.0.identity.allow(caller, action).await?;
            return Err(Error::invalid("query.deviceId", "is required"));
        };
        let id = text.parse().map_err(|_| Error::Missing("device"))?;
        self.0.identity.user_device_write(caller, id, action).await
    }
}
