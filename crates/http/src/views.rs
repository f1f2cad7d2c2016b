//! How the nouns look to a client: exactly the specification's fields. The OpenAPI document is made from the same types.

use isobar_hub::{DeviceView, ProjectView, StorageElement};
use isobar_model::device::{Device, StreetAddress};
use isobar_model::json::RawJson;
use isobar_model::organization::Organization;
use isobar_model::page::Meta;
use isobar_model::preferences::Preferences;
use isobar_model::project::{PROJECT_TYPE, Specification, empty_object};
use isobar_model::role::Role;
use isobar_model::time::Timestamp;
use isobar_model::user::{ApiKey, User};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, schema::AdditionalProperties};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::openapi::words::{EventTypeText, ProjectType, StatusText};

/// An identifier: a UUIDv7.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Id(pub Uuid);

impl PartialSchema for Id {
    fn schema() -> RefOr<Schema> {
        // Not utoipa's own word for it, which comes only with its feature `uuid`.
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
        // A schema without a type takes everything.
        let mut any = Object::new();
        any.schema_type = utoipa::openapi::schema::SchemaType::AnyValue;
        RefOr::T(Schema::Object(any))
    }
}

impl ToSchema for AnyJson {}

/// A user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = User)]
pub(crate) struct UserJson {
    id: Id,
    username: String,
    email: String,
    role: Role,
    tos_hash: Option<String>,
    first_name: String,
    last_name: String,
    company: String,
    job_title: Option<String>,
    language: Option<String>,
    created_at: Time,
    updated_at: Time,
    last_active: Option<Time>,
    preferences: Raw,
    image_url: String,
    organization_name: String,
    organization_id: Id,
    disabled: bool,
}

impl From<User> for UserJson {
    fn from(user: User) -> Self {
        let preferences = Preferences::of(user.preferences.as_ref()).json();
        Self {
            image_url: format!("/users/{}/image.png", user.id),
            id: Id(user.id.0),
            username: user.username,
            email: user.email,
            role: user.role,
            tos_hash: user.tos_hash,
            first_name: user.first_name,
            last_name: user.last_name,
            company: user.company,
            job_title: user.job_title,
            language: user.language,
            created_at: Time(user.created_at),
            updated_at: Time(user.updated_at),
            last_active: user.last_active.map(Time),
            preferences: Raw(preferences),
            organization_name: user.organization_name,
            organization_id: Id(user.organization.0),
            disabled: user.disabled,
        }
    }
}

/// An API key, without the key.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyJson {
    id: Id,
    name: String,
    created_at: Time,
    last_used_at: Option<Time>,
}

impl From<ApiKey> for ApiKeyJson {
    fn from(key: ApiKey) -> Self {
        Self {
            id: Id(key.id.0),
            name: key.name,
            created_at: Time(key.created_at),
            last_used_at: key.last_used_at.map(Time),
        }
    }
}

/// A new API key, shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewApiKey)]
pub(crate) struct NewApiKeyJson<'a> {
    pub id: Id,
    pub name: String,
    pub key: &'a str,
    pub created_at: Time,
}

/// An access token.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tokens)]
pub(crate) struct TokensJson {
    pub jwt_token: String,
    pub jwt_token_expiry: Time,
}

/// A secret that is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceToken)]
pub(crate) struct TokenJson<'a> {
    pub token: &'a str,
}

/// An identifier alone.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the shape that `reply::created_id` writes, for the OpenAPI document")]
#[schema(as = EventId)]
pub(crate) struct IdJson {
    id: Id,
}

/// One step of the path to an organization.
#[derive(Serialize, ToSchema)]
pub(crate) struct PathStep {
    id: Id,
    name: String,
}

/// An organization.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Organization)]
pub(crate) struct OrganizationJson {
    id: Id,
    name: String,
    parent_id: Option<Id>,
    description: Option<String>,
    path: Vec<PathStep>,
    image_url: String,
    parent_name: Option<String>,
    created_at: Time,
    updated_at: Time,
    has_children: bool,
    #[schema(value_type = StatusText)]
    status_text: &'static str,
    #[schema(maximum = 5)]
    status_int: u8,
    device_count: u64,
    data_usage_mb: f64,
    device_count_limit: f64,
    data_usage_mb_limit: f64,
    children_inherit_dashboard: bool,
    device_table: Raw,
}

impl From<Organization> for OrganizationJson {
    fn from(organization: Organization) -> Self {
        let data_usage_mb = organization.data_usage_mb();
        let ids = organization.lineage.ids().iter().map(|id| Id(id.0));
        let path: Vec<_> = ids.zip(organization.names).map(|(id, name)| PathStep { id, name }).collect();
        let parent = path.len().checked_sub(2).and_then(|index| path.get(index));
        Self {
            id: Id(organization.id.0),
            name: organization.name,
            parent_id: parent.map(|step| Id(step.id.0)),
            parent_name: parent.map(|step| step.name.clone()),
            description: organization.description,
            path,
            image_url: format!("/v2/organizations/{}/image.png", organization.id),
            created_at: Time(organization.created_at),
            updated_at: Time(organization.updated_at),
            has_children: organization.has_children,
            status_text: organization.status.name(),
            status_int: organization.status.number(),
            device_count: organization.device_count,
            data_usage_mb,
            device_count_limit: organization.device_count_limit,
            data_usage_mb_limit: organization.data_usage_mb_limit,
            children_inherit_dashboard: organization.children_inherit_dashboard,
            device_table: Raw(organization.device_table.unwrap_or_else(empty_object)),
        }
    }
}

