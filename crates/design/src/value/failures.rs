//! Failures of a run, stored with its event, within limits.

use isobar_model::event::EventError;

use super::Problem;

/// Most occurrences of the same error that are kept.
const REPEATS_MAX: usize = 16;
/// Most errors that are kept of one event.
pub const ERRORS_MAX: usize = 256;
/// Longest message of an error, in characters. It may quote what a device sent, so longer ones are cut.
pub(crate) const ERROR_CHARS_MAX: usize = 500;
/// Most failures that are examined; later ones are ignored.
const FAILURES_LOOKED_AT_MAX: usize = 2_000;

/// Errors of a run.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    errors: Vec<EventError>,
    looked_at: usize,
}

impl Failures {
    /// Adds the failure of an element.
    pub(crate) fn add(&mut self, element: &str, problem: &Problem) {
        if self.errors.len() >= ERRORS_MAX || self.looked_at >= FAILURES_LOOKED_AT_MAX {
            return;
        }
        self.looked_at += 1;
        let message = cut(&problem.0);
        let is_same = |error: &&EventError| error.element == element && error.message == message;
        if self.errors.iter().filter(is_same).count() < REPEATS_MAX {
            self.errors.push(EventError { element: element.to_owned(), message: message.to_owned() });
        }
    }

    pub(crate) fn into_errors(self) -> Vec<EventError> {
        self.errors
    }
}

/// Cuts a message to [`ERROR_CHARS_MAX`] characters.
pub(crate) fn cut(message: &str) -> &str {
    // Usually it is short, and its characters need not be counted.
    if message.len() <= ERROR_CHARS_MAX {
        return message;
    }
    message.char_indices().nth(ERROR_CHARS_MAX).and_then(|(end, _)| message.get(..end)).unwrap_or(message)
}
