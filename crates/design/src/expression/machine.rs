//! Evaluates a compiled expression.

use smallvec::SmallVec;

use super::functions;
use super::node::{Fold, FoldKind, Node, Root};
use super::operate::{self, Operator, lookup};
use super::time::bounded_duration;
use super::world::{Changes, World};
use crate::value::budget::Budget;
use crate::value::{Computed, Num, Problem, Value, shown};

/// Units of an error that is discarded, because its message was made nevertheless.
const UNHEARD_UNITS: usize = 4;

/// Evaluates one expression over one incoming value.
pub(crate) struct Machine<'s, 'e> {
    /// `None` while constants are computed.
    pub(crate) world: Option<(&'e World<'e>, &'s Changes<'e>)>,
    pub(crate) payload: &'s Value<'e>,
    pub(crate) budget: &'s Budget,
    /// Variables of the current macros, outermost first.
    locals: SmallVec<[Value<'e>; 4]>,
}

impl<'s, 'e> Machine<'s, 'e> {
    pub(crate) fn new(
        world: Option<(&'e World<'e>, &'s Changes<'e>)>,
        payload: &'s Value<'e>,
        budget: &'s Budget,
    ) -> Self {
        Self { world, payload, budget, locals: SmallVec::new() }
    }

    /// Evaluates a node.
    pub(crate) fn value(&mut self, node: &'e Node) -> Computed<Value<'e>> {
        self.budget.spend(1)?;
        Ok(match node {
            Node::Json(constant) => Value::from(constant),
            Node::Int(int) => Value::Int(*int),
            Node::Double(double) => Value::Double(*double),
            Node::Time(millis) => Value::Time(*millis),
            Node::Duration(millis) => Value::Duration(*millis),
            Node::Type(name) => Value::Type(name),
            Node::Path(root, keys) => return self.path(*root, keys),
            Node::Operator(operator, sides) => {
                let (left, right) = (self.value(&sides.0)?, self.value(&sides.1)?);
                return operate::apply(*operator, &left, &right, self.budget);
            }
            Node::And(terms) => return self.junction(terms, false),
            Node::Or(terms) => return self.junction(terms, true),
            Node::Not(operand) => Value::Bool(!self.truth(operand)?),
            Node::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                return if self.truth(condition)? { self.value(then) } else { self.value(otherwise) };
            }
            Node::Fold(fold) => return self.fold(fold),
            _ => return self.rarer(node),
        })
    }

