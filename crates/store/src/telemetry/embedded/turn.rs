//! A device's turn: the lock of the device in memory, with room for a commit in the queue.

use std::sync::{Arc, LazyLock};

use isobar_model::ids::{EventId, OrganizationId};
use isobar_model::time::Timestamp;
use rocksdb::{ErrorKind, ReadOptions, ReadTier};

use super::cache::Held;
use super::commit_queue::{Reservation, Sent};
use super::device::{DeviceState, Limits, WaitingKey};
use super::keys::{self, Family};
use super::rows::{Parts, Rows, damaged, failed};
use super::{Cancel, Core, Embedded, engine};
use crate::error::Result;
use crate::telemetry::{Commit, Committed, Memory, Turn};

/// The state of a device that was never loaded, for the case that cannot occur: a turn's device is loaded.
static UNLOADED: LazyLock<DeviceState> = LazyLock::new(DeviceState::default);

/// A device that is locked and loaded.
pub struct EmbeddedTurn {
    core: Arc<Core>,
    held: Held,
    tenant: Option<OrganizationId>,
    /// Room for one commit, taken before anything runs. `None` after a commit: one more takes its own.
    reservation: Option<Reservation>,
}

/// The result of looking up an idempotency key.
pub(super) enum KeyAnswer {
    /// The answer that it stands for, which is durable.
    Known(EventId),
    /// The device, still locked: the key is new, or has expired.
    Unknown(Held),
}

impl EmbeddedTurn {
    /// Returns the state that earlier runs left.
    pub fn memory(&self) -> &dyn Memory {
        self.held.state.as_ref().unwrap_or_else(|| &UNLOADED)
    }

    /// Takes a run's commit into the device's state and sends its rows.
    pub fn commit(&mut self, commit: Commit) -> Result<Committed> {
        let reservation = match self.reservation.take() {
            Some(reservation) => reservation,
            None => self.core.shared.reserve(self.tenant)?,
        };
        let (sent, dropped) = self.core.commit(&mut self.held, reservation, commit)?;
        if dropped > 0 {
            metrics::counter!("isobar_cloud_events_dropped_total").increment(u64::from(dropped));
        }
        Ok(Committed { dropped, bytes: sent.bytes, durable: sent.durable })
    }
}

impl Core {
    /// Begins a turn of a device that is locked and loaded, if there is room for its commit.
    pub(super) fn turn(self: &Arc<Self>, held: Held, tenant: Option<OrganizationId>) -> Result<Turn> {
        let reservation = Some(self.shared.reserve(tenant)?);
        if held.state.is_none() {
            return Err(damaged("a device is not loaded"));
        }
        Ok(Turn::embedded(EmbeddedTurn { core: Arc::clone(self), held, tenant, reservation }))
    }

    fn commit(&self, held: &mut Held, reservation: Reservation, commit: Commit) -> Result<(Sent, u32)> {
        let device = held.key();
        let state = held.state.as_mut().ok_or_else(|| damaged("a device is not loaded"))?;
        let limits = Limits { queue_max: self.options.queue_max_events, new_series: &|| self.shared.new_series() };
        let (sent, dropped) = Rows::at_hand(|rows| {
            let dropped = state.apply(device, &commit, &limits, rows);
            (reservation.send(rows), dropped)
        });
        let durable = self.shared.durable();
        state.keys.retain(|waiting| waiting.ticket > durable);
        if let Some(key) = commit.idempotency {
            state.keys.push(WaitingKey { ticket: sent.ticket, key });
        }
        state.ticket = sent.ticket;
        self.devices.weigh(held, durable);
        Ok((sent, dropped))
    }
}

impl Embedded {
    /// Finds the answer that an idempotency key has at `now`; it is durable when this returns.
    pub(super) async fn answer(&self, held: Held, key: &str, now: Timestamp) -> Result<KeyAnswer> {
        let waiting =
            held.state.as_ref().and_then(|state| state.keys.iter().rev().find(|waiting| waiting.key.key == key));
        if let Some(WaitingKey { key, .. }) = waiting.filter(|waiting| waiting.key.expires_at > now) {
            let answer = key.answer;
            // What is sent now is durable only after the commit that holds the answer.
            let mut sent = self.core.shared.reserve(None)?.send(&Rows::default());
            drop(held);
            sent.durable.wait().await?;
            return Ok(KeyAnswer::Known(answer));
        }
        let row = keys::state(held.key(), keys::STATE_KEY, key);
        let mut in_memory = ReadOptions::default();
        in_memory.set_read_tier(ReadTier::BlockCache);
        let state = engine::family(&self.core.db, Family::State)?;
        let (held, found) = match self.core.db.get_cf_opt(state, &row, &in_memory) {
            Ok(found) => (held, found),
            Err(error) if error.kind() == ErrorKind::Incomplete => {
                let read = move |core: &Core, _: &Cancel| {
                    let state = engine::family(&core.db, Family::State)?;
                    Ok((held, core.db.get_cf(state, &row).map_err(failed)?))
                };
                self.reading(read).await?
            }
            Err(error) => return Err(failed(error)),
        };
        let Some(found) = found else { return Ok(KeyAnswer::Unknown(held)) };
        let mut parts = Parts(&found);
        let (answer, expires) = (parts.id()?, parts.i64()?);
        Ok(if expires > now.millis() { KeyAnswer::Known(answer) } else { KeyAnswer::Unknown(held) })
    }
}
