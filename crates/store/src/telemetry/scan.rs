//! Scans every value of a range: filters, and the first values in an order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};

use isobar_model::ids::EventId;
use isobar_model::json::{Json, Number, Step, compare_numbers, find, number, parse};
use smallvec::SmallVec;

use super::time_order::{self, TimeOrder};
use super::{Filter, FilterField, Operand, Operator, ValueSort};

/// Value as a scan sees it.
#[derive(Clone, Copy)]
pub struct ScannedRow<'a> {
    /// Position in the series.
    pub sequence: u64,
    /// Id.
    pub id: EventId,
    /// Position in time.
    pub order: TimeOrder,
    /// Payload.
    pub payload: &'a str,
}

enum Field {
    Id,
    CreatedAt,
    Payload(Vec<Step>),
}

impl Field {
    fn of(field: FilterField) -> Self {
        match field {
            FilterField::Id => Field::Id,
            FilterField::CreatedAt => Field::CreatedAt,
            FilterField::Payload(path) => Field::Payload(path.into_iter().map(Step::new).collect()),
        }
    }
}

/// Relation of a value to an operand.
enum Relation {
    Ordered(Ordering),
    /// Equal, but of a type without an order.
    Same,
    Different,
}

enum FilterTarget {
    Json(Json<'static>),
    Moment(i64),
}

impl FilterTarget {
    fn of(operand: Operand) -> Self {
        match operand {
            Operand::Null => FilterTarget::Json(Json::Null),
            Operand::Bool(value) => FilterTarget::Json(Json::Bool(value)),
            Operand::Number(text) => match number(&text).map(Number::into_owned) {
                Some(number) => FilterTarget::Json(Json::Number(number)),
                None => FilterTarget::Json(Json::Text(text.into())),
            },
            Operand::Text(text) => FilterTarget::Json(Json::Text(text.into())),
            Operand::Time(moment) => FilterTarget::Moment(moment.millis()),
        }
    }

    fn relation_to_json(&self, text: &str) -> Relation {
        match (self, text.as_bytes().first()) {
            (FilterTarget::Json(Json::Number(target)), Some(b'-' | b'0'..=b'9')) => match number(text) {
                Some(number) => Relation::Ordered(compare_numbers(&number, target)),
                None => Relation::Different,
            },
            (FilterTarget::Json(Json::Text(target)), Some(b'"')) => {
                Relation::Ordered(unquoted(text).as_ref().cmp(target.as_ref()))
            }
            (FilterTarget::Json(Json::Bool(target)), Some(b't' | b'f')) => {
                Relation::Ordered((text == "true").cmp(target))
            }
            (FilterTarget::Json(Json::Null), Some(b'n')) => Relation::Same,
            _ => Relation::Different,
        }
    }

    fn relation(&self, row: &ScannedRow<'_>, value: Option<&str>, field: &Field) -> Relation {
        match (field, self) {
            (Field::CreatedAt, FilterTarget::Moment(moment)) => {
                Relation::Ordered(time_order::moment(row.order).millis().cmp(moment))
            }
            (Field::Id, FilterTarget::Json(Json::Text(text))) => {
                let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                let id: &str = row.id.0.as_hyphenated().encode_lower(&mut buffer);
                Relation::Ordered(id.cmp(text.as_ref()))
            }
            (Field::Payload(_), _) => value.map_or(Relation::Different, |text| self.relation_to_json(text)),
            _ => Relation::Different,
        }
    }
}

/// Returns the text of a JSON string, copied only if it has escapes.
fn unquoted(text: &str) -> Cow<'_, str> {
    if !text.as_bytes().contains(&b'\\') {
        return Cow::Borrowed(text.get(1..text.len().saturating_sub(1)).unwrap_or_default());
    }
    match parse(text) {
        Ok(Json::Text(text)) => text,
        _ => Cow::Borrowed(""),
    }
}

/// Filter prepared for a scan.
pub struct Test {
    field: Field,
    operator: Operator,
    targets: Vec<FilterTarget>,
}

impl Test {
    /// Prepares a filter.
    pub fn of(filter: Filter) -> Self {
        Self {
            field: Field::of(filter.field),
            operator: filter.operator,
            targets: filter.operands.into_iter().map(FilterTarget::of).collect(),
        }
    }

