//! Compiles a syntax tree to an expression: resolves names and computes constants.

use std::cell::Cell;
use std::collections::HashMap;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators};
use isobar_model::json::Json;
use isobar_model::status::Status;
use regex::RegexBuilder;

use super::functions::{self, Style};
use super::machine::Machine;
use super::node::{Fold, FoldKind, Node, Pattern, Root, Variable};
use super::operate::Operator;
use super::write::to_constant;
use crate::value::budget::Budget;
use crate::value::{Value, shown};

/// Deepest tree of a compiled expression, which bounds the stack of its evaluation.
const DEPTH_MAX: usize = 200;
/// Most units for computing a constant.
const CONSTANT_BUDGET: u64 = 10_000;
/// Most bytes of a compiled regular expression, and the size classes by which it is charged.
const REGEX_BYTES_MAX: usize = 256 << 10;
const REGEX_SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, REGEX_BYTES_MAX];
/// Most bytes of all compiled regular expressions of a design ([`Pattern::bytes_of`]): a short one may take thousands
/// of times its text, and a specification has room for thousands.
const PATTERNS_BYTES_MAX: usize = 96 << 20;
/// Factor of that limit for a stored design: one that was in force before the limit existed stays so, if possible.
const STORED_PATTERNS_FACTOR: usize = 2;
/// Compiled bytes of a regular expression for which each byte of a text costs one unit.
const REGEX_BYTES_PER_UNIT: usize = 256;

/// Names of a design that expressions may refer to.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Indexes of settings in the plan.
    pub(crate) settings: HashMap<String, u32>,
    /// Indexes of storage elements in the plan.
    pub(crate) storages: HashMap<String, u32>,
    /// True if any expression reads last values.
    pub(crate) reads_last: Cell<bool>,
    /// Deepest nesting of macros.
    pub(crate) macros_deep: Cell<usize>,
    /// Bytes of the regular expressions so far.
    pub(crate) patterns_bytes: Cell<usize>,
    /// True if the design was compiled before.
    pub(crate) is_stored: bool,
}

/// A result, or the fault of an expression.
type Compiled<T> = Result<T, String>;

/// Compiles a syntax tree.
pub(crate) fn compile(tree: &IdedExpr, names: &Names) -> Compiled<Node> {
    ExpressionCompiler { names, locals: Vec::new(), depth: 0 }.node(tree)
}

struct ExpressionCompiler<'n> {
    names: &'n Names,
    /// Variables of the enclosing macros.
    locals: Vec<String>,
    depth: usize,
}

