//! Descriptions of operations for the OpenAPI document, as rows of the table of operations hold them.

use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use super::parameters::Param;

/// Schemas of the document by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Function that adds a schema and those that it refers to, and returns it.
pub(crate) type Shape = fn(&mut Schemas) -> RefOr<Schema>;

pub(crate) fn of<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Ref::from_schema_name(T::name()).into()
}

/// A success: its status and content.
#[derive(Clone, Copy)]
pub(crate) enum Success {
    Json(u16, Shape),
    /// A page of items of this shape, in the envelope.
    Page(u16, Shape),
    /// A page of items of this shape, or all of them as one of these other types.
    PageOr(u16, Shape, &'static [&'static str]),
    /// JSON, or text of one of these other types.
    JsonOr(u16, Shape, &'static [&'static str]),
    /// A JSON array of items of this shape.
    Array(u16, Shape),
    Other(u16, &'static str),
    Empty(u16),
}

/// Description of one operation, in addition to its row.
pub(crate) struct OperationDocs {
    pub tag: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Param],
    pub body: Option<Shape>,
    /// Content types that the body may have.
    pub body_types: &'static [&'static str],
    pub successes: &'static [Success],
}
