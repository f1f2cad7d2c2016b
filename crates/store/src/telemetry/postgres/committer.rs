//! Gathers the commits that wait, and writes them group by group on one connection.
//!
//! A device is locked until its commit has an outcome, so a group has one commit of a device.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isobar_model::ids::OrganizationId;
use isobar_model::time::Clock;
use isobar_quota::{NOBODY, TenantShare, TenantShares};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::connections::{ReadColumn as _, failed};
use super::devices::{DeviceSlots, LockedDevice};
use super::group::{self, GroupFailure, GroupOutcome};
use super::group_connection::{GroupConnections, KeptConnection};
use super::live_events::LiveEvents;
use super::memory::{DeviceMemory, DeviceWrites};
use super::partitions::Partitions;
use super::parts::ProcessParts;
use crate::error::{Result, StoreError};
use crate::telemetry::Durable;
use crate::telemetry::durable::CommitAnswer;

/// Bounds the commits of a group, and (next constant) the bytes after which it takes no more.
const GROUP_COMMITS_MAX: usize = 500;
const GROUP_BYTES: usize = 8 << 20;
/// Tries of a group until its commits are answered `Unavailable`, and (next constant) the pause after each.
const GROUP_TRIES_MAX: u32 = 5;
const GROUP_PAUSE: Duration = Duration::from_millis(500);
/// Time after which it is asked if the server still works on a group.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// Time without a group after which their connection is closed.
const KEPT_WITHOUT_USE: Duration = Duration::from_secs(60);

/// A commit that waits for its group.
struct WaitingCommit {
    locked: LockedDevice,
    writes: DeviceWrites,
    /// The state that it leaves.
    memory: Arc<DeviceMemory>,
    answer: CommitAnswer,
    _share: TenantShare,
}

/// The commits that wait, oldest first.
#[derive(Default)]
struct CommitLine {
    waiting: VecDeque<WaitingCommit>,
    /// Commits that have ever come.
    came: u64,
}

/// The line of commits, and what is needed to write them.
pub struct Committer {
    line: Mutex<CommitLine>,
    came: Notify,
    /// Commits that have an outcome.
    done: watch::Sender<u64>,
    is_closed: AtomicBool,
    /// True if a group could not be written since it was proven last that the database takes rows.
    has_failed: AtomicBool,
    bytes: Arc<TenantShares>,
    groups: GroupConnections,
    devices: Arc<DeviceSlots>,
    partitions: Arc<Partitions>,
    live: Arc<LiveEvents>,
}

/// Error for commits after the store was closed, or has failed.
#[derive(Debug, thiserror::Error)]
#[error("the telemetry store is closed")]
struct CommitterEnded;