    /// Tests a filter on payloads against a checked JSON text that is no stored value.
    pub fn holds_for_json(&self, payload: &str) -> bool {
        self.holds(&ScannedRow { sequence: 0, id: EventId(uuid::Uuid::nil()), order: TimeOrder::MIN, payload })
    }

    /// Returns true if a value passes the filter.
    pub fn holds(&self, row: &ScannedRow<'_>) -> bool {
        let value = match &self.field {
            Field::Payload(path) => {
                let found = find(row.payload, path);
                if found.is_none() {
                    return matches!(self.operator, Operator::Ne | Operator::Nin);
                }
                found
            }
            Field::Id | Field::CreatedAt => None,
        };
        let relation = |target: &FilterTarget| target.relation(row, value, &self.field);
        let any_equal = || {
            self.targets
                .iter()
                .any(|target| matches!(relation(target), Relation::Ordered(Ordering::Equal) | Relation::Same))
        };
        let ordered = |allowed: &[Ordering]| match self.targets.first().map(relation) {
            Some(Relation::Ordered(order)) => allowed.contains(&order),
            _ => false,
        };
        match self.operator {
            Operator::Eq | Operator::In => any_equal(),
            Operator::Ne | Operator::Nin => !any_equal(),
            Operator::Lt => ordered(&[Ordering::Less]),
            Operator::Lte => ordered(&[Ordering::Less, Ordering::Equal]),
            Operator::Gt => ordered(&[Ordering::Greater]),
            Operator::Gte => ordered(&[Ordering::Greater, Ordering::Equal]),
        }
    }
}

/// Sort key of a value, in the order of ranks: numbers, text, booleans, everything else, missing.
#[derive(Clone, Debug)]
enum Key<'a> {
    /// Nearest double, and the difference of an integer to it: together a total order.
    Number(f64, i64),
    Text(Cow<'a, str>),
    Bool(bool),
    Other,
    Missing,
}

impl<'a> Key<'a> {
    fn number(text: &str) -> Self {
        if text.len() < 16
            && let Ok(integer) = text.parse::<i64>()
        {
            return Key::Number(integer as f64, 0);
        }
        // Adding zero makes a negative zero positive.
        let near = text.parse::<f64>().unwrap_or(0.0) + 0.0;
        let rest = text.parse::<i128>().map_or(0, |integer| integer.saturating_sub(near as i128));
        Key::Number(near, rest.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    fn of(field: &Field, row: &ScannedRow<'a>) -> Self {
        let path = match field {
            // A moment fits a double exactly; the halves of an order would too, but ids are compared by sequence
            // anyway.
            Field::CreatedAt => return Key::Number(time_order::moment(row.order).millis() as f64, 0),
            Field::Id => return Key::Number(row.sequence as f64, 0),
            Field::Payload(path) => path,
        };
        let Some(text) = find(row.payload, path) else { return Key::Missing };
        match text.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => Key::number(text),
            Some(b'"') => Key::Text(unquoted(text)),
            Some(b't' | b'f') => Key::Bool(text == "true"),
            _ => Key::Other,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Number(..) => 0,
            Key::Text(_) => 1,
            Key::Bool(_) => 2,
            Key::Other => 3,
            Key::Missing => 4,
        }
    }

    fn compare(&self, other: &Key<'_>, descending: bool) -> Ordering {
        let order = match (self, other) {
            (Key::Missing, _) | (_, Key::Missing) => return self.rank().cmp(&other.rank()),
            (Key::Number(near, rest), Key::Number(other, its)) => near.total_cmp(other).then(rest.cmp(its)),
            (Key::Text(text), Key::Text(other)) => text.cmp(other),
            (Key::Bool(value), Key::Bool(other)) => value.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        };
        if descending { order.reverse() } else { order }
    }

    fn into_owned(self) -> Key<'static> {
        match self {
            Key::Text(text) => Key::Text(Cow::Owned(text.into_owned())),
            Key::Number(near, rest) => Key::Number(near, rest),
            Key::Bool(value) => Key::Bool(value),
            Key::Other => Key::Other,
            Key::Missing => Key::Missing,
        }
    }

