//! Caches columns: the moments of a series, and the numbers at a path of its payloads, block by block, in memory. The
//! first query builds them from the rows that it reads, and later queries read them instead of rows.
//!
//! Rows of a series are written once and removed only with the series, whose number is never reused: a full block never
//! changes, and its columns never become stale.
//!
//! All tenants share the memory. At the bound, the tenant with most of it loses its least recently used column, so that
//! no tenant evicts another's equal share.

use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_quota::{LruLimits, TenantLru};

/// Values of a block. Only full blocks are cached.
pub const BLOCK_VALUES: u64 = 4_096;
/// Bounds the bytes of all columns.
const COLUMNS_BYTES_MAX: usize = 128 << 20;
/// Approximate bytes of a column besides its values and the text of its path, and (next constant) of each key of a
/// path.
const COLUMN_BYTES: usize = 256;
const PATH_KEY_BYTES: usize = 24;
/// Factors that may make numbers whole: devices mostly send few decimals.
const SCALES: [f64; 7] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];
/// Marker for a missing number among whole ones.
const NONE: i32 = i32::MIN;

/// Key of a column: the moments or the numbers at a path, for a block of a series, as a tenant has cached it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ColumnKey {
    tenant: OrganizationId,
    series: u64,
    block: u64,
    /// Path, or `None` for the moments.
    path: Option<Arc<[String]>>,
}

/// Moments of a block's values, in milliseconds, or numbers; NaN means no number.
#[derive(Clone, Debug, PartialEq)]
enum BlockColumn {
    /// Moments close to the first.
    Near { first: i64, after: Box<[u32]> },
    /// Moments at any distance.
    Far(Box<[i64]>),
    /// Numbers, multiplied by `by`.
    Scaled { by: f64, numbers: Box<[i32]> },
    /// Numbers unchanged.
    Doubles(Box<[f64]>),
    /// Count of values without any number: a path that no row contains takes almost nothing.
    Nothing(usize),
}

/// Columns of a block.
pub struct Columns {
    moments: Arc<BlockColumn>,
    numbers: Vec<Arc<BlockColumn>>,
}

/// Columns that are being collected, row by row.
pub struct NewColumns {
    moments: Vec<i64>,
    numbers: Vec<Vec<f64>>,
}

/// Cache of columns.
pub struct ColumnCache(TenantLru<ColumnKey, Arc<BlockColumn>>);

impl Default for ColumnCache {
    fn default() -> Self {
        Self::of(COLUMNS_BYTES_MAX)
    }
}

impl ColumnCache {
    /// Creates a cache of this many bytes.
    fn of(bytes: usize) -> Self {
        let (entries, evictions) = (usize::MAX, usize::MAX);
        Self(TenantLru::new(LruLimits { entries, bytes, evictions, spares_small_shares: false }))
    }

    /// Returns the columns of a block for these paths, if the tenant has all of them cached.
    pub fn get(&self, tenant: OrganizationId, series: u64, block: u64, paths: &[Arc<[String]>]) -> Option<Columns> {
        let of = |path| self.0.get(&ColumnKey { tenant, series, block, path });
        let moments = of(None)?;
        Some(Columns { moments, numbers: paths.iter().map(|path| of(Some(Arc::clone(path)))).collect::<Option<_>>()? })
    }

    /// Caches the columns of a block for a tenant, if the block is full.
    pub fn keep(&self, tenant: OrganizationId, series: u64, block: u64, paths: &[Arc<[String]>], made: NewColumns) {
        let is_full = |count: usize| count as u64 == BLOCK_VALUES;
        if !is_full(made.moments.len()) || !made.numbers.iter().all(|numbers| is_full(numbers.len())) {
            return;
        }
        let key = |path| ColumnKey { tenant, series, block, path };
        let moments = (key(None), BlockColumn::of_moments(made.moments));
        let of = |(path, numbers): (&Arc<[String]>, Vec<f64>)| {
            (key(Some(Arc::clone(path))), BlockColumn::of_numbers(numbers))
        };
        for (key, column) in std::iter::once(moments).chain(paths.iter().zip(made.numbers).map(of)) {
            let (bytes, column) = (key.bytes() + column.bytes(), Arc::new(column));
            self.0.change().insert((key, tenant), bytes, |_| column, |_, _| true);
        }
    }
}

