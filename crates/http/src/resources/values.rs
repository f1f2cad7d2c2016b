//! Types of the values in views: identifiers, times, JSON. They have schemas for the OpenAPI document.

use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, schema::AdditionalProperties};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// An identifier: a UUIDv7.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Id(pub Uuid);

impl PartialSchema for Id {
    fn schema() -> RefOr<Schema> {
        // utoipa's own format needs its feature `uuid`.
        formatted(SchemaFormat::Custom("uuid".to_owned()))
    }
}

impl ToSchema for Id {}

/// A moment: RFC 3339, UTC, milliseconds.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Time(pub Timestamp);

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        formatted(SchemaFormat::KnownFormat(KnownFormat::DateTime))
    }
}

impl ToSchema for Time {}

fn formatted(format: SchemaFormat) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
}

/// An object of any shape, written as it was sent.
#[derive(Debug)]
pub(crate) struct Raw(pub RawJson);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.0.text()).map_err(S::Error::custom)?.serialize(to)
    }
}

impl PartialSchema for Raw {
    fn schema() -> RefOr<Schema> {
        let free = AdditionalProperties::FreeForm(true);
        ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(free)).into()
    }
}

impl ToSchema for Raw {
    fn name() -> std::borrow::Cow<'static, str> {
        "FreeObject".into()
    }
}

/// Any JSON value.
pub(crate) struct AnyJson;

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        // A schema without a type accepts any JSON.
        let mut any = Object::new();
        any.schema_type = utoipa::openapi::schema::SchemaType::AnyValue;
        RefOr::T(Schema::Object(any))
    }
}

impl ToSchema for AnyJson {}
