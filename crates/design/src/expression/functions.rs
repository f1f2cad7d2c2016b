//! Functions of expressions.

use std::cmp::Ordering;

use super::operate::order_numbers;
use super::text;
use super::time;
use crate::value::budget::Budget;
use crate::value::{Computed, Num, Problem, Value, shown, whole};

/// Syntax of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `f(x)`
    Global,
    /// `x.f()`; `x` is the first argument.
    Member,
    /// `math.f(x)`
    Math,
}

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        /// A function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function { $($name),* }
    };
}

functions! {
    Size, Contains, StartsWith, EndsWith, Int, Uint, Double, Text, Bool, Type, Dyn, Timestamp, Duration,
    GetFullYear, GetMonth, GetDate, GetDayOfMonth, GetDayOfWeek, GetDayOfYear, GetHours, GetMinutes, GetSeconds, GetMilliseconds,
    Greatest, Least, Abs, Round, Floor, Ceil,
    LowerAscii, UpperAscii, Trim, Split, Join, Replace, Substring, IndexOf, LastIndexOf, CharAt,
}

/// Name, style, least and most arguments (including the target of a member function), function.
const TABLE: &[(&str, Style, usize, usize, Function)] = &[
    ("size", Style::Global, 1, 1, Function::Size),
    ("size", Style::Member, 1, 1, Function::Size),
    ("contains", Style::Member, 2, 2, Function::Contains),
    ("startsWith", Style::Member, 2, 2, Function::StartsWith),
    ("endsWith", Style::Member, 2, 2, Function::EndsWith),
    ("int", Style::Global, 1, 1, Function::Int),
    ("uint", Style::Global, 1, 1, Function::Uint),
    ("double", Style::Global, 1, 1, Function::Double),
    ("string", Style::Global, 1, 1, Function::Text),
    ("bool", Style::Global, 1, 1, Function::Bool),
    ("type", Style::Global, 1, 1, Function::Type),
    ("dyn", Style::Global, 1, 1, Function::Dyn),
    ("timestamp", Style::Global, 1, 1, Function::Timestamp),
    ("duration", Style::Global, 1, 1, Function::Duration),
    ("getFullYear", Style::Member, 1, 1, Function::GetFullYear),
    ("getMonth", Style::Member, 1, 1, Function::GetMonth),
    ("getDate", Style::Member, 1, 1, Function::GetDate),
    ("getDayOfMonth", Style::Member, 1, 1, Function::GetDayOfMonth),
    ("getDayOfWeek", Style::Member, 1, 1, Function::GetDayOfWeek),
    ("getDayOfYear", Style::Member, 1, 1, Function::GetDayOfYear),
    ("getHours", Style::Member, 1, 1, Function::GetHours),
    ("getMinutes", Style::Member, 1, 1, Function::GetMinutes),
    ("getSeconds", Style::Member, 1, 1, Function::GetSeconds),
    ("getMilliseconds", Style::Member, 1, 1, Function::GetMilliseconds),
    ("greatest", Style::Math, 1, usize::MAX, Function::Greatest),
    ("least", Style::Math, 1, usize::MAX, Function::Least),
    ("abs", Style::Math, 1, 1, Function::Abs),
    ("round", Style::Math, 1, 1, Function::Round),
    ("floor", Style::Math, 1, 1, Function::Floor),
    ("ceil", Style::Math, 1, 1, Function::Ceil),
    ("lowerAscii", Style::Member, 1, 1, Function::LowerAscii),
    ("upperAscii", Style::Member, 1, 1, Function::UpperAscii),
    ("trim", Style::Member, 1, 1, Function::Trim),
    ("split", Style::Member, 2, 3, Function::Split),
    ("join", Style::Member, 1, 2, Function::Join),
    ("replace", Style::Member, 3, 4, Function::Replace),
    ("substring", Style::Member, 2, 3, Function::Substring),
    ("indexOf", Style::Member, 2, 3, Function::IndexOf),
    ("lastIndexOf", Style::Member, 2, 3, Function::LastIndexOf),
    ("charAt", Style::Member, 2, 2, Function::CharAt),
];

/// Finds the function of that name; the error says what is wrong with the call.
pub(crate) fn find(name: &str, style: Style, arguments: usize) -> Result<Function, String> {
    let prefix = if style == Style::Math { "math." } else { "" };
    let named = TABLE.iter().find(|(other, its_style, ..)| *other == name && *its_style == style);
    let Some((_, _, fewest, most, function)) = named else {
        return Err(format!("unknown function '{prefix}{}'", shown(name)));
    };
    let target = usize::from(style == Style::Member);
    if (*fewest..=*most).contains(&arguments) {
        return Ok(*function);
    }
    if style == Style::Member && name.starts_with("get") {
        return Err(format!("'{name}' takes no argument: times are in UTC"));
    }
    Err(format!("'{prefix}{name}' does not take {} argument(s)", arguments.saturating_sub(target)))
}

