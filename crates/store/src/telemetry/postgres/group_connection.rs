//! The connection by which groups of commits are written: one, kept from one group to the next. A pool asks a connection
//! whenever it is given back, as long as that takes, and the next group would wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use super::connections::{GROUPS_LOCK_CLASS, ReadColumn as _, SURE_FOR, failed};
use crate::error::Result;
use crate::postgres::{AwayDatabase, WatchedPool, is_there};

/// Time for the answer if the server works on a group.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// Asks if the connection for the groups of a process ($2) does anything: it has their lock.
const AT_WORK: &str = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
    WHERE l.locktype = 'advisory' AND l.granted AND l.classid = $1::bigint::oid AND l.objid = $2::bigint::oid \
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.state NOT LIKE 'idle%')";

/// The connections of a process that write groups, of which one is open at a time.
pub struct GroupConnections {
    pool: Arc<WatchedPool>,
    reads: Arc<WatchedPool>,
    process: i32,
}

/// A connection that waits for the next group.
pub struct KeptConnection {
    connection: PoolConnection<Postgres>,
    used: Instant,
}

impl KeptConnection {
    /// Keeps a connection that was used just now.
    pub fn new(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, used: Clock::System.instant() }
    }

    /// Closes it.
    pub fn end(mut self) {
        self.connection.close_on_drop();
    }
}

impl GroupConnections {
    /// Creates them, of a process with this number. Others, that read, tell what the server does.
    pub fn new(pool: Arc<WatchedPool>, reads: Arc<WatchedPool>, process: i32) -> Self {
        Self { pool, reads, process }
    }

    /// Tells if the database is away.
    pub fn away(&self) -> &AwayDatabase {
        self.pool.away()
    }

    /// Takes the connection that was kept, or opens one if there is none, it is lost, or the database was away since.
    pub async fn take(&self, kept: &mut Option<KeptConnection>) -> Result<PoolConnection<Postgres>> {
        self.away().must_be_here()?;
        if let Some(mut kept) = kept.take() {
            let is_sure = Clock::System.elapsed(kept.used) < SURE_FOR;
            if !self.away().is_back_since(kept.used) && (is_sure || is_there(&mut kept.connection).await) {
                return Ok(kept.connection);
            }
            kept.end();
        }
        let acquired = async { self.pool.get().acquire().await.map_err(failed) };
        self.away().unless_away(acquired).await
    }

    /// Returns true if the server works on what it was sent, or that cannot be told: it may wait for a disk or a standby.
    pub async fn is_at_work(&self) -> bool {
        let asked = async {
            let query = sqlx::query(AT_WORK).bind(i64::from(GROUPS_LOCK_CLASS)).bind(i64::from(self.process));
            query.fetch_one(&self.reads.get()).await.map_err(failed)?.column(0)
        };
        let answer: std::result::Result<Result<bool>, _> = Clock::System.timeout(ASKED_WITHIN, asked).await;
        !matches!(answer, Ok(Ok(false)))
    }
}
