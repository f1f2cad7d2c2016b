//! The devices in a file, with their lines.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::super::csv;

/// Columns of an export that only the server sets, which an import ignores.
const SERVER_COLUMNS: [&str; 8] =
    ["id", "organizationName", "statusInt", "statusText", "lastActive", "createdAt", "updatedAt", "createdBy"];

/// A device in a file, in the API's form; members that are not checked keep their text.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceText {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its project.
    pub project_uuid: Option<String>,
    /// Its organization; `None` for the caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version_uuid: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    street_address: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
}

/// A fault of a line.
#[derive(Debug, PartialEq)]
pub struct LineFault {
    /// From 1.
    pub line: usize,
    /// The fault, in words.
    pub told: String,
}

/// Devices by their lines.
pub type Rows = Vec<(usize, DeviceText)>;

/// Parses a file: lines of JSON if its extension or first character says so, otherwise CSV.
pub fn read(path: &Path, text: &str) -> Result<Rows, Vec<LineFault>> {
    let is_json = path.extension().is_some_and(|end| end == "jsonl" || end == "ndjson");
    let (rows, faults) = if is_json || text.trim_start().starts_with('{') { of_lines(text) } else { of_csv(text) };
    if faults.is_empty() { Ok(rows) } else { Err(faults) }
}

fn of_lines(text: &str) -> (Rows, Vec<LineFault>) {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line = index + 1;
        match serde_json::from_str(text) {
            Ok(device) => rows.push((line, device)),
            Err(error) => faults.push(LineFault { line, told: in_one_line(&error) }),
        }
    }
    (rows, faults)
}

/// Describes a parser's error without its line number, which is always 1.
fn in_one_line(error: &serde_json::Error) -> String {
    let told = error.to_string();
    let told = told.split(" at line ").next().unwrap_or_default();
    format!("{told} (column {})", error.column())
}

fn of_csv(text: &str) -> (Rows, Vec<LineFault>) {
    let rows = match csv::rows(text) {
        Ok(rows) => rows,
        Err((line, told)) => return (Vec::new(), vec![LineFault { line, told: told.to_owned() }]),
    };
    let mut rows = rows.into_iter();
    let Some(head) = rows.next() else { return Default::default() };
    let unknown = head.cells.iter().filter(|name| !is_column(name));
    let mut faults: Vec<_> =
        unknown.map(|name| LineFault { line: head.line, told: format!("there is no column {name:?}") }).collect();
    let mut devices = Vec::new();
    for row in rows {
        if row.cells.len() == head.cells.len() {
            match device(head.cells.iter().zip(&row.cells)) {
                Ok(device) => devices.push((row.line, device)),
                Err(told) => faults.push(LineFault { line: row.line, told }),
            }
        } else {
            let told = format!("has {} cells, and the first row has {}", row.cells.len(), head.cells.len());
            faults.push(LineFault { line: row.line, told });
        }
    }
    (devices, faults)
}

fn is_column(name: &str) -> bool {
    let taken = [
        "name",
        "projectUuid",
        "organizationId",
        "versionUuid",
        "description",
        "protocol",
        "protocols",
        "streetAddress",
        "meta",
    ];
    let is_label = name.strip_prefix("meta.").is_some_and(|label| !label.is_empty());
    taken.contains(&name) || SERVER_COLUMNS.contains(&name) || name.starts_with("alarms.") || is_label
}

fn device<'a>(cells: impl Iterator<Item = (&'a String, &'a String)>) -> Result<DeviceText, String> {
    let mut device = DeviceText::default();
    let mut labels = Vec::new();
    for (name, cell) in cells.filter(|(_, cell)| !cell.is_empty()) {
        let text = plain(cell);
        match name.as_str() {
            "name" => text.clone_into(&mut device.name),
            "projectUuid" => device.project_uuid = Some(text.to_owned()),
            "organizationId" => device.organization_id = Some(text.to_owned()),
            "versionUuid" => device.version_uuid = Some(quoted(text)?),
            "description" => device.description = Some(quoted(text)?),
            "protocol" => device.protocol = Some(quoted(text)?),
            "protocols" => device.protocols = Some(json(name, text)?),
            "streetAddress" => device.street_address = Some(json(name, text)?),
            "meta" => device.meta = Some(json(name, text)?),
            _ => labels.extend(name.strip_prefix("meta.").map(|label| (label, text))),
        }
    }
    if !labels.is_empty() {
        if device.meta.is_some() {
            return Err("has both meta and labels of it".to_owned());
        }
        device.meta = Some(meta(&labels)?);
    }
    Ok(device)
}

/// Makes metadata of labels: numbers, booleans, lists and objects as JSON, everything else as text.
fn meta(labels: &[(&str, &str)]) -> Result<Box<RawValue>, String> {
    let mut members = Vec::with_capacity(labels.len());
    for (label, text) in labels {
        let value = match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(value) if !value.get().starts_with('"') => value,
            _ => quoted(text)?,
        };
        members.push(format!("{}:{value}", quoted(label)?));
    }
    json("meta", &format!("{{{}}}", members.join(",")))
}

fn quoted(text: &str) -> Result<Box<RawValue>, String> {
    to_raw_value(text).map_err(|error| error.to_string())
}

fn json(name: &str, text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("{name}: is no JSON: {}", in_one_line(&error)))
}

/// Removes the apostrophe that an export puts before what a spreadsheet would take for a formula.
fn plain(cell: &str) -> &str {
    let rest = cell.strip_prefix('\'').unwrap_or(cell);
    if rest.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) { rest } else { cell }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<String, Vec<LineFault>> {
        read(Path::new("-"), text).map(|rows| serde_json::to_string(&rows).unwrap())
    }

    #[test]
    fn csv_becomes_bodies_with_labels_by_their_kind() {
        let text = "id,name,projectUuid,meta.serial,meta.floor,meta.tags\n1,'=x,p,0012,1.50,\"[\"\"a\"\"]\"\n,y,p,,,\n";
        let expected = r#"[[2,{"name":"=x","projectUuid":"p","meta":{"serial":"0012","floor":1.50,"tags":["a"]}}],[3,{"name":"y","projectUuid":"p"}]]"#;
        assert_eq!(read_text(text).unwrap(), expected);
    }

    #[test]
    fn json_lines_keep_digits_and_ignore_server_columns() {
        let text = "{\"id\":\"1\",\"name\":\"x\",\"projectUuid\":\"p\",\"meta\":{\"a\":1.50}}\n\n";
        let expected = r#"[[1,{"name":"x","projectUuid":"p","meta":{"a":1.50}}]]"#;
        assert_eq!(read_text(text).unwrap(), expected);
    }

    #[test]
    fn faults_name_their_lines() {
        let lines = |text: &str| read_text(text).unwrap_err().iter().map(|fault| fault.line).collect::<Vec<_>>();
        assert_eq!(lines("name,colour\nx,red\ny\n"), [1, 3]);
        assert_eq!(lines("name,meta\nx,{oops\n"), [2]);
        assert_eq!(lines("{\"name\": \"x\"}\n{\"name\": 7}\noops\n"), [2, 3]);
    }
}
