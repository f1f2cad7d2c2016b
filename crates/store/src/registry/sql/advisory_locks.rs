//! What PostgreSQL has us lock that is no row. SQLite has one writer: it holds everything.

use super::{Connection, Dialect, Sql, one};
use crate::error::Result;

/// Numbers that only Isobar locks. No two are alike: the compiler refuses that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(crate) enum AdvisoryLock {
    /// Two processes that start at once do not migrate at once.
    Schema = 0x0069_736f_6261_7201,
    /// Notices for everybody get their numbers in the order of their commits.
    NoticeNumbers = 0x0069_736f_6261_7202,
    /// The tree of organizations keeps its shape.
    Tree = 0x0069_736f_6261_7203,
    /// Of two system administrators who go at once, one stays.
    Administrators = 0x0069_736f_6261_7204,
    /// No two letters take the same last place of an hour.
    Letters = 0x0069_736f_6261_7205,
}

impl AdvisoryLock {
    /// Waits for whoever holds it, and holds it until the transaction ends.
    pub(crate) async fn hold(self, tx: &impl Connection) -> Result<()> {
        if Dialect::of(tx) == Dialect::Postgres {
            one(tx, Sql::new("SELECT pg_advisory_xact_lock(?)").bind(self as i64)).await?;
        }
        Ok(())
    }
}
