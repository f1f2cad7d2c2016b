//! Devices.

use crate::access::Lineage;
use crate::alarm::{AlarmCounts, AlarmSeverity};
use crate::check::{Input, Patch, body_items, or_faults};
use crate::error::{Fault, Result};
use crate::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId, UserId};
use crate::json::{Json, RawJson};
use crate::project::empty_object;
use crate::setting::BULK_ITEMS_MAX;
use crate::status::Status;
use crate::time::Timestamp;

/// Longest label of a device's metadata that is indexed, in characters.
pub const LABEL_CHARACTERS_MAX: usize = 128;
/// Longest value of an indexed label, in characters.
pub const LABEL_VALUE_CHARACTERS_MAX: usize = 256;
/// Most protocols a device lists.
pub const PROTOCOLS_MAX: usize = 32;
/// Longest listed protocol, in characters. The specification bounds `protocol` alone, to 20.
pub const LISTED_PROTOCOL_CHARACTERS_MAX: usize = 128;

/// A device in the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its identifier, also shown as `uuid`.
    pub id: DeviceId,
    /// Its number in the telemetry store.
    pub key: DeviceKey,
    /// 1 to 80 characters.
    pub name: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The lineage of that organization.
    pub lineage: Lineage,
    /// The name of that organization.
    pub organization_name: String,
    /// The project whose design runs on its events.
    pub project: ProjectId,
    /// Version of the project, as the client states it.
    pub version: Option<String>,
    /// Main protocol.
    pub protocol: Option<String>,
    /// All protocols.
    pub protocols: Vec<String>,
    /// Metadata: an object.
    pub meta: RawJson,
    /// Up to 200 characters.
    pub description: Option<String>,
    /// Postal address.
    pub street_address: Option<StreetAddress>,
    /// Location set by its design or a setting; otherwise its metadata may hold one.
    pub location: Option<Location>,
    /// Its status.
    pub status: Status,
    /// Status to restore when a missing device sends an event again; `none` if it is not missing.
    pub status_before: Status,
    /// User who made it.
    pub created_by: Option<UserId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time of its last event.
    pub last_active: Option<Timestamp>,
    /// Counts of its active alarms.
    pub alarms: AlarmCounts,
}

impl Device {
    /// Returns its address in the telemetry store.
    pub fn reference(&self) -> DeviceRef {
        DeviceRef { id: self.id, key: self.key }
    }

    /// Returns its location: set by the design or a setting, or else `latitude` and `longitude` of its metadata.
    pub fn coordinates(&self) -> Option<Location> {
        self.location.or_else(|| Location::in_meta(&self.meta))
    }
}

/// A location on earth, WGS 84.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// Degrees, -90 to 90.
    pub latitude: f64,
    /// Degrees, -180 to 180.
    pub longitude: f64,
}

impl Location {
    /// Makes a location, if the degrees are within bounds.
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let sound = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        sound.then_some(Self { latitude, longitude })
    }

    /// Reads `latitude` and `longitude` of metadata, if both are numbers within bounds.
    pub fn in_meta(meta: &RawJson) -> Option<Self> {
        let meta = meta.tree();
        Self::new(meta.get("latitude")?.as_f64()?, meta.get("longitude")?.as_f64()?)
    }
}

/// A device on a map (specification: Device location).
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedDevice {
    /// Its identifier.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its location.
    pub location: Location,
    /// Its status.
    pub status: Status,
    /// The highest severity of its active alarms.
    pub alarm: Option<AlarmSeverity>,
}

/// A postal address.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StreetAddress {
    /// Street and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub address: Option<String>,
    /// City.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub city: Option<String>,
    /// Region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub region: Option<String>,
    /// Postal code: a number, as the specification shapes it, or a text, as much of the world writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postal_code: Option<PostalCode>,
    /// Country.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub country: Option<String>,
}

/// A postal code, kept in the type it was sent in.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum PostalCode {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl StreetAddress {
    fn read(input: &mut Input<'_>) -> Self {
        let part = |input: &mut Input<'_>, name: &str| input.text_patch(name, 0, 200).over(None);
        let postal_code = match input.member("postalCode") {
            Some(Json::Number(number)) if number.as_i64().is_some() => number.as_i64().map(PostalCode::Number),
            Some(Json::Text(text)) if text.chars().count() <= 20 => Some(PostalCode::Text(text.clone().into_owned())),
            None | Some(Json::Null) => None,
            Some(_) => {
                input.fault("postalCode", "must be a whole number or a string of at most 20 characters");
                None
            }
        };
        Self {
            address: part(input, "address"),
            city: part(input, "city"),
            region: part(input, "region"),
            postal_code,
            country: part(input, "country"),
        }
    }
}

/// An item of a bulk creation: a valid body, or its faults.
pub type BulkItem = std::result::Result<DeviceInput, Vec<Fault>>;

/// The body that creates or updates a device (specification: Device, input).
#[derive(Clone, Debug)]
pub struct DeviceInput {
    /// 1 to 80 characters, required.
    pub name: String,
    /// Required; `None` only together with a fault.
    pub project: Option<ProjectId>,
    /// At most 36 characters.
    pub version: Patch<String>,
    /// At most 20 characters.
    pub protocol: Patch<String>,
    /// All protocols.
    pub protocols: Option<Vec<String>>,
    /// Replaced as a whole.
    pub meta: Option<RawJson>,
    /// Up to 200 characters.
    pub description: Patch<String>,
    /// A postal address.
    pub street_address: Patch<StreetAddress>,
    /// The owner; `None` for the caller's organization, or unchanged.
    pub organization: Option<OrganizationId>,
}

impl DeviceInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let name = input.required_text("name", 1, 80);
        if matches!(input.member("projectUuid"), None | Some(Json::Null)) {
            input.fault("projectUuid", "is required");
        }
        let meta = match input.object_patch("meta") {
            Patch::Set(meta) => Some(meta),
            Patch::Clear => Some(empty_object()),
            Patch::Keep => None,
        };
        let read = Self {
            name,
            project: input.id("projectUuid"),
            version: input.text_patch("versionUuid", 0, 36),
            protocol: input.text_patch("protocol", 0, 20),
            protocols: input.texts("protocols", PROTOCOLS_MAX, LISTED_PROTOCOL_CHARACTERS_MAX),
            meta,
            description: input.text_patch("description", 0, 200),
            street_address: input.nested("streetAddress", StreetAddress::read),
            organization: input.id("organizationId"),
        };
        input.unless_any(read)
    }
    /// Reads the body of a bulk creation: an array of bodies, each of which is checked separately.
    pub fn read_all(tree: &Json<'_>) -> Result<Vec<BulkItem>> {
        body_items(tree, BULK_ITEMS_MAX, "items")?.iter().map(|item| or_faults(Self::read(item))).collect()
    }
}
