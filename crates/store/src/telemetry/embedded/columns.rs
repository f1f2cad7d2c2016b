//! Columns: the moments of a series, and the numbers at a path of its payloads, block by block, in memory. The first question
//! makes them of the rows that it reads, and those after it read them in the place of rows.
//!
//! Rows of a series are written once and go only with the series, whose number is never given again: so a block that is full
//! never changes, and what is remembered of it needs no renewal.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Values of a block. Only full ones are remembered.
pub const BLOCK_VALUES: u64 = 4_096;
/// Bytes that all columns take; then those that are asked for least go.
const COLUMNS_BYTES_MAX: u64 = 128 << 20;
/// Columns that there is a place for at first.
const COLUMNS_AT_FIRST: usize = 256;
/// Bytes of a column beside its values, about.
const COLUMN_BYTES: usize = 160;
/// What numbers are multiplied by to become whole: devices mostly send few decimals.
const SCALES: [f64; 7] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];
/// Stands for no number among whole ones.
const NONE: i32 = i32::MIN;

/// Which column: of a block of a series, the moments or the numbers at a path.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ColumnKey {
    series: u64,
    block: u64,
    /// None: the moments.
    path: Option<Arc<[String]>>,
}

/// Of each value of a block the moment, in milliseconds, or the number; a double that is none stands for no number.
#[derive(Clone, Debug, PartialEq)]
enum Column {
    /// Moments not too far from the first.
    Near { first: i64, after: Box<[u32]> },
    /// Moments, wherever they are.
    Far(Box<[i64]>),
    /// Numbers, each so many times as large as it is.
    Scaled { by: f64, numbers: Box<[i32]> },
    /// Numbers as they are.
    Doubles(Box<[f64]>),
}

/// The columns of a block.
pub struct Columns {
    moments: Arc<Column>,
    numbers: Vec<Arc<Column>>,
}

/// Columns that are being made, row by row.
pub struct NewColumns {
    moments: Vec<i64>,
    numbers: Vec<Vec<f64>>,
}

/// All columns that are remembered.
pub struct ColumnCache(Cache<ColumnKey, Arc<Column>, ColumnBytes>);

#[derive(Clone)]
struct ColumnBytes;

impl Weighter<ColumnKey, Arc<Column>> for ColumnBytes {
    fn weight(&self, _: &ColumnKey, column: &Arc<Column>) -> u64 {
        column.bytes() as u64
    }
}

impl Default for ColumnCache {
    fn default() -> Self {
        // Its table grows: an idle server holds none.
        Self(Cache::with_weighter(COLUMNS_AT_FIRST, COLUMNS_BYTES_MAX, ColumnBytes))
    }
}

impl ColumnCache {
    /// The columns of a block for these paths; none unless all of them are there.
    pub fn get(&self, series: u64, block: u64, paths: &[Arc<[String]>]) -> Option<Columns> {
        let moments = self.0.get(&ColumnKey { series, block, path: None })?;
        let of = |path: &Arc<[String]>| self.0.get(&ColumnKey { series, block, path: Some(Arc::clone(path)) });
        Some(Columns { moments, numbers: paths.iter().map(of).collect::<Option<_>>()? })
    }

    /// Remembers the columns of a block, if it is full.
    pub fn keep(&self, series: u64, block: u64, paths: &[Arc<[String]>], made: NewColumns) {
        let is_full = |count: usize| count as u64 == BLOCK_VALUES;
        if !is_full(made.moments.len()) || !made.numbers.iter().all(|numbers| is_full(numbers.len())) {
            return;
        }
        self.0.insert(ColumnKey { series, block, path: None }, Arc::new(Column::of_moments(made.moments)));
        for (path, numbers) in paths.iter().zip(made.numbers) {
            let key = ColumnKey { series, block, path: Some(Arc::clone(path)) };
            self.0.insert(key, Arc::new(Column::of_numbers(numbers)));
        }
    }
}

impl NewColumns {
    /// Of no row yet.
    pub fn new(paths: usize) -> Self {
        let room = BLOCK_VALUES as usize;
        Self { moments: Vec::with_capacity(room), numbers: vec![Vec::with_capacity(room); paths] }
    }

    /// A row begins.
    pub fn push_moment(&mut self, millis: i64) {
        self.moments.push(millis);
    }

    /// The number of a row at the path of this place; none: it is no number.
    pub fn push_number(&mut self, path: usize, number: Option<f64>) {
        if let Some(numbers) = self.numbers.get_mut(path) {
            numbers.push(number.unwrap_or(f64::NAN));
        }
    }
}

impl Columns {
    /// Writes the moments into a list, in milliseconds.
    pub fn moments(&self, into: &mut Vec<i64>) {
        into.clear();
        match &*self.moments {
            Column::Near { first, after } => into.extend(after.iter().map(|after| first + i64::from(*after))),
            Column::Far(moments) => into.extend_from_slice(moments),
            // Never: they are kept under keys of their own.
            Column::Scaled { .. } | Column::Doubles(_) => {}
        }
    }

    /// Writes the numbers at the path of this place into a list; one that is none stands for no number.
    pub fn numbers(&self, path: usize, into: &mut Vec<f64>) {
        into.clear();
        match self.numbers.get(path).map(|column| &**column) {
            Some(Column::Scaled { by, numbers }) => {
                into.extend(numbers.iter().map(|number| match *number {
                    NONE => f64::NAN,
                    number => f64::from(number) / by,
                }));
            }
            Some(Column::Doubles(numbers)) => into.extend_from_slice(numbers),
            Some(Column::Near { .. } | Column::Far(_)) | None => {}
        }
    }
}

