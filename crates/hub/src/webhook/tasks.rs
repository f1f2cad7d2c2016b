//! Splits a body into tasks: one for each device in it, with its payloads in the body's order. This module does no I/O;
//! the work is bounded, because body and paths come from outside.

use std::collections::HashMap;

use bytes::Bytes;
use isobar_model::device::LABEL_VALUE_CHARACTERS_MAX;
use isobar_model::error::{Error, Result};
use isobar_model::ids::ProjectId;
use isobar_model::json::{Json, RawJson, member_bytes, write_string};
use isobar_model::jsonpath::Steps;
use isobar_model::meta::META_BYTES_MAX;
use isobar_model::project::empty_object;
use isobar_store::registry::NewLabels;

use super::parameters::Request;
use super::task::{Block, Task};
use crate::ingest::event_input::IDEMPOTENCY_KEY_MAX;

/// Event blocks of one delivery, at most.
pub(super) const BLOCKS_MAX: usize = 10_000;
/// Work that all references of one delivery may take together, in steps: about one for each visited node.
const PATH_STEPS_MAX: u64 = 10_000_000;
/// Bytes of all payloads of one delivery together, at most.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Error of a delivery whose references produce more than that.
const TOO_MUCH_PAYLOAD: &str = "makes more than 16 MiB of payloads out of the body";
/// Bytes of one label taken from the body, at most.
const LABEL_BYTES_MAX: usize = 16 << 10;

/// The content of a body.
#[derive(Debug)]
pub(super) struct Extracted {
    pub body: RawJson,
    pub blocks: usize,
    pub tasks: Vec<Task>,
    pub labels: NewLabels,
    pub errors: Vec<String>,
}

/// Parses a body and splits it.
pub(super) fn extract(request: &Request, body: &Bytes) -> Result<Extracted> {
    let (body, tree) = match RawJson::read(body) {
        Ok((_, Json::Null)) => return Err(Error::invalid("body", "must not be null")),
        Ok(read) => read,
        Err(fault) => return Err(Error::invalid("body", format!("is not valid JSON: {fault}"))),
    };
    let mut extraction = Extraction {
        request,
        steps: Steps::new(PATH_STEPS_MAX),
        bytes_left: PAYLOAD_BYTES_MAX,
        tasks: Vec::new(),
        places: HashMap::new(),
        errors: Vec::new(),
    };
    let labels = extraction.labels(&tree)?;
    let blocks = extraction.blocks(&tree)?;
    if blocks.len() > BLOCKS_MAX {
        return Err(Error::invalid("body", format!("must hold at most {BLOCKS_MAX} event blocks")));
    }
    for (index, block) in blocks.iter().enumerate() {
        // The whole body is stored byte by byte as it was received.
        let whole = std::ptr::eq(*block, &tree).then_some(&body);
        extraction.block(index, block, whole)?;
    }
    let Extraction { tasks, errors, .. } = extraction;
    Ok(Extracted { blocks: blocks.len(), body, tasks, labels, errors })
}

struct Extraction<'r> {
    request: &'r Request,
    steps: Steps,
    bytes_left: usize,
    tasks: Vec<Task>,
    /// Index of each device's task.
    places: HashMap<String, usize>,
    errors: Vec<String>,
}

