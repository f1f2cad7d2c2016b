//! Versions of a design, and the entity tag of the current one (contract: Versions of a design).

use std::fmt;
use std::str::FromStr;

use crate::ids::UserId;
use crate::json::Json;
use crate::project::SpecificationInput;
use crate::time::Timestamp;

/// The number of a version: 1 for the first design of a project, then increasing, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionNumber(pub u64);

impl VersionNumber {
    /// The number of a project's first design.
    pub const FIRST: Self = Self(1);

    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a text that is not a version number.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is not the number of a version")]
pub struct NotAVersion;

impl FromStr for VersionNumber {
    type Err = NotAVersion;

    /// Parses digits without a sign or a leading zero, so that each number has one spelling.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse::<u64>().ok().filter(|number| is_plain && i64::try_from(*number).is_ok());
        number.map(Self).ok_or(NotAVersion)
    }
}

/// The entity tag of the current design. It holds the time of the write, so that a number that is used again after a
/// restore gives another tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecificationTag {
    /// Its number.
    pub version: VersionNumber,
    /// Time of the write.
    pub written: Timestamp,
}

impl fmt::Display for SpecificationTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.version, self.written.millis())
    }
}

/// A client's precondition on the resource that it changes (`If-Match`; RFC 9110, 13.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// The resource exists.
    Any,
    /// The resource has one of these strong entity tags.
    Tags(Vec<String>),
}

impl IfMatch {
    /// Returns true if a resource with this entity tag may be changed.
    pub fn holds(&self, tag: impl fmt::Display) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => {
                let tag = tag.to_string();
                tags.contains(&tag)
            }
        }
    }
}

/// A version of a design, without the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecificationVersion {
    /// Its number.
    pub number: VersionNumber,
    /// Time of the write.
    pub created_at: Timestamp,
    /// Its author; `None` if unknown or out of reach.
    pub created_by: Option<UserId>,
    /// The name of the specification at that time.
    pub name: String,
    /// Number of elements of its cloud plane.
    pub element_count: u64,
}

/// A version of a design with the design.
#[derive(Clone, Debug)]
pub struct WholeVersion {
    /// The metadata that lists show.
    pub version: SpecificationVersion,
    /// The specification as it was written.
    pub content: SpecificationInput,
}

/// Counts the elements of the cloud plane.
pub fn element_count(planes: &Json<'_>) -> u64 {
    match planes.get("cloud").and_then(|cloud| cloud.get("elements")) {
        Some(Json::Object(elements)) => elements.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn version_number_has_one_spelling() {
        for number in [1, 10, 1_000_007, i64::MAX as u64] {
            assert_eq!(number.to_string().parse(), Ok(VersionNumber(number)));
        }
        for other in ["", "0", "01", "+1", "-1", "1.0", " 1", "١", "x", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(other.parse::<VersionNumber>(), Err(NotAVersion), "{other:?}");
        }
        assert_eq!(VersionNumber::FIRST.next(), VersionNumber(2));
    }

    #[test]
    fn tag_depends_on_version_and_time() {
        let tag = |number, millis| SpecificationTag {
            version: VersionNumber(number),
            written: Timestamp::from_millis(millis),
        };
        let named = tag(12, 1_800_000_000_000);
        let requires = IfMatch::Tags(vec!["7-0".to_owned(), named.to_string()]);
        assert!(requires.holds(named) && IfMatch::Any.holds(named));
        for other in [tag(13, 1_800_000_000_000), tag(12, 1_800_000_000_001), tag(1, 21_800_000_000_000)] {
            assert!(!requires.holds(other), "{other}");
        }
        assert!(!IfMatch::Tags(Vec::new()).holds(named));
    }

    #[test]
    fn elements_of_the_cloud_plane_are_counted() {
        for (planes, count) in [
            (r#"{"cloud":{"elements":{"a":{},"b":{}}},"edge":{"elements":{"c":{}}}}"#, 2),
            (r#"{"cloud":{"elements":{}}}"#, 0),
            (r#"{"cloud":{"elements":[1,2]}}"#, 0),
            (r#"{"cloud":null}"#, 0),
            ("{}", 0),
            ("7", 0),
        ] {
            assert_eq!(element_count(&parse(planes).unwrap()), count, "{planes}");
        }
    }
}