impl Column {
    fn of_moments(moments: Vec<i64>) -> Self {
        let first = moments.first().copied().unwrap_or_default();
        let after: Option<Box<[u32]>> = moments.iter().map(|at| u32::try_from(at.checked_sub(first)?).ok()).collect();
        after.map_or_else(|| Self::Far(moments.into()), |after| Self::Near { first, after })
    }

    fn of_numbers(numbers: Vec<f64>) -> Self {
        let scaled = |by: f64| numbers.iter().map(|number| whole(*number, by)).collect::<Option<Box<[i32]>>>();
        match SCALES.into_iter().find_map(|by| Some((by, scaled(by)?))) {
            Some((by, numbers)) => Self::Scaled { by, numbers },
            None => Self::Doubles(numbers.into()),
        }
    }

    fn bytes(&self) -> usize {
        COLUMN_BYTES
            + match self {
                Self::Near { after: four, .. } => size_of_val(&**four),
                Self::Scaled { numbers: four, .. } => size_of_val(&**four),
                Self::Far(eight) => size_of_val(&**eight),
                Self::Doubles(eight) => size_of_val(&**eight),
            }
    }
}

/// A number so many times as large as it is, if it is whole then and gives exactly that number back.
fn whole(number: f64, by: f64) -> Option<i32> {
    if number.is_nan() {
        return Some(NONE);
    }
    // A cast takes what is beyond to the nearest there is, which is not the number any more.
    let whole = (number * by).round() as i32;
    let is_exact = whole != NONE && (f64::from(whole) / by).to_bits() == number.to_bits();
    is_exact.then_some(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths() -> Vec<Arc<[String]>> {
        vec![Arc::new(["a".to_owned()]), Arc::new(["a".to_owned(), "b".to_owned()])]
    }

    fn made(moment: impl Fn(u64) -> i64, number: impl Fn(u64) -> Option<f64>, count: u64) -> NewColumns {
        let mut made = NewColumns::new(2);
        for n in 0..count {
            made.push_moment(moment(n));
            made.push_number(0, number(n));
            made.push_number(1, None);
        }
        made
    }

    #[test]
    fn full_blocks_are_remembered_by_series_and_path() {
        let (cache, paths) = (ColumnCache::default(), paths());
        cache.keep(1, 0, &paths, made(|n| n as i64, |n| Some(n as f64), BLOCK_VALUES));
        cache.keep(1, 1, &paths, made(|n| n as i64, |n| Some(n as f64), BLOCK_VALUES - 1));
        assert!(cache.get(1, 0, &paths).is_some() && cache.get(1, 0, &paths[1..]).is_some());
        assert!(cache.get(1, 1, &paths).is_none(), "it was not full");
        assert!(cache.get(2, 0, &paths).is_none() && cache.get(1, 2, &paths).is_none());
        assert!(cache.get(1, 0, &[Arc::new(["b".to_owned()])]).is_none());
    }

    #[test]
    fn few_decimals_take_four_bytes() {
        let bytes = |numbers: Vec<f64>| Column::of_numbers(numbers).bytes() - COLUMN_BYTES;
        assert_eq!(bytes(vec![1.0, f64::NAN, -2.0]), 12);
        assert_eq!(bytes(vec![21.57, -0.01, 1e3]), 12);
        assert_eq!(bytes(vec![0.1 + 0.2]), 8);
        assert_eq!(bytes(vec![-0.0]), 8);
        assert_eq!(bytes(vec![f64::from(i32::MIN), 1e300]), 16);
        assert_eq!(Column::of_moments(vec![5, 5, i64::from(u32::MAX) + 5]).bytes() - COLUMN_BYTES, 12);
        assert_eq!(Column::of_moments(vec![5, i64::from(u32::MAX) + 6]).bytes() - COLUMN_BYTES, 16);
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_was_read(
            numbers in prop::collection::vec(prop_oneof![
                Just(None),
                (-1_000_000..1_000_000_i64, 0..7_usize).prop_map(|(whole, scale)| Some(whole as f64 / SCALES[scale])),
                prop::num::f64::NORMAL.prop_map(Some),
                Just(Some(-0.0)),
            ], 1..20),
            gaps in prop::collection::vec(prop_oneof![0..5_000_u64, 0..10_000_000_000_u64], 1..20),
        ) {
            let (cache, paths) = (ColumnCache::default(), paths());
            let moment = |n: u64| (0..n).map(|n| gaps[n as usize % gaps.len()] as i64).sum::<i64>();
            let number = |n: u64| numbers[n as usize % numbers.len()];
            let mut moments = vec![0];
            for n in 1..BLOCK_VALUES {
                moments.push(moments[n as usize - 1] + gaps[(n as usize - 1) % gaps.len()] as i64);
            }
            prop_assert_eq!(moments[7], moment(7));
            cache.keep(1, 3, &paths, made(|n| moments[n as usize], number, BLOCK_VALUES));
            let columns = cache.get(1, 3, &paths).unwrap();
            let (mut found, mut doubles) = (Vec::new(), Vec::new());
            columns.moments(&mut found);
            prop_assert_eq!(found, moments);
            columns.numbers(0, &mut doubles);
            let bits = |number: f64| (!number.is_nan()).then_some(number.to_bits());
            let expected: Vec<_> = (0..BLOCK_VALUES).map(|n| number(n).map(f64::to_bits)).collect();
            prop_assert_eq!(doubles.iter().map(|number| bits(*number)).collect::<Vec<_>>(), expected);
            columns.numbers(1, &mut doubles);
            prop_assert!(doubles.len() as u64 == BLOCK_VALUES && doubles.iter().all(|number| number.is_nan()));
        }
    }
}
