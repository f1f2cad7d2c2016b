//! Reads and checks the parameters of a delivery, and reports all their faults at once (contract: Integration webhook).

use std::collections::HashMap;
use std::str::FromStr;

use isobar_design::Integration;
use isobar_model::check::Faults;
use isobar_model::device::{LABEL_CHARACTERS_MAX, LABEL_VALUE_CHARACTERS_MAX};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::json::{Json, RawJson, parse};
use isobar_store::registry::{Tag, TagCase};

use super::reference::Reference;
use crate::ingest::event_input::NO_NAME;

/// The names of all parameters; each may be in the query or in a header.
pub const PARAMETERS: [&str; 15] = [
    "integration",
    "organizationId",
    "eventsRef",
    "deviceTag",
    "deviceTagValue",
    "deviceTagValueRef",
    "deviceTagCase",
    "extraMeta",
    "extraMetaMapRefs",
    "projectUuid",
    "projectUuidMap",
    "projectUuidMapRef",
    "eventPayloadMapRefs",
    "idempotencyKeyRef",
    "debug",
];
/// Members of `extraMeta`, `extraMetaMapRefs` and `eventPayloadMapRefs`, each, at most.
const MEMBERS_MAX: usize = 100;
/// Members of `projectUuidMap`, at most.
const PROJECTS_MAX: usize = 1_000;

/// A parameter as it was received.
#[derive(Clone, Debug)]
pub struct Given {
    /// The field name for its faults: `query.debug`, `header.debug`.
    pub field: String,
    /// Its text; `None` if it is not valid text.
    pub text: Option<String>,
}

/// A value, with the field name for its faults.
#[derive(Clone, Debug)]
pub(super) struct Named<T> {
    pub field: String,
    pub value: T,
}

/// The checked parameters of a delivery.
#[derive(Debug)]
pub(super) struct Request {
    pub integration: Integration,
    pub organization: Option<Named<OrganizationId>>,
    pub events: Option<Reference>,
    pub label: String,
    /// The tag value of every block in which `tag_value_ref` finds nothing.
    pub tag_value: Option<String>,
    pub tag_value_ref: Option<Reference>,
    pub tag_case: TagCase,
    pub extra_meta: Vec<(String, RawJson)>,
    pub extra_meta_refs: Vec<(String, Reference)>,
    /// The project of every block that the map does not contain.
    pub project: Option<Named<ProjectId>>,
    pub project_map: HashMap<String, ProjectId>,
    pub project_ref: Option<Reference>,
    pub payload_refs: Option<Vec<(String, Reference)>>,
    /// The place of an idempotency key in a block.
    pub key_ref: Option<Reference>,
    pub debug: bool,
}

impl Request {
    /// Reads the parameters; `given` looks one up.
    pub fn read(given: impl Fn(&str) -> Option<Given>) -> Result<Self> {
        let mut reader = Reader { given, faults: Faults::new() };
        let read = Self {
            integration: reader.integration(),
            organization: reader.id("organizationId"),
            events: reader.reference("eventsRef"),
            label: reader.tag(),
            tag_value: reader.tag_value(),
            tag_value_ref: reader.reference("deviceTagValueRef"),
            tag_case: reader.tag_case(),
            extra_meta: reader.labels("extraMeta"),
            extra_meta_refs: reader.references("extraMetaMapRefs").unwrap_or_default(),
            project: reader.id("projectUuid"),
            project_map: reader.projects("projectUuidMap"),
            project_ref: reader.reference("projectUuidMapRef"),
            payload_refs: reader.references("eventPayloadMapRefs"),
            key_ref: reader.reference("idempotencyKeyRef"),
            debug: reader.debug(),
        };
        if reader.get("deviceTagValue").or_else(|| reader.get("deviceTagValueRef")).is_none() {
            reader.faults.add("query.deviceTagValue", "is required, unless deviceTagValueRef is given");
        }
        reader.faults.unless_any(read)
    }

    /// Returns the tag that identifies devices.
    pub fn tag(&self) -> Tag<'_> {
        Tag { label: &self.label, case: self.tag_case }
    }
}

struct Reader<G> {
    given: G,
    faults: Faults,
}

impl<G: Fn(&str) -> Option<Given>> Reader<G> {
    /// Returns a parameter; an empty one counts as missing.
    fn get(&self, name: &str) -> Option<Given> {
        (self.given)(name).filter(|given| given.text.as_deref() != Some(""))
    }

    /// Returns the text of a parameter, with the field name for its faults.
    fn text(&mut self, name: &str) -> Option<Named<String>> {
        let Given { field, text } = self.get(name)?;
        match text.filter(|text| !text.contains('\0')) {
            Some(value) => Some(Named { field, value }),
            None => {
                self.faults.add(field, NO_NAME);
                None
            }
        }
    }