impl ExpressionCompiler<'_> {
    fn node(&mut self, tree: &IdedExpr) -> Compiled<Node> {
        if self.depth >= DEPTH_MAX {
            return Err(format!("an expression has at most {DEPTH_MAX} operations in a row"));
        }
        self.depth += 1;
        let node = match &tree.expr {
            Expr::Literal(literal) => literal_node(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) if list.optional_indices.is_empty() => self.nodes(&list.elements).map(Node::List),
            Expr::Map(map) => self.map(map),
            Expr::Struct(message) => Err(format!("unknown type '{}'", shown(&message.type_name))),
            _ => Err("this part of CEL is not available".to_owned()),
        };
        self.depth -= 1;
        node.map(computed)
    }

    fn nodes(&mut self, trees: &[IdedExpr]) -> Compiled<Vec<Node>> {
        trees.iter().map(|tree| self.node(tree)).collect()
    }

    fn variable(&mut self, name: &str) -> Compiled<Node> {
        if let Some(at) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Node::Path(Root::Local(at as u32), Vec::new()));
        }
        // A leading dot requests the outermost name.
        let name = name.trim_start_matches('.');
        Ok(match name {
            "payload" => Node::Path(Root::Payload, Vec::new()),
            "event" => Node::Variable(Variable::Event),
            "device" => Node::Variable(Variable::Device),
            "settings" => Node::Variable(Variable::Settings),
            "last" => {
                self.names.reads_last.set(true);
                Node::Variable(Variable::Last)
            }
            _ => match (Status::named(name), type_named(name)) {
                (Some(status), _) => Node::Int(i64::from(status.number())),
                (None, Some(kind)) => Node::Type(kind),
                (None, None) => return Err(format!("unknown variable '{}'", shown(name))),
            },
        })
    }

    fn select(&mut self, select: &SelectExpr) -> Compiled<Node> {
        let operand = self.node(&select.operand)?;
        if select.test { self.has(operand, &select.field) } else { self.member(operand, &select.field) }
    }

    /// Compiles `operand.field` and `operand["field"]`.
    fn member(&self, operand: Node, field: &str) -> Compiled<Node> {
        let unknown = |whose: &str| format!("unknown member '{}' of {whose}", shown(field));
        Ok(match operand {
            Node::Variable(Variable::Event) => match field {
                "id" => Node::Variable(Variable::EventId),
                "elementName" => Node::Variable(Variable::EventElement),
                "receivedAt" => Node::Variable(Variable::EventReceivedAt),
                "payload" => Node::Path(Root::EventPayload, Vec::new()),
                _ => return Err(unknown("event")),
            },
            Node::Variable(Variable::Device) => match field {
                "id" => Node::Variable(Variable::DeviceId),
                "name" => Node::Variable(Variable::DeviceName),
                "organizationId" => Node::Variable(Variable::DeviceOrganization),
                "statusInt" => Node::Variable(Variable::DeviceStatus),
                "meta" => Node::Path(Root::Meta, Vec::new()),
                _ => return Err(unknown("device")),
            },
            Node::Variable(Variable::Settings) => {
                let setting = self.names.settings.get(field);
                let setting = setting.ok_or_else(|| format!("unknown setting '{}'", shown(field)))?;
                Node::Path(Root::Setting(*setting), Vec::new())
            }
            Node::Variable(Variable::Last) => {
                let storage = self.names.storages.get(field);
                let storage = storage.ok_or_else(|| format!("unknown storage '{}'", shown(field)))?;
                Node::Path(Root::Last(*storage), Vec::new())
            }
            Node::Path(root, mut keys) => {
                keys.push(field.into());
                Node::Path(root, keys)
            }
            other => Node::Field(Box::new(other), field.into()),
        })
    }

    fn has(&self, operand: Node, field: &str) -> Compiled<Node> {
        Ok(match operand {
            Node::Variable(Variable::Settings) => Node::Json(Json::Bool(self.names.settings.contains_key(field))),
            Node::Variable(Variable::Last) => match self.names.storages.get(field) {
                Some(storage) => Node::HasLast(*storage),
                None => Node::Json(Json::Bool(false)),
            },
            Node::Variable(_) => Node::Json(Json::Bool(self.member(operand, field).is_ok())),
            operand => Node::Has(Box::new(operand), field.into()),
        })
    }

    fn map(&mut self, map: &MapExpr) -> Compiled<Node> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("this part of CEL is not available".to_owned());
            };
            entries.push((self.node(&entry.key)?, self.node(&entry.value)?));
        }
        Ok(Node::Map(entries))
    }

    fn call(&mut self, call: &CallExpr) -> Compiled<Node> {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (Some(target), arguments) => self.member_call(target, name, arguments),
            (None, [operand]) if name == operators::LOGICAL_NOT => Ok(Node::Not(Box::new(self.node(operand)?))),
            (None, [operand]) if name == operators::NEGATE => Ok(Node::Negate(Box::new(self.node(operand)?))),
            (None, [tested]) if name == operators::HAS => match &tested.expr {
                Expr::Select(select) => {
                    let operand = self.node(&select.operand)?;
                    self.has(operand, &select.field)
                }
                _ => Err("has() takes a member, as in has(payload.temp)".to_owned()),
            },
            (None, [_, _]) if name == operators::LOGICAL_AND => self.junction(name, &call.args).map(Node::And),
            (None, [_, _]) if name == operators::LOGICAL_OR => self.junction(name, &call.args).map(Node::Or),
            (None, [left, right]) => match operator_named(name) {
                Some(operator) => Ok(Node::Operator(operator, Box::new((self.node(left)?, self.node(right)?)))),
                None if name == operators::INDEX => self.index(left, right),
                None if name == "matches" => self.matches(left, right),
                None => self.global_call(name, &call.args),
            },
            (None, [condition, then, otherwise]) if name == operators::CONDITIONAL => {
                Ok(Node::If(Box::new([self.node(condition)?, self.node(then)?, self.node(otherwise)?])))
            }
            (None, arguments) => self.global_call(name, arguments),
        }
    }

    fn global_call(&mut self, name: &str, arguments: &[IdedExpr]) -> Compiled<Node> {
        let function = functions::find(name.trim_start_matches('.'), Style::Global, arguments.len())?;
        Ok(Node::Call(function, self.nodes(arguments)?))
    }

    fn member_call(&mut self, target: &IdedExpr, name: &str, arguments: &[IdedExpr]) -> Compiled<Node> {
        let is_math = matches!(&target.expr, Expr::Ident(space) if space == "math");
        if is_math && !self.locals.iter().any(|local| local == "math") {
            let function = functions::find(name, Style::Math, arguments.len())?;
            return Ok(Node::Call(function, self.nodes(arguments)?));
        }
        let fold = match (name, arguments) {
            (operators::ALL, [variable, predicate]) => Some((FoldKind::All, variable, Some(predicate), None)),
            (operators::EXISTS, [variable, predicate]) => Some((FoldKind::Exists, variable, Some(predicate), None)),
            (operators::EXISTS_ONE | "existsOne", [variable, predicate]) => {
                Some((FoldKind::ExistsOne, variable, Some(predicate), None))
            }
            (operators::FILTER, [variable, predicate]) => Some((FoldKind::Filter, variable, Some(predicate), None)),
            (operators::MAP, [variable, transform]) => Some((FoldKind::Map, variable, None, Some(transform))),
            (operators::MAP, [variable, predicate, transform]) => {
                Some((FoldKind::Map, variable, Some(predicate), Some(transform)))
            }
            _ => None,
        };
        if let Some((kind, variable, predicate, transform)) = fold {
            return self.fold(kind, target, variable, predicate, transform);
        }
        if let ("matches", [pattern]) = (name, arguments) {
            return self.matches(target, pattern);
        }
        let function = functions::find(name, Style::Member, arguments.len() + 1)?;
        let mut operands = vec![self.node(target)?];
        operands.append(&mut self.nodes(arguments)?);
        Ok(Node::Call(function, operands))
    }

    fn fold(
        &mut self,
        kind: FoldKind,
        range: &IdedExpr,
        variable: &IdedExpr,
        predicate: Option<&IdedExpr>,
        transform: Option<&IdedExpr>,
    ) -> Compiled<Node> {
        let Expr::Ident(variable) = &variable.expr else {
            return Err("a macro's first argument is the name of its variable".to_owned());
        };
        let range = self.node(range)?;
        self.locals.push(variable.clone());
        self.names.macros_deep.set(self.names.macros_deep.get().max(self.locals.len()));
        let predicate = predicate.map(|predicate| self.node(predicate)).transpose();
        let transform = transform.map(|transform| self.node(transform)).transpose();
        self.locals.pop();
        Ok(Node::Fold(Box::new(Fold { kind, range, predicate: predicate?, transform: transform? })))
    }

    /// Returns the terms of `a && b && c`, which the parser nests.
    fn junction(&mut self, name: &str, sides: &[IdedExpr]) -> Compiled<Vec<Node>> {
        let mut terms = Vec::new();
        for side in sides {
            match self.node(side)? {
                Node::And(mut inner) if name == operators::LOGICAL_AND => terms.append(&mut inner),
                Node::Or(mut inner) if name == operators::LOGICAL_OR => terms.append(&mut inner),
                node => terms.push(node),
            }
        }
        Ok(terms)
    }

    fn index(&mut self, container: &IdedExpr, index: &IdedExpr) -> Compiled<Node> {
        let (container, index) = (self.node(container)?, self.node(index)?);
        match (&container, &index) {
            (Node::Variable(_), Node::Json(Json::Text(key))) => self.member(container, &key.clone()),
            _ => Ok(Node::Index(Box::new((container, index)))),
        }
    }

    fn matches(&mut self, target: &IdedExpr, pattern: &IdedExpr) -> Compiled<Node> {
        let Node::Json(Json::Text(pattern)) = self.node(pattern)? else {
            return Err("the pattern of matches() must be a constant text".to_owned());
        };
        Ok(Node::Matches(Box::new(self.node(target)?), Box::new(self.names.pattern(&pattern)?)))
    }
}

