//! Shapes of the bodies that change settings, for the OpenAPI document only: `isobar_model` reads and checks them.
#![expect(dead_code, reason = "shapes are described, never made")]

use isobar_model::setting::BULK_ITEMS_MAX;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::bodies::{ListOf, any_but_null};
use crate::resources::values::AnyJson;

/// The value of a setting.
pub(crate) struct SettingValue;

impl PartialSchema for SettingValue {
    fn schema() -> RefOr<Schema> {
        any_but_null("Any JSON but null, as inputType wants it.")
    }
}

impl ToSchema for SettingValue {}

/// One change of a bulk operation.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct SettingItem {
    /// The device. One that is unknown or out of reach is an error of the item.
    device_id: String,
    /// The setting.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    /// Its value, as inputType wants it.
    value: AnyJson,
}

/// The changes of a bulk operation.
pub(crate) type SettingItems = ListOf<SettingItem, BULK_ITEMS_MAX>;

/// The devices whose defaults are wanted.
pub(crate) struct DeviceIds;

impl PartialSchema for DeviceIds {
    fn schema() -> RefOr<Schema> {
        let id = ObjectBuilder::new().schema_type(Type::String);
        ArrayBuilder::new().items(id).max_items(Some(BULK_ITEMS_MAX)).into()
    }
}

impl ToSchema for DeviceIds {}
