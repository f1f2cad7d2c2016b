//! Devices on a map, clustered by the cells of a grid.

use crate::alarm::AlarmSeverity;
use crate::device::Location;
use crate::ids::DeviceId;
use crate::status::Status;

/// Most cells of the grid of one request.
pub const CELLS_MAX: u64 = 10_000;
/// Smallest side of a cell, in degrees: some ten metres.
pub const CELL_DEGREES_MIN: f64 = 0.000_1;
/// Largest side of a cell, in degrees: all longitudes.
pub const CELL_DEGREES_MAX: f64 = 360.0;

/// A rectangle of the map; it crosses the date line if its east is less than its west.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapBox {
    /// Degrees, -180 to 180, as the other edges are.
    pub west: f64,
    /// Degrees, -90 to 90.
    pub south: f64,
    /// Degrees, -180 to 180.
    pub east: f64,
    /// Degrees, -90 to 90, not below the south.
    pub north: f64,
}

impl MapBox {
    /// The whole map.
    pub const WORLD: Self = Self { west: -180.0, south: -90.0, east: 180.0, north: 90.0 };

    /// Returns the box with these edges, if they are within their bounds and the south is not above the north.
    pub fn new([west, south, east, north]: [f64; 4]) -> Option<Self> {
        let corners = Location::new(south, west).zip(Location::new(north, east));
        corners.filter(|_| south <= north).map(|_| Self { west, south, east, north })
    }

    /// Returns true if the box lies on both sides of the date line.
    pub fn crosses_date_line(&self) -> bool {
        self.west > self.east
    }

    /// Counts the cells of a grid that the box may touch.
    pub fn cells(&self, degrees: f64) -> u64 {
        let width = self.east - self.west + if self.crosses_date_line() { 360.0 } else { 0.0 };
        let touched = |length: f64| (length / degrees).ceil() + 1.0;
        // A cast of a float ends at the bounds of the number.
        (touched(width) * touched(self.north - self.south)) as u64
    }
}

/// The devices of a cell with at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceCluster {
    /// Number of devices per status, in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
    /// Mean of their locations.
    pub middle: Location,
    /// Smallest rectangle around them; it never crosses the date line.
    pub bounds: MapBox,
    /// Id and name of the device, if there is only one.
    pub only: Option<(DeviceId, String)>,
    /// Highest severity of active alarms, and the number of devices that have any; `None` without active alarms.
    pub alarms: Option<(AlarmSeverity, u64)>,
}

impl DeviceCluster {
    /// Counts the devices.
    pub fn count(&self) -> u64 {
        self.by_status.iter().sum()
    }

    /// Returns the most urgent status of the devices.
    pub fn status(&self) -> Status {
        let has = |status: &Status| self.by_status[usize::from(status.number())] > 0;
        Status::BY_URGENCY.into_iter().find(has).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_edges_are_within_the_world() {
        assert_eq!(MapBox::new([-180.0, -90.0, 180.0, 90.0]), Some(MapBox::WORLD));
        for edges in [[-181.0, 0.0, 1.0, 1.0], [0.0, -91.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0], [f64::NAN, 0.0, 1.0, 1.0]]
        {
            assert_eq!(MapBox::new(edges), None, "{edges:?}");
        }
    }

    #[test]
    fn box_across_the_date_line_counts_its_cells() {
        let across = MapBox::new([170.0, 0.0, -170.0, 10.0]).unwrap();
        assert!(across.crosses_date_line());
        assert_eq!(across.cells(10.0), 3 * 2);
        assert_eq!(MapBox::WORLD.cells(360.0), 2 * 2);
        assert!(MapBox::WORLD.cells(CELL_DEGREES_MIN) > CELLS_MAX);
    }

    #[test]
    fn cluster_status_is_the_most_urgent() {
        let of = |statuses: &[Status]| {
            let mut by_status = [0; 6];
            statuses.iter().for_each(|status| by_status[usize::from(status.number())] += 1);
            let middle = Location { latitude: 0.0, longitude: 0.0 };
            DeviceCluster { by_status, middle, bounds: MapBox::WORLD, only: None, alarms: None }.status()
        };
        assert_eq!(of(&[Status::Missing, Status::Critical, Status::Warning]), Status::Critical);
        assert_eq!(of(&[Status::Missing, Status::Warning]), Status::Warning);
        assert_eq!(of(&[Status::Missing, Status::Info]), Status::Missing);
        assert_eq!(of(&[Status::None, Status::Good]), Status::Good);
    }
}
