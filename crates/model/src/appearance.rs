//! The appearance of an organization: its branding, its dashboard, its device table.

use crate::check::{Input, Patch};
use crate::error::Result;
use crate::ids::{DeviceId, OrganizationId};
use crate::json::{Json, RawJson};
use crate::project::empty_object;

/// Longest name, address line or sender, in characters.
const LINE_MAX: usize = 200;
/// Largest free-form object of a branding, in bytes of its text.
const BRANDING_OBJECT_BYTES_MAX: usize = 64 << 10;
/// Largest free-form object of a dashboard, in bytes of its text.
const DASHBOARD_OBJECT_BYTES_MAX: usize = 512 << 10;
/// Most columns of a device table.
const COLUMNS_MAX: usize = 200;
/// Longest path of a column, in characters.
const COLUMN_PATH_MAX: usize = 256;
/// Longest type of a column, in characters.
const COLUMN_TYPE_MAX: usize = 80;

/// The branding of an organization. Members that were never set are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branding {
    /// The company's name.
    pub company_name: Option<String>,
    /// First line of its address.
    pub address_line_1: Option<String>,
    /// Second line of its address.
    pub address_line_2: Option<String>,
    /// Its fully qualified domain name.
    pub domain: Option<String>,
    /// Free-form object: replacements of files that its domain serves.
    pub domain_http_file_overrides: Option<RawJson>,
    /// Free-form object: configuration that a client on its domain may read without credentials.
    pub domain_public_configuration: Option<RawJson>,
    /// Sender address of its e-mails.
    pub email: Option<String>,
    /// Sender name of its e-mails.
    pub email_sender_name: Option<String>,
}

/// The body that changes a branding.
#[derive(Clone, Debug, Default)]
pub struct BrandingInput {
    company_name: Patch<String>,
    address_line_1: Patch<String>,
    address_line_2: Patch<String>,
    domain: Patch<String>,
    domain_http_file_overrides: Patch<RawJson>,
    domain_public_configuration: Patch<RawJson>,
    email: Patch<String>,
    email_sender_name: Patch<String>,
}

impl BrandingInput {
    /// Reads and checks a body for the branding of `own`.
    pub fn read(body: &Json<'_>, own: OrganizationId) -> Result<Self> {
        let mut input = Input::body(body)?;
        named_itself(&mut input, own);
        let read = Self {
            company_name: input.text_patch("companyName", 0, LINE_MAX),
            address_line_1: input.text_patch("addressLine1", 0, LINE_MAX),
            address_line_2: input.text_patch("addressLine2", 0, LINE_MAX),
            domain: input.text_patch("domain", 0, usize::MAX),
            domain_http_file_overrides: object(&mut input, "domainHTTPFileOverrides", BRANDING_OBJECT_BYTES_MAX),
            domain_public_configuration: object(&mut input, "domainPublicConfiguration", BRANDING_OBJECT_BYTES_MAX),
            email: input.text_patch("email", 0, usize::MAX),
            email_sender_name: input.text_patch("emailSenderName", 0, LINE_MAX),
        };
        // A fault of these two already names their length.
        if let Patch::Set(domain) = &read.domain {
            input.faults.domain("domain", domain);
        }
        if let Patch::Set(email) = &read.email {
            input.faults.email("email", email);
        }
        input.unless_any(read)
    }

    /// Returns the branding after the change; members that were left out keep their values.
    pub fn over(self, present: Branding) -> Branding {
        Branding {
            company_name: self.company_name.over(present.company_name),
            address_line_1: self.address_line_1.over(present.address_line_1),
            address_line_2: self.address_line_2.over(present.address_line_2),
            domain: self.domain.over(present.domain),
            domain_http_file_overrides: self.domain_http_file_overrides.over(present.domain_http_file_overrides),
            domain_public_configuration: self.domain_public_configuration.over(present.domain_public_configuration),
            email: self.email.over(present.email),
            email_sender_name: self.email_sender_name.over(present.email_sender_name),
        }
    }
}

/// The start page of an organization's users.
#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    /// Its name.
    pub name: Option<String>,
    /// Free-form object.
    pub options: RawJson,
    /// Free-form object.
    pub configuration: RawJson,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self { name: None, options: empty_object(), configuration: empty_object() }
    }
}