impl Names {
    /// Compiles a regular expression, within the limit of the design.
    fn pattern(&self, pattern: &str) -> Compiled<Pattern> {
        let factor = if self.is_stored { STORED_PATTERNS_FACTOR } else { 1 };
        let left = (factor * PATTERNS_BYTES_MAX).saturating_sub(self.patterns_bytes.get());
        let pattern = compiled_pattern(pattern, left)?;
        self.patterns_bytes.set(self.patterns_bytes.get() + Pattern::bytes_of(pattern.size));
        Ok(pattern)
    }
}

fn compiled_pattern(pattern: &str, left: usize) -> Compiled<Pattern> {
    for size in REGEX_SIZES {
        if Pattern::bytes_of(size) > left {
            return Err("the patterns of the design are too large together".to_owned());
        }
        let built = RegexBuilder::new(pattern).size_limit(size).dfa_size_limit(REGEX_BYTES_MAX).build();
        match built {
            Ok(regex) => return Ok(Pattern { regex, size, units_per_byte: size / REGEX_BYTES_PER_UNIT }),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err("the pattern of matches() is no regular expression".to_owned()),
        }
    }
    Err("the pattern of matches() is too large".to_owned())
}

fn literal_node(literal: &LiteralValue) -> Compiled<Node> {
    Ok(match literal {
        LiteralValue::Boolean(truth) => Node::Json(Json::Bool(*truth.inner())),
        LiteralValue::Int(int) => Node::Int(*int.inner()),
        LiteralValue::UInt(uint) => {
            Node::Int(i64::try_from(*uint.inner()).map_err(|_| "an integer has at most 64 bits, with its sign")?)
        }
        LiteralValue::Double(double) => Node::Double(*double.inner()),
        LiteralValue::String(text) => Node::Json(Json::Text(text.inner().to_owned().into())),
        LiteralValue::Null => Node::Json(Json::Null),
        LiteralValue::Bytes(_) => return Err("bytes are not available: JSON has none".to_owned()),
    })
}

