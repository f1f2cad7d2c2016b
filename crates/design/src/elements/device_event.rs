//! `deviceEvent`: where events of devices come in.

use super::{Element, Shape, properties::Properties};

pub(crate) const SHAPE: Shape =
    Shape { name: "deviceEvent", abilities: &[], triggers: &["eventReceived"], read: DeviceEvent::read };

/// How the events of an element come to Isobar (contract: The project design).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Integration {
    /// Over the HTTP API.
    #[default]
    Http,
    /// By the webhook, from anything.
    Custom,
    /// By the webhook, from Bluetooth Low Energy gateways.
    Ble,
    /// By the webhook, from a LoRaWAN network.
    Lora,
    /// By the webhook, from Sigfox.
    Sigfox,
    /// By the webhook, from Zigbee gateways.
    Zigbee,
}

impl Integration {
    /// Every integration with its name.
    const NAMES: [(&'static str, Integration); 6] = [
        ("http", Integration::Http),
        ("custom", Integration::Custom),
        ("ble", Integration::Ble),
        ("lora", Integration::Lora),
        ("sigfox", Integration::Sigfox),
        ("zigbee", Integration::Zigbee),
    ];

    /// Its name in designs and in the API.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The integration of that name.
    pub fn named(name: &str) -> Option<Integration> {
        Self::NAMES.into_iter().find(|(other, _)| *other == name).map(|(_, integration)| integration)
    }
}

/// A deviceEvent element.
#[derive(Debug)]
pub(crate) struct DeviceEvent {
    pub(crate) integration: Integration,
}

impl DeviceEvent {
    fn read(properties: &mut Properties<'_>) -> Element {
        let integration = properties.word("integration", &Integration::NAMES, Integration::default());
        Element::DeviceEvent(Self { integration })
    }
}