    fn bytes(&self) -> usize {
        if let Key::Text(text) = self { text.len() } else { 0 }
    }
}

/// Order of values; ties are broken by their position in the series.
pub struct Sort {
    fields: Vec<(Field, bool)>,
    /// True if the older of two equal values comes first.
    oldest_first: bool,
}

/// Position of a value in an order.
#[derive(Clone, Debug)]
pub struct RowPosition<'a> {
    keys: SmallVec<[Key<'a>; 1]>,
    /// Position in the series.
    pub sequence: u64,
}

impl RowPosition<'_> {
    fn into_owned(self) -> RowPosition<'static> {
        RowPosition { keys: self.keys.into_iter().map(Key::into_owned).collect(), sequence: self.sequence }
    }

    fn bytes(&self) -> usize {
        self.keys.iter().map(Key::bytes).sum::<usize>()
            + size_of::<Self>()
            + self.keys.len().saturating_sub(1) * size_of::<Key<'_>>()
    }
}

impl Sort {
    /// Prepares an order.
    pub fn of(sort: Vec<ValueSort>) -> Self {
        let oldest_first =
            sort.first().is_some_and(|first| !matches!(first.field, FilterField::Payload(_)) && !first.descending);
        Self { fields: sort.into_iter().map(|key| (Field::of(key.field), key.descending)).collect(), oldest_first }
    }

    /// Returns the position of a value.
    pub fn position<'a>(&self, row: &ScannedRow<'a>) -> RowPosition<'a> {
        RowPosition { keys: self.fields.iter().map(|(field, _)| Key::of(field, row)).collect(), sequence: row.sequence }
    }

    fn compare(&self, left: &RowPosition<'_>, right: &RowPosition<'_>) -> Ordering {
        let fields = self.fields.iter().zip(left.keys.iter().zip(&right.keys));
        let by_fields = fields.map(|((_, descending), (left, right))| left.compare(right, *descending));
        let by_sequence = left.sequence.cmp(&right.sequence);
        let by_sequence = if self.oldest_first { by_sequence } else { by_sequence.reverse() };
        by_fields.fold(Ordering::Equal, Ordering::then).then(by_sequence)
    }
}

/// Bounds the bytes of the positions collected in one round.
const ROUND_BYTES_MAX: usize = 16 << 20;
/// Bytes that every round has of its own; more is shared by all rounds.
const ROUND_BYTES: usize = 256 << 10;
/// Bytes that all rounds together may take beyond that, and (next constant) the step in which they are requested.
const ROUNDS_BYTES_MAX: usize = 128 << 20;
const ROUND_BYTES_STEP: usize = 1 << 20;

/// Bytes left for the rounds of all sorting scans, including those that wait for their next slot.
pub struct SortedBytes(AtomicUsize);

impl Default for SortedBytes {
    fn default() -> Self {
        Self(AtomicUsize::new(ROUNDS_BYTES_MAX))
    }
}

/// Memory budget of one round, until it is dropped.
pub struct RoundBudget {
    of: Arc<SortedBytes>,
    granted: usize,
    /// True if other rounds left it too little.
    pub was_refused: bool,
}

impl RoundBudget {
    /// Creates a budget with the bytes that every round has.
    pub fn new(of: &Arc<SortedBytes>) -> Self {
        Self { of: Arc::clone(of), granted: 0, was_refused: false }
    }

    /// Returns true if the round may use this many bytes. No round takes more than it leaves for the others.
    fn has(&mut self, bytes: usize) -> bool {
        use atomic::Ordering::Relaxed;
        let most = bytes.min(ROUND_BYTES_MAX);
        while ROUND_BYTES + self.granted < most && !self.was_refused {
            let next = self.granted + ROUND_BYTES_STEP;
            let grant = |left: usize| left.checked_sub(ROUND_BYTES_STEP).filter(|left| *left >= next);
            match self.of.0.fetch_update(Relaxed, Relaxed, grant) {
                Ok(_) => self.granted = next,
                Err(_) => self.was_refused = true,
            }
        }
        bytes <= ROUND_BYTES_MAX.min(ROUND_BYTES + self.granted)
    }
}