/// The body that changes a dashboard.
#[derive(Clone, Debug)]
pub struct DashboardInput {
    name: Patch<String>,
    options: Patch<RawJson>,
    configuration: RawJson,
}

impl DashboardInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let (name, options) =
            (input.text_patch("name", 0, LINE_MAX), object(&mut input, "options", DASHBOARD_OBJECT_BYTES_MAX));
        let configuration = match object(&mut input, "configuration", DASHBOARD_OBJECT_BYTES_MAX) {
            Patch::Set(configuration) => configuration,
            Patch::Keep if input.member("configuration").is_some() => empty_object(),
            Patch::Keep | Patch::Clear => {
                input.fault("configuration", "is required");
                empty_object()
            }
        };
        input.unless_any(Self { name, options, configuration })
    }

    /// Returns the dashboard after the change; members that were left out keep their values.
    pub fn over(self, present: Dashboard) -> Dashboard {
        Dashboard {
            name: self.name.over(present.name),
            options: match self.options {
                Patch::Keep => present.options,
                options => options.over(None).unwrap_or_else(empty_object),
            },
            configuration: self.configuration,
        }
    }
}

/// A column of the device table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Path of the member of a device that it shows.
    pub path: String,
    /// Kind of the resource that the path starts from.
    pub kind: Option<String>,
}

/// The device table of an organization, in its member `deviceTable`, which may hold other members too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTable {
    /// The device that it was designed with.
    pub device: Option<String>,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
}

impl DeviceTable {
    /// Reads an organization's `deviceTable`; ignores what does not have this form.
    pub fn of(stored: &RawJson) -> Self {
        let tree = stored.tree();
        let text = |tree: &Json<'_>, member: &str| tree.get(member).and_then(Json::as_text).map(str::to_owned);
        let column = |tree: &Json<'_>| Some(Column { path: text(tree, "path")?, kind: text(tree, "type") });
        let columns = tree.get("columns").and_then(Json::as_array).unwrap_or_default();
        Self { device: text(&tree, "deviceId"), columns: columns.iter().filter_map(column).collect() }
    }
}

/// The body that changes a device table.
#[derive(Clone, Debug)]
pub struct DeviceTableInput {
    /// The device that it is designed with, which the caller must see.
    pub device: Patch<DeviceId>,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
}

impl DeviceTableInput {
    /// Reads and checks a body for the device table of `own`.
    pub fn read(body: &Json<'_>, own: OrganizationId) -> Result<Self> {
        let mut input = Input::body(body)?;
        if matches!(input.member("organizationId"), None | Some(Json::Null)) {
            input.fault("organizationId", "is required");
        }
        named_itself(&mut input, own);
        let device = input.id_or_empty_patch("deviceId");
        let columns = columns(&mut input);
        input.unless_any(Self { device, columns })
    }

    /// Returns the organization's `deviceTable` after the change. Unknown members stay.
    pub fn over(&self, present: Option<&RawJson>) -> RawJson {
        let mut members = match present.map(RawJson::tree) {
            Some(Json::Object(members)) => members,
            _ => Vec::new(),
        };
        let text = |text: &str| Json::Text(text.to_owned().into());
        let column = |column: &Column| {
            let kind = column.kind.iter().map(|kind| ("type".into(), text(kind)));
            Json::Object(std::iter::once(("path".into(), text(&column.path))).chain(kind).collect())
        };
        let device = match &self.device {
            Patch::Keep => None,
            Patch::Clear => Some(Json::Null),
            Patch::Set(device) => Some(text(&device.to_string())),
        };
        let columns = Json::Array(self.columns.iter().map(column).collect());
        for (name, value) in device.map(|device| ("deviceId", device)).into_iter().chain([("columns", columns)]) {
            match members.iter_mut().find(|(present, _)| present == name) {
                Some((_, present)) => *present = value,
                None => members.push((name.into(), value)),
            }
        }
        RawJson::from(&Json::Object(members))
    }
}

/// Notes a fault if the body names another organization than that of the path.
fn named_itself(input: &mut Input<'_>, own: OrganizationId) {
    if input.id::<OrganizationId>("organizationId").is_some_and(|named| named != own) {
        input.fault("organizationId", "is not the organization of the path");
    }
}

