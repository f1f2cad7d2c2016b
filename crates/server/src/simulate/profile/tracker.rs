//! A vehicle that keeps its heading, turns gradually, and moves along great circles.

use std::io::Write as _;

use super::{Dice, Simulated};

const EARTH_RADIUS_METRES: f64 = 6_371_000.0;
/// Longest step, so that a tracker that paused does not jump.
const STEP_SECONDS_MAX: f64 = 60.0;
/// Step of the first measurement, or of two at the same moment.
const STEP_SECONDS_MIN: f64 = 0.05;
const SPEED_MAX: f64 = 30.0;
const TURN_DEGREES_PER_SECOND_MAX: f64 = 6.0;
/// Start positions: latitude and longitude of some cities.
const CITIES: [(f64, f64); 8] = [
    (52.52, 13.40),
    (48.86, 2.35),
    (40.42, -3.70),
    (59.33, 18.07),
    (41.01, 28.98),
    (-33.87, 151.21),
    (35.68, 139.69),
    (19.43, -99.13),
];

/// A vehicle's tracker.
pub struct Tracker {
    dice: Dice,
    latitude: f64,
    longitude: f64,
    /// Degrees, clockwise from north.
    heading: f64,
    metres_per_second: f64,
    /// The desired speed, in metres per second.
    wanted: f64,
    measured_at: f64,
}

impl Tracker {
    pub fn new(mut dice: Dice) -> Self {
        let (latitude, longitude) = CITIES[(dice.unit() * CITIES.len() as f64) as usize % CITIES.len()];
        Self {
            latitude: latitude + dice.around(0.1),
            longitude: longitude + dice.around(0.1),
            heading: dice.between(0.0, 360.0),
            metres_per_second: dice.between(0.0, 20.0),
            wanted: dice.between(8.0, 25.0),
            measured_at: 0.0,
            dice,
        }
    }

    fn step(&mut self, seconds: f64) {
        if self.dice.unit() < 0.02 {
            self.wanted = if self.dice.unit() < 0.2 { 0.0 } else { self.dice.between(5.0, SPEED_MAX - 2.0) };
        }
        let pull = (self.wanted - self.metres_per_second) * (0.15 * seconds).min(1.0);
        self.metres_per_second = (self.metres_per_second + pull + self.dice.around(0.3)).clamp(0.0, SPEED_MAX);
        let turn_max = TURN_DEGREES_PER_SECOND_MAX * seconds.min(15.0);
        self.heading = (self.heading + self.dice.around(turn_max).clamp(-turn_max, turn_max)).rem_euclid(360.0);
        self.travel(self.metres_per_second * seconds);
    }

    /// Moves along a great circle.
    fn travel(&mut self, metres: f64) {
        let (angle, bearing) = (metres / EARTH_RADIUS_METRES, self.heading.to_radians());
        let (from, sine) = (self.latitude.to_radians(), self.latitude.to_radians().sin());
        let to = (sine * angle.cos() + from.cos() * angle.sin() * bearing.cos()).clamp(-1.0, 1.0).asin();
        let east = (bearing.sin() * angle.sin() * from.cos()).atan2(angle.cos() - sine * to.sin());
        self.latitude = to.to_degrees();
        self.longitude = (self.longitude + east.to_degrees() + 180.0).rem_euclid(360.0) - 180.0;
    }
}

impl Simulated for Tracker {
    fn measure(&mut self, seconds: f64, out: &mut Vec<u8>) {
        self.step((seconds - self.measured_at).clamp(STEP_SECONDS_MIN, STEP_SECONDS_MAX));
        self.measured_at = seconds;
        let fix = 6 + (self.dice.unit() * 8.0) as u32;
        // Writing to a Vec cannot fail.
        let _ = write!(
            out,
            "{{\"latitude\":{:.6},\"longitude\":{:.6},\"speedKmh\":{:.1},\"headingDeg\":{:.0},\"satellites\":{fix}}}",
            self.latitude,
            self.longitude,
            self.metres_per_second * 3.6,
            self.heading.floor()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
        let (p, q) = (a.0.to_radians(), b.0.to_radians());
        let half = |x: f64| (x / 2.0).sin().powi(2);
        let h = half(q - p) + p.cos() * q.cos() * half((b.1 - a.1).to_radians());
        2.0 * EARTH_RADIUS_METRES * h.sqrt().asin()
    }

    #[test]
    fn vehicle_moves_at_its_speed_and_turns_within_bounds() {
        let mut tracker = Tracker::new(Dice::new(11));
        tracker.measured_at = 1_000.0;
        for second in 1_001..2_000 {
            let (place, heading) = ((tracker.latitude, tracker.longitude), tracker.heading);
            tracker.measure(f64::from(second), &mut Vec::new());
            let moved = distance(place, (tracker.latitude, tracker.longitude));
            assert!((moved - tracker.metres_per_second).abs() < 0.01, "{moved} m in a second");
            let turn = (tracker.heading - heading + 540.0).rem_euclid(360.0) - 180.0;
            assert!(turn.abs() <= TURN_DEGREES_PER_SECOND_MAX * 1.5, "{turn} degrees in a second");
        }
    }
}