impl ColumnKey {
    fn bytes(&self) -> usize {
        let path = self.path.iter().flat_map(|path| path.iter());
        COLUMN_BYTES + path.map(|key| PATH_KEY_BYTES + key.len()).sum::<usize>()
    }
}

impl NewColumns {
    /// Creates columns without rows.
    pub fn new(paths: usize) -> Self {
        let room = BLOCK_VALUES as usize;
        Self { moments: Vec::with_capacity(room), numbers: vec![Vec::with_capacity(room); paths] }
    }

    /// Begins a row.
    pub fn push_moment(&mut self, millis: i64) {
        self.moments.push(millis);
    }

    /// Adds the number of a row at the path with this index, or `None` for no number.
    pub fn push_number(&mut self, path: usize, number: Option<f64>) {
        if let Some(numbers) = self.numbers.get_mut(path) {
            numbers.push(number.unwrap_or(f64::NAN));
        }
    }
}

impl Columns {
    /// Writes the moments to a list, in milliseconds.
    pub fn moments(&self, into: &mut Vec<i64>) {
        into.clear();
        match &*self.moments {
            BlockColumn::Near { first, after } => into.extend(after.iter().map(|after| first + i64::from(*after))),
            BlockColumn::Far(moments) => into.extend_from_slice(moments),
            // Unreachable: numbers are stored under other keys.
            BlockColumn::Scaled { .. } | BlockColumn::Doubles(_) | BlockColumn::Nothing(_) => {}
        }
    }

    /// Writes the numbers at the path with this index to a list; NaN means no number.
    pub fn numbers(&self, path: usize, into: &mut Vec<f64>) {
        into.clear();
        match self.numbers.get(path).map(|column| &**column) {
            Some(BlockColumn::Scaled { by, numbers }) => {
                into.extend(numbers.iter().map(|number| match *number {
                    NONE => f64::NAN,
                    number => f64::from(number) / by,
                }));
            }
            Some(BlockColumn::Doubles(numbers)) => into.extend_from_slice(numbers),
            Some(BlockColumn::Nothing(count)) => into.resize(*count, f64::NAN),
            Some(BlockColumn::Near { .. } | BlockColumn::Far(_)) | None => {}
        }
    }
}

impl BlockColumn {
    fn of_moments(moments: Vec<i64>) -> Self {
        let first = moments.first().copied().unwrap_or_default();
        let after: Option<Box<[u32]>> = moments.iter().map(|at| u32::try_from(at.checked_sub(first)?).ok()).collect();
        after.map_or_else(|| Self::Far(moments.into()), |after| Self::Near { first, after })
    }

    fn of_numbers(numbers: Vec<f64>) -> Self {
        if numbers.iter().all(|number| number.is_nan()) {
            return Self::Nothing(numbers.len());
        }
        let scaled = |by: f64| numbers.iter().map(|number| whole(*number, by)).collect::<Option<Box<[i32]>>>();
        match SCALES.into_iter().find_map(|by| Some((by, scaled(by)?))) {
            Some((by, numbers)) => Self::Scaled { by, numbers },
            None => Self::Doubles(numbers.into()),
        }
    }

    /// Returns the bytes of the values.
    fn bytes(&self) -> usize {
        match self {
            Self::Near { after: four, .. } => size_of_val(&**four),
            Self::Scaled { numbers: four, .. } => size_of_val(&**four),
            Self::Far(eight) => size_of_val(&**eight),
            Self::Doubles(eight) => size_of_val(&**eight),
            Self::Nothing(_) => 0,
        }
    }
}

