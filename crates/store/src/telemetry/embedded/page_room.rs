//! The memory that the rows of one page may take.

use crate::error::{Result, StoreError};
use crate::telemetry::{PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX};

/// What is left of it, in bytes.
pub(super) struct PageRoom(usize);

impl Default for PageRoom {
    fn default() -> Self {
        Self(PAGE_BYTES_MAX)
    }
}

impl PageRoom {
    /// That of a page of a queue, which is copied on its way out.
    pub fn of_queue() -> Self {
        Self(QUEUE_PAGE_BYTES_MAX)
    }

    /// Takes room for a row of so many bytes. [`StoreError::TooMuch`] when there is none.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        self.0 = self.0.checked_sub(bytes).ok_or(StoreError::TooMuch)?;
        Ok(())
    }
}
