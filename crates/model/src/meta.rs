//! Metadata of devices: an object of labels, with bounds on their number and size (contract: The project design).

use crate::check::{Input, read_objects};
use crate::error::Result;
use crate::json::{Json, RawJson, merge_patch};
use crate::setting::BULK_ITEMS_MAX;

/// Largest metadata of a device, in bytes as stored.
pub const META_BYTES_MAX: usize = 64 << 10;
/// Most labels of a device.
pub const META_LABELS_MAX: usize = 1_000;

/// The size of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSize {
    /// Number of labels.
    pub labels: usize,
    /// Bytes of its JSON.
    pub bytes: usize,
}

impl MetaSize {
    /// Measures metadata.
    pub fn of(meta: &RawJson) -> Self {
        let labels = match meta.tree() {
            Json::Object(members) => members.len(),
            _ => 0,
        };
        Self { labels, bytes: meta.bytes().len() }
    }

    /// Returns the exceeded limit, in words, or `None`. Metadata that was larger before may stay, but not grow.
    pub fn exceeds(self, before: Self) -> Option<&'static str> {
        if self.bytes > META_BYTES_MAX && self.bytes > before.bytes {
            return Some("at most 65536 bytes");
        }
        (self.labels > META_LABELS_MAX && self.labels > before.labels).then_some("at most 1000 labels")
    }
}

/// A JSON merge patch of a device's metadata (contract: Beyond the specification).
#[derive(Clone, Debug, PartialEq)]
pub struct MetaPatch(RawJson);

impl MetaPatch {
    /// Reads a body, which must be an object.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        Input::body(body).map(|_| Self(body.into()))
    }

    /// Applies the patch to metadata.
    ///
    /// # Errors
    /// The exceeded limit, in words.
    pub fn over(&self, meta: &RawJson) -> std::result::Result<RawJson, &'static str> {
        let patched = merge_patch(meta, &self.0.tree());
        match MetaSize::of(&patched).exceeds(MetaSize::of(meta)) {
            None => Ok(patched),
            Some(most) => Err(most),
        }
    }

    /// Returns true if the patch sets or removes this label.
    pub fn names(&self, label: &str) -> bool {
        self.0.tree().get(label).is_some()
    }
}

/// One item of a bulk change of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetaItem {
    /// The device, as it was given.
    pub device: String,
    /// Changes to its metadata.
    pub patch: MetaPatch,
}

impl MetaItem {
    /// Reads the body of a bulk change: an array of `{deviceId, meta}`.
    pub fn read_all(tree: &Json<'_>) -> Result<Vec<MetaItem>> {
        read_objects(tree, BULK_ITEMS_MAX, |mut input| {
            let device = input.required_text("deviceId", 0, usize::MAX);
            input.require("meta");
            let meta = input.object("meta").unwrap_or(&Json::Null).into();
            input.unless_any(MetaItem { device, patch: MetaPatch(meta) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    #[test]
    fn patch_that_makes_metadata_too_large_is_refused() {
        let patch = |text: &str| MetaPatch::read(&parse(text).unwrap()).unwrap();
        let meta = |text: String| RawJson::check(text.into()).unwrap();
        let full = meta(format!(r#"{{"a":"{}"}}"#, "x".repeat(META_BYTES_MAX - 8)));
        assert_eq!(patch(r#"{"b":1}"#).over(&full), Err("at most 65536 bytes"));
        assert_eq!(patch(r#"{"b":1,"a":null}"#).over(&full).unwrap().text(), r#"{"b":1}"#);
        // Larger metadata may stay as large.
        let over = meta(format!(r#"{{"a":"{}","b":1}}"#, "x".repeat(META_BYTES_MAX)));
        assert!(patch(r#"{"b":2}"#).over(&over).is_ok() && patch(r#"{"b":23}"#).over(&over).is_err());
        assert!(patch(r#"{"b":{}}"#).names("b") && !patch(r#"{"b":{"a":1}}"#).names("a"));
    }

    #[test]
    fn bulk_item_without_an_object_is_named() {
        let body = r#"[{"deviceId":"d","meta":{"a":null}},{},7,{"deviceId":1,"meta":null},{"deviceId":"d","meta":[]}]"#;
        let Err(Error::Invalid(faults)) = MetaItem::read_all(&parse(body).unwrap()) else { panic!("no faults") };
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["[1].deviceId", "[1].meta", "[2]", "[3].deviceId", "[3].meta", "[4].meta"]);
        assert!(MetaPatch::read(&parse("[]").unwrap()).is_err() && MetaPatch::read(&parse("null").unwrap()).is_err());
    }

    #[test]
    fn metadata_above_the_limit_may_stay_but_not_grow() {
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
