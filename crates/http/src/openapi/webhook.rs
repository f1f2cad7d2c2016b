//! The parameters of the integration webhook, each as a query parameter and as a header of the same name.

use super::parameters::{Kind, Param, header, query};

type Said = (&'static str, Kind, &'static str);

const SAID: [Said; 15] = [
    (
        "integration",
        Kind::Word(&["custom", "ble", "lora", "sigfox", "zigbee"]),
        "The integration type, in any case: runs the deviceEvent elements of that type",
    ),
    (
        "organizationId",
        Kind::IdOrNothing,
        "The organization in whose subtree devices are sought, and into which new ones are provisioned; default: the caller's",
    ),
    (
        "eventsRef",
        Kind::Text,
        "Splits the body into event blocks: a JSONPath (RFC 9535), or the name of a top-level member; default: the whole body is one",
    ),
    (
        "deviceTag",
        Kind::Short(128),
        "Required: the label of the metadata that holds what the third party calls the device",
    ),
    (
        "deviceTagValue",
        Kind::Short(256),
        "What the third party calls the device; this or deviceTagValueRef is required",
    ),
    (
        "deviceTagValueRef",
        Kind::Text,
        "Where that is found in each event block: a JSONPath, or the name of a top-level member",
    ),
    (
        "deviceTagCase",
        Kind::Word(&["sensitive", "insensitive"]),
        "How what the third party calls the device is compared: insensitive finds the device whatever the case of A to Z",
    ),
    (
        "extraMeta",
        Kind::Text,
        "Labels for the metadata of the devices, added where missing: an object as URI encoded JSON",
    ),
    (
        "extraMetaMapRefs",
        Kind::Text,
        "Labels to set from the body: an object of label to reference as URI encoded JSON, or null",
    ),
    ("projectUuid", Kind::IdOrNothing, "The project of new devices"),
    (
        "projectUuidMap",
        Kind::Text,
        "Projects of new devices by a value: an object of value to project as URI encoded JSON",
    ),
    (
        "projectUuidMapRef",
        Kind::Text,
        "Where that value is found in each event block: a JSONPath, or the name of a top-level member",
    ),
    (
        "eventPayloadMapRefs",
        Kind::Text,
        "Builds the payload from each event block: an object of key to reference as URI encoded JSON, or null",
    ),
    (
        "idempotencyKeyRef",
        Kind::Text,
        "Where each event block has what makes it the same event when it is delivered again within 24 hours: a JSONPath, or the name \
         of a top-level member",
    ),
    ("debug", Kind::Boolean(false), "Answer with everything that was found and done"),
];

/// All of them, as query parameters and as headers.
pub(crate) const WEBHOOK: [Param; 2 * SAID.len()] = {
    let mut all = [query("", Kind::Text, ""); 2 * SAID.len()];
    let mut index = 0;
    while index < SAID.len() {
        let (name, kind, says) = SAID[index];
        all[2 * index] = query(name, kind, says);
        all[2 * index + 1] = header(name, kind, says);
        index += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_the_parameters_that_are_read() {
        assert_eq!(SAID.map(|(name, ..)| name), isobar_hub::WEBHOOK_PARAMETERS);
    }
}
