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

/// A project as the registry keeps it.
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
    /// Who made it.
    pub created_by: Option<UserId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// The body that creates or updates a project.
#[derive(Clone, Debug)]
pub struct ProjectInput {
    /// Required.
    pub name: String,
    /// The owner; none: the caller's organization, or as it is.
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

/// A project specification (design), as the registry keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// 1 to 80 characters.
    pub name: String,
    /// 1 to 16 characters.
    pub create_version: String,
    /// Up to 2000 characters.
    pub description: String,
    /// When the project got its first one.
    pub created: Timestamp,
    /// When it was last written.
    pub last_modified: Timestamp,
    /// The number of this version.
    pub version: VersionNumber,
    /// Free-form object.
    pub meta: RawJson,
    /// Free-form object; `planes.cloud` is executed.
    pub planes: RawJson,
}

impl Specification {
    /// Its entity tag.
    pub fn tag(&self) -> SpecificationTag {
        SpecificationTag { version: self.version, written: self.last_modified }
    }
}

/// The body that overwrites a specification: what is left out takes its default (contract: Conventions, PUT).
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
    /// Reads a body and gathers its faults. Whether `planes.cloud` can be executed is the design's to say; only then are
    /// all faults known.
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

/// `{}`
pub fn empty_object() -> RawJson {
    RawJson::trusted(bytes::Bytes::from_static(b"{}"))
}