impl Drop for RoundBudget {
    fn drop(&mut self) {
        self.of.0.fetch_add(self.granted, atomic::Ordering::Relaxed);
    }
}

/// Collector of the first `most` positions after `after`, in bounded memory. A round may return fewer if their texts
/// are long; the next round continues behind the last. The order must be the same in all calls.
pub struct First {
    most: usize,
    after: Option<RowPosition<'static>>,
    kept: Vec<RowPosition<'static>>,
    bytes: usize,
    /// Memory that the positions may take.
    pub budget: RoundBudget,
    /// Position from which on none is wanted.
    cut: Option<RowPosition<'static>>,
}

impl First {
    /// Creates an empty collector.
    pub fn new(most: usize, after: Option<RowPosition<'static>>, budget: RoundBudget) -> Self {
        Self { most, after, kept: Vec::new(), bytes: 0, budget, cut: None }
    }

    /// Offers one more position.
    pub fn offer(&mut self, sort: &Sort, position: RowPosition<'_>) {
        let beyond = |edge: &RowPosition<'static>| sort.compare(&position, edge);
        if self.cut.as_ref().is_some_and(|cut| beyond(cut).is_gt())
            || self.after.as_ref().is_some_and(|after| beyond(after).is_le())
        {
            return;
        }
        let position = position.into_owned();
        self.bytes += position.bytes();
        self.kept.push(position);
        if self.kept.len() >= self.most.saturating_mul(2) || !self.budget.has(self.bytes) {
            self.shrink(sort);
        }
    }

    fn shrink(&mut self, sort: &Sort) {
        if self.kept.len() > self.most && self.most > 0 {
            self.kept.select_nth_unstable_by(self.most - 1, |left, right| sort.compare(left, right));
            self.kept.truncate(self.most);
            self.cut = self.kept.last().cloned();
            self.bytes = self.kept.iter().map(RowPosition::bytes).sum();
        }
        while self.kept.len() > 1 && !self.budget.has(self.bytes) {
            self.kept.sort_unstable_by(|left, right| sort.compare(left, right));
            self.most = self.kept.len() / 2;
            self.kept.truncate(self.most);
            self.cut = self.kept.last().cloned();
            self.bytes = self.kept.iter().map(RowPosition::bytes).sum();
        }
    }

    /// Returns the positions, in order.
    pub fn take_positions(&mut self, sort: &Sort) -> Vec<RowPosition<'static>> {
        self.kept.sort_unstable_by(|left, right| sort.compare(left, right));
        self.kept.truncate(self.most);
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Checks the memory of many concurrent rounds that sort series of long texts.
    #[test]
    fn concurrent_sorts_share_memory_and_each_has_some() {
        const TEXT: usize = 100 << 10;
        let sort = Sort::of(vec![ValueSort { field: FilterField::Payload(Vec::new()), descending: false }]);
        let all = Arc::new(SortedBytes::default());
        let mut rounds: Vec<First> = (0..64).map(|_| First::new(1_000, None, RoundBudget::new(&all))).collect();
        for round in &mut rounds {
            for sequence in 0..200 {
                let payload = format!("\"{:06}{}\"", 200 - sequence, "x".repeat(TEXT));
                let row = ScannedRow { sequence, id: EventId(Uuid::nil()), order: 0, payload: &payload };
                round.offer(&sort, sort.position(&row));
            }
        }
        let kept: usize = rounds.iter().map(|round| round.bytes).sum();
        assert!((ROUNDS_BYTES_MAX / 2..=ROUNDS_BYTES_MAX + 64 * ROUND_BYTES).contains(&kept), "{kept} bytes");
        assert!(rounds.iter().all(|round| !round.kept.is_empty()) && !rounds[0].budget.was_refused);
        for round in &mut rounds {
            let positions = round.take_positions(&sort);
            assert!(positions.iter().zip((0..200).rev()).all(|(position, sequence)| position.sequence == sequence));
        }
        drop(rounds);
        assert_eq!(all.0.load(atomic::Ordering::Relaxed), ROUNDS_BYTES_MAX);
    }
}
