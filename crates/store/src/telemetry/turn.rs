//! A device's turn: its lock, the state that earlier runs left, and the commit of the next run.

use isobar_model::access::CanWrite;
use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::time::Timestamp;

use super::embedded::EmbeddedTurn;
use super::{Commit, Durable, Memory, Ran, Telemetry};
use crate::error::{Result, StoreError};

/// Turns that a run gets, one after the other, as long as its commits conflict with others; then the result is
/// [`StoreError::Conflict`].
pub const TURNS_MAX: usize = 32;

/// The lock of a device: no other run of it is under way until this is dropped. A run that was not committed by then leaves
/// nothing.
#[must_use = "the device is locked as long as its turn lasts"]
pub struct Turn(TurnKind);

/// The main road makes a turn of the embedded store for every event: it needs no memory of its own.
enum TurnKind {
    Embedded(EmbeddedTurn),
    Other(Box<dyn DeviceTurn>),
}

/// An adapter's implementation of a turn, with the promises of [`Turn`].
pub trait DeviceTurn: Send {
    /// Returns the state that earlier runs left.
    fn memory(&self) -> &dyn Memory;
    /// Commits a run.
    fn commit(&mut self, commit: Commit) -> Result<Committed>;
    /// Forgets what is known of the device: its next turn reads it anew.
    fn forget(&mut self) {}
}

/// The outcome of locking a device for a request that may have an idempotency key.
#[must_use = "the device is locked as long as its turn lasts"]
pub enum Locked {
    /// The key is known: the first answer, which is durable.
    Repeated(EventId),
    /// The key is not known: the request runs.
    Turn(Turn),
}

/// A commit that is applied: the device's next run sees it.
#[derive(Debug)]
#[must_use = "what is not durable must not be acknowledged"]
pub struct Committed {
    /// Queued cloud events that were dropped because the queue was full.
    pub dropped: u32,
    /// Bytes of it for which all who write wait: 0 where each writes for itself.
    pub bytes: usize,
    /// Resolves when the commit is durable.
    pub durable: Durable,
}

impl Turn {
    /// Wraps the turn of an adapter.
    pub fn new(turn: impl DeviceTurn + 'static) -> Self {
        Self(TurnKind::Other(Box::new(turn)))
    }

    pub(super) fn embedded(turn: EmbeddedTurn) -> Self {
        Self(TurnKind::Embedded(turn))
    }

    /// Returns the state that earlier runs left.
    pub fn memory(&self) -> &dyn Memory {
        match &self.0 {
            TurnKind::Embedded(turn) => turn.memory(),
            TurnKind::Other(turn) => turn.memory(),
        }
    }

    /// Commits a run, all of it or nothing. The device stays locked until the turn is dropped, so that the caller can update
    /// its own state before the next run.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another commit was first: nothing was done, and the run is repeated on a new turn. A
    /// store that other processes share learns it later, and [`Durable::wait`] answers it.
    pub fn commit(&mut self, commit: Commit) -> Result<Committed> {
        match &mut self.0 {
            TurnKind::Embedded(turn) => turn.commit(commit),
            TurnKind::Other(turn) => turn.commit(commit),
        }
    }

    /// Forgets what is known of the device, in a store that processes share: its next turn reads it anew.
    pub fn forget(&mut self) {
        if let TurnKind::Other(turn) = &mut self.0 {
            turn.forget();
        }
    }
}

impl dyn Telemetry {
    /// Locks a device: by [`Telemetry::lock_now`] if that needs no wait, else by [`Telemetry::lock`].
    pub async fn turn(&self, device: &CanWrite<DeviceRef>) -> Result<Turn> {
        if let Some(turn) = self.lock_now(device)? {
            return Ok(turn);
        }
        self.lock(device).await
    }

    /// Locks a device for a request, unless its idempotency key, if it has one, is known and not expired at `now`.
    pub async fn turn_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: Option<&str>,
        now: Timestamp,
    ) -> Result<Locked> {
        match idempotency_key {
            Some(key) => self.lock_unless_repeated(device, key, now).await,
            None => self.turn(device).await.map(Locked::Turn),
        }
    }
}

/// Takes turns until the commit of one does not conflict, and waits until it is durable.
pub(super) async fn run<T: Telemetry + ?Sized>(
    store: &T,
    device: &CanWrite<DeviceRef>,
    idempotency_key: Option<&str>,
    now: Timestamp,
    work: &mut (dyn for<'m> FnMut(&'m dyn Memory) -> Commit + Send),
) -> Result<Ran> {
    for _ in 0..TURNS_MAX {
        let locked = match idempotency_key {
            Some(key) => store.lock_unless_repeated(device, key, now).await?,
            None => Locked::Turn(store.lock(device).await?),
        };
        match locked {
            Locked::Repeated(first) => return Ok(Ran::Repeated(first)),
            Locked::Turn(turn) => match run_in(turn, work) {
                Err(StoreError::Conflict) => {}
                committed => {
                    let Committed { dropped, mut durable, .. } = committed?;
                    match durable.wait().await {
                        Err(StoreError::Conflict) => {}
                        outcome => return outcome.map(|()| Ran::Committed { dropped }),
                    }
                }
            },
        }
    }
    Err(StoreError::Conflict)
}

fn run_in(mut turn: Turn, work: &mut (dyn for<'m> FnMut(&'m dyn Memory) -> Commit + Send)) -> Result<Committed> {
    let commit = work(turn.memory());
    turn.commit(commit)
}
