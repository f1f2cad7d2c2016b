//! An industrial controller: twenty temperatures, twenty pressures, twenty speeds. Each drifts slowly around its set point.

use std::io::Write as _;

use super::{Dice, Simulated};

const CHANNELS: usize = 60;
/// Groups of twenty channels: first letter, range of set points, noise, and decimals.
const GROUPS: [Group; 3] = [
    Group { letter: 't', low: 35.0, high: 85.0, noise: 0.2, digits: 2 },
    Group { letter: 'p', low: 1.0, high: 12.0, noise: 0.02, digits: 3 },
    Group { letter: 'r', low: 300.0, high: 3_000.0, noise: 4.0, digits: 0 },
];

struct Group {
    letter: char,
    low: f64,
    high: f64,
    noise: f64,
    digits: usize,
}

/// A controller.
pub struct Plc {
    dice: Dice,
    set_points: [f32; CHANNELS],
    drifts: [f32; CHANNELS],
}

impl Plc {
    pub fn new(mut dice: Dice) -> Self {
        let set_points = std::array::from_fn(|channel| {
            let group = &GROUPS[channel / 20];
            dice.between(group.low, group.high) as f32
        });
        Self { dice, set_points, drifts: [0.0; CHANNELS] }
    }
}

impl Simulated for Plc {
    fn measure(&mut self, _seconds: f64, out: &mut Vec<u8>) {
        for channel in 0..CHANNELS {
            let group = &GROUPS[channel / 20];
            let drift = f64::from(self.drifts[channel]) * 0.999 + self.dice.around(group.noise * 0.1);
            self.drifts[channel] = drift as f32;
            let value = (f64::from(self.set_points[channel]) + drift + self.dice.around(group.noise)).max(0.0);
            let before = if channel == 0 { '{' } else { ',' };
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{before}\"{}{:02}\":{value:.*}", group.letter, channel % 20 + 1, group.digits);
        }
        out.push(b'}');
    }
}
