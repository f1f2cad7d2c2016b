//! Locks of PostgreSQL that belong to no row. SQLite needs none: it has one writer, whose transaction locks everything.

use super::{Connection, Dialect, Sql, one};
use crate::error::Result;

/// Numbers of the advisory locks that Isobar takes. The compiler refuses two equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(crate) enum AdvisoryLock {
    /// Keeps two processes that start at once from migrating at once.
    Schema = 0x0069_736f_6261_7201,
    /// Gives notices for everybody their numbers in the order of their commits.
    NoticeNumbers = 0x0069_736f_6261_7202,
    /// Keeps the tree of organizations unchanged during a change.
    Tree = 0x0069_736f_6261_7203,
    /// Keeps one of two system administrators who are removed at once.
    Administrators = 0x0069_736f_6261_7204,
    /// Keeps two letters from taking the same last place of an hour.
    Letters = 0x0069_736f_6261_7205,
}

impl AdvisoryLock {
    /// Waits until the lock is free, then holds it until the transaction ends.
    pub(crate) async fn hold(self, tx: &impl Connection) -> Result<()> {
        if Dialect::of(tx) == Dialect::Postgres {
            one(tx, Sql::new("SELECT pg_advisory_xact_lock(?)").bind(self as i64)).await?;
        }
        Ok(())
    }
}
