//! Shapes of request bodies, for the OpenAPI document only: `isobar_model` reads and checks them.
#![expect(dead_code, reason = "shapes are described, never made")]

use std::borrow::Cow;
use std::marker::PhantomData;

use isobar_model::device::{LISTED_PROTOCOL_CHARACTERS_MAX, PROTOCOLS_MAX, StreetAddress};
use isobar_model::role::Role;
use isobar_model::setting::BULK_ITEMS_MAX;
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::resources::values::{AnyJson, Id, Raw, Time};
use crate::resources::words::StateText;

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

/// Registers a user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct NewUser {
    #[schema(min_length = 1, max_length = 254)]
    username: String,
    #[schema(min_length = 6, max_length = 128)]
    password: String,
    /// Must match password.
    #[schema(min_length = 6, max_length = 128)]
    password_confirmation: String,
    #[schema(min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    /// Any but systemAdmin; with organizationId at most the caller's own.
    role: Role,
    /// Joins this organization, as somebody who may create users there says; left out: founds one.
    organization_id: Option<Id>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
}

/// Creates a user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct UserCreation {
    #[schema(min_length = 1, max_length = 254)]
    username: String,
    /// Left out: the user sets one by a link of an e-mail (`POST /v2/auth/forgot`).
    #[schema(required = false, min_length = 6, max_length = 128)]
    password: String,
    /// Must match password.
    #[schema(required = false, min_length = 6, max_length = 128)]
    password_confirmation: String,
    #[schema(min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    /// At most the caller's own.
    role: Role,
    /// Left out: the caller's own.
    organization_id: Option<Id>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
}

/// Logs a user in.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Login {
    #[schema(max_length = 254)]
    username_or_email: String,
    #[schema(max_length = 1024)]
    password: String,
}

/// Names an account.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct AccountName {
    /// In any case.
    #[schema(min_length = 1, max_length = 254)]
    email_or_username: String,
}

/// Sets a new password.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ResetInput {
    /// What the link in the e-mail carries as resetToken: good once, for an hour.
    #[schema(min_length = 1, max_length = 256)]
    token: String,
    #[schema(min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(min_length = 6, max_length = 20)]
    password_confirmation: String,
    /// Ends the account's API keys too; left out: they stay.
    #[schema(default = false, required = false)]
    end_api_keys: bool,
}

/// Updates a user. What is left out keeps its value.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct UserInput {
    /// As it is: it cannot be changed.
    #[schema(required = false, min_length = 1, max_length = 254)]
    username: String,
    /// As it is: it cannot be changed.
    #[schema(required = false, min_length = 3, max_length = 254)]
    email: String,
    /// At most the caller's own.
    role: Role,
    #[schema(required = false, min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(required = false, min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    #[schema(max_length = 80)]
    job_title: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    /// Ends the user's other sessions.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password_confirmation: String,
    /// Must be today's password, where callers say it beside a new one of their own; of other users it is not looked at.
    #[schema(required = false, max_length = 1024)]
    current_password: String,
    /// null: the defaults.
    preferences: Option<PreferencesInput>,
    /// Moves the user; within the caller's reach.
    organization_id: Option<Id>,
    /// Ignored: it follows organizationId.
    #[schema(max_length = 80)]
    organization_name: Option<String>,
    /// Why, for the operator alone.
    #[schema(required = false, min_length = 1, max_length = 300)]
    reason: String,
    /// Refused with every credential; needs an administrator.
    #[schema(required = false)]
    disabled: bool,
}

/// How a user is told of things. What is left out stays as it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct PreferencesInput {
    #[schema(required = false)]
    notifications: KindsInput,
}

/// How notifications of each kind come.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct KindsInput {
    #[schema(required = false)]
    account_notifications: ChannelsInput,
    /// In the application it always comes.
    #[schema(required = false)]
    system_notification: ChannelsInput,
    #[schema(required = false)]
    device_notification: ChannelsInput,
}

/// Where notifications of a kind go.
#[derive(ToSchema)]
pub(crate) struct ChannelsInput {
    #[schema(required = false)]
    inapp: bool,
    #[schema(required = false)]
    email: bool,
}

/// Makes an API key.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ApiKeyInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// The highest role that it gives, at most its user's; left out: its user's, whatever that is.
    role: Option<Role>,
    /// When it is refused from, in the future; left out: it has no end.
    expires_at: Option<Time>,
}

