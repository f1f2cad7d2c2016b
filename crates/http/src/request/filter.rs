//! Filters of lists: `filter[<field>][<operator>]=<value>` (contract: Data). One grammar for all lists.

use std::borrow::Cow;

use isobar_hub::{Filter, FilterField, Operand, Operator};
use isobar_model::error::Fault;
use isobar_model::path;

use super::query::excerpt;

/// Most filters of one list.
const FILTERS_MAX: usize = 64;
/// Most operands of one filter.
const OPERANDS_MAX: usize = 1000;

/// Fields and operands by which a list can be filtered.
pub(crate) struct Filterable<F> {
    /// Finds a field by name.
    pub field: fn(&str) -> Option<F>,
    /// Reads the operand of a field, or returns what it must be.
    pub operand: fn(&F, &str) -> Result<Operand, &'static str>,
    /// Lists the fields in words, for messages.
    pub fields: fn() -> String,
}

/// Filters of stored values.
const VALUES: Filterable<FilterField> =
    Filterable { field, operand, fields: || "createdAt, id, payload or a path beneath it".to_owned() };

/// Finds a field by which values can be filtered and sorted.
pub(crate) fn field(name: &str) -> Option<FilterField> {
    match name {
        "id" => Some(FilterField::Id),
        "createdAt" => Some(FilterField::CreatedAt),
        "payload" => Some(FilterField::Payload(Vec::new())),
        _ => path::path_beneath("payload", name).map(FilterField::Payload),
    }
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "eq" => Operator::Eq,
        "ne" => Operator::Ne,
        "lt" => Operator::Lt,
        "lte" => Operator::Lte,
        "gt" => Operator::Gt,
        "gte" => Operator::Gte,
        "in" => Operator::In,
        "nin" => Operator::Nin,
        _ => return None,
    })
}

/// Reads the operand of a field: a time for `createdAt`, a text for `id`, and for payloads by [`Operand::of_text`].
fn operand(field: &FilterField, text: &str) -> Result<Operand, &'static str> {
    match field {
        FilterField::CreatedAt => time_operand(text),
        FilterField::Id => Ok(Operand::Text(text.to_owned())),
        FilterField::Payload(_) => Ok(Operand::of_text(text)),
    }
}

/// Reads a time.
pub(crate) fn time_operand(text: &str) -> Result<Operand, &'static str> {
    // An unescaped `+` before an offset arrives as a space.
    let moment = text.parse().or_else(|_| text.replace(' ', "+").parse());
    moment.map(Operand::Time).map_err(|_| "must be an RFC 3339 date-time")
}

fn filter<F>(of: &Filterable<F>, key: &str, value: &str) -> Result<Filter<F>, String> {
    let inner = key.strip_prefix("filter[").and_then(|rest| rest.strip_suffix(']'));
    let (name, operator_name) = inner
        .and_then(|inner| path::split_once(inner, "]["))
        .ok_or("must have the form filter[<field>][<operator>]")?;
    let field = (of.field)(name).ok_or_else(|| format!("unknown field '{}': {}", excerpt(name), (of.fields)()))?;
    let operator = operator(operator_name)
        .ok_or_else(|| format!("unknown operator '{}': eq, ne, lt, lte, gt, gte, in or nin", excerpt(operator_name)))?;
    let texts: Vec<&str> = match operator {
        Operator::In | Operator::Nin => value.split(',').collect(),
        _ => vec![value],
    };
    if texts.len() > OPERANDS_MAX {
        return Err(format!("must have at most {OPERANDS_MAX} operands"));
    }
    let operands = texts.into_iter().map(|text| (of.operand)(&field, text)).collect::<Result<_, _>>()?;
    Ok(Filter { field, operator, operands })
}

/// Reads all filters of stored values among the parameters, with the faults of invalid ones.
pub(crate) fn filters(pairs: &[(Cow<'_, str>, Cow<'_, str>)]) -> (Vec<Filter>, Vec<Fault>) {
    filters_of(&VALUES, pairs)
}

