//! Specifications of projects, and their versions.

use axum::http::HeaderValue;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH, VARY};
use isobar_model::access::Action;
use isobar_model::error::Error;
use isobar_model::ids::ProjectId;
use isobar_model::project::{Specification, SpecificationInput};
use isobar_model::version::{IfMatch, SpecificationVersion, VersionNumber, WholeVersion};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Raw, Time};
use crate::request::{Call, after, both};
use crate::response::{self, Answer, EntityTags};

pub(crate) const VERSIONS_SORTED_BY: &[&str] = &["number", "createdAt", "name", "elementCount"];

pub(crate) async fn specification_fetch(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    // A malformed list of tags matches nothing.
    if let Ok(Some(known)) = EntityTags::read(&call.head.headers, &IF_NONE_MATCH) {
        let tag = call.hub().specification_tag(call.caller()?, id).await?.to_string();
        if let Some(known_by) = known.name_by(&tag) {
            let mut response = response::not_modified(&known_by);
            response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
            return Ok(response);
        }
    }
    let specification = call.hub().specification_fetch(call.caller()?, id).await?;
    let tag = specification.tag().to_string();
    Ok(response::tagged(response::ok(&SpecificationJson::from(specification))?, &tag))
}

pub(crate) async fn specification_write(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let (required, body) = (required(call), call.json(SpecificationInput::read).await);
    let (required, read) = match (required, body) {
        // The faults of a design are returned after it was compiled, together with that of the header.
        (Err(Error::Invalid(odd)), Ok((input, mut faults))) => {
            faults.extend(odd);
            (None, (input, faults))
        }
        (required, body) => {
            let allowed = call.hub().allow_project(call.caller()?, id, Action::ProjectUpdate);
            after(allowed, both(required, body)).await?
        }
    };
    let specification = call.hub().specification_write(call.caller()?, id, read, required.as_ref()).await?;
    response::ok(&SpecificationJson::from(specification))
}

pub(crate) async fn specification_versions(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let mut query = call.query();
    let list = query.list(VERSIONS_SORTED_BY);
    let list = after(call.hub().allow_project(call.caller()?, id, Action::ProjectRead), query.end(list)).await?;
    let page = call.hub().specification_versions(call.caller()?, id, list).await?;
    call.page(page, |_| 0, SpecificationVersionJson::from).await
}

pub(crate) async fn specification_version_fetch(call: &mut Call) -> Answer {
    let (id, number) = version(call)?;
    let whole = call.hub().specification_version(call.caller()?, id, number).await?;
    response::ok(&WholeVersionJson::from(whole))
}

pub(crate) async fn specification_version_restore(call: &mut Call) -> Answer {
    let (id, number) = version(call)?;
    let allowed = call.hub().allow_specification_restore(call.caller()?, id, number);
    let required = after(allowed, required(call)).await?;
    let made = call.hub().specification_restore(call.caller()?, id, number, required.as_ref()).await?;
    response::created(&SpecificationVersionJson::from(made))
}

/// Reads the version that the path names.
fn version(call: &Call) -> Result<(ProjectId, VersionNumber), Error> {
    Ok((call.id("id", "project")?, call.id("number", "version")?))
}

/// Reads the condition (`If-Match`) on the specification in force.
fn required(call: &Call) -> Result<Option<IfMatch>, Error> {
    let named = EntityTags::read(&call.head.headers, &IF_MATCH)
        .map_err(|_| Error::invalid("header.If-Match", "must be * or a list of entity tags"))?;
    Ok(named.map(EntityTags::into_if_match))
}

/// A project's specification (design).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Specification)]
pub(crate) struct SpecificationJson {
    name: String,
    create_version: String,
    description: String,
    created: Time,
    last_modified: Time,
    meta: Raw,
    planes: Raw,
}

impl From<Specification> for SpecificationJson {
    fn from(specification: Specification) -> Self {
        Self {
            name: specification.name,
            create_version: specification.create_version,
            description: specification.description,
            created: Time(specification.created),
            last_modified: Time(specification.last_modified),
            meta: Raw(specification.meta),
            planes: Raw(specification.planes),
        }
    }
}

/// A version of a specification, without its design.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SpecificationVersion)]
pub(crate) struct SpecificationVersionJson {
    /// From 1, one more with each that is written, and never used again.
    #[schema(minimum = 1)]
    number: u64,
    created_at: Time,
    /// The user who wrote it; null if that is unknown, or out of the caller's reach.
    created_by_id: Option<Id>,
    name: String,
    /// Elements of its cloud plane.
    #[schema(minimum = 0)]
    element_count: u64,
}

impl From<SpecificationVersion> for SpecificationVersionJson {
    fn from(version: SpecificationVersion) -> Self {
        Self {
            number: version.number.0,
            created_at: Time(version.created_at),
            created_by_id: version.created_by.map(|user| Id(user.0)),
            name: version.name,
            element_count: version.element_count,
        }
    }
}

/// A version of a specification, as it was written.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WholeSpecificationVersion)]
pub(crate) struct WholeVersionJson {
    #[schema(minimum = 1)]
    number: u64,
    created_at: Time,
    /// The user who wrote it; null if that is unknown, or out of the caller's reach.
    created_by_id: Option<Id>,
    name: String,
    /// Elements of its cloud plane.
    #[schema(minimum = 0)]
    element_count: u64,
    create_version: String,
    description: String,
    meta: Raw,
    planes: Raw,
}

impl From<WholeVersion> for WholeVersionJson {
    fn from(WholeVersion { version, content }: WholeVersion) -> Self {
        Self {
            number: version.number.0,
            created_at: Time(version.created_at),
            created_by_id: version.created_by.map(|user| Id(user.0)),
            name: version.name,
            element_count: version.element_count,
            create_version: content.create_version,
            description: content.description,
            meta: Raw(content.meta),
            planes: Raw(content.planes),
        }
    }
}

/// Overwrites a specification.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = SpecificationInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct SpecificationInputJson {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    #[schema(required = false, min_length = 1, max_length = 16, default = "2")]
    create_version: String,
    #[schema(required = false, max_length = 2000, default = "")]
    description: String,
    meta: Option<Raw>,
    planes: Option<Raw>,
}