/// Error for the commits of a group that was not written, or of which that is not known.
#[derive(Debug, thiserror::Error)]
#[error("a group of commits cannot be written")]
struct FailedGroup(#[source] Arc<StoreError>);

/// Error of a group whose connection is lost: the server does nothing for it, and has not answered.
#[derive(Debug, thiserror::Error)]
#[error("the connection is lost")]
struct NotWritten;

/// Error for commits whose connection ended, and whose device others have changed since.
#[derive(Debug, thiserror::Error)]
#[error("the outcome of a commit cannot be decided any more")]
struct UndecidedCommit;

impl Committer {
    /// Creates a committer whose line is empty.
    pub fn new(
        groups: GroupConnections,
        parts: &ProcessParts,
        (partitions, live): (Arc<Partitions>, Arc<LiveEvents>),
    ) -> Self {
        Self {
            line: Mutex::default(),
            came: Notify::new(),
            done: watch::Sender::new(0),
            is_closed: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            bytes: Arc::clone(&parts.commit_bytes),
            groups,
            devices: Arc::clone(&parts.devices),
            partitions,
            live,
        }
    }

    /// Fails once the committer is closed.
    pub fn must_be_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(StoreError::unavailable(CommitterEnded)) } else { Ok(()) }
    }

    /// Returns true if it is doubtful whether the database takes rows: it has refused some. That others were written proves
    /// nothing, as those may have had room.
    pub fn is_doubtful(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Notes that the database takes rows.
    pub fn note_proof(&self) {
        if self.has_failed.swap(false, Ordering::Relaxed) {
            tracing::info!("the database of telemetry takes rows again");
        }
    }

    /// Adds a commit to the line. The device's state is unknown to others until the commit has an outcome.
    pub fn send(
        &self,
        locked: &LockedDevice,
        tenant: Option<OrganizationId>,
        writes: DeviceWrites,
        memory: &Arc<DeviceMemory>,
    ) -> Result<(Durable, usize)> {
        let bytes = writes.bytes();
        let share = self.bytes.take(tenant.unwrap_or(NOBODY), bytes)?;
        let (durable, answer) = Durable::answered();
        let commit =
            WaitingCommit { locked: locked.clone(), writes, memory: Arc::clone(memory), answer, _share: share };
        {
            let mut line = self.line.lock();
            self.must_be_open()?;
            line.came += 1;
            line.waiting.push_back(commit);
        }
        self.devices.set(locked, None);
        self.came.notify_one();
        Ok((durable, bytes))
    }

    /// Waits until all commits that have come so far have an outcome.
    pub async fn sync(&self) -> Result<()> {
        let came = self.line.lock().came;
        let reached = self.done.subscribe().wait_for(|done| *done >= came).await.map(drop);
        reached.map_err(|_| StoreError::unavailable(CommitterEnded))
    }

    /// Refuses further commits; [`Self::run`] ends after those that wait.
    pub fn close(&self) {
        let line = self.line.lock();
        self.is_closed.store(true, Ordering::Release);
        drop(line);
        self.came.notify_one();
    }

    /// Writes groups until the committer is closed and nothing waits.
    pub async fn run(&self) {
        let mut kept = None;
        loop {
            let group = self.next_group();
            if !group.is_empty() {
                let count = group.len() as u64;
                self.write(group, &mut kept).await;
                self.done.send_modify(|done| *done += count);
            } else if self.is_closed.load(Ordering::Acquire) {
                return;
            } else if Clock::System.timeout(KEPT_WITHOUT_USE, self.came.notified()).await.is_err()
                && let Some(unused) = kept.take()
            {
                unused.end();
            }
        }
    }

    /// Takes the commits of the next group, at most one of a device.
    fn next_group(&self) -> Vec<WaitingCommit> {
        let (mut group, mut bytes, mut devices) = (Vec::new(), 0, HashSet::new());
        let mut line = self.line.lock();
        while group.len() < GROUP_COMMITS_MAX
            && bytes < GROUP_BYTES
            && let Some(next) = line.waiting.front()
            && devices.insert(next.writes.device)
            && let Some(next) = line.waiting.pop_front()
        {
            bytes += next.writes.bytes();
            group.push(next);
        }
        group
    }

    /// Writes a group, and answers its commits. One that the database refuses is written in halves.
    async fn write(&self, group: Vec<WaitingCommit>, kept: &mut Option<KeptConnection>) {
        let mut groups = VecDeque::from([group]);
        while let Some(mut group) = groups.pop_front() {
            // No event is sent to followers before its commit is known here.
            let events = self.live.hold().await;
            match self.write_group(&group, kept).await {
                Ok(outcome) => self.settle(group, outcome, events).await,
                Err(GroupFailure::Statement(error)) if group.len() > 1 => {
                    tracing::warn!(%error, commits = group.len(), "a group of commits is refused, will halve it");
                    let rest = group.split_off(group.len() / 2);
                    groups.push_front(rest);
                    groups.push_front(group);
                }
                Err(failure) => {
                    let error = StoreError::from(failure);
                    if !matches!(error, StoreError::Busy) {
                        self.has_failed.store(true, Ordering::Relaxed);
                    }
                    answer_all(group, error);
                }
            }
        }
    }

    /// Writes a group, again and again where nothing came of it.
    async fn write_group(
        &self,
        group: &[WaitingCommit],
        kept: &mut Option<KeptConnection>,
    ) -> std::result::Result<GroupOutcome, GroupFailure> {
        let writes: Vec<&DeviceWrites> = group.iter().map(|commit| &commit.writes).collect();
        let (mut tries, mut is_unknown) = (1, false);
        loop {
            let failure = match self.try_group(&writes, kept, &mut is_unknown).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            };
            // A group that was never sent to the database waits for it no longer than once.
            if matches!(failure, GroupFailure::Statement(_)) || tries >= GROUP_TRIES_MAX {
                return Err(match failure {
                    GroupFailure::Unknown(StoreError::Busy) if is_unknown => {
                        GroupFailure::Unknown(StoreError::unavailable(UndecidedCommit))
                    }
                    failure => failure,
                });
            }
            if let GroupFailure::Unknown(error) = &failure {
                if !is_unknown {
                    return Err(failure);
                }
                tracing::warn!(%error, tries, "a group of commits failed, will decide and retry");
                Clock::System.sleep(GROUP_PAUSE).await;
            }
            tries += 1;
        }
    }

    async fn try_group(
        &self,
        writes: &[&DeviceWrites],
        kept: &mut Option<KeptConnection>,
        is_unknown: &mut bool,
    ) -> std::result::Result<GroupOutcome, GroupFailure> {
        let mut connection = self.groups.take(kept).await.map_err(GroupFailure::Unknown)?;
        let written = {
            let mut writing = std::pin::pin!(self.write_on(&mut connection, writes, is_unknown));
            loop {
                tokio::select! {
                    biased;
                    written = &mut writing => break Ok(written),
                    away = self.groups.away().gone() => break Err(away.into()),
                    () = Clock::System.sleep(WRITTEN_WITHIN) => {}
                }
                // The database may be well, and this connection gone.
                if !self.groups.is_at_work().await {
                    break Err(StoreError::unavailable(NotWritten));
                }
            }
        };
        match written {
            Ok(Err(GroupFailure::Unknown(error))) => {
                connection.close_on_drop();
                Err(GroupFailure::Unknown(error))
            }
            Ok(written) => {
                *kept = Some(KeptConnection::new(connection));
                written
            }
            Err(silence) => {
                connection.close_on_drop();
                *is_unknown = true;
                Err(GroupFailure::Unknown(silence))
            }
        }
    }

    async fn write_on(
        &self,
        connection: &mut sqlx::PgConnection,
        writes: &[&DeviceWrites],
        is_unknown: &mut bool,
    ) -> std::result::Result<GroupOutcome, GroupFailure> {
        if *is_unknown && let Some(outcome) = self.decide(connection, writes).await? {
            return Ok(outcome);
        }
        let missing = self.partitions.missing(writes.iter().flat_map(|writes| &writes.events).map(|row| row.order));
        self.partitions.make(connection, missing).await?;
        let written = group::write(connection, writes, self.live.raised()).await;
        *is_unknown |= matches!(written, Err(GroupFailure::Unknown(_)));
        written
    }

    /// Decides whether a group was written whose connection ended, by the last commits of its devices. The connection that
    /// wrote it has ended (see [`super::connections`]). Returns `None` if it was not, and devices of which it is unknown.
    async fn decide(
        &self,
        connection: &mut sqlx::PgConnection,
        writes: &[&DeviceWrites],
    ) -> std::result::Result<Option<GroupOutcome>, GroupFailure> {
        let devices: Vec<i64> = writes.iter().map(|writes| writes.device).collect();
        let heads = sqlx::query(
            "SELECT g.device, coalesce(h.last_commit, 0) FROM unnest($1::bigint[]) AS g(device) \
             LEFT JOIN telemetry.head h USING (device)",
        );
        let heads =
            heads.bind(devices).fetch_all(connection).await.map_err(|error| GroupFailure::Unknown(failed(error)))?;
        let (mut outcome, mut is_untouched) = (GroupOutcome::default(), false);
        for head in heads {
            let device: i64 = head.column(0).map_err(GroupFailure::Statement)?;
            let last: i64 = head.column(1).map_err(GroupFailure::Statement)?;
            let own = writes.iter().find(|writes| writes.device == device);
            match own.is_some_and(|own| own.head.last_commit == last) {
                true => outcome.devices.push(device),
                // Somebody else was first, or has committed since.
                false => outcome.unknown.push(device),
            }
            is_untouched |= own.is_some_and(|own| own.expected == last);
        }
        // Where each device has a newer commit of somebody else, nobody can tell any more.
        let was_lost = outcome.devices.is_empty() && is_untouched;
        Ok((!was_lost).then_some(outcome))
    }

    async fn settle(
        &self,
        group: Vec<WaitingCommit>,
        outcome: GroupOutcome,
        events: super::live_events::EventsHeld<'_>,
    ) {
        let (firsts, unknown): (HashSet<i64>, HashSet<i64>) =
            (outcome.devices.into_iter().collect(), outcome.unknown.into_iter().collect());
        let is_first = |commit: &WaitingCommit| firsts.contains(&commit.writes.device);
        for commit in group.iter().filter(|commit| is_first(commit)) {
            self.devices.set(&commit.locked, Some(Arc::clone(&commit.memory)));
        }
        let writes = group.iter().map(|commit| (&commit.writes, is_first(commit)));
        events.committed(outcome.transaction, writes).await;
        for commit in group {
            commit.answer.send(match commit.writes.device {
                device if firsts.contains(&device) => Ok(()),
                device if unknown.contains(&device) => Err(StoreError::unavailable(UndecidedCommit)),
                _ => Err(StoreError::Conflict),
            });
        }
    }
}

/// Answers the commits of a group that was not written, or of which that is not known.
fn answer_all(group: Vec<WaitingCommit>, error: StoreError) {
    tracing::error!(%error, commits = group.len(), "cannot write a group of commits");
    let error = Arc::new(error);
    for commit in group {
        commit.answer.send(Err(match &*error {
            StoreError::Busy => StoreError::Busy,
            _ => StoreError::unavailable(FailedGroup(Arc::clone(&error))),
        }));
    }
}
