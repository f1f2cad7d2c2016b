//! Versions of a design, and what names the one in force (contract: Versions of a design).

use std::fmt;
use std::str::FromStr;

use crate::ids::UserId;
use crate::json::Json;
use crate::project::SpecificationInput;
use crate::time::Timestamp;

/// The number of a version: 1 for the first design of a project, one more with each, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionNumber(pub u64);

impl VersionNumber {
    /// That of a project's first design.
    pub const FIRST: Self = Self(1);

    /// The one that comes after it.
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

/// A text that is no number of a version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is not the number of a version")]
pub struct NotAVersion;

impl FromStr for VersionNumber {
    type Err = NotAVersion;

    /// Reads digits alone, without a sign or a leading zero: another spelling names nothing.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse::<u64>().ok().filter(|number| is_plain && i64::try_from(*number).is_ok());
        number.map(Self).ok_or(NotAVersion)
    }
}

/// Names the design in force, and no other: its entity tag. With the moment it was written a tag stays its own when a
/// backup is restored and its number is given out once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecificationTag {
    /// Its number.
    pub version: VersionNumber,
    /// When it was written.
    pub written: Timestamp,
}

impl fmt::Display for SpecificationTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.version, self.written.millis())
    }
}

/// What a client requires of the thing that it changes (`If-Match`; RFC 9110, 13.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// That it is there.
    Any,
    /// That its entity tag is one of these, which are strong ones.
    Tags(Vec<String>),
}

impl IfMatch {
    /// Whether a thing with this entity tag may be changed.
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
    /// When it was written.
    pub created_at: Timestamp,
    /// Who wrote it; none: nobody knows, or nobody in reach.
    pub created_by: Option<UserId>,
    /// The name that the specification had.
    pub name: String,
    /// Elements of its cloud plane.
    pub element_count: u64,
}

/// A version of a design, whole.
#[derive(Clone, Debug)]
pub struct WholeVersion {
    /// What the list tells of it.
    pub version: SpecificationVersion,
    /// The specification as it was written.
    pub content: SpecificationInput,
}

/// How many elements the cloud plane of these planes has.
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
    fn a_number_has_one_spelling() {
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
    fn a_tag_is_of_one_version_and_one_moment() {
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
