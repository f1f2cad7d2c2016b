//! Views of the device list, saved by a user under a name (contract: Beyond the specification, Views).

use crate::check::{Input, Patch};
use crate::error::Result;
use crate::ids::{OrganizationId, ViewId};
use crate::json::Json;
use crate::time::Timestamp;

/// Longest name of a view, in characters.
const VIEW_NAME_MAX: usize = 80;
/// Longest query of a view, in characters, each of which is a byte.
const VIEW_QUERY_MAX: usize = 8_000;

/// A view of the device list.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its identifier.
    pub id: ViewId,
    /// Its name, unique among its user's views.
    pub name: String,
    /// The organization whose devices it shows; `None` for the selected one.
    pub organization: Option<OrganizationId>,
    /// The query of a URL: search, filters, order and columns.
    pub query: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last write.
    pub updated_at: Timestamp,
}

/// The body that makes or changes a view.
#[derive(Clone, Debug)]
pub struct ViewInput {
    name: String,
    /// The organization whose devices it shows.
    pub organization: Patch<OrganizationId>,
    query: String,
}

impl ViewInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let name = input.required_text("name", 1, VIEW_NAME_MAX);
        let organization = input.id_patch("organizationId");
        let query = input.required_text("query", 0, VIEW_QUERY_MAX);
        if !query.bytes().all(|byte| byte.is_ascii_graphic()) {
            input.fault("query", "must be percent-encoded");
        }
        input.unless_any(Self { name, organization, query })
    }

    /// Makes a view of the body.
    pub fn into_view(self, id: ViewId, now: Timestamp) -> View {
        let Self { name, organization, query } = self;
        View { id, name, organization: organization.over(None), query, created_at: now, updated_at: now }
    }

    /// Returns the view after the change; an organization that was left out is kept.
    pub fn over(self, present: View, now: Timestamp) -> View {
        let organization = self.organization.over(present.organization);
        View { name: self.name, organization, query: self.query, updated_at: now, ..present }
    }
}
