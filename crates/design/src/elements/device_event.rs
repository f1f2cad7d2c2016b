//! `deviceEvent`: receives events of devices.

use super::{Element, Shape, properties::Properties};

pub(crate) const SHAPE: Shape =
    Shape { name: "deviceEvent", abilities: &[], triggers: &["eventReceived"], read: DeviceEvent::read };

/// Source of an element's events (contract: The project design).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Integration {
    /// HTTP API.
    #[default]
    Http,
    /// Webhook, any source.
    Custom,
    /// Webhook, Bluetooth Low Energy gateways.
    Ble,
    /// Webhook, LoRaWAN network.
    Lora,
    /// Webhook, Sigfox.
    Sigfox,
    /// Webhook, Zigbee gateways.
    Zigbee,
}

impl Integration {
    /// Name of every integration, in the order of the enum.
    const NAMES: [(&'static str, Integration); 6] = [
        ("http", Integration::Http),
        ("custom", Integration::Custom),
        ("ble", Integration::Ble),
        ("lora", Integration::Lora),
        ("sigfox", Integration::Sigfox),
        ("zigbee", Integration::Zigbee),
    ];

    /// Returns its name in designs and in the API.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Finds an integration by name.
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
