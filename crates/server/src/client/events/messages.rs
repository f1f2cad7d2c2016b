//! An incremental parser of server-sent events.

/// Longest message, in bytes: a payload may be as long as a body.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A message of a stream.
#[derive(Debug, Default, PartialEq)]
pub struct StreamMessage {
    /// The event type; empty if the message has none.
    pub event: String,
    /// The id after which a stream can be resumed; empty if the message has none. It may come alone.
    pub id: String,
    /// The data; empty if the message has none.
    pub data: String,
}

/// Parses messages from arbitrary chunks of bytes.
#[derive(Default)]
pub struct MessageReader {
    rest: Vec<u8>,
    message: StreamMessage,
}

impl MessageReader {
    /// Returns the messages that these bytes complete. Fails if a message is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<StreamMessage>, &'static str> {
        let mut messages = Vec::new();
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.rest);
            messages.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches('\r')));
        }
        self.rest.extend_from_slice(bytes);
        let length = self.rest.len() + self.message.data.len();
        if length > MESSAGE_BYTES_MAX { Err("a message of the stream does not end") } else { Ok(messages) }
    }

    fn line(&mut self, line: &str) -> Option<StreamMessage> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return Some(message).filter(|message| !message.data.is_empty() || !message.id.is_empty());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.event),
            "id" => value.clone_into(&mut self.message.id),
            "data" => {
                if !self.message.data.is_empty() {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // Comments have an empty name; other fields are unknown.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_from_any_chunks() {
        let text = ": hello\r\n\nid: 0\n\nevent: alarm\ndata: {\"a\":\ndata:\"ü\"}\n\nid: 7\ndata: 1\n\ndata: half";
        let message = |event: &str, id: &str, data: &str| StreamMessage {
            event: event.to_owned(),
            id: id.to_owned(),
            data: data.to_owned(),
        };
        let expected = [message("", "0", ""), message("alarm", "", "{\"a\":\n\"ü\"}"), message("", "7", "1")];
        for size in 1..text.len() {
            let mut reader = MessageReader::default();
            let read: Vec<_> = text.as_bytes().chunks(size).flat_map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(read, expected, "pieces of {size}");
        }
    }

    #[test]
    fn endless_message_is_refused() {
        let mut reader = MessageReader::default();
        let piece = vec![b'x'; MESSAGE_BYTES_MAX];
        assert!(reader.push(&piece).is_ok());
        assert!(reader.push(b"x").is_err());
    }
}
