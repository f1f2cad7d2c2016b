//! A device's turn: its lock in this process, and its state as it was when the turn began. Whether that is the newest is
//! checked at the commit.

use std::sync::Arc;

use isobar_model::access::CanWrite;
use isobar_model::ids::{DeviceRef, EventId, OrganizationId};
use isobar_model::time::Timestamp;

use super::PgCore;
use super::committer::Committer;
use super::connections::{REACHES_STANDBY, ReadColumn as _, failed};
use super::devices::{DeviceSlots, LockedDevice};
use super::load;
use super::memory::{DeviceMemory, DeviceWrites, RunLimits};
use super::numbers::ProcessNumbers;
use crate::error::Result;
use crate::telemetry::time_order::id_of;
use crate::telemetry::{Commit, Committed, DeviceTurn, Locked, Memory, Turn};

/// A device that is locked in this process.
pub struct PostgresTurn {
    devices: Arc<DeviceSlots>,
    committer: Arc<Committer>,
    numbers: Arc<ProcessNumbers>,
    queue_max: u64,
    locked: LockedDevice,
    tenant: Option<OrganizationId>,
    memory: Arc<DeviceMemory>,
}

impl DeviceTurn for PostgresTurn {
    fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        let (numbers, queue_max) = (Arc::clone(&self.numbers), self.queue_max);
        let mut dropped = 0;
        let mut committed = self.change(|memory, writes| {
            dropped = memory.apply(commit, &RunLimits { queue_max, new_series: &|| numbers.next() }, writes);
        })?;
        if dropped > 0 {
            metrics::counter!("isobar_cloud_events_dropped_total").increment(u64::from(dropped));
        }
        committed.dropped = dropped;
        Ok(committed)
    }

    fn forget(&mut self) {
        self.devices.set(&self.locked, None);
    }
}

impl PostgresTurn {
    /// Returns the state of the device.
    pub fn device(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Changes the device, and sends the rows of the change.
    pub fn change(&mut self, change: impl FnOnce(&mut DeviceMemory, &mut DeviceWrites)) -> Result<Committed> {
        let mut memory = (*self.memory).clone();
        let mut writes = memory.begin_commit(self.locked.device, self.numbers.next());
        change(&mut memory, &mut writes);
        writes.head = memory.head.clone();
        let memory = Arc::new(memory);
        let (durable, bytes) = self.committer.send(&self.locked, self.tenant, writes, &memory)?;
        self.memory = memory;
        Ok(Committed { dropped: 0, bytes, durable })
    }
}

impl PgCore {
    fn turn_of(&self, locked: LockedDevice, tenant: Option<OrganizationId>, memory: Arc<DeviceMemory>) -> PostgresTurn {
        let (devices, committer, numbers) =
            (Arc::clone(&self.devices), Arc::clone(&self.committer), Arc::clone(&self.numbers));
        PostgresTurn { devices, committer, numbers, queue_max: self.options.queue_max_events, locked, tenant, memory }
    }

    /// Begins a turn of a device, unless something has to be waited for.
    pub fn turn_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>> {
        self.committer.must_be_open()?;
        let (key, tenant) = (self.key(device.target().key)?, device.tenant());
        let Some((locked, memory)) = self.devices.lock_now(key, tenant) else { return Ok(None) };
        Ok(Some(Turn::new(self.turn_of(locked, tenant, memory))))
    }

    /// Locks a device, and loads it if its state is not known.
    pub async fn turn(&self, device: &CanWrite<DeviceRef>) -> Result<PostgresTurn> {
        self.committer.must_be_open()?;
        let locked = self.devices.lock(self.key(device.target().key)?, device.tenant()).await;
        let memory = match locked.memory() {
            Some(memory) => memory,
            None => {
                let memory = Arc::new(load::device(&self.reads.get(), locked.device).await?);
                self.devices.set(&locked, Some(Arc::clone(&memory)));
                memory
            }
        };
        Ok(self.turn_of(locked, device.tenant(), memory))
    }

    /// Locks a device, unless the idempotency key is known.
    pub async fn turn_unless_known(&self, device: &CanWrite<DeviceRef>, key: &str, now: Timestamp) -> Result<Locked> {
        let turn = self.turn(device).await?;
        let query = sqlx::query("SELECT answer FROM telemetry.key WHERE device = $1 AND key = $2 AND expires > $3");
        let query = query.bind(turn.locked.device).bind(key.as_bytes()).bind(now.millis());
        match query.fetch_optional(&self.reads.get()).await.map_err(failed)? {
            Some(row) => {
                // After a crash a server shows what its standby may not have yet.
                sqlx::query(REACHES_STANDBY).execute(&self.changes.get()).await.map_err(failed)?;
                Ok(Locked::Repeated(read_answer(&row)?))
            }
            None => Ok(Locked::Turn(Turn::new(turn))),
        }
    }
}

fn read_answer(row: &sqlx::postgres::PgRow) -> Result<EventId> {
    row.order(0).map(id_of)
}
