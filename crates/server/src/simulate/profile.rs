//! Kinds of simulated devices, with their designs and payloads.

mod meter;
mod plc;
mod tracker;

use serde_json::{Value, json};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// A few small numbers that follow the time of day
    SmartMeter,
    /// Position, speed and heading of a vehicle that moves
    SmartTracker,
    /// Sixty values that drift slowly, with noise
    IndustrialPlc,
}

impl Profile {
    /// Returns its name on the command line and in the names of resources.
    pub fn name(self) -> &'static str {
        match self {
            Profile::SmartMeter => "smart-meter",
            Profile::SmartTracker => "smart-tracker",
            Profile::IndustrialPlc => "industrial-plc",
        }
    }

    /// Returns the device-event element that its devices post to.
    pub fn element(self) -> &'static str {
        match self {
            Profile::SmartMeter => "reading",
            Profile::SmartTracker => "position",
            Profile::IndustrialPlc => "cycle",
        }
    }

    /// Returns the elements of its design: the event is stored, and a condition on it has a consequence.
    pub fn elements(self) -> Value {
        match self {
            Profile::SmartMeter => {
                watched(self.element(), "readings", "overload", "payload.powerW > 4500", alarm("warning"))
            }
            Profile::SmartTracker => watched(self.element(), "track", "speeding", "payload.speedKmh > 90", message()),
            Profile::IndustrialPlc => {
                watched(self.element(), "cycles", "overheated", "payload.t01 > 80", alarm("critical"))
            }
        }
    }

    /// Makes a device of this kind, deterministic by its number.
    pub fn device(self, number: usize) -> Box<dyn Simulated> {
        let dice = Dice::new(number as u64);
        match self {
            Profile::SmartMeter => Box::new(meter::Meter::new(dice)),
            Profile::SmartTracker => Box::new(tracker::Tracker::new(dice)),
            Profile::IndustrialPlc => Box::new(plc::Plc::new(dice)),
        }
    }
}

/// The consequence of a condition: triggers for true and false.
struct Consequence {
    element: Value,
    holds: Value,
    does_not: Value,
}

fn watched(event: &str, storage: &str, condition: &str, expression: &str, consequence: Consequence) -> Value {
    json!({
        event: {"type": "deviceEvent", "properties": {"integration": "http"}, "triggers": {"eventReceived": [
            {"element": storage, "ability": "store"},
            {"element": condition, "ability": "evaluate"},
        ]}},
        storage: {"type": "storage"},
        condition: {"type": "condition", "properties": {"expression": expression}, "triggers": {
            "true": consequence.holds,
            "false": consequence.does_not,
        }},
        "answer": consequence.element,
    })
}

fn alarm(status: &str) -> Consequence {
    let set = |status: &str| json!([{"element": "answer", "ability": "setStatus", "arguments": {"status": status}}]);
    Consequence { element: json!({"type": "deviceMeta"}), holds: set(status), does_not: set("good") }
}

fn message() -> Consequence {
    let send = json!([{"element": "answer", "ability": "send", "arguments": {"value": {"slowDownTo": 80}}}]);
    Consequence { element: json!({"type": "cloudEvent"}), holds: send, does_not: json!([]) }
}

/// A simulated device.
pub trait Simulated: Send {
    /// Writes the payload of a measurement at `seconds` since the epoch.
    fn measure(&mut self, seconds: f64, out: &mut Vec<u8>);
}

/// A generator of pseudo-random numbers (SplitMix64).
pub struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D))
    }

    /// Returns a number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number between two.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns a number around 0, mostly within `width`: the sum of three, which is roughly bell-shaped.
    fn around(&mut self, width: f64) -> f64 {
        (self.unit() + self.unit() + self.unit() - 1.5) * width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_sends_deterministic_json() {
        for profile in [Profile::SmartMeter, Profile::SmartTracker, Profile::IndustrialPlc] {
            let run = |number| {
                let mut device = profile.device(number);
                let mut all = Vec::new();
                for second in 0..500 {
                    let mut body = Vec::new();
                    device.measure(1_700_000_000.0 + f64::from(second), &mut body);
                    all.push(serde_json::from_slice::<Value>(&body).unwrap());
                }
                all
            };
            assert_eq!(run(7), run(7), "{profile:?}");
            assert_ne!(run(7), run(8), "{profile:?}");
        }
    }

    #[test]
    fn controller_has_sixty_values() {
        let mut body = Vec::new();
        Profile::IndustrialPlc.device(1).measure(0.0, &mut body);
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap().as_object().unwrap().len(), 60);
    }
}
