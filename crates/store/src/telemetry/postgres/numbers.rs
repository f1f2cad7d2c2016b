//! Numbers that no other process gives: of commits, series and entries of the outbox.

use std::sync::atomic::{AtomicI64, Ordering};

use sqlx::postgres::{PgConnection, PgPool};

use super::connections::{ReadColumn as _, failed};
use crate::error::Result;

/// Bits of a number that count within a process; those above are the process'. SQL here knows it too.
pub const COUNTED_BITS: u32 = 40;

/// Source of numbers. They increase, and each process that opens the store later gives greater ones.
#[derive(Debug)]
pub struct ProcessNumbers(AtomicI64);

impl ProcessNumbers {
    /// Begins the numbers of this process.
    pub async fn begin(connection: &mut PgConnection) -> Result<Self> {
        let row = sqlx::query("SELECT nextval('telemetry.process')").fetch_one(connection).await.map_err(failed)?;
        Ok(Self(AtomicI64::new(row.column::<i64>(0)? << COUNTED_BITS)))
    }

    /// Begins the numbers of a process that serves several databases: above those of all processes of each. Nobody else may
    /// begin meanwhile.
    pub async fn begin_together(pools: &[&PgPool]) -> Result<Self> {
        let mut process = 1;
        for pool in pools {
            let last = "SELECT coalesce(pg_sequence_last_value('telemetry.process'), 0)";
            let last: i64 = sqlx::query(last).fetch_one(*pool).await.map_err(failed)?.column(0)?;
            process = process.max(last + 1);
        }
        for pool in pools {
            let raise = sqlx::query("SELECT setval('telemetry.process', $1)").bind(process);
            raise.execute(*pool).await.map_err(failed)?;
        }
        Ok(Self(AtomicI64::new(process << COUNTED_BITS)))
    }

    /// Returns the number of this process.
    pub fn process(&self) -> i32 {
        i32::try_from(self.0.load(Ordering::Relaxed) >> COUNTED_BITS).unwrap_or(i32::MAX)
    }

    /// Returns the next number; it is positive.
    pub fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