    /// Evaluates the nodes that are rare in conditions: kept separate so that the common ones stay fast.
    fn rarer(&mut self, node: &'e Node) -> Computed<Value<'e>> {
        Ok(match node {
            Node::Variable(variable) => {
                let (world, changes) = self.world()?;
                return world.variable(*variable, changes, self.budget);
            }
            Node::Field(operand, key) => {
                let operand = self.value(operand)?;
                self.member(&operand, key)?
            }
            Node::Has(operand, key) => {
                let operand = self.value(operand)?;
                if !operand.is_map() {
                    let (key, kind) = (shown(key), operand.kind());
                    return Err(Problem::new(format!("cannot look for '{key}' in a value of type {kind}")));
                }
                Value::Bool(operand.member(key, self.budget)?.is_some())
            }
            Node::HasLast(storage) => Value::Bool(self.world()?.0.last(*storage, self.budget)?.is_some()),
            Node::Index(parts) => {
                let (container, index) = (self.value(&parts.0)?, self.value(&parts.1)?);
                return self.index(&container, &index);
            }
            Node::Negate(operand) => {
                let operand = self.value(operand)?;
                return match operand {
                    Value::Duration(millis) => bounded_duration(millis.checked_neg()).map(Value::Duration),
                    _ => operate::apply(Operator::Subtract, &negative_zero(&operand), &operand, self.budget),
                };
            }
            Node::List(items) => {
                let items: Computed<Vec<Value<'e>>> = items.iter().map(|item| self.value(item)).collect();
                Value::list(items?)?
            }
            Node::Map(entries) => return self.map(entries),
            Node::Call(function, arguments) => {
                let mut values: SmallVec<[Value<'e>; 4]> = SmallVec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                return functions::call(*function, &values, self.budget);
            }
            Node::Matches(operand, pattern) => {
                let operand = self.value(operand)?;
                let Some(text) = operand.as_text() else {
                    return Err(Problem::new(format!("no such overload: matches({}, string)", operand.kind())));
                };
                self.budget.spend(text.len().saturating_mul(pattern.units_per_byte))?;
                Value::Bool(pattern.regex.is_match(text))
            }
            _ => Value::Null,
        })
    }

    fn world(&self) -> Computed<(&'e World<'e>, &'s Changes<'e>)> {
        self.world.ok_or_else(|| Problem::new("is no constant"))
    }

    /// Evaluates a node that must be a boolean.
    pub(crate) fn truth(&mut self, node: &'e Node) -> Computed<bool> {
        match self.value(node)? {
            Value::Bool(truth) => Ok(truth),
            other => Err(Problem::new(format!("expected a bool, got a value of type {}", other.kind()))),
        }
    }

    fn member(&self, value: &Value<'e>, key: &str) -> Computed<Value<'e>> {
        value.member(key, self.budget)?.ok_or_else(|| no_such_key(value, key))
    }

    fn path(&mut self, root: Root, keys: &'e [Box<str>]) -> Computed<Value<'e>> {
        let (mut value, keys) = match (root, keys) {
            (Root::Payload, [first, rest @ ..]) if self.world.is_some() => (self.member(self.payload, first)?, rest),
            (Root::Payload, []) if self.world.is_some() => return Ok(self.payload.clone()),
            (Root::Local(at), _) => {
                let local = self.locals.get(at as usize).cloned();
                (local.ok_or_else(|| Problem::new("is no constant"))?, keys)
            }
            (Root::Meta, [tag, rest @ ..]) => {
                let (world, changes) = self.world()?;
                let value = match changes.labels.get(tag) {
                    Some(value) => value.clone(),
                    None => self.member(&world.meta(self.budget)?, tag)?,
                };
                (value, rest)
            }
            _ => {
                let (world, changes) = self.world()?;
                (world.root(root, changes, self.budget)?, keys)
            }
        };
        for key in keys {
            value = self.member(&value, key)?;
        }
        Ok(value)
    }

    fn index(&self, container: &Value<'e>, index: &Value<'e>) -> Computed<Value<'e>> {
        self.budget.spend_number(index)?;
        if container.is_list() {
            let Some(at) = index.whole() else {
                return Err(Problem::new(format!("a list has no index of type {}", index.kind())));
            };
            let found = usize::try_from(at).ok().and_then(|at| container.item(at));
            return found.ok_or_else(|| Problem::new(format!("index {at} is out of range")));
        }
        if let Some(key) = index.as_text() {
            return self.member(container, key);
        }
        match lookup(container, index, self.budget)? {
            Some(value) => Ok(value),
            None if container.is_map() => Err(match index.whole() {
                Some(key) => Problem::new(format!("no such key {key}")),
                None => Problem::new("no such key"),
            }),
            None => Err(Problem::new(format!("a value of type {} has no items", container.kind()))),
        }
    }

    /// Evaluates `&&` and `||`: a decisive term decides whatever errors the others have.
    fn junction(&mut self, terms: &'e [Node], decisive: bool) -> Computed<Value<'e>> {
        let mut failed = None;
        for term in terms {
            match self.truth(term) {
                Ok(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(problem) => {
                    self.budget.spend(UNHEARD_UNITS)?;
                    failed = failed.or(Some(problem));
                }
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn map(&mut self, entries: &'e [(Node, Node)]) -> Computed<Value<'e>> {
        let mut built: Vec<(Value<'e>, Value<'e>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key, value) = (self.value(key)?, self.value(value)?);
            self.budget.spend_number(&key)?;
            let sound = key.as_text().is_some() || key.whole().is_some() || matches!(key, Value::Bool(_));
            if !sound {
                return Err(Problem::new(format!("a map has no key of type {}", key.kind())));
            }
            for (other, _) in &built {
                if operate::equal(other, &key, self.budget)? {
                    return Err(Problem::new("a map has the same key twice"));
                }
            }
            built.push((key, value));
        }
        Value::map(built)
    }

    fn fold(&mut self, fold: &'e Fold) -> Computed<Value<'e>> {
        let range = self.value(&fold.range)?;
        if range.len().is_none() {
            return Err(Problem::new(format!("a value of type {} has no items", range.kind())));
        }
        let depth = self.locals.len();
        let mut gathered = Gathered::default();
        for item in range.items() {
            self.locals.push(item);
            let decided = self.fold_item(fold, depth, &mut gathered);
            self.locals.truncate(depth);
            if decided? {
                break;
            }
        }
        gathered.result(fold.kind)
    }

    /// Folds one item. Returns true if the others no longer matter.
    fn fold_item(&mut self, fold: &'e Fold, depth: usize, gathered: &mut Gathered<'e>) -> Computed<bool> {
        self.budget.spend(1)?;
        let holds = match &fold.predicate {
            Some(predicate) => self.truth(predicate),
            None => Ok(true),
        };
        let decisive = match fold.kind {
            FoldKind::All => Some(false),
            FoldKind::Exists => Some(true),
            _ => None,
        };
        match (decisive, holds) {
            (Some(decisive), Ok(holds)) => gathered.decided = holds == decisive,
            (Some(_), Err(problem)) => {
                gathered.failed.get_or_insert(problem);
                // This fails once the budget is spent.
                self.budget.spend(UNHEARD_UNITS)?;
            }
            (None, Ok(true)) => {
                gathered.matches += 1;
                match (fold.kind, &fold.transform) {
                    (FoldKind::Map, Some(transform)) => gathered.items.push(self.value(transform)?),
                    (FoldKind::Filter, _) => gathered.items.extend(self.locals.get(depth).cloned()),
                    _ => {}
                }
            }
            (None, Ok(false)) => {}
            (None, Err(problem)) => return Err(problem),
        }
        Ok(gathered.decided)
    }
}

/// State of a macro so far.
#[derive(Default)]
struct Gathered<'e> {
    decided: bool,
    failed: Option<Problem>,
    matches: usize,
    items: Vec<Value<'e>>,
}

impl<'e> Gathered<'e> {
    fn result(self, kind: FoldKind) -> Computed<Value<'e>> {
        match kind {
            FoldKind::All | FoldKind::Exists if self.decided => Ok(Value::Bool(kind == FoldKind::Exists)),
            FoldKind::All | FoldKind::Exists => match self.failed {
                Some(problem) => Err(problem),
                None => Ok(Value::Bool(kind == FoldKind::All)),
            },
            FoldKind::ExistsOne => Ok(Value::Bool(self.matches == 1)),
            FoldKind::Filter | FoldKind::Map => Value::list(self.items),
        }
    }
}

/// Returns the number from which an operand is subtracted to negate it: -0.0 for a double, to keep the sign of zero.
fn negative_zero<'e>(operand: &Value<'e>) -> Value<'e> {
    match operand.number() {
        Some(Num::Double(_)) => Value::Double(-0.0),
        _ => Value::Int(0),
    }
}

fn no_such_key(value: &Value<'_>, key: &str) -> Problem {
    let key = shown(key);
    if value.is_map() {
        Problem::new(format!("no such key '{key}'"))
    } else {
        Problem::new(format!("cannot take '{key}' of a value of type {}", value.kind()))
    }
}