/// Creates or updates a view of the device list.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ViewInput {
    /// Unlike that of any other of the caller's views.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// The organization whose devices it shows; null: whichever is looked at.
    organization_id: Option<Id>,
    /// The query of an address of the console's list, percent-encoded.
    #[schema(max_length = 8_000, pattern = "^[!-~]*$")]
    query: String,
}

/// Marks notifications.
#[derive(ToSchema)]
pub(crate) struct ReadMark {
    /// Whether they are read.
    read: bool,
}

/// Changes an alarm. What is left out stays as it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct AlarmInput {
    /// The first time it becomes true the design's trigger `acknowledged` fires. An alarm that is over stays acknowledged.
    #[schema(required = false)]
    acknowledged: bool,
    /// What is to be remembered in its history.
    #[schema(min_length = 1, max_length = 1000)]
    comment: Option<String>,
    /// A user who can see the alarm; null: nobody.
    assignee_id: Option<Id>,
    /// `cleared` ends an alarm that its design does not clear. Nobody makes one active.
    #[schema(required = false)]
    state: StateText,
}

/// Tells every user something.
#[derive(ToSchema)]
pub(crate) struct SystemMessage {
    #[schema(min_length = 1, max_length = 10000)]
    message: String,
}

/// Creates or updates an organization.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct OrganizationInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Where it hangs in the tree; null on update: at the top.
    #[schema(max_length = 36)]
    parent_id: Option<String>,
    #[schema(max_length = 200)]
    description: Option<String>,
    #[schema(required = false)]
    children_inherit_dashboard: bool,
    device_table: Option<Raw>,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    device_count_limit: f64,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    data_usage_mb_limit: f64,
}

/// Creates or updates a project.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ProjectInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    organization_id: Option<Id>,
}

/// Overwrites a specification.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct SpecificationInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    #[schema(required = false, min_length = 1, max_length = 16, default = "2")]
    create_version: String,
    #[schema(required = false, max_length = 2000, default = "")]
    description: String,
    meta: Option<Raw>,
    planes: Option<Raw>,
}

/// Tries a design out.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct DryRunInput {
    /// The specification to try, of which only `planes` counts; left out: that of the project.
    specification: Option<Raw>,
    /// Where the run begins: a deviceEvent, a deviceSetting or an interval.
    #[schema(min_length = 1, max_length = 128)]
    element_name: String,
    payload: AnyButNull,
    /// A device whose metadata, settings, values and states the run sees; left out: one is made up.
    device: Option<Id>,
}

/// Builds the schema of the protocols; null counts as absent.
fn protocols() -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).max_length(Some(LISTED_PROTOCOL_CHARACTERS_MAX));
    let kinds = SchemaType::from_iter([Type::Array, Type::Null]);
    ArrayBuilder::new().schema_type(kinds).items(text).max_items(Some(PROTOCOLS_MAX)).into()
}

/// Creates or updates a device.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct DeviceInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    project_uuid: Id,
    #[schema(max_length = 36)]
    version_uuid: Option<String>,
    #[schema(max_length = 20)]
    protocol: Option<String>,
    #[schema(schema_with = protocols)]
    protocols: Option<Vec<String>>,
    /// Deprecated. At most 1,000 labels and 65,536 bytes of JSON.
    meta: Option<Raw>,
    #[schema(max_length = 200)]
    description: Option<String>,
    street_address: Option<StreetAddress>,
    organization_id: Option<Id>,
}

/// Devices to be created, each of which is checked by itself. At most 5 MiB in all.
pub(crate) type DeviceInputs = ListOf<DeviceInput, BULK_ITEMS_MAX>;

/// A JSON merge patch of a device's metadata (RFC 7396).
pub(crate) struct MetaPatch;

impl PartialSchema for MetaPatch {
    fn schema() -> RefOr<Schema> {
        let free = AdditionalProperties::FreeForm(true);
        let any = ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(free));
        any.description(Some("Labels to set; null removes one, objects are merged in turn.")).into()
    }
}

impl ToSchema for MetaPatch {}

/// Changes to the labels of one device.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct MetaItem {
    /// The device. One that is unknown or out of reach is an error of the item.
    device_id: String,
    meta: MetaPatch,
}

/// Changes to the labels of many devices.
pub(crate) type MetaItems = ListOf<MetaItem, BULK_ITEMS_MAX>;

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

/// A PNG, a JPEG or a WebP of at most 2 MiB and 4096 by 4096 pixels, in Base64: bare, or as a data URI (`data:image/png;base64,…`).
#[derive(ToSchema)]
#[schema(value_type = String)]
pub(crate) struct ImageText(String);
