//! The header `traceparent` (W3C Trace Context), parsed strictly, as it is untrusted.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Length of version 00, in characters; later versions may be longer.
const VERSION_00_CHARACTERS: usize = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".len();

/// Parses a header; returns `None` if it deviates from the standard.
pub fn read(header: &[u8]) -> Option<SpanContext> {
    let (known, more) = header.split_at_checked(VERSION_00_CHARACTERS)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let version = hex::<2>(parts.next()?)?;
    let trace = hex::<32>(parts.next()?)?;
    let parent = hex::<16>(parts.next()?)?;
    let flags = hex::<2>(parts.next()?)?;
    let is_whole = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.first().is_none_or(|byte| *byte == b'-'),
    };
    if parts.next().is_some() || !is_whole {
        return None;
    }
    let (trace, parent) = (TraceId::from(trace), SpanId::from(u64::try_from(parent).ok()?));
    // Other flags are reserved for later versions, and are not passed on.
    let flags = TraceFlags::default().with_sampled(flags & 1 == 1);
    let context = SpanContext::new(trace, parent, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

/// Parses exactly `DIGITS` lower-case hexadecimal digits.
fn hex<const DIGITS: usize>(text: &[u8]) -> Option<u128> {
    if text.len() != DIGITS || !text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// Formats the header that names a span.
pub fn written(span: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), u8::from(span.is_sampled()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOUND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn sound_header_is_read_and_written_again() {
        let read = read(SOUND.as_bytes()).unwrap();
        assert!(read.is_sampled() && read.is_remote());
        assert_eq!(written(&read), SOUND);
    }

    #[test]
    fn flags_and_later_versions_are_read_as_far_as_known() {
        let sampled = |text: String| read(text.as_bytes()).map(|context| context.is_sampled());
        assert_eq!(sampled(SOUND.replace("-01", "-00")), Some(false));
        assert_eq!(sampled(SOUND.replace("-01", "-ff")), Some(true));
        assert_eq!(sampled(SOUND.replacen("00-", "cc-", 1)), Some(true));
        assert_eq!(sampled(SOUND.replacen("00-", "cc-", 1) + "-what-comes"), Some(true));
        assert_eq!(sampled(SOUND.replacen("00-", "cc-", 1) + ".what-comes"), None);
    }

    #[test]
    fn invalid_header_is_ignored() {
        for text in [
            "",
            "00",
            &SOUND.to_uppercase(),
            &SOUND[..SOUND.len() - 1],
            &format!("{SOUND}-"),
            &format!("{SOUND}0"),
            &SOUND.replacen("00-", "ff-", 1),
            &SOUND.replacen("00-", "0g-", 1),
            &SOUND.replace("00f067aa0ba902b7", "0000000000000000"),
            &SOUND.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &SOUND.replace("4bf9", "+bf9"),
            &SOUND.replace('-', "_"),
            &SOUND.replacen("00-4", "00--", 1),
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(at in 0..56usize, bytes in prop::collection::vec(any::<u8>(), 1..70)) {
            let at = at.min(SOUND.len());
            for text in [[&SOUND.as_bytes()[..at], &bytes].concat(), bytes] {
                if let Some(context) = read(&text) {
                    prop_assert!(context.is_valid());
                }
            }
        }
    }
}
