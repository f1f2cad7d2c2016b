//! The memory that the rows of one page may take.

use crate::error::{Result, StoreError};
use crate::telemetry::{PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX};

/// What is left of it.
pub(super) struct PageBudget {
    bytes: usize,
    /// A single row has room, however large it is.
    is_untouched: bool,
}

impl Default for PageBudget {
    fn default() -> Self {
        Self { bytes: PAGE_BYTES_MAX, is_untouched: true }
    }
}

impl PageBudget {
    /// That of a page of a queue, which is copied on its way out.
    pub fn of_queue() -> Self {
        Self { bytes: QUEUE_PAGE_BYTES_MAX, ..Self::default() }
    }

    /// Takes room for a row of so many bytes. [`StoreError::TooMuch`] when there is none.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        self.bytes = match self.bytes.checked_sub(bytes) {
            Some(left) => left,
            None if self.is_untouched => 0,
            None => return Err(StoreError::TooMuch),
        };
        self.is_untouched = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_has_room_and_more_only_as_long_as_there_is_any() {
        let mut budget = PageBudget::of_queue();
        assert!(budget.take(2 * QUEUE_PAGE_BYTES_MAX).is_ok() && budget.take(0).is_ok());
        assert!(matches!(budget.take(1), Err(StoreError::TooMuch)));
        let mut budget = PageBudget::of_queue();
        assert!(budget.take(QUEUE_PAGE_BYTES_MAX - 1).is_ok() && budget.take(2).is_err() && budget.take(1).is_ok());
    }
}