/// Multiplies a number, and returns the result if it is whole and divides back to exactly that number.
fn whole(number: f64, by: f64) -> Option<i32> {
    if number.is_nan() {
        return Some(NONE);
    }
    // The cast saturates, and a saturated value does not divide back.
    let whole = (number * by).round() as i32;
    let is_exact = whole != NONE && (f64::from(whole) / by).to_bits() == number.to_bits();
    is_exact.then_some(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: OrganizationId = OrganizationId(uuid::Uuid::from_u128(1));

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
    fn full_blocks_are_cached_by_series_and_path() {
        let (cache, paths) = (ColumnCache::default(), paths());
        let keeps = |block, count| cache.keep(OWN, 1, block, &paths, made(|n| n as i64, |n| Some(n as f64), count));
        keeps(0, BLOCK_VALUES);
        keeps(1, BLOCK_VALUES - 1);
        let get = |series, block, paths: &[Arc<[String]>]| cache.get(OWN, series, block, paths);
        assert!(get(1, 0, &paths).is_some() && get(1, 0, &paths[1..]).is_some());
        assert!(get(1, 1, &paths).is_none(), "it was not full");
        assert!(get(2, 0, &paths).is_none() && get(1, 2, &paths).is_none());
        assert!(get(1, 0, &[Arc::new(["b".to_owned()])]).is_none());
    }

    #[test]
    fn tenant_evicts_its_own_columns() {
        // A column takes four bytes a value: seven blocks fit, and nearly an eighth.
        const BYTES_MAX: usize = 15 * 4 * BLOCK_VALUES as usize;
        let (cache, paths) = (ColumnCache::of(BYTES_MAX), vec![Arc::from(["a".to_owned()])]);
        let other = OrganizationId(uuid::Uuid::from_u128(2));
        let keeps = |tenant, block| {
            let mut made = NewColumns::new(1);
            for n in 0..BLOCK_VALUES {
                made.push_moment(n as i64);
                made.push_number(0, Some(n as f64));
            }
            cache.keep(tenant, 1, block, &paths, made);
        };
        let has = |tenant, block| cache.get(tenant, 1, block, &paths).is_some();
        for block in 0..2 {
            keeps(other, block);
        }
        for block in 0..40 {
            keeps(OWN, block);
            // A column that is used again stays longer.
            assert!(block < 3 || has(OWN, 0), "{block}");
        }
        assert!(has(other, 0) && has(other, 1));
        let own: Vec<u64> = (0..40).filter(|block| has(OWN, *block)).collect();
        assert_eq!(own, [0, 36, 37, 38, 39]);
        // A later tenant gets its share too: the one with most is evicted from.
        for block in 0..10 {
            keeps(other, block);
        }
        let count = |tenant| (0..40).filter(|block| has(tenant, *block)).count();
        assert_eq!((count(OWN), count(other)), (3, 3));
        assert_eq!(cache.0.weight(), cache.0.weights().values().sum::<usize>());
        assert!(cache.0.weight() <= BYTES_MAX);
    }

    #[test]
    fn column_of_an_absent_path_takes_little_memory() {
        let (cache, paths) = (ColumnCache::default(), vec![Arc::from(["nowhere".to_owned()])]);
        let bytes = |count: u64| {
            for block in 0..count {
                let mut made = NewColumns::new(1);
                for n in 0..BLOCK_VALUES {
                    made.push_moment(n as i64);
                    made.push_number(0, None);
                }
                cache.keep(OWN, 1, block, &paths, made);
            }
            let mut numbers = Vec::new();
            cache.get(OWN, 1, 0, &paths).unwrap().numbers(0, &mut numbers);
            assert!(numbers.len() as u64 == BLOCK_VALUES && numbers.iter().all(|number| number.is_nan()));
            cache.0.weight() - isobar_quota::TENANT_BYTES
        };
        let moments = COLUMN_BYTES + 4 * BLOCK_VALUES as usize;
        assert!((moments..moments + 2 * COLUMN_BYTES).contains(&bytes(1)));
        // A block that is cached twice counts once.
        let once = bytes(1);
        assert_eq!(bytes(1), once);
    }

    #[test]
    fn few_decimals_take_four_bytes() {
        let bytes = |numbers: Vec<f64>| BlockColumn::of_numbers(numbers).bytes();
        assert_eq!(bytes(vec![1.0, f64::NAN, -2.0]), 12);
        assert_eq!(bytes(vec![21.57, -0.01, 1e3]), 12);
        assert_eq!(bytes(vec![0.1 + 0.2]), 8);
        assert_eq!(bytes(vec![-0.0]), 8);
        assert_eq!(bytes(vec![f64::from(i32::MIN), 1e300]), 16);
        assert_eq!(BlockColumn::of_moments(vec![5, 5, i64::from(u32::MAX) + 5]).bytes(), 12);
        assert_eq!(BlockColumn::of_moments(vec![5, i64::from(u32::MAX) + 6]).bytes(), 16);
    }

    proptest! {
        #[test]
        fn cached_columns_equal_the_rows(
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
            cache.keep(OWN, 1, 3, &paths, made(|n| moments[n as usize], number, BLOCK_VALUES));
            let columns = cache.get(OWN, 1, 3, &paths).unwrap();
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
