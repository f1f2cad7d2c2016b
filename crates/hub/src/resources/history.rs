//! Reads event history.

use std::time::Duration;

use isobar_model::access::Caller;
use isobar_model::error::{Error, Result};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::page::Page;
use isobar_quota::Claim;
use isobar_store::telemetry::HistoryQuery;

use crate::Hub;

/// Interval at which an idle call checks that it may continue.
pub(crate) const HISTORY_LOOK_EVERY: Duration = Duration::from_secs(1);

impl Hub {
    /// Reads a page of a device's history, newest first.
    ///
    /// Needs `DeviceRead`. Reaches back six months.
    pub async fn history(&self, caller: &Caller, id: DeviceId, query: HistoryQuery) -> Result<Page<Event>> {
        let (permit, _) = self.0.identity.user_device_read(caller, id).await?;
        let query = HistoryQuery { not_before: self.0.jobs.history_begins(), ..query };
        Ok(self.telemetry().history(&permit, query, Claim::begin(caller.lineage.top())).await?)
    }

    /// Reads one event of a device's history.
    ///
    /// Needs `DeviceRead`.
    ///
    /// # Errors
    /// `Missing`: there is no such device or event.
    pub async fn history_event(&self, caller: &Caller, id: DeviceId, event: EventId) -> Result<Event> {
        let (permit, _) = self.0.identity.user_device_read(caller, id).await?;
        let found = self.telemetry().history_event(&permit, event).await?;
        found.filter(|event| event.received_at >= self.0.jobs.history_begins()).ok_or(Error::Missing("event"))
    }
}
