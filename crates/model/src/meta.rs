//! A device's metadata: an object of labels, and how many and how large they may be (contract: The project design).

use crate::json::{Json, RawJson};

/// Most bytes of a device's metadata, as it is kept.
pub const META_BYTES_MAX: usize = 64 << 10;
/// Most labels of a device.
pub const META_LABELS_MAX: usize = 1_000;

/// How large metadata is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSize {
    /// How many labels it has.
    pub labels: usize,
    /// How many bytes its JSON takes.
    pub bytes: usize,
}

impl MetaSize {
    /// The size of this metadata.
    pub fn of(meta: &RawJson) -> Self {
        let labels = match meta.tree() {
            Json::Object(members) => members.len(),
            _ => 0,
        };
        Self { labels, bytes: meta.bytes().len() }
    }

    /// What metadata may hold at most, if it may not become as large as this. What was larger before there was a bound
    /// stays, and does not grow.
    pub fn exceeds(self, before: Self) -> Option<&'static str> {
        if self.bytes > META_BYTES_MAX && self.bytes > before.bytes {
            return Some("at most 65536 bytes");
        }
        (self.labels > META_LABELS_MAX && self.labels > before.labels).then_some("at most 1000 labels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_may_stay_and_may_not_grow() {
        let size = |labels, bytes| MetaSize { labels, bytes };
        let (small, most) = (size(1, 10), size(META_LABELS_MAX, META_BYTES_MAX));
        assert_eq!(most.exceeds(small), None);
        let (many, large) = (size(META_LABELS_MAX + 1, 9), size(1, META_BYTES_MAX + 1));
        assert_eq!(large.exceeds(small), Some(format!("at most {META_BYTES_MAX} bytes").as_str()));
        assert_eq!(many.exceeds(most), Some(format!("at most {META_LABELS_MAX} labels").as_str()));
        assert_eq!(
            (large.exceeds(large), many.exceeds(many), size(1, META_BYTES_MAX + 2).exceeds(large).is_some()),
            (None, None, true)
        );
        let meta = RawJson::check(r#"{"a":1,"b":{"c":2}}"#.into()).unwrap();
        assert_eq!(MetaSize::of(&meta), size(2, 19));
    }
}