/// Reads all filters among the parameters, with the faults of invalid ones.
pub(crate) fn filters_of<F>(
    of: &Filterable<F>,
    pairs: &[(Cow<'_, str>, Cow<'_, str>)],
) -> (Vec<Filter<F>>, Vec<Fault>) {
    let (mut filters, mut faults) = (Vec::new(), Vec::new());
    for (key, value) in pairs.iter().filter(|(key, _)| *key == "filter" || key.starts_with("filter[")) {
        match filter(of, key, value) {
            Ok(filter) => filters.push(filter),
            Err(message) => faults.push(Fault::new(format!("query.{}", excerpt(key)), message)),
        }
    }
    if filters.len() > FILTERS_MAX {
        faults.push(Fault::new("query.filter", format!("there may be at most {FILTERS_MAX} filters")));
    }
    (filters, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, value: &str) -> Result<Filter, String> {
        filter(&VALUES, key, value)
    }

    fn payload(path: &str) -> FilterField {
        FilterField::Payload(path.split('.').map(str::to_owned).collect())
    }

    // Holds: c6.operands
    #[test]
    fn operands_have_the_type_of_their_text() {
        for (text, operand) in [
            ("21.50", Operand::Number("21.50".into())),
            ("true", Operand::Bool(true)),
            ("null", Operand::Null),
            ("\"x\"", Operand::Text("\"x\"".into())),
            ("01", Operand::Text("01".into())),
            ("", Operand::Text(String::new())),
        ] {
            let filter = of("filter[payload.temp][eq]", text).unwrap();
            assert_eq!((filter.field, filter.operands), (payload("temp"), vec![operand]));
        }
    }

    // Holds: rule.data.operators
    #[test]
    fn lists_of_operands_are_typed_one_by_one() {
        let filter = of("filter[payload.a.b][nin]", "1,on,null").unwrap();
        assert_eq!(filter.field, payload("a.b"));
        assert_eq!(filter.operator, Operator::Nin);
        assert_eq!(filter.operands, [Operand::Number("1".into()), Operand::Text("on".into()), Operand::Null]);
    }

    #[test]
    fn created_at_takes_a_time_and_id_a_text() {
        assert!(matches!(of("filter[createdAt][gte]", "2026-01-01").unwrap().operands[..], [Operand::Time(_)]));
        assert_eq!(of("filter[id][eq]", "1").unwrap().operands, [Operand::Text("1".into())]);
        assert!(of("filter[createdAt][gte]", "soon").is_err());
    }

    #[test]
    fn quoted_name_may_hold_what_ends_a_filter() {
        for (key, path) in [
            (r#"filter[payload["position.latitude"]][gt]"#, &["position.latitude"][..]),
            (r#"filter[payload["a]["]["b][eq"].c][gt]"#, &["a][", "b][eq", "c"]),
            (r#"filter[payload.a]b.c[0]][gt]"#, &["a]b", "c[0]"]),
        ] {
            let filter = of(key, "1").unwrap();
            let path = path.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!((filter.field, filter.operator), (FilterField::Payload(path), Operator::Gt), "{key}");
        }
    }

    #[test]
    fn malformed_filter_is_a_fault() {
        for key in [
            "filter",
            "filter[payload.a]",
            "filter[temp][eq]",
            "filter[payload.][eq]",
            "filter[payload][like]",
            "filter[][]",
            "filter[payload][eq",
            r#"filter[payload["a][eq]"#,
            r#"filter[payload["a"]b][eq]"#,
        ] {
            assert!(of(key, "1").is_err(), "{key}");
            let (filters, faults) = filters(&[(key.into(), "1".into())]);
            assert!(filters.is_empty());
            assert_eq!(faults[0].field, format!("query.{key}"));
        }
    }
}