    fn integration(&mut self) -> Integration {
        let Some(Named { field, value }) = self.text("integration") else { return Integration::Custom };
        let named = Integration::named(&value.to_ascii_lowercase()).filter(|named| *named != Integration::Http);
        named.unwrap_or_else(|| {
            self.faults.add(field, "must be custom, ble, lora, sigfox or zigbee");
            Integration::Custom
        })
    }

    fn debug(&mut self) -> bool {
        let Some(Named { field, value }) = self.text("debug") else { return false };
        match &*value.to_ascii_lowercase() {
            "true" => true,
            "false" => false,
            _ => {
                self.faults.add(field, "must be true or false");
                false
            }
        }
    }

    fn tag(&mut self) -> String {
        if self.get("deviceTag").is_none() {
            self.faults.add("query.deviceTag", "is required");
        }
        self.label("deviceTag", LABEL_CHARACTERS_MAX).unwrap_or_default()
    }

    fn tag_value(&mut self) -> Option<String> {
        self.label("deviceTagValue", LABEL_VALUE_CHARACTERS_MAX)
    }

    fn tag_case(&mut self) -> TagCase {
        let Some(Named { field, value }) = self.text("deviceTagCase") else { return TagCase::default() };
        match &*value.to_ascii_lowercase() {
            "sensitive" => TagCase::Sensitive,
            "insensitive" => TagCase::Insensitive,
            _ => {
                self.faults.add(field, "must be sensitive or insensitive");
                TagCase::default()
            }
        }
    }

    /// Reads a text that identifies devices.
    fn label(&mut self, name: &str, most: usize) -> Option<String> {
        let Named { field, value } = self.text(name)?;
        self.faults.length(&field, &value, 1, most);
        Some(value)
    }

    fn id<T: FromStr>(&mut self, name: &str) -> Option<Named<T>> {
        let Named { field, value } = self.text(name)?;
        match value.parse() {
            Ok(value) => Some(Named { field, value }),
            Err(_) => {
                self.faults.add(field, "must be an identifier");
                None
            }
        }
    }

    fn reference(&mut self, name: &str) -> Option<Reference> {
        let Named { field, value } = self.text(name)?;
        self.faults.gather(Reference::read(field, &value)).ok().flatten()
    }

    /// Reads the members of an object; `None` if it is missing, or null where `nullable`.
    fn object<T>(
        &mut self,
        name: &str,
        nullable: bool,
        most: usize,
        read: impl Fn(&str, &Json<'_>) -> Result<T>,
    ) -> Option<Vec<(String, T)>> {
        let Named { field, value } = self.text(name)?;
        let decoded = decoded(&value);
        let members = match parse(&decoded) {
            Ok(Json::Object(members)) if members.len() <= most => members,
            Ok(Json::Null) if nullable => return None,
            other => {
                self.faults.add(
                    field,
                    match other {
                        Ok(Json::Object(_)) => format!("must have at most {most} members"),
                        Ok(other) => format!("must be an object, not {}", other.kind()),
                        Err(fault) => format!("must be an object as URI encoded JSON: {fault}"),
                    },
                );
                return None;
            }
        };
        let mut kept = Vec::with_capacity(members.len());
        for (name, member) in members {
            if let Ok(Some(member)) = self.faults.gather(read(&format!("{field}.{name}"), &member)) {
                kept.push((name.into_owned(), member));
            }
        }
        Some(kept)
    }

    fn labels(&mut self, name: &str) -> Vec<(String, RawJson)> {
        self.object(name, false, MEMBERS_MAX, |_, value| Ok(RawJson::from(value))).unwrap_or_default()
    }

    fn references(&mut self, name: &str) -> Option<Vec<(String, Reference)>> {
        self.object(name, true, MEMBERS_MAX, |field, value| match value {
            Json::Text(text) => Reference::read(field.to_owned(), text),
            other => Err(Error::invalid(field, format!("must be a string, not {}", other.kind()))),
        })
    }

    fn projects(&mut self, name: &str) -> HashMap<String, ProjectId> {
        let read = |field: &str, value: &Json<'_>| {
            let id = value.as_text().and_then(|text| text.parse().ok());
            id.ok_or_else(|| Error::invalid(field, "must be an identifier"))
        };
        self.object(name, false, PROJECTS_MAX, read).unwrap_or_default().into_iter().collect()
    }
}