impl Extraction<'_> {
    /// Returns the event blocks: the items of every array that `eventsRef` finds, and all other nodes it finds.
    fn blocks<'v>(&mut self, body: &'v Json<'v>) -> Result<Vec<&'v Json<'v>>> {
        let Some(events) = &self.request.events else { return Ok(vec![body]) };
        let found = events.all(body, &mut self.steps)?;
        if found.is_empty() {
            self.errors.push("eventsRef finds nothing in the body".to_owned());
        }
        let mut blocks = Vec::new();
        for node in found {
            match node {
                Json::Array(items) => blocks.extend(items),
                other => blocks.push(other),
            }
            if blocks.len() > BLOCKS_MAX {
                break;
            }
        }
        Ok(blocks)
    }

    /// Returns the labels that every device of the delivery gets, without the tag itself.
    fn labels(&mut self, body: &Json<'_>) -> Result<NewLabels> {
        let is_tag = |name: &str| name == self.request.label;
        let missing = self.request.extra_meta.iter().filter(|(name, _)| !is_tag(name)).cloned().collect();
        let (mut set, mut bytes_left) = (Vec::new(), META_BYTES_MAX);
        for (name, reference) in self.request.extra_meta_refs.iter().filter(|(name, _)| !is_tag(name)) {
            let found = reference.value(body, &mut self.steps)?;
            // A null means that there is no value: it does not erase a label.
            let Some(found) = found.filter(|found| !found.is_null()) else { continue };
            let mut text = Vec::new();
            let value = match found.write(&mut text, LABEL_BYTES_MAX) {
                true => payload_of_text(text),
                false => Err(format!("is longer than {LABEL_BYTES_MAX} bytes")),
            };
            let value = value.and_then(|value| match bytes_left.checked_sub(member_bytes(name, &value)) {
                Some(left) => {
                    bytes_left = left;
                    Ok(value)
                }
                None => Err(format!("has no room: the labels of a delivery take at most {META_BYTES_MAX} bytes")),
            });
            match value {
                Ok(value) => set.push((name.clone(), value)),
                Err(why) => self.errors.push(format!("extraMetaMapRefs.{name}: the value {why}")),
            }
        }
        Ok(NewLabels { missing, set })
    }

    fn block(&mut self, index: usize, block: &Json<'_>, whole: Option<&RawJson>) -> Result<()> {
        let tag_value = match self.tag_value(block)? {
            Ok(value) => value,
            Err(why) => {
                self.errors.push(format!("event block {index}: {why}"));
                return Ok(());
            }
        };
        let project = self.project(block)?;
        let block = match self.event(block, whole)? {
            Ok((payload, key)) => Block { index, payload, key, refused: None },
            Err(why) => {
                self.errors.push(format!("event block {index}: {why}"));
                // A block that cannot be a payload is replaced by an empty object.
                let payload = self.block_itself(block, whole)?.unwrap_or_else(|_| empty_object());
                Block { index, payload, key: None, refused: Some(why) }
            }
        };
        let next = self.tasks.len();
        let place = *self.places.entry(tag_value.clone()).or_insert(next);
        if place == next {
            self.tasks.push(Task { tag_value, project: None, blocks: Vec::new() });
        }
        let task = &mut self.tasks[place];
        task.project = task.project.or(project);
        task.blocks.push(block);
        Ok(())
    }

    /// Returns the third party's identifier of the block's device: the first node that the reference finds.
    fn tag_value(&mut self, block: &Json<'_>) -> Result<std::result::Result<String, String>> {
        let found = match &self.request.tag_value_ref {
            Some(reference) => reference.all(block, &mut self.steps)?.first().copied(),
            None => None,
        };
        let Some(found) = found else {
            let fixed = self.request.tag_value.clone();
            return Ok(fixed.ok_or_else(|| "deviceTagValueRef finds nothing in it".to_owned()));
        };
        let value = match found {
            Json::Text(text) => text.to_string(),
            Json::Number(number) => number.text().to_owned(),
            other => return Ok(Err(format!("deviceTagValueRef finds a {}, not a string or a number", other.kind()))),
        };
        let length = value.chars().count();
        Ok(match (1..=LABEL_VALUE_CHARACTERS_MAX).contains(&length) && !value.contains('\0') {
            true => Ok(value),
            false => Err(format!(
                "what deviceTagValueRef finds must be 1 to {LABEL_VALUE_CHARACTERS_MAX} characters long, without U+0000"
            )),
        })
    }

    /// Returns the project of a block: an entry of the map takes precedence over `projectUuid`.
    fn project(&mut self, block: &Json<'_>) -> Result<Option<ProjectId>> {
        let request = self.request;
        let mut mapped = None;
        if let Some(reference) = &request.project_ref {
            let found = reference.all(block, &mut self.steps)?;
            let known = |value: &&Json<'_>| request.project_map.get(&*value.scalar_text()?).copied();
            mapped = found.first().and_then(known);
        }
        Ok(mapped.or(request.project.as_ref().map(|project| project.value)))
    }

    /// Returns the payload of the device's event, and its idempotency key.
    fn event(
        &mut self,
        block: &Json<'_>,
        whole: Option<&RawJson>,
    ) -> Result<std::result::Result<(RawJson, Option<String>), String>> {
        Ok(match self.key(block)? {
            Ok(key) => match self.payload(block, whole)? {
                Ok(payload) => Ok((payload, key)),
                Err(why) => Err(format!("the payload {why}")),
            },
            Err(why) => Err(why),
        })
    }

    /// Returns the first node that `idempotencyKeyRef` finds, as text; without one, the block has no key.
    fn key(&mut self, block: &Json<'_>) -> Result<std::result::Result<Option<String>, String>> {
        let Some(reference) = &self.request.key_ref else { return Ok(Ok(None)) };
        let found = reference.all(block, &mut self.steps)?.first().copied();
        let key = match found {
            None | Some(Json::Null) => return Ok(Ok(None)),
            Some(Json::Text(text)) => text.to_string(),
            Some(Json::Number(number)) => number.text().to_owned(),
            Some(other) => {
                return Ok(Err(format!("idempotencyKeyRef finds a {}, not a string or a number", other.kind())));
            }
        };
        Ok(match key.chars().count() {
            0 => Ok(None),
            1..=IDEMPOTENCY_KEY_MAX => Ok(Some(key)),
            _ => Err(format!("what idempotencyKeyRef finds must be at most {IDEMPOTENCY_KEY_MAX} characters long")),
        })
    }

    /// Returns the payload of the device's event: the block, or the object that `eventPayloadMapRefs` builds.
    fn payload(&mut self, block: &Json<'_>, whole: Option<&RawJson>) -> Result<std::result::Result<RawJson, String>> {
        let request = self.request;
        let Some(references) = &request.payload_refs else { return self.block_itself(block, whole) };
        let mut text = vec![b'{'];
        for (name, reference) in references {
            let Some(found) = reference.value(block, &mut self.steps)? else { continue };
            if text.len() > 1 {
                text.push(b',');
            }
            write_string(name, &mut text);
            text.push(b':');
            if !found.write(&mut text, self.bytes_left) {
                return Err(reference.refuse(TOO_MUCH_PAYLOAD));
            }
        }
        text.push(b'}');
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        Ok(payload_of_text(text))
    }

    fn block_itself(
        &mut self,
        block: &Json<'_>,
        whole: Option<&RawJson>,
    ) -> Result<std::result::Result<RawJson, String>> {
        if matches!(block, Json::Null) {
            return Ok(Err("is null".to_owned()));
        }
        let payload = whole.cloned().unwrap_or_else(|| RawJson::from(block));
        let left = self.bytes_left.checked_sub(payload.bytes().len());
        // The same large block may have been found ten thousand times.
        self.bytes_left = left.ok_or_else(|| match &self.request.events {
            Some(events) => events.refuse(TOO_MUCH_PAYLOAD),
            None => Error::invalid("body", TOO_MUCH_PAYLOAD),
        })?;
        Ok(Ok(payload))
    }
}

