//! Looks at the line ends of a request's head as it arrives. hyper ends a line at a bare LF too; a proxy in front that
//! does not would read other headers than this server, and another end of the request.

/// The place within a head up to which it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLines {
    /// True if the last byte was CR.
    after_cr: bool,
    /// Bytes of the current line, without its end.
    line_bytes: usize,
    /// True if there was a line that is not empty: empty ones before the first are skipped.
    has_begun: bool,
    /// True if the head was complete, or is spoilt.
    is_done: bool,
}

impl HeadLines {
    /// Begins a head.
    pub fn new() -> Self {
        Self { after_cr: false, line_bytes: 0, has_begun: false, is_done: false }
    }

    /// Looks at further bytes, and replaces the first bare LF of the head with NUL, which no head may contain: so
    /// whoever parses it refuses it.
    pub fn spoil_bare_lf(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.is_done {
                return;
            }
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match *byte {
                b'\n' if !after_cr => {
                    *byte = 0;
                    self.is_done = true;
                }
                b'\n' => {
                    self.is_done = self.has_begun && self.line_bytes == 0;
                    self.has_begun |= self.line_bytes > 0;
                    self.line_bytes = 0;
                }
                b'\r' => {}
                _ => self.line_bytes += 1,
            }
        }
    }
}

/// Returns true if a complete head has a line that ends with a bare LF.
pub(super) fn has_bare_lf(head: &[u8]) -> bool {
    let mut before = 0;
    head.iter().any(|byte| {
        let before = std::mem::replace(&mut before, *byte);
        *byte == b'\n' && before != b'\r'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pieces: &[&str]) -> String {
        let mut lines = HeadLines::new();
        let seen = pieces.iter().map(|piece| {
            let mut bytes = piece.as_bytes().to_vec();
            lines.spoil_bare_lf(&mut bytes);
            String::from_utf8(bytes).unwrap()
        });
        seen.collect()
    }

    #[test]
    fn bare_lf_is_replaced_within_a_head_only() {
        let sound = "\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\n{\n\n}";
        assert_eq!(seen(&[sound]), sound);
        let pieces: Vec<_> = sound.split_inclusive(|_: char| true).collect();
        assert_eq!(seen(&pieces), sound);
        for (head, spoilt) in [
            ("GET / HTTP/1.1\nhost: h\r\n\r\n", "GET / HTTP/1.1\0host: h\r\n\r\n"),
            ("GET / HTTP/1.1\r\nx: a\ny: b\r\n\r\n", "GET / HTTP/1.1\r\nx: a\0y: b\r\n\r\n"),
            ("GET / HTTP/1.1\r\nx: a\r\n\nbody", "GET / HTTP/1.1\r\nx: a\r\n\0body"),
            ("\nGET / HTTP/1.1\r\n\r\n", "\0GET / HTTP/1.1\r\n\r\n"),
        ] {
            assert_eq!(seen(&[head]), spoilt);
            let pieces: Vec<_> = head.split_inclusive(|_: char| true).collect();
            assert_eq!(seen(&pieces), spoilt);
        }
    }
}