fn operator_named(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::Unequal,
        operators::IN => Operator::In,
        _ => return None,
    })
}

fn type_named(name: &str) -> Option<&'static str> {
    ["bool", "double", "list", "map", "null_type", "string", "timestamp", "duration", "type"]
        .into_iter()
        .find(|kind| *kind == name)
        .or_else(|| matches!(name, "int" | "uint").then_some("int"))
}

/// Returns true if a node is a constant.
fn is_constant(node: &Node) -> bool {
    matches!(node, Node::Json(_) | Node::Int(_) | Node::Double(_) | Node::Time(_) | Node::Duration(_) | Node::Type(_))
}

/// Returns the constant that a node always is, or the node. A constant that fails stays a node, to fail when it is
/// evaluated.
fn computed(node: Node) -> Node {
    let constant = match &node {
        Node::Operator(_, sides) => is_constant(&sides.0) && is_constant(&sides.1),
        Node::Index(parts) => is_constant(&parts.0) && is_constant(&parts.1),
        Node::Not(operand) | Node::Negate(operand) => is_constant(operand),
        Node::List(items) | Node::Call(_, items) => items.iter().all(is_constant),
        Node::Map(entries) => entries.iter().all(|(key, value)| is_constant(key) && is_constant(value)),
        _ => false,
    };
    if !constant {
        return node;
    }
    let budget = Budget::of_units(CONSTANT_BUDGET);
    let replaced = match Machine::new(None, &Value::Null, &budget).value(&node) {
        Ok(Value::Int(int)) => Some(Node::Int(int)),
        Ok(Value::Double(double)) => Some(Node::Double(double)),
        Ok(Value::Time(millis)) => Some(Node::Time(millis)),
        Ok(Value::Duration(millis)) => Some(Node::Duration(millis)),
        Ok(Value::Type(name)) => Some(Node::Type(name)),
        Ok(value) => to_constant(&value, &budget).map(Node::Json),
        Err(_) => None,
    };
    replaced.unwrap_or(node)
}
