//! Aggregates of the numbers in a bucket.

use std::str::FromStr;

use sketches_ddsketch::{Config, DDSketch};

use crate::time::Timestamp;

/// Relative error of a percentile; the contract promises twice that.
const SKETCH_ALPHA: f64 = 0.005;
/// Most bins of a sketch, enough for the whole range of doubles. It grows with the actual range.
const SKETCH_BINS_MAX: u32 = 1 << 18;

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Number of values.
    Count,
    /// Their sum.
    Sum,
    /// Their arithmetic mean.
    Mean,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The value of the earliest moment, as it was sent.
    First,
    /// The value of the latest moment, as it was sent.
    Last,
    /// The standard deviation of a sample: undefined for one number.
    Stddev,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
}

impl Function {
    /// All functions, in the order of answers.
    pub const ALL: [Self; 12] = [
        Self::Count,
        Self::Sum,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::First,
        Self::Last,
        Self::Stddev,
        Self::P50,
        Self::P90,
        Self::P95,
        Self::P99,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 12] =
        ["count", "sum", "mean", "min", "max", "first", "last", "stddev", "p50", "p90", "p95", "p99"];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the quantile of a percentile, from 0 to 1.
    const fn quantile(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.50),
            Self::P90 => Some(0.90),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            _ => None,
        }
    }
}

impl FromStr for Function {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|function| function.name() == name).ok_or(())
    }
}

/// A set of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions(u16);

impl Default for Functions {
    /// Returns the functions of a request that names none.
    fn default() -> Self {
        [Function::Count, Function::Mean, Function::Min, Function::Max].into_iter().collect()
    }
}

impl FromIterator<Function> for Functions {
    fn from_iter<I: IntoIterator<Item = Function>>(functions: I) -> Self {
        Self(functions.into_iter().fold(0, |all, function| all | 1 << function as u16))
    }
}

impl Functions {
    /// Returns true if it contains the function.
    pub const fn has(self, function: Function) -> bool {
        self.0 & 1 << function as u16 != 0
    }

    /// Iterates over the functions in the order of answers.
    pub fn each(self) -> impl Iterator<Item = Function> {
        Function::ALL.into_iter().filter(move |function| self.has(*function))
    }

    /// Returns true if it contains a percentile.
    pub fn has_percentiles(self) -> bool {
        self.each().any(|function| function.quantile().is_some())
    }
}

/// The text of a number as it was sent, and its time.
#[derive(Clone, Debug)]
struct Sent {
    at: Timestamp,
    text: Box<str>,
}

/// A running aggregate of numbers.
#[derive(Clone)]
pub struct Tally {
    count: u64,
    sum: f64,
    mean: f64,
    /// Sum of the squared distances from the mean, updated with each number (Welford 1962).
    squares: f64,
    min: f64,
    max: f64,
    first: Option<Sent>,
    last: Option<Sent>,
    sketch: Option<Box<DDSketch>>,
}

/// The result of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Told<'a> {
    /// A count.
    Whole(u64),
    /// A double.
    Number(f64),
    /// A number as it was sent.
    Sent(&'a str),
}

impl Tally {
    /// Makes an empty tally. Only if `functions` has percentiles does it get a sketch, which needs memory.
    pub fn new(functions: Functions) -> Self {
        let sketch = || Box::new(DDSketch::new(Config::new(SKETCH_ALPHA, SKETCH_BINS_MAX, f64::MIN_POSITIVE)));
        Self {
            count: 0,
            sum: 0.0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            first: None,
            last: None,
            sketch: functions.has_percentiles().then(sketch),
        }
    }

    /// Adds a finite number with its time and its text. If two numbers have one time, the one added later counts as
    /// later.
    pub fn add(&mut self, functions: Functions, at: Timestamp, number: f64, text: &str) {
        self.add_number(number);
        let sent = || Some(Sent { at, text: text.into() });
        if functions.has(Function::First) && self.first.as_ref().is_none_or(|first| at < first.at) {
            self.first = sent();
        }
        if functions.has(Function::Last) && self.last.as_ref().is_none_or(|last| at >= last.at) {
            self.last = sent();
        }
    }

