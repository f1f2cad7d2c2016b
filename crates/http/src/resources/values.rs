//! Types of the values in bodies: identifiers, times, JSON, lists. They have schemas for the OpenAPI document.

use std::borrow::Cow;
use std::marker::PhantomData;

use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat,
    SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};
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
    fn name() -> Cow<'static, str> {
        "FreeObject".into()
    }
}

/// Any JSON value.
pub(crate) struct AnyJson;

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        // A schema without a type accepts any JSON.
        let mut any = Object::new();
        any.schema_type = SchemaType::AnyValue;
        RefOr::T(Schema::Object(any))
    }
}

impl ToSchema for AnyJson {}

/// Any JSON but null.
pub(crate) struct AnyButNull;

impl PartialSchema for AnyButNull {
    fn schema() -> RefOr<Schema> {
        any_but_null("Any JSON but null.")
    }
}

impl ToSchema for AnyButNull {}

/// Builds the schema of any JSON but null, with another description.
pub(crate) fn any_but_null(says: &str) -> RefOr<Schema> {
    let kinds = [Type::String, Type::Number, Type::Boolean];
    let any = kinds.into_iter().fold(AnyOfBuilder::new(), |any, kind| any.item(ObjectBuilder::new().schema_type(kind)));
    let list = ArrayBuilder::new().items(AnyJson::schema());
    any.item(Raw::schema()).item(list).description(Some(says)).into()
}

/// Schema of a list of at most `MOST` items.
pub(crate) struct ListOf<T, const MOST: usize>(PhantomData<T>);

impl<T: ToSchema, const MOST: usize> PartialSchema for ListOf<T, MOST> {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new().items(Ref::from_schema_name(T::name())).max_items(Some(MOST)).into()
    }
}

impl<T: ToSchema, const MOST: usize> ToSchema for ListOf<T, MOST> {
    fn name() -> Cow<'static, str> {
        format!("{}s", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
        schemas.push((T::name().into_owned(), T::schema()));
    }
}
