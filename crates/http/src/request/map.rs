//! Query parameters of the map: its box and the size of its cells.

use isobar_model::map::{CELL_DEGREES_MAX, CELL_DEGREES_MIN, CELLS_MAX, MapBox};

use super::query::Query;

impl Query<'_> {
    /// Reads `box`; the default is the whole world.
    pub fn map_box(&mut self) -> MapBox {
        let what = "west,south,east,north in degrees: -180 to 180, -90 to 90, the south not above the north";
        self.read("box", what, read_box).unwrap_or(MapBox::WORLD)
    }

    /// Reads `box`, and `cellSize`, which is required.
    pub fn map_cells(&mut self) -> (MapBox, f64) {
        let asked = self.map_box();
        let name = "cellSize";
        if self.get(name).is_none() {
            self.fault(name, "is required");
        }
        let bounds = CELL_DEGREES_MIN..=CELL_DEGREES_MAX;
        let what = format!("a number from {CELL_DEGREES_MIN} to {CELL_DEGREES_MAX}");
        let cell = self.read(name, &what, |text| text.parse().ok().filter(|degrees| bounds.contains(degrees)));
        if cell.is_some_and(|degrees| asked.cells(degrees) > CELLS_MAX) {
            self.fault(name, format!("must be larger: the box may have at most {CELLS_MAX} cells"));
        }
        (asked, cell.unwrap_or(CELL_DEGREES_MAX))
    }
}

fn read_box(text: &str) -> Option<MapBox> {
    let edges: Vec<f64> = text.split(',').map(|edge| edge.parse().ok()).collect::<Option<_>>()?;
    MapBox::new(edges.try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use isobar_model::error::Error;

    use super::*;

    #[test]
    fn box_faults_are_named() {
        let faults = |raw: &str| {
            let mut query = Query::of(Some(raw));
            query.map_cells();
            match query.end(()) {
                Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>(),
                _ => Vec::new(),
            }
        };
        assert_eq!(faults("cellSize=10"), [""; 0]);
        assert_eq!(faults("cellSize=0.01&box=170,-10,-179.5,-9"), ["query.cellSize"]);
        assert_eq!(faults("cellSize=1&box=170,-10,-170,10"), [""; 0]);
        assert_eq!(faults(""), ["query.cellSize"]);
        for wrong in ["1,2,3", "1,2,3,4,5", "a,b,c,d", "0,10,5,9", "-181,0,1,1", "0,0,1,inf", "NaN,0,1,1", ""] {
            assert_eq!(faults(&format!("cellSize=90&box={wrong}")), ["query.box"], "{wrong}");
        }
        for wrong in ["0", "-1", "NaN", "inf", "361", "ten", ""] {
            assert_eq!(faults(&format!("cellSize={wrong}")), ["query.cellSize"], "{wrong}");
        }
    }
}
