//! A smart meter: power that follows the day, voltage, current, and energy that only grows.

use std::f64::consts::TAU;
use std::io::Write as _;

use super::{Dice, Simulated};

const SECONDS_PER_DAY: f64 = 86_400.0;
const WATTS_OF_A_KETTLE: f64 = 2_200.0;

/// A household's meter.
pub struct Meter {
    dice: Dice,
    base_watts: f64,
    peak_watts: f64,
    /// Shift of this household's day, in seconds.
    late_seconds: f64,
    energy_kwh: f64,
    measured_at: Option<f64>,
}

impl Meter {
    pub fn new(mut dice: Dice) -> Self {
        Self {
            base_watts: dice.between(80.0, 350.0),
            peak_watts: dice.between(900.0, 3_500.0),
            late_seconds: dice.around(3_600.0),
            energy_kwh: dice.between(1_000.0, 60_000.0),
            measured_at: None,
            dice,
        }
    }

    /// Returns the share of the peak, which has humps in the morning and in the evening.
    fn share_of_peak(&self, seconds: f64) -> f64 {
        let day = (seconds - self.late_seconds) / SECONDS_PER_DAY;
        let evening = (0.5 - 0.5 * (TAU * (day - 0.29)).cos()).powi(3);
        let morning = (0.5 - 0.5 * (2.0 * TAU * (day - 0.06)).cos()).powi(4);
        (0.6 * evening + 0.4 * morning).clamp(0.0, 1.0)
    }
}

impl Simulated for Meter {
    fn measure(&mut self, seconds: f64, out: &mut Vec<u8>) {
        let kettle = if self.dice.unit() < 0.02 { WATTS_OF_A_KETTLE } else { 0.0 };
        let noise = 1.0 + self.dice.around(0.08);
        let watts = (self.base_watts + self.peak_watts * self.share_of_peak(seconds)) * noise + kettle;
        let volts = 230.0 + self.dice.around(3.0) - watts / 2_000.0;
        let hours = self.measured_at.map_or(0.0, |then| (seconds - then).max(0.0) / 3_600.0);
        self.measured_at = Some(seconds);
        self.energy_kwh += watts / 1_000.0 * hours;
        // Writing to a Vec cannot fail.
        let _ = write!(
            out,
            "{{\"powerW\":{watts:.1},\"voltageV\":{volts:.1},\"currentA\":{:.2},\"energyKwh\":{:.3}}}",
            watts / volts,
            self.energy_kwh
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenings_use_more_than_nights_and_energy_only_grows() {
        let mut meter = Meter::new(Dice::new(3));
        meter.late_seconds = 0.0;
        assert!(meter.share_of_peak(19.0 * 3_600.0) > 2.0 * meter.share_of_peak(3.0 * 3_600.0));
        let before = meter.energy_kwh;
        for hour in 0..24 {
            meter.measure(f64::from(hour) * 3_600.0, &mut Vec::new());
        }
        let day = meter.energy_kwh - before;
        assert!((2.0..80.0).contains(&day), "{day} kWh in a day");
    }
}
