//! The newest lines of this process's log, kept in memory for a support bundle.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Bytes of lines that are kept.
const KEPT_BYTES_MAX: usize = 128 << 10;
/// Longest line that is kept, in bytes: a backtrace, or an answer of somebody else.
const LINE_KEPT_BYTES_MAX: usize = 16 << 10;

static LINES: Mutex<Lines> = Mutex::new(Lines { lines: VecDeque::new(), bytes: 0, too_long: 0 });

#[derive(Default)]
struct Lines {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    too_long: usize,
}

impl Lines {
    fn push(&mut self, line: &[u8]) {
        if line.len() > LINE_KEPT_BYTES_MAX {
            self.too_long += 1;
            return;
        }
        self.lines.push_back(line.into());
        self.bytes += line.len();
        while self.bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }

    /// Returns the lines, and how many were too long.
    fn text(&self) -> (String, usize) {
        let lines = self.lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        (lines, self.too_long)
    }
}

/// Returns the newest lines, and how many were too long to be kept.
pub fn newest_lines() -> (String, usize) {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).text()
}

/// Writes lines into memory, where they take the place of the oldest. Each write is a line.
pub struct NewestLines;

impl io::Write for NewestLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_lines_are_kept_within_their_bytes() {
        let mut lines = Lines::default();
        (0..100_000).for_each(|number| lines.push(format!("line {number}\n").as_bytes()));
        lines.push(&[b'x'; LINE_KEPT_BYTES_MAX + 1]);
        assert!(lines.bytes <= KEPT_BYTES_MAX && lines.bytes > KEPT_BYTES_MAX - 16);
        let (text, too_long) = lines.text();
        assert!(text.ends_with("\nline 99999\n") && text.starts_with("line "), "{too_long}");
        assert_eq!((text.len(), too_long), (lines.bytes, 1));
    }
}
