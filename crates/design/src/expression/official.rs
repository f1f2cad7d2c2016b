//! Runs the conformance tests of CEL (`tests/official/cel`). `deviations.txt` lists, by reason, the cases that do not
//! hold; a listed case that holds is a failure too.

use std::collections::HashMap;

use isobar_model::time::Timestamp;
use serde_json::Value as Expected;

use super::{Expression, Machine, Names, on_a_large_stack, time};
use crate::value::budget::Budget;
use crate::value::{Num, Value};

/// A case of the test set.
pub(crate) struct Case {
    /// File, section and name; a repeated name is numbered.
    name: String,
    pub(crate) expression: String,
    /// The case's JSON.
    original: Expected,
}

fn official(name: &str) -> String {
    let path = format!("{}/tests/official/cel/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Returns all cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let case = |line: &str| {
        let original: Expected = serde_json::from_str(line).unwrap();
        let text = |member: &str| original[member].as_str().unwrap().to_owned();
        let mut name = format!("{}/{}", text("section"), text("name"));
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            name = format!("{name} ({times})");
        }
        Case { name, expression: text("expr"), original }
    };
    official("conformance.ndjson").lines().map(case).collect()
}

/// Checks a case; the error is the actual outcome.
fn held(case: &Case) -> Result<(), String> {
    if case.original["checkOnly"] == true {
        return Err("no type is deduced".to_owned());
    }
    let source = with_bindings(case).ok_or("has a variable with a name or of a type that there is not")?;
    let must_fail = case.original.get("evalError").is_some();
    let expression = match Expression::compile(&source, &Names::default()) {
        Ok(expression) => expression,
        Err(why) if must_fail && is_a_fault_of_the_case(&case.original, &why) => return Ok(()),
        Err(why) => return Err(format!("is refused: {why}")),
    };
    let (nothing, budget) = (Value::Null, Budget::of_run());
    let value = expression.value(&mut Machine::new(None, &nothing, &budget));
    let yes = serde_json::json!({"boolValue": true});
    let expected = case.original.get("value").or(case.original["typedResult"].get("result")).unwrap_or(&yes);
    match value {
        Err(_) if must_fail => Ok(()),
        Err(problem) => Err(format!("fails: {}", problem.0)),
        Ok(value) if !must_fail && is(&value, expected) => Ok(()),
        Ok(value) => Err(format!("gives {value:?}")),
    }
}

/// Returns true if an expression that must fail at run time is refused at compile time for the same reason: names are
/// checked when a design is compiled.
fn is_a_fault_of_the_case(original: &Expected, why: &str) -> bool {
    let messages = original["evalError"]["errors"].to_string();
    let is_name = why.starts_with("unknown variable") || why.starts_with("unknown function");
    is_name && ["undeclared", "unbound", "unknown"].iter().any(|word| messages.contains(word))
        || why.contains("does not take") && messages.contains("overload")
}

/// Wraps the expression of a case in macros that bind its variables; `None` if that is impossible.
fn with_bindings(case: &Case) -> Option<String> {
    let mut source = case.expression.clone();
    for (name, binding) in case.original["bindings"].as_object().into_iter().flatten() {
        // These cases are about variables that no expression can name.
        if ["true", "false", "null"].contains(&name.as_str()) {
            continue;
        }
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(())?;
        source = format!("[{}].map({name}, {source}\n)[0]", literal(&binding["value"])?);
    }
    Some(source)
}

/// Returns the member that names the type of a value, and the value.
fn kind(value: &Expected) -> (&str, &Expected) {
    let members = value.as_object().unwrap_or_else(|| panic!("{value} is no value"));
    let (kind, value) = members.iter().next().unwrap_or_else(|| panic!("no value"));
    (kind, value)
}

