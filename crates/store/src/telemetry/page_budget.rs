//! Bounds the memory of the rows of one page.

use isobar_model::event::Event;

use super::{PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX};
use crate::error::{Result, StoreError};

/// Bytes of an event as JSON besides its payload and its element's name: identifiers, a moment, the names of members.
const WRITTEN_BYTES_BESIDE: usize = 256;

/// Rest of the budget of a page.
pub(crate) struct PageBudget {
    bytes: usize,
    /// True before the first row, which is accepted at any size.
    is_untouched: bool,
}

impl Default for PageBudget {
    fn default() -> Self {
        Self { bytes: PAGE_BYTES_MAX, is_untouched: true }
    }
}

impl PageBudget {
    /// Returns the budget of a page of a queue, which is copied when it is sent.
    pub fn of_queue() -> Self {
        Self { bytes: QUEUE_PAGE_BYTES_MAX, ..Self::default() }
    }

    /// Subtracts the bytes of a row. Answers [`StoreError::TooMuch`] if there is no room.
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

/// Returns an upper bound for the bytes of an event as JSON: a character of a name may become six.
pub(crate) fn written_bytes(event: &Event) -> usize {
    event.payload.bytes().len() + 6 * event.element.len() + WRITTEN_BYTES_BESIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_takes_one_row_and_more_while_memory_remains() {
        let mut budget = PageBudget::of_queue();
        assert!(budget.take(2 * QUEUE_PAGE_BYTES_MAX).is_ok() && budget.take(0).is_ok());
        assert!(matches!(budget.take(1), Err(StoreError::TooMuch)));
        let mut budget = PageBudget::of_queue();
        assert!(budget.take(QUEUE_PAGE_BYTES_MAX - 1).is_ok() && budget.take(2).is_err() && budget.take(1).is_ok());
    }
}
