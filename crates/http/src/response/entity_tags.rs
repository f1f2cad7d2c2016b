//! Conditional requests: the entity tags that `If-Match` and `If-None-Match` name (RFC 9110, 8.8.3 and 13.1).

use axum::http::{HeaderMap, HeaderName};
use isobar_model::version::IfMatch;

use super::Coding;

/// Value of a conditional header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EntityTags {
    /// `*`: any.
    Any,
    /// A list of tags.
    Listed(Vec<EntityTag>),
}

/// An entity tag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntityTag {
    is_weak: bool,
    /// Text between its quotes.
    opaque: Vec<u8>,
}

/// A header that is neither `*` nor a list of entity tags.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoEntityTags;

impl EntityTags {
    /// Reads a header from all its lines; `None` if it is absent.
    pub(crate) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, NoEntityTags> {
        let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let text = lines.join(&b","[..]);
        if text.trim_ascii() == b"*" {
            return Ok(Some(Self::Any));
        }
        let mut tags = Vec::new();
        let mut rest = text.as_slice();
        loop {
            // A list may have empty elements.
            rest = rest.trim_ascii_start();
            if let [b',', after @ ..] = rest {
                rest = after;
                continue;
            }
            if rest.is_empty() {
                break;
            }
            let (tag, after) = EntityTag::first_of(rest).ok_or(NoEntityTags)?;
            tags.push(tag);
            rest = after.trim_ascii_start();
            if !matches!(rest, [] | [b',', ..]) {
                return Err(NoEntityTags);
            }
        }
        if tags.is_empty() { Err(NoEntityTags) } else { Ok(Some(Self::Listed(tags))) }
    }

    /// Returns the listed tag that matches a response with the tag `opaque`, weak or compressed too (`If-None-Match`).
    pub(crate) fn name_by(&self, opaque: &str) -> Option<String> {
        match self {
            Self::Any => Some(opaque.to_owned()),
            Self::Listed(tags) => {
                let named = tags.iter().find(|tag| plain(&tag.opaque) == opaque.as_bytes())?;
                String::from_utf8(named.opaque.clone()).ok()
            }
        }
    }

    /// Returns true if they contain this tag, weak or not (`If-None-Match`).
    pub(crate) fn name(&self, opaque: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.iter().any(|tag| tag.opaque == opaque.as_bytes()),
        }
    }

    /// Converts them to the condition of a change (`If-Match`): weak tags match nothing, and the tag of a compressed
    /// response matches the plain one.
    pub(crate) fn into_if_match(self) -> IfMatch {
        match self {
            Self::Any => IfMatch::Any,
            Self::Listed(tags) => {
                let strong = tags.into_iter().filter(|tag| !tag.is_weak);
                IfMatch::Tags(strong.filter_map(|tag| String::from_utf8(plain(&tag.opaque).to_vec()).ok()).collect())
            }
        }
    }
}

/// Returns the tag of a response before compression.
fn plain(opaque: &[u8]) -> &[u8] {
    let stem = |coding: Coding| opaque.strip_suffix(coding.name().as_bytes())?.strip_suffix(b"-");
    Coding::ALL.into_iter().find_map(stem).unwrap_or(opaque)
}

impl EntityTag {
    /// Splits off the first tag of a text; returns it and the rest.
    fn first_of(text: &[u8]) -> Option<(Self, &[u8])> {
        let (is_weak, quoted) = match text.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let end = inner.iter().position(|byte| *byte == b'"')?;
        let (opaque, after) = (&inner[..end], &inner[end + 1..]);
        let may_stand = |byte: &u8| *byte == 0x21 || (0x23..=0x7e).contains(byte) || *byte >= 0x80;
        let tag = Self { is_weak, opaque: opaque.to_vec() };
        opaque.iter().all(may_stand).then_some((tag, after))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::IF_MATCH;
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&[u8]]) -> Result<Option<EntityTags>, NoEntityTags> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_MATCH, HeaderValue::from_bytes(line).unwrap());
        }
        EntityTags::read(&headers, &IF_MATCH)
    }

    #[test]
    fn tags_are_read_from_lists_and_lines() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[b" * "]), Ok(Some(EntityTags::Any)));
        let lists: [&[&[u8]]; 4] =
            [&[b"\"a\",W/\"b\""], &[b"\"a\"", b"W/\"b\""], &[b", \"a\" ,, W/\"b\" ,"], &[b"\"a\"\t,W/\"b\""]];
        for list in lists {
            let tags = read(list).unwrap().unwrap();
            assert!(tags.name("a") && tags.name("b") && !tags.name("c") && !tags.name("\"a\""), "{list:?}");
            assert_eq!(tags.into_if_match(), IfMatch::Tags(vec!["a".to_owned()]), "{list:?}");
        }
        // A tag may contain a comma, and may be empty.
        assert_eq!(read(&[b"\"a,b\""]).unwrap().unwrap().into_if_match(), IfMatch::Tags(vec!["a,b".to_owned()]));
        assert!(read(&[b"\"\""]).unwrap().unwrap().name(""));
        assert_eq!(read(&[b"*"]).unwrap().unwrap().into_if_match(), IfMatch::Any);
    }

    #[test]
    fn tag_of_a_compressed_response_names_the_plain_one() {
        let tags = read(&[b"\"7-br\", W/\"8-gzip\", \"9-zstd\", \"br\""]).unwrap().unwrap();
        assert_eq!(tags.name_by("7").as_deref(), Some("7-br"));
        assert_eq!(tags.name_by("8").as_deref(), Some("8-gzip"));
        assert_eq!((tags.name_by("9"), tags.name_by("")), (None, None));
        assert_eq!(tags.into_if_match(), IfMatch::Tags(["7", "9-zstd", "br"].map(str::to_owned).to_vec()));
        assert_eq!(read(&[b"*"]).unwrap().unwrap().name_by("7").as_deref(), Some("7"));
    }

    #[test]
    fn malformed_list_of_tags_is_refused() {
        let odd: [&[u8]; 11] =
            [b"", b" ", b",", b"a", b"\"a", b"a\"", b"\"a\" \"b\"", b"*, \"a\"", b"w/\"a\"", b"W/ \"a\"", b"\"a b\""];
        for text in odd {
            assert_eq!(read(&[text]), Err(NoEntityTags), "{:?}", String::from_utf8_lossy(text));
        }
        assert_eq!(read(&[b"*", b"*"]), Err(NoEntityTags));
    }

    proptest! {
        #[test]
        fn written_tags_are_read_back(tags in prop::collection::vec("[!#-~]{0,12}", 1..6)) {
            let text = tags.iter().map(|tag| format!("\"{tag}\"")).collect::<Vec<_>>().join(", ");
            let found = read(&[text.as_bytes()]).unwrap().unwrap();
            prop_assert_eq!(found.into_if_match(), IfMatch::Tags(tags));
        }

        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(32_u8..=255, 0..60)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let mut headers = HeaderMap::new();
                headers.insert(IF_MATCH, value);
                let _ = EntityTags::read(&headers, &IF_MATCH);
            }
        }
    }
}
