//! Event history.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::access::Caller;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_store::telemetry::HistoryQuery;
use isobar_store::turns::Claim;

use crate::Hub;
use crate::error::Told as _;
use crate::identity::authorization::Principal;

/// Between two looks whether a call in which nothing happens may go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which part of a device's history is wanted.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRequest {
    /// With device events.
    pub device_events: bool,
    /// With cloud events.
    pub cloud_events: bool,
    /// When they were received.
    pub range: TimeRange,
    /// Which page.
    pub page: PageRequest,
}

impl Hub {
    /// A page of a device's history, newest first.
    pub async fn history(&self, caller: &Caller, id: DeviceId, request: HistoryRequest) -> Result<Page<Event>> {
        let (pass, _) = self.device_read(&Principal::User(Arc::new(caller.clone())), id).await?;
        let query = HistoryQuery {
            device_events: request.device_events,
            cloud_events: request.cloud_events,
            range: request.range,
            not_before: self.history_begins(),
            page: request.page,
        };
        self.0.telemetry.history(&pass, query, Claim::begin(caller.lineage.top())).await.told()
    }

    /// One event of a device's history.
    pub async fn history_event(&self, caller: &Caller, id: DeviceId, event: EventId) -> Result<Event> {
        let (pass, _) = self.device_read(&Principal::User(Arc::new(caller.clone())), id).await?;
        let found = self.0.telemetry.history_event(&pass, event).await.told()?;
        found.filter(|event| event.received_at() >= self.history_begins()).ok_or(Error::Missing("event"))
    }
}