/// Writes a value as a literal.
fn literal(value: &Expected) -> Option<String> {
    let joined = |parts: Vec<String>| parts.join(", ");
    let (kind, value) = kind(value);
    Some(match kind {
        "int64Value" | "typeValue" => value.as_str()?.to_owned(),
        "uint64Value" => format!("{}u", value.as_str()?),
        "doubleValue" => match value.as_f64() {
            Some(double) => format!("{double:?}"),
            None => format!("double({value})"),
        },
        "stringValue" | "boolValue" | "nullValue" => value.to_string(),
        "listValue" => {
            let items = value["values"].as_array().into_iter().flatten();
            format!("[{}]", joined(items.map(literal).collect::<Option<_>>()?))
        }
        "mapValue" => {
            let entries = value["entries"].as_array().into_iter().flatten();
            let entry = |entry: &Expected| Some(format!("{}: {}", literal(&entry["key"])?, literal(&entry["value"])?));
            format!("{{{}}}", joined(entries.map(entry).collect::<Option<_>>()?))
        }
        "objectValue" => match value["@type"].as_str()? {
            "type.googleapis.com/google.protobuf.Timestamp" => format!("timestamp({})", value["value"]),
            "type.googleapis.com/google.protobuf.Duration" => format!("duration({})", value["value"]),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns true if a value is the expected one. Uints are ints here.
fn is(value: &Value<'_>, expected: &Expected) -> bool {
    let (kind, expected) = kind(expected);
    let text = expected.as_str();
    match (kind, value) {
        ("nullValue", Value::Null) => true,
        ("boolValue", Value::Bool(truth)) => expected.as_bool() == Some(*truth),
        ("int64Value" | "uint64Value", _) if value.kind() == "int" => {
            value.whole().map(|int| int.to_string()).as_deref() == text
        }
        ("doubleValue", _) if value.kind() == "double" => {
            let wanted = text.map_or(expected.as_f64(), |text| text.parse().ok());
            let is_wanted = |(found, wanted): (f64, f64)| {
                // The parser of the cases does not round exactly.
                let nearly = (found - wanted).abs() <= wanted.abs() * f64::EPSILON;
                found == wanted || nearly || found.is_nan() && wanted.is_nan()
            };
            value.number().map(Num::as_f64).zip(wanted).is_some_and(is_wanted)
        }
        ("stringValue", _) => value.as_text().is_some() && value.as_text() == text,
        ("typeValue", Value::Type(name)) => text == Some(*name),
        ("listValue", _) if value.is_list() => {
            let items = expected["values"].as_array().map_or(&[][..], Vec::as_slice);
            let mut pairs = items.iter().enumerate();
            value.len() == Some(items.len()) && pairs.all(|(at, item)| value.item(at).is_some_and(|at| is(&at, item)))
        }
        ("mapValue", Value::Map(map)) => {
            let entries = expected["entries"].as_array().map_or(&[][..], Vec::as_slice);
            let is_there = |entry: &Expected| {
                map.entries.iter().any(|(key, value)| is(key, &entry["key"]) && is(value, &entry["value"]))
            };
            map.entries.len() == entries.len() && entries.iter().all(is_there)
        }
        ("mapValue", Value::Object(members)) => {
            let entries = expected["entries"].as_array().map_or(&[][..], Vec::as_slice);
            let is_there = |entry: &Expected| {
                members.iter().any(|(name, value)| {
                    is(&Value::Text(name.as_ref()), &entry["key"]) && is(&Value::from(value), &entry["value"])
                })
            };
            members.len() == entries.len() && entries.iter().all(is_there)
        }
        ("objectValue", Value::Time(millis)) => {
            let text = expected["value"].as_str().filter(|text| !is_finer_than_a_millisecond(text));
            text.and_then(|text| text.parse::<Timestamp>().ok()).map(Timestamp::millis) == Some(*millis)
        }
        ("objectValue", Value::Duration(millis)) => {
            let text = expected["value"].as_str().filter(|text| !is_finer_than_a_millisecond(text));
            text.and_then(|text| time::read_duration(text).ok()) == Some(*millis)
        }
        _ => false,
    }
}

/// Returns true if a time or a duration has digits below a millisecond, which are dropped here.
fn is_finer_than_a_millisecond(text: &str) -> bool {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.bytes().take_while(u8::is_ascii_digit).skip(3).any(|digit| digit != b'0')
}

/// An entry of the list: the name of a case, or `section/*` for all cases of a section, and the permitted outcomes.
struct Deviation {
    name: String,
    instead: Vec<String>,
}

impl Deviation {
    fn is_of(&self, case: &Case) -> bool {
        match self.name.strip_suffix('*') {
            Some(section) => case.name.starts_with(section),
            None => case.name == self.name,
        }
    }

    fn tells(&self, came: &str) -> bool {
        self.instead.iter().any(|instead| came.starts_with(instead))
    }
}

/// Reads the list. Each group begins with its reason, followed by the prefixes of permitted outcomes.
fn deviations() -> Vec<Deviation> {
    let (mut deviations, mut instead) = (Vec::new(), Vec::new());
    for line in official("deviations.txt").lines().filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            instead.clear();
        } else if let Some(came) = line.strip_prefix("= ") {
            instead.push(came.to_owned());
        } else {
            deviations.push(Deviation { name: line.to_owned(), instead: instead.clone() });
        }
    }
    deviations
}

// Holds: official.cel
#[test]
fn every_official_case_holds_except_listed_ones() {
    let (cases, deviations) = (cases(), deviations());
    let mut failed = Vec::new();
    let mut count = 0;
    for case in &cases {
        let held = on_a_large_stack(|| held(case)).unwrap_or_else(|| Err("panics".to_owned()));
        count += usize::from(held.is_ok());
        match (held, deviations.iter().find(|deviation| deviation.is_of(case))) {
            (Ok(()), Some(_)) => failed.push(format!("{} holds now: take it off the list", case.name)),
            (Err(came), Some(deviation)) if deviation.tells(&came) => {}
            (Err(came), _) => failed.push(format!("{}: {:?} {came}", case.name, case.expression)),
            (Ok(()), None) => {}
        }
    }
    for deviation in &deviations {
        if !cases.iter().any(|case| deviation.is_of(case)) {
            failed.push(format!("{} is no case", deviation.name));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let written = |number: usize| format!("{},{:03}", number / 1000, number % 1000);
    let told = format!("{} cases, of which {} hold", written(cases.len()), written(count));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(&told), "docs/conformance.md does not say: {told}");
}
