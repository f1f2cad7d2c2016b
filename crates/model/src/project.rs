//! Projects and their specifications.

use crate::access::Lineage;
use crate::check::{Faults, Input, Patch};
use crate::error::Result;
use crate::ids::{OrganizationId, ProjectId, UserId};
use crate::json::{Json, RawJson};
use crate::time::Timestamp;
use crate::version::{SpecificationTag, VersionNumber};

/// The only project type (contract: Resources).
pub const PROJECT_TYPE: &str = "api";

/// A project in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// Its identifier, also shown as `uuid`.
    pub id: ProjectId,
    /// 1 to 80 characters.
    pub name: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The lineage of that organization.
    pub lineage: Lineage,
    /// The name of that organization.
    pub organization_name: String,
    /// User who made it.
    pub created_by: Option<UserId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// The body that creates or updates a project.
#[derive(Clone, Debug)]
pub struct ProjectInput {
    /// Required.
    pub name: String,
    /// The owner; `None` for the caller's organization, or unchanged.
    pub organization: Option<OrganizationId>,
}

impl ProjectInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let read = Self { name: input.required_text("name", 1, 80), organization: input.id("organizationId") };
        input.unless_any(read)
    }
}

/// A project specification (design) in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// 1 to 80 characters.
    pub name: String,
    /// 1 to 16 characters.
    pub create_version: String,
    /// Up to 2000 characters.
    pub description: String,
    /// Time of the project's first specification.
    pub created: Timestamp,
    /// Time of the last write.
    pub last_modified: Timestamp,
    /// Number of this version.
    pub version: VersionNumber,
    /// Free-form object.
    pub meta: RawJson,
    /// Free-form object; `planes.cloud` is executed.
    pub planes: RawJson,
}

impl Specification {
    /// Returns its entity tag.
    pub fn tag(&self) -> SpecificationTag {
        SpecificationTag { version: self.version, written: self.last_modified }
    }
}

/// The body that overwrites a specification; members that are left out take their defaults (contract: Conventions,
/// PUT).
#[derive(Clone, Debug)]
pub struct SpecificationInput {
    /// Required.
    pub name: String,
    /// Default `2`.
    pub create_version: String,
    /// Default empty.
    pub description: String,
    /// Default `{}`.
    pub meta: RawJson,
    /// Default `{}`.
    pub planes: RawJson,
}

impl SpecificationInput {
    /// Reads a body and collects its faults. The caller adds those of `planes.cloud`, which only the design can check.
    pub fn read(body: &Json<'_>) -> Result<(Self, Faults)> {
        let mut input = Input::body(body)?;
        let object = |patch: Patch<RawJson>| patch.over(None).unwrap_or_else(empty_object);
        let read = Self {
            name: input.required_text("name", 1, 80),
            create_version: input.text("createVersion", 1, 16).unwrap_or_else(|| "2".to_owned()),
            description: input.text("description", 0, 2000).unwrap_or_default(),
            meta: object(input.object_patch("meta")),
            planes: object(input.object_patch("planes")),
        };
        Ok((read, input.into_faults()))
    }
}

/// Returns `{}`.
pub fn empty_object() -> RawJson {
    RawJson::trusted(bytes::Bytes::from_static(b"{}"))
}