/// Checks JSON that was built of parts: it must not be nested too deep.
fn payload_of_text(text: Vec<u8>) -> std::result::Result<RawJson, String> {
    RawJson::check(text.into()).map_err(|fault| format!("is no JSON that can be kept: {fault}"))
}

#[cfg(test)]
mod tests {
    use isobar_model::error::Fault;
    use proptest::prelude::*;

    use super::*;
    use crate::webhook::parameters::Given;

    fn request(given: &[(&str, &str)]) -> Request {
        let find = |name: &str| {
            let text = given.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned());
            text.map(|text| Given { field: format!("query.{name}"), text: Some(text) })
        };
        Request::read(find).unwrap()
    }

    /// Returns tasks as `device: payload payload`, then the errors.
    fn extracted(given: &[(&str, &str)], body: &str) -> (Vec<String>, Vec<String>) {
        let with_tag: Vec<_> = given.iter().copied().chain([("deviceTag", "eui")]).collect();
        let found = extract(&request(&with_tag), &Bytes::copy_from_slice(body.as_bytes())).unwrap();
        let task = |task: Task| {
            let payloads: Vec<_> = task.events().map(|block| block.payload.text()).collect();
            format!("{}: {}", task.tag_value, payloads.join(" "))
        };
        (found.tasks.into_iter().map(task).collect(), found.errors)
    }

    fn refused(given: &[(&str, &str)], body: &str) -> Vec<Fault> {
        let with_tag: Vec<_> = given.iter().copied().chain([("deviceTag", "eui")]).collect();
        match extract(&request(&with_tag), &Bytes::copy_from_slice(body.as_bytes())) {
            Err(Error::Invalid(faults)) => faults,
            other => panic!("{other:?}"),
        }
    }

    const FIXED: (&str, &str) = ("deviceTagValue", "1");
    const BY_ID: (&str, &str) = ("deviceTagValueRef", "id");

    // Holds: webhook.eventsRef, c9.eventsRef
    #[test]
    fn body_is_split_into_blocks() {
        for (events, body, expected) in [
            ("", "[1,2]", &["1: [1,2]"][..]),
            ("", " {\"a\" : 1.50}\n", &["1: {\"a\" : 1.50}"]),
            ("", "0", &["1: 0"]),
            ("", "\"text\"", &["1: \"text\""]),
            ("a", "{\"a\":[1,{\"b\":2.0},[3]]}", &["1: 1 {\"b\":2.0} [3]"]),
            ("a", "{\"a\":{\"b\":2}}", &["1: {\"b\":2}"]),
            ("$.a", "{\"a\":false}", &["1: false"]),
            ("$.a[*]", "{\"a\":[{\"x\":1},{\"x\":2}]}", &["1: {\"x\":1} {\"x\":2}"]),
            ("$..e", "[{\"e\":[1,2]},{\"e\":[3]}]", &["1: 1 2 3"]),
            ("$", "[1,2]", &["1: 1 2"]),
            ("a", "{\"a\":[]}", &[]),
            // A name denotes one member, even if it contains dots.
            ("a.b", "{\"a.b\":[1],\"a\":{\"b\":[2]}}", &["1: 1"]),
            (
                "a",
                "{\"a\":[18446744073709551616,0.10000000000000000001]}",
                &["1: 18446744073709551616 0.10000000000000000001"],
            ),
        ] {
            assert_eq!(
                extracted(&[("eventsRef", events), FIXED], body),
                (to_texts(expected), vec![]),
                "{events} {body}"
            );
        }
        let nothing = to_texts(&["eventsRef finds nothing in the body"]);
        assert_eq!(extracted(&[("eventsRef", "a.b"), FIXED], "{\"a\":{\"b\":[2]}}"), (vec![], nothing));
    }

    fn to_texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn blocks_of_one_device_are_one_task() {
        let body = r#"[{"id":"b","n":1},{"id":7,"n":2},{"id":"b","n":3},{"id":"7","n":4}]"#;
        let (tasks, errors) = extracted(&[("eventsRef", "$"), BY_ID, ("eventPayloadMapRefs", r#"{"v":"n"}"#)], body);
        assert_eq!((tasks, errors), (to_texts(&[r#"b: {"v":1} {"v":3}"#, r#"7: {"v":2} {"v":4}"#]), vec![]));
    }

    #[test]
    fn invalid_block_is_reported() {
        let long = "x".repeat(257);
        let body = format!(r#"[{{}},{{"id":null}},{{"id":[]}},{{"id":""}},{{"id":"{long}"}},{{"id":"a"}},5]"#);
        let (tasks, errors) = extracted(&[("eventsRef", "$"), BY_ID], &body);
        assert_eq!(tasks, [r#"a: {"id":"a"}"#]);
        let blocks: Vec<_> = errors.iter().map(|error| &error[..13]).collect();
        assert_eq!(blocks, [0, 1, 2, 3, 4, 6].map(|index| format!("event block {index}")), "{errors:?}");
        assert_eq!(extracted(&[("eventsRef", "nothing"), FIXED], "{}").1, ["eventsRef finds nothing in the body"]);
        assert_eq!(extracted(&[("eventsRef", "$"), FIXED], "[null]").1, ["event block 0: the payload is null"]);
        // The fixed parameter applies if the reference finds nothing.
        assert_eq!(extracted(&[BY_ID, FIXED], "{}").0, ["1: {}"]);
    }

    // Holds: webhook.eventPayloadMapRefs, c9.tag
    #[test]
    fn payloads_are_built_from_found_nodes() {
        let map = r#"{"n":"$.a.n","all":"$.a[*]","no":"$.b","é\"":"top"}"#;
        let body = r#"{"a":{"n":1.50,"m":[null]},"top":{}}"#;
        let (tasks, _) = extracted(&[FIXED, ("eventPayloadMapRefs", map)], body);
        assert_eq!(tasks, [r#"1: {"n":1.50,"all":[1.50,[null]],"é\"":{}}"#]);
        assert_eq!(extracted(&[FIXED, ("eventPayloadMapRefs", "{}")], "1").0, ["1: {}"]);
        let deep = "[".repeat(64) + &"]".repeat(64);
        let (_, errors) = extracted(&[FIXED, ("eventPayloadMapRefs", r#"{"deep":"$"}"#)], &deep);
        assert!(errors[0].contains("nested deeper"), "{errors:?}");
    }

    #[test]
    fn labels_come_from_parameters_and_from_the_body() {
        let given = [
            ("deviceTag", "eui"),
            FIXED,
            ("extraMeta", r#"{"eui":"other","site":{"a":1.0}}"#),
            ("extraMetaMapRefs", r#"{"eui":"$.x","gateway":"$.g[0].id","none":"$.none","all":"$.g[*].id"}"#),
        ];
        let body = Bytes::from_static(br#"{"x":1,"g":[{"id":"g1"},{"id":2.50}]}"#);
        let labels = extract(&request(&given), &body).unwrap().labels;
        let shown = |labels: &[(String, RawJson)]| {
            labels.iter().map(|(name, value)| format!("{name}={}", value.text())).collect::<Vec<_>>()
        };
        assert_eq!(shown(&labels.missing), [r#"site={"a":1.0}"#]);
        assert_eq!(shown(&labels.set), [r#"gateway="g1""#, r#"all=["g1",2.50]"#]);
    }

    #[test]
    fn the_map_wins_over_the_default_project() {
        let (one, other) = ("01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058");
        let map = format!(r#"{{"truck":"{one}","7":"{one}"}}"#);
        let mut given = vec![
            ("deviceTag", "eui"),
            ("eventsRef", "$"),
            BY_ID,
            ("projectUuidMap", &*map),
            ("projectUuidMapRef", "kind"),
        ];
        let body = Bytes::from_static(
            br#"[{"id":"a","kind":"truck"},{"id":"b","kind":"car"},{"id":"c"},{"id":"d","kind":7},{"id":"e","kind":[]}]"#,
        );
        let projects = |given: &[(&str, &str)]| {
            let tasks = extract(&request(given), &body).unwrap().tasks;
            tasks.iter().map(|task| task.project.map(|id| id.to_string())).collect::<Vec<_>>()
        };
        let (one, other) = (Some(one.to_owned()), Some(other.to_owned()));
        assert_eq!(projects(&given), [one.clone(), None, None, one.clone(), None]);
        given.push(("projectUuid", other.as_deref().unwrap()));
        assert_eq!(projects(&given), [one.clone(), other.clone(), other.clone(), one, other]);
    }

    #[test]
    fn work_and_size_are_bounded() {
        let fields = |faults: Vec<Fault>| faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>();
        let many = format!("[{}]", vec!["1"; BLOCKS_MAX + 1].join(","));
        assert_eq!(fields(refused(&[("eventsRef", "$"), FIXED], &many)), ["body"]);
        let nested = "[".repeat(60) + "1" + &"]".repeat(60);
        assert_eq!(fields(refused(&[("eventsRef", "$..*..*..*..*..*"), FIXED], &nested)), ["query.eventsRef"]);
        // The path finds few nodes, but visits all of them for each.
        let wide = format!("[{}]", vec![r#"{"id":1}"#; 4_000].join(","));
        assert_eq!(fields(refused(&[("eventsRef", "$[?count($..id) > 1]"), FIXED], &wide)), ["query.eventsRef"]);
        let large = format!("[\"{}\"]", "x".repeat(1 << 20));
        let same = format!("$[{}]", vec!["0"; 100].join(","));
        assert_eq!(fields(refused(&[("eventsRef", &same), FIXED], &large)), ["query.eventsRef"]);
        let map = format!("{{\"a\":\"{same}\"}}");
        let faults = refused(&[FIXED, ("eventPayloadMapRefs", &map)], &large);
        assert_eq!(fields(faults), ["query.eventPayloadMapRefs.a"]);
        let (_, errors) = extracted(&[FIXED, ("extraMetaMapRefs", &map)], &large);
        assert!(errors[0].starts_with("extraMetaMapRefs.a"), "{errors:?}");
        for bad in ["null", "", "{", "[1,]"] {
            assert_eq!(fields(refused(&[FIXED], bad)), ["body"], "{bad}");
        }
    }

    proptest! {
        // Holds: webhook.deviceTagValueRef
        #[test]
        fn no_block_is_lost(ids in prop::collection::vec(prop::option::of(0_u8..4), 0..30)) {
            let blocks: Vec<String> = ids
                .iter()
                .enumerate()
                .map(|(index, id)| id.map_or("{}".to_owned(), |id| format!("{{\"id\":{id},\"n\":{index}}}")))
                .collect();
            let given = request(&[("deviceTag", "eui"), ("eventsRef", "$"), BY_ID]);
            let found = extract(&given, &Bytes::from(format!("[{}]", blocks.join(",")))).unwrap();
            let events: usize = found.tasks.iter().map(|task| task.events().count()).sum();
            prop_assert_eq!(events + found.errors.len(), ids.len());
            for task in &found.tasks {
                prop_assert!(task.blocks.is_sorted_by_key(|block| block.index));
                for block in &task.blocks {
                    prop_assert_eq!(block.payload.text(), &blocks[block.index]);
                }
            }
        }
    }
}