fn object(input: &mut Input<'_>, name: &str, bytes_max: usize) -> Patch<RawJson> {
    match input.object_patch(name) {
        Patch::Set(object) if object.bytes().len() > bytes_max => {
            input.fault(name, format!("must be at most {bytes_max} bytes of JSON"));
            Patch::Keep
        }
        patch => patch,
    }
}

fn columns(input: &mut Input<'_>) -> Vec<Column> {
    input.require("columns");
    let items = input.items("columns", COLUMNS_MAX).unwrap_or_default();
    let mut columns = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match Input::body(item) {
            Ok(mut column) => {
                let path = column.required_text("path", 1, COLUMN_PATH_MAX);
                let kind = column.text_patch("type", 0, COLUMN_TYPE_MAX).over(None);
                input.faults.extend(column.faults.beneath(&format!("columns[{index}]")));
                columns.push(Column { path, kind });
            }
            Err(_) => input.fault(&format!("columns[{index}]"), format!("must be an object, not {}", item.kind())),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    const OWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn faults<T: std::fmt::Debug>(read: Result<T>) -> Vec<String> {
        match read {
            Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn branding(text: &str) -> Result<BrandingInput> {
        BrandingInput::read(&parse(text).unwrap(), OWN.parse().unwrap())
    }

    // Holds: branding.domain
    #[test]
    fn domain_must_be_fully_qualified() {
        for good in ["example.com", "a.b-c.Example", "xn--bcher-kva.example", "1.de", &format!("{}.de", "a".repeat(63))]
        {
            assert!(branding(&format!(r#"{{"domain": "{good}"}}"#)).is_ok(), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "-a.de",
            "a-.de",
            "a..de",
            ".de",
            "de.",
            "a b.de",
            "http://a.de",
            "a.de/x",
            "10.0.0.1",
            "bücher.example",
            "a_b.de",
            &format!("{}.de", "a".repeat(64)),
            &"a.".repeat(130),
        ] {
            assert_eq!(faults(branding(&format!(r#"{{"domain": "{bad}"}}"#))), ["domain"], "{bad}");
        }
    }

    // Holds: branding.email
    #[test]
    fn invalid_branding_names_all_its_faults() {
        let large = "x".repeat(BRANDING_OBJECT_BYTES_MAX);
        let text = format!(
            r#"{{"organizationId": "01890a5d-ac96-774b-bcce-b302099a8058", "companyName": 1, "email": "nobody",
            "domainPublicConfiguration": [], "domainHTTPFileOverrides": {{"a": "{large}"}}}}"#
        );
        let expected =
            ["organizationId", "companyName", "domainHTTPFileOverrides", "domainPublicConfiguration", "email"];
        assert_eq!(faults(branding(&text)), expected);
    }

    #[test]
    fn device_table_keeps_unknown_members() {
        let text =
            format!(r#"{{"organizationId": "{OWN}", "columns": [{{"path": "name", "type": "DeviceModel", "x": 1}}]}}"#);
        let input = DeviceTableInput::read(&parse(&text).unwrap(), OWN.parse().unwrap()).unwrap();
        let present = RawJson::check(Bytes::from_static(br#"{"width": 1.50, "columns": 7}"#)).unwrap();
        let stored = input.over(Some(&present));
        assert_eq!(stored.text(), r#"{"width":1.50,"columns":[{"path":"name","type":"DeviceModel"}]}"#);
        let column = Column { path: "name".to_owned(), kind: Some("DeviceModel".to_owned()) };
        assert_eq!(DeviceTable::of(&stored), DeviceTable { device: None, columns: vec![column] });
        assert_eq!(DeviceTable::of(&present), DeviceTable::default());
    }

    // Holds: deviceTable.members
    #[test]
    fn device_table_names_each_invalid_column() {
        let text = r#"{"columns": [{}, 5, {"path": "", "type": 1}], "deviceId": "x"}"#;
        let read = DeviceTableInput::read(&parse(text).unwrap(), OWN.parse().unwrap());
        let expected =
            ["organizationId", "deviceId", "columns[0].path", "columns[1]", "columns[2].path", "columns[2].type"];
        assert_eq!(faults(read), expected);
    }
}