/// Decodes a URI-encoded text; valid JSON is left unchanged, because a query is already decoded once.
fn decoded(text: &str) -> String {
    if parse(text).is_ok() || !text.contains('%') {
        return text.to_owned();
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROJECT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn read(given: &[(&str, &str)]) -> Result<Request> {
        let given: HashMap<&str, &str> = given.iter().copied().collect();
        Request::read(|name| {
            let text = given.get(name).map(|text| (*text).to_owned())?;
            Some(Given { field: format!("query.{name}"), text: Some(text) })
        })
    }

    fn faults(given: &[(&str, &str)]) -> Vec<String> {
        match read(given) {
            Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    const LEAST: [(&str, &str); 2] = [("deviceTag", "eui"), ("deviceTagValue", "1")];

    fn with<'t>(name: &'t str, value: &'t str) -> [(&'t str, &'t str); 3] {
        [LEAST[0], LEAST[1], (name, value)]
    }

    // Holds: webhook.extraMetaMapRefs
    #[test]
    fn missing_parameters_have_defaults() {
        let request = read(&LEAST).unwrap();
        assert_eq!((request.integration, request.debug), (Integration::Custom, false));
        assert_eq!((&*request.label, request.tag_value.as_deref()), ("eui", Some("1")));
        assert!(request.events.is_none() && request.payload_refs.is_none() && request.extra_meta.is_empty());
        assert!(read(&with("extraMetaMapRefs", "null")).unwrap().extra_meta_refs.is_empty());
        assert!(read(&with("eventPayloadMapRefs", "null")).unwrap().payload_refs.is_none());
        assert!(read(&with("eventPayloadMapRefs", "{}")).unwrap().payload_refs.is_some());
        assert_eq!(read(&with("integration", "LoRa")).unwrap().integration, Integration::Lora);
        assert!(read(&with("debug", "True")).unwrap().debug);
        assert_eq!((request.tag_case, request.key_ref.is_none()), (TagCase::Sensitive, true));
        assert_eq!(read(&with("deviceTagCase", "Insensitive")).unwrap().tag_case, TagCase::Insensitive);
    }

    #[test]
    fn objects_may_be_uri_encoded() {
        for text in [r#"{"a":"100%25"}"#, "%7B%22a%22%3A%22100%2525%22%7D", "{%22a%22:%22100%2525%22}"] {
            let request = read(&with("extraMeta", text)).unwrap();
            assert_eq!(request.extra_meta, [("a".to_owned(), RawJson::trusted("\"100%25\"".into()))], "{text}");
        }
    }

    // Holds: webhook.deviceTagCase, webhook.debug, c9.answer, c9.tag
    #[test]
    fn every_fault_is_named() {
        assert_eq!(faults(&[]), ["query.deviceTag", "query.deviceTagValue"]);
        let long = "x".repeat(257);
        let all = [
            ("integration", "http"),
            ("organizationId", "me"),
            ("eventsRef", "$["),
            ("deviceTag", &*long),
            ("deviceTagValue", &*long),
            ("deviceTagValueRef", "$[(@.length-1)]"),
            ("deviceTagCase", "lower"),
            ("extraMeta", "[]"),
            ("extraMetaMapRefs", r#"{"a":"$.x","b":"$x","c":1}"#),
            ("projectUuid", "x"),
            ("projectUuidMap", r#"{"a":"x","b":"01890a5d-ac96-774b-bcce-b302099a8057"}"#),
            ("projectUuidMapRef", "$.."),
            ("eventPayloadMapRefs", "{"),
            ("idempotencyKeyRef", "$["),
            ("debug", "yes"),
        ];
        let expected = [
            "integration",
            "organizationId",
            "eventsRef",
            "deviceTag",
            "deviceTagValue",
            "deviceTagValueRef",
            "deviceTagCase",
            "extraMeta",
            "extraMetaMapRefs.b",
            "extraMetaMapRefs.c",
            "projectUuid",
            "projectUuidMap.a",
            "projectUuidMapRef",
            "eventPayloadMapRefs",
            "idempotencyKeyRef",
            "debug",
        ];
        assert_eq!(faults(&all), expected.map(|name| format!("query.{name}")));
        assert_eq!(faults(&with("extraMeta", "null")), ["query.extraMeta"]);
        assert_eq!(faults(&with("projectUuidMap", PROJECT)), ["query.projectUuidMap"]);
        assert_eq!(faults(&with("integration", "mqtt")), ["query.integration"]);
        let many: Vec<String> = (0..101).map(|number| format!("\"{number}\":1")).collect();
        assert_eq!(faults(&with("extraMeta", &format!("{{{}}}", many.join(",")))), ["query.extraMeta"]);
    }

    #[test]
    fn header_that_is_not_text_is_a_fault() {
        let given = |name: &str| Some(Given { field: format!("header.{name}"), text: None });
        let Err(Error::Invalid(faults)) = Request::read(given) else { panic!() };
        assert!(faults.iter().any(|fault| fault.field == "header.debug"));
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(texts in prop::collection::vec("[ -~é]{0,24}|[{}\"a-c:,$.\\[\\]?@%0-9]{0,24}", PARAMETERS.len())) {
            let given: Vec<(&str, &str)> =
                PARAMETERS.into_iter().zip(&texts).map(|(name, text)| (name, text.as_str())).collect();
            let _ = read(&given);
        }

        #[test]
        fn encoded_text_is_decoded(text in "[a-z%+ é\"]{0,12}") {
            let object = RawJson::from(&Json::Object(vec![("k".into(), Json::Text(text.as_str().into()))]));
            let encoded: String = object.bytes().iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(decoded(&encoded), object.text());
        }
    }
}