/// Returns the error of a call whose arguments have the wrong types.
pub(crate) fn no_overload(function: Function, arguments: &[Value<'_>]) -> Problem {
    let name = TABLE.iter().find(|row| row.4 == function).map_or("", |row| row.0);
    let kinds: Vec<&str> = arguments.iter().map(Value::kind).collect();
    Problem::new(format!("no such overload: {name}({})", kinds.join(", ")))
}

/// Calls a function. The number of arguments was checked at compile time.
pub(crate) fn call<'e>(function: Function, arguments: &[Value<'e>], budget: &Budget) -> Computed<Value<'e>> {
    let Some(first) = arguments.first() else { return Err(no_overload(function, arguments)) };
    arguments.iter().try_for_each(|argument| budget.spend_number(argument))?;
    match function {
        Function::Size => size(first, budget),
        Function::Int | Function::Uint => to_int(function, read(first, budget)?),
        Function::Double => {
            budget.spend_number_text(first.as_text().unwrap_or_default())?;
            to_double(first)
        }
        Function::Text => to_text(first),
        Function::Bool => to_bool(read(first, budget)?),
        Function::Type => Ok(Value::Type(first.kind())),
        Function::Dyn => Ok(first.clone()),
        Function::Timestamp => to_time(read(first, budget)?),
        Function::Duration => {
            // Each part is parsed separately, and may be two bytes long.
            budget.spend(first.as_text().map_or(0, str::len))?;
            to_duration(first)
        }
        Function::GetFullYear
        | Function::GetMonth
        | Function::GetDate
        | Function::GetDayOfMonth
        | Function::GetDayOfWeek
        | Function::GetDayOfYear
        | Function::GetHours
        | Function::GetMinutes
        | Function::GetSeconds
        | Function::GetMilliseconds => part(function, first),
        Function::Greatest => extreme(function, arguments, Ordering::Greater, budget),
        Function::Least => extreme(function, arguments, Ordering::Less, budget),
        Function::Abs | Function::Round | Function::Floor | Function::Ceil => one_number(function, first),
        _ => text::call(function, arguments, budget),
    }
}

/// Charges for parsing a value, which may be a long text.
fn read<'v, 'e>(value: &'v Value<'e>, budget: &Budget) -> Computed<&'v Value<'e>> {
    budget.spend_bytes(value.as_text().map_or(0, str::len))?;
    Ok(value)
}

fn size<'e>(value: &Value<'e>, budget: &Budget) -> Computed<Value<'e>> {
    let size = match value.as_text() {
        Some(text) => {
            budget.spend_bytes(text.len())?;
            Some(text.chars().count())
        }
        None => value.len(),
    };
    size.map(|size| Value::Int(size as i64)).ok_or_else(|| no_overload(Function::Size, std::slice::from_ref(value)))
}

fn part<'e>(function: Function, value: &Value<'e>) -> Computed<Value<'e>> {
    match value {
        Value::Time(millis) => Some(time::part_of_time(function, *millis)),
        Value::Duration(millis) => time::part_of_duration(function, *millis),
        _ => None,
    }
    .map(Value::Int)
    .ok_or_else(|| no_overload(function, std::slice::from_ref(value)))
}

fn to_int<'e>(function: Function, value: &Value<'e>) -> Computed<Value<'e>> {
    let int = match (value.number(), value) {
        (Some(Num::Int(int)), _) => Some(int),
        (Some(Num::Double(double)), _) => whole(double.trunc()),
        (None, Value::Time(millis)) => Some(millis.div_euclid(1000)),
        (None, _) => match value.as_text() {
            Some(text) => text.parse().ok(),
            None => return Err(no_overload(function, std::slice::from_ref(value))),
        },
    };
    int.filter(|int| function == Function::Int || *int >= 0)
        .map(Value::Int)
        .ok_or_else(|| Problem::new("the value is no integer, or out of range"))
}

fn to_double<'e>(value: &Value<'e>) -> Computed<Value<'e>> {
    match (value.number(), value.as_text()) {
        (Some(number), _) => Ok(Value::Double(number.as_f64())),
        (None, Some(text)) => text.parse().map(Value::Double).map_err(|_| Problem::new("the text is no number")),
        (None, None) => Err(no_overload(Function::Double, std::slice::from_ref(value))),
    }
}