    /// Adds a finite number, if neither the first nor the last is asked for.
    pub fn add_number(&mut self, number: f64) {
        self.count += 1;
        self.sum += number;
        let from_mean = number - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (number - self.mean);
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        if let Some(sketch) = &mut self.sketch {
            sketch.add(number);
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns its approximate size in bytes.
    pub fn weight(&self) -> usize {
        let texts = [&self.first, &self.last].into_iter().flatten().map(|sent| sent.text.len()).sum::<usize>();
        let bins = self.sketch.as_ref().map_or(0, |sketch| size_of::<DDSketch>() + 8 * sketch.length());
        size_of::<Self>() + texts + bins
    }

    /// Returns the result of a function; `None` if it is undefined or not finite.
    pub fn told(&self, function: Function) -> Option<Told<'_>> {
        if function == Function::Count {
            return Some(Told::Whole(self.count));
        }
        if self.count == 0 {
            return None;
        }
        let number = match function {
            Function::First => return sent_text(&self.first),
            Function::Last => return sent_text(&self.last),
            Function::Sum => self.sum,
            Function::Mean => self.mean,
            Function::Min => self.min,
            Function::Max => self.max,
            Function::Stddev if self.count > 1 => (self.squares / (self.count - 1) as f64).sqrt(),
            _ => self.percentile(function.quantile()?)?,
        };
        number.is_finite().then_some(Told::Number(number))
    }

    /// Returns the result of [`Tally::told`] as a double.
    pub fn number(&self, function: Function) -> Option<f64> {
        match self.told(function)? {
            Told::Whole(number) => Some(number as f64),
            Told::Number(number) => Some(number),
            Told::Sent(text) => text.parse().ok(),
        }
    }

    fn percentile(&self, quantile: f64) -> Option<f64> {
        let value = self.sketch.as_ref()?.quantile(quantile).ok()??;
        // The representative of a bin may lie outside the range of the numbers.
        Some(value.clamp(self.min, self.max))
    }
}

fn sent_text(sent: &Option<Sent>) -> Option<Told<'_>> {
    sent.as_ref().map(|sent| Told::Sent(&sent.text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> Functions {
        Function::ALL.into_iter().collect()
    }

    fn number(tally: &Tally, function: Function) -> f64 {
        match tally.told(function) {
            Some(Told::Number(number)) => number,
            Some(Told::Whole(count)) => count as f64,
            Some(Told::Sent(text)) => text.parse().unwrap(),
            None => f64::NAN,
        }
    }

    fn tally(numbers: &[f64]) -> Tally {
        let mut tally = Tally::new(all());
        for (at, number) in numbers.iter().enumerate() {
            tally.add(all(), Timestamp::from_millis(at as i64), *number, &number.to_string());
        }
        tally
    }

    #[test]
    fn functions_are_parsed_by_their_names() {
        for function in Function::ALL {
            assert_eq!(function.name().parse(), Ok(function));
        }
        assert_eq!("median".parse::<Function>(), Err(()));
        let default: Vec<_> = Functions::default().each().map(Function::name).collect();
        assert_eq!(default, ["count", "mean", "min", "max"]);
    }

    #[test]
    fn empty_tally_has_only_a_count() {
        let tally = Tally::new(all());
        assert_eq!(tally.told(Function::Count), Some(Told::Whole(0)));
        assert!(Function::ALL.into_iter().skip(1).all(|function| tally.told(function).is_none()));
    }

    // Holds: c13.functions
    #[test]
    fn results_match_those_calculated_by_hand() {
        let tally = tally(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        for (function, told) in [
            (Function::Count, 8.0),
            (Function::Sum, 40.0),
            (Function::Mean, 5.0),
            (Function::Min, 2.0),
            (Function::Max, 9.0),
            (Function::First, 2.0),
            (Function::Last, 9.0),
            (Function::Stddev, (32.0_f64 / 7.0).sqrt()),
        ] {
            assert!((number(&tally, function) - told).abs() < 1e-12, "{function:?}");
        }
        assert!(number(&super::tests::tally(&[1.0]), Function::Stddev).is_nan());
    }

    #[test]
    fn first_and_last_follow_time_and_not_arrival() {
        let mut tally = Tally::new(all());
        for (at, text) in [(5, "5.0"), (3, "3.00"), (9, "9e0"), (3, "3"), (9, "9.10"), (7, "7")] {
            tally.add(all(), Timestamp::from_millis(at), text.parse().unwrap(), text);
        }
        assert_eq!(tally.told(Function::First), Some(Told::Sent("3.00")));
        assert_eq!(tally.told(Function::Last), Some(Told::Sent("9.10")));
    }

    #[test]
    fn infinite_result_is_omitted() {
        let tally = tally(&[f64::MAX, f64::MAX]);
        assert_eq!(tally.told(Function::Sum), None);
        assert_eq!(tally.told(Function::Max), Some(Told::Number(f64::MAX)));
    }

    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![
            -1e3..1e3_f64,
            prop::num::f64::NORMAL,
            prop::num::f64::SUBNORMAL,
            Just(0.0),
            (0..1_000_i32).prop_map(f64::from),
        ]
    }

    proptest! {
        // Holds: c13.functions
        #[test]
        fn percentiles_are_within_one_percent(numbers in prop::collection::vec(any_number(), 1..200)) {
            let tally = tally(&numbers);
            let mut sorted = numbers.clone();
            sorted.sort_by(f64::total_cmp);
            for function in [Function::P50, Function::P90, Function::P95, Function::P99] {
                let rank = (function.quantile().unwrap() * (sorted.len() - 1) as f64).floor() as usize;
                let (exact, told) = (sorted[rank], number(&tally, function));
                let off = (exact.abs() * 0.01).max(f64::MIN_POSITIVE);
                let near = sorted[rank.saturating_sub(1)..(rank + 2).min(sorted.len())].iter();
                prop_assert!((told - exact).abs() <= off || near.clone().any(|other| (told - other).abs() <= (other.abs() * 0.01).max(f64::MIN_POSITIVE)), "{function:?}: {told} for {exact}");
            }
        }

        #[test]
        fn sums_are_added_in_order(numbers in prop::collection::vec(-1e6..1e6_f64, 1..200)) {
            let tally = tally(&numbers);
            let sum: f64 = numbers.iter().sum();
            let mean = sum / numbers.len() as f64;
            prop_assert_eq!(number(&tally, Function::Sum), sum);
            prop_assert!((number(&tally, Function::Mean) - mean).abs() < 1e-6);
            if numbers.len() > 1 {
                let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
                let deviation = (squares / (numbers.len() - 1) as f64).sqrt();
                prop_assert!((number(&tally, Function::Stddev) - deviation).abs() <= deviation * 1e-6 + 1e-6);
            }
        }
    }
}