/// A project.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Project)]
pub(crate) struct ProjectJson {
    id: Id,
    name: String,
    #[schema(value_type = ProjectType)]
    r#type: &'static str,
    uuid: Id,
    /// null when it is out of the caller's reach: then only the project can be seen.
    organization_id: Option<Id>,
    /// null when it is out of the caller's reach.
    organization_name: Option<String>,
    /// null when it is out of the caller's reach, or gone.
    created_by: Option<Id>,
    created_at: Time,
    updated_at: Time,
}

impl From<ProjectView> for ProjectJson {
    fn from(view: ProjectView) -> Self {
        let ProjectView { project, shows_owner, shows_creator } = view;
        Self {
            id: Id(project.id.0),
            name: project.name,
            r#type: PROJECT_TYPE,
            uuid: Id(project.id.0),
            organization_id: shows_owner.then_some(Id(project.organization.0)),
            organization_name: shows_owner.then_some(project.organization_name),
            created_by: project.created_by.filter(|_| shows_creator).map(|user| Id(user.0)),
            created_at: Time(project.created_at),
            updated_at: Time(project.updated_at),
        }
    }
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

/// The most recent values of a storage element.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LastValues)]
pub(crate) struct LastValuesJson {
    updated_at: Option<Time>,
    device_id: Id,
    element_name: String,
    /// An object of the most recent value of every key, or the newest payload when that is no object.
    #[schema(value_type = AnyJson)]
    values: Raw,
}

/// A device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Device)]
pub(crate) struct DeviceJson {
    id: Id,
    uuid: Id,
    name: String,
    project_uuid: Id,
    version_uuid: Option<String>,
    protocol: Option<String>,
    protocols: Vec<String>,
    meta: Raw,
    description: Option<String>,
    street_address: Option<StreetAddress>,
    organization_id: Id,
    organization_name: String,
    created_by: Option<Id>,
    last_values: Vec<LastValuesJson>,
    last_active: Option<Time>,
    created_at: Time,
    updated_at: Time,
    #[schema(value_type = StatusText)]
    status_text: &'static str,
    #[schema(maximum = 5)]
    status_int: u8,
    image_url: String,
}

impl From<Device> for DeviceJson {
    fn from(device: Device) -> Self {
        Self {
            id: Id(device.id.0),
            uuid: Id(device.id.0),
            name: device.name,
            project_uuid: Id(device.project.0),
            version_uuid: device.version,
            protocol: device.protocol,
            protocols: device.protocols,
            meta: Raw(device.meta),
            description: device.description,
            street_address: device.street_address,
            organization_id: Id(device.organization.0),
            organization_name: device.organization_name,
            created_by: device.created_by.map(|user| Id(user.0)),
            last_values: Vec::new(),
            last_active: device.last_active.map(Time),
            created_at: Time(device.created_at),
            updated_at: Time(device.updated_at),
            status_text: device.status.name(),
            status_int: device.status.number(),
            image_url: format!("/v2/devices/{}/image.png", device.id),
        }
    }
}

impl From<DeviceView> for DeviceJson {
    fn from(view: DeviceView) -> Self {
        let id = view.device.id;
        let last = view.last.into_iter().map(|(element, last)| LastValuesJson {
            updated_at: Some(Time(last.updated_at)),
            device_id: Id(id.0),
            element_name: element.to_string(),
            values: Raw(last.values),
        });
        Self { last_values: last.collect(), ..view.device.into() }
    }
}

/// A new device with its token, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = NewDevice)]
pub(crate) struct NewDeviceJson<'a> {
    #[serde(flatten)]
    pub device: DeviceJson,
    pub token: &'a str,
}

/// A storage element.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StorageElement)]
pub(crate) struct StorageElementJson {
    name: String,
    device_id: Id,
    created_at: Time,
    updated_at: Time,
}

impl From<StorageElement> for StorageElementJson {
    fn from(element: StorageElement) -> Self {
        Self {
            name: element.name.to_string(),
            device_id: Id(element.device.0),
            created_at: Time(element.created_at),
            updated_at: Time(element.updated_at),
        }
    }
}

/// A page of storage elements, and how much they hold.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StorageList)]
pub(crate) struct StorageListJson {
    pub meta: Meta,
    pub bytes_stored: u64,
    pub storage_elements: Vec<StorageElementJson>,
}

/// Something that went wrong while an event was processed.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the shape that the model writes, for the OpenAPI document")]
#[schema(as = EventError)]
pub(crate) struct EventErrorJson {
    element: String,
    message: String,
}

/// A device event or a cloud event.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape that the model writes, for the OpenAPI document")]
#[schema(as = Event)]
pub(crate) struct EventJson {
    id: Id,
    r#type: EventTypeText,
    device_id: Id,
    element_name: String,
    payload: AnyJson,
    received_at: Time,
    /// Present when something went wrong.
    #[schema(required = false)]
    errors: Vec<EventErrorJson>,
}

/// A stored value.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape that the model writes, for the OpenAPI document")]
#[schema(as = StoredValue)]
pub(crate) struct StoredValueJson {
    id: Id,
    created_at: Time,
    device_id: Id,
    element_name: String,
    payload: AnyJson,
}