fn to_text<'e>(value: &Value<'e>) -> Computed<Value<'e>> {
    Ok(match value {
        Value::Text(_) | Value::Built(_) => value.clone(),
        Value::Bool(truth) => Value::Text(if *truth { "true" } else { "false" }),
        Value::Int(int) => Value::text(int.to_string()),
        // An integer keeps all its digits.
        Value::Number(number) if !number.text().contains(['.', 'e', 'E']) => Value::Text(number.text()),
        Value::Number(number) => Value::text(number.as_f64().to_string()),
        Value::Double(double) => Value::text(double.to_string()),
        Value::Time(millis) => Value::text(isobar_model::time::Timestamp::from_millis(*millis).to_string()),
        Value::Duration(millis) => Value::text(time::duration_text(*millis)),
        Value::Type(name) => Value::Text(name),
        _ => return Err(no_overload(Function::Text, std::slice::from_ref(value))),
    })
}

fn to_bool<'e>(value: &Value<'e>) -> Computed<Value<'e>> {
    match (value, value.as_text()) {
        (Value::Bool(_), _) => Ok(value.clone()),
        (_, Some("true" | "True" | "TRUE" | "t" | "1")) => Ok(Value::Bool(true)),
        (_, Some("false" | "False" | "FALSE" | "f" | "0")) => Ok(Value::Bool(false)),
        (_, Some(_)) => Err(Problem::new("the text is neither true nor false")),
        _ => Err(no_overload(Function::Bool, std::slice::from_ref(value))),
    }
}

fn to_time<'e>(value: &Value<'e>) -> Computed<Value<'e>> {
    if let Value::Time(_) = value {
        return Ok(value.clone());
    }
    if let Some(text) = value.as_text() {
        let read: Result<isobar_model::time::Timestamp, _> = text.parse();
        let time = read.map_err(|_| Problem::new("the text is no RFC 3339 time"))?;
        return time::moment(Some(time.millis())).map(Value::Time);
    }
    match value.whole() {
        Some(seconds) => time::moment(seconds.checked_mul(1000)).map(Value::Time),
        None => Err(no_overload(Function::Timestamp, std::slice::from_ref(value))),
    }
}

fn to_duration<'e>(value: &Value<'e>) -> Computed<Value<'e>> {
    match (value, value.as_text()) {
        (Value::Duration(_), _) => Ok(value.clone()),
        (_, Some(text)) => time::read_duration(text).map(Value::Duration),
        _ => Err(no_overload(Function::Duration, std::slice::from_ref(value))),
    }
}

/// Computes `math.greatest` and `math.least`: of the arguments, or of the items of one list.
fn extreme<'e>(function: Function, arguments: &[Value<'e>], wanted: Ordering, budget: &Budget) -> Computed<Value<'e>> {
    let of_list = match arguments {
        [only] if only.is_list() => Some(only),
        _ => None,
    };
    let count = of_list.map_or(arguments.len(), |list| list.len().unwrap_or(0));
    budget.spend(count)?;
    let mut best: Option<(Value<'e>, Num)> = None;
    for at in 0..count {
        let Some(value) = of_list.map_or_else(|| arguments.get(at).cloned(), |list| list.item(at)) else { break };
        budget.spend_number(&value)?;
        let Some(number) = value.number() else { return Err(no_overload(function, arguments)) };
        if best.as_ref().is_none_or(|(_, best)| order_numbers(number, *best) == Some(wanted)) {
            best = Some((value, number));
        }
    }
    best.map(|(value, _)| value).ok_or_else(|| Problem::new("the list is empty"))
}

fn one_number<'e>(function: Function, value: &Value<'e>) -> Computed<Value<'e>> {
    let result = match (function, value.number()) {
        (_, None) => return Err(no_overload(function, std::slice::from_ref(value))),
        (Function::Abs, Some(Num::Int(int))) => {
            Num::Int(int.checked_abs().ok_or_else(|| Problem::new("integer overflow"))?)
        }
        // Rounding an int returns it unchanged.
        (_, Some(Num::Int(_))) => return Ok(value.clone()),
        (Function::Abs, Some(Num::Double(double))) => Num::Double(double.abs()),
        (Function::Floor, Some(Num::Double(double))) => Num::Double(double.floor()),
        (Function::Ceil, Some(Num::Double(double))) => Num::Double(double.ceil()),
        (_, Some(Num::Double(double))) => Num::Double(double.round()),
    };
    Ok(result.into())
}
