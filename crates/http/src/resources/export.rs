//! Whole series as CSV or as lines of JSON, streamed as they are read from the store.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, VARY};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use isobar_hub::Export;
use isobar_model::error::Error;
use isobar_model::event::StoredValue;
use isobar_model::ids::DeviceId;
use isobar_model::json::{Json, Step, find, parse};

use crate::request::columns::{ColumnSource, CsvColumn};
use crate::request::{Call, negotiation};
use crate::response::Response;

/// Most characters of an element's name within a file name.
const FILE_NAME_CHARACTERS_MAX: usize = 64;

/// Format of a response with many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValuesFormat {
    /// A page in the envelope.
    Json,
    /// The whole series, one row a value.
    Csv,
    /// The whole series, one line of JSON a value.
    Lines,
}

impl ValuesFormat {
    const ALL: [(ValuesFormat, &str); 3] = [
        (ValuesFormat::Json, "application/json"),
        (ValuesFormat::Csv, "text/csv"),
        (ValuesFormat::Lines, "application/x-ndjson"),
    ];

    /// Returns the format that a call asks for.
    pub fn of(call: &Call) -> Self {
        Self::among(call, &Self::ALL)
    }

    /// Returns the format that a call asks for, JSON or CSV.
    pub fn of_table(call: &Call) -> Self {
        let [json, csv, _] = Self::ALL;
        Self::among(call, &[json, csv])
    }

    fn among(call: &Call, formats: &[(ValuesFormat, &str)]) -> Self {
        let offered: Vec<&str> = formats.iter().map(|(_, media_type)| *media_type).collect();
        let preferred = negotiation::preferred(&call.head.headers, &offered);
        formats.get(preferred).map_or(ValuesFormat::Json, |(format, _)| *format)
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            ValuesFormat::Json => "application/json",
            ValuesFormat::Csv => "text/csv; charset=utf-8; header=present",
            ValuesFormat::Lines => "application/x-ndjson",
        })
    }

    fn extension(self) -> &'static str {
        match self {
            ValuesFormat::Json => "json",
            ValuesFormat::Csv => "csv",
            ValuesFormat::Lines => "ndjson",
        }
    }
}

/// Streams an export at its reader's pace. A failure after the beginning breaks the connection, so that nobody mistakes
/// a part for the whole.
pub(crate) fn streamed(
    export: Export,
    format: ValuesFormat,
    columns: Vec<CsvColumn>,
    device: DeviceId,
    element: &str,
) -> Response {
    let named = element.to_owned();
    let mut head = Vec::new();
    if format == ValuesFormat::Csv {
        row(&mut head, columns.iter(), |column, out| text_cell(&column.name, out));
    }
    let written = move |values: Vec<StoredValue>| {
        let mut out = Vec::new();
        for value in &values {
            match format {
                ValuesFormat::Csv => row(&mut out, columns.iter(), |column, out| cell(column, value, out)),
                ValuesFormat::Json | ValuesFormat::Lines => line(value, device, &named, &mut out),
            }
        }
        Bytes::from(out)
    };
    let pieces = export.pieces().map(move |values| values.map(&written)).inspect(|piece| {
        if let Err(error) = piece {
            tracing::warn!(%error, "cannot finish an export");
        }
    });
    as_file(head, pieces, format, element)
}

/// Makes a response that is a file, from its head and the pieces that follow.
pub(super) fn as_file(
    head: Vec<u8>,
    pieces: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
    format: ValuesFormat,
    name: &str,
) -> Response {
    let pieces = stream::once(std::future::ready(Ok(Bytes::from(head)))).chain(pieces);
    let pieces = pieces.filter(|piece| std::future::ready(!matches!(piece, Ok(bytes) if bytes.is_empty())));
    in_format(Response::new(Body::from_stream(pieces).into()), format, name)
}

/// Adds the headers of a format, which is a file unless it is JSON.
pub(super) fn in_format(mut response: Response, format: ValuesFormat, name: &str) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, format.content_type());
    headers.insert(VARY, HeaderValue::from_static("accept"));
    let disposition = format!("attachment; filename=\"{}.{}\"", file_name(name), format.extension());
    if format != ValuesFormat::Json
        && let Ok(disposition) = HeaderValue::from_str(&disposition)
    {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

/// Makes a file name from an element's name: no separators, no leading dot, no quoting.
fn file_name(element: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = element.chars().take(FILE_NAME_CHARACTERS_MAX).map(safe).collect();
    name.strip_prefix('.').map_or_else(|| name.clone(), |rest| format!("_{rest}"))
}

/// Writes a value as one line: line breaks between JSON tokens become spaces.
fn line(value: &StoredValue, device: DeviceId, element: &str, out: &mut Vec<u8>) {
    let start = out.len();
    value.write_json(device, element, out);
    out[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    out.push(b'\n');
}

/// Writes a row of cells (RFC 4180). A single empty cell gets quotes, because readers skip an empty line.
pub(super) fn row<C>(out: &mut Vec<u8>, columns: impl Iterator<Item = C>, mut cell: impl FnMut(C, &mut Vec<u8>)) {
    let start = out.len();
    for (place, column) in columns.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        cell(column, out);
    }
    if out.len() == start {
        out.extend_from_slice(b"\"\"");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a value's cell of a column: texts plain, everything else as JSON, empty if the path leads nowhere.
fn cell(column: &CsvColumn, value: &StoredValue, out: &mut Vec<u8>) {
    match &column.source {
        ColumnSource::Id => out.extend_from_slice(value.id.to_string().as_bytes()),
        ColumnSource::CreatedAt => out.extend_from_slice(&value.created_at.text()),
        ColumnSource::Payload(path) => json_cell(value.payload.text(), path, out),
    }
}

/// Writes the cell of the JSON at a path: texts plain, everything else as JSON, empty if the path leads nowhere.
pub(super) fn json_cell(json: &str, path: &[Step], out: &mut Vec<u8>) {
    match find(json, path) {
        None => {}
        Some(text) if text.starts_with('"') => match parse(text) {
            Ok(Json::Text(text)) => text_cell(&text, out),
            _ => plain_or_quoted(text, out),
        },
        Some(json) => plain_or_quoted(json, out),
    }
}

/// Writes a text. A text that a spreadsheet would run as a formula gets a leading apostrophe, as devices may send any
/// text.
pub(super) fn text_cell(text: &str, out: &mut Vec<u8>) {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        plain_or_quoted(&format!("'{text}"), out);
    } else {
        plain_or_quoted(text, out);
    }
}

/// Quotes a text if necessary; an empty text too, to tell it from an absent one.
pub(super) fn plain_or_quoted(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() || text.contains([',', '"', '\r', '\n']) || text.trim() != text {
        quoted(text, out);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for (place, part) in text.split('"').enumerate() {
        if place > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use isobar_model::ids::EventId;
    use isobar_model::json::RawJson;

    use super::*;
    use crate::request::filter;

    fn csv(columns: &[&str], payload: &'static str) -> String {
        let columns: Vec<_> = columns.iter().map(|name| CsvColumn::new(name, filter::field(name).unwrap())).collect();
        let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let value = StoredValue { id, created_at: id.minted_at(), payload: RawJson::check(payload.into()).unwrap() };
        let mut out = Vec::new();
        row(&mut out, columns.iter(), |column, out| cell(column, &value, out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(
            csv(&["createdAt", "id", "payload"], "21.50"),
            "2023-06-30T03:34:18.518Z,01890a5d-ac96-774b-bcce-b302099a8057,21.50\r\n"
        );
        let payload = r#"{"a":"x, \"y\"\n","b":[1,{"c":"d"}],"c":null,"d":"","e":-7,"f":[2]}"#;
        let columns = ["payload.a", "payload.b", "payload.c", "payload.d", "payload.e", "payload.f", "payload.nowhere"];
        assert_eq!(csv(&columns, payload), "\"x, \"\"y\"\"\n\",\"[1,{\"\"c\"\":\"\"d\"\"}]\",null,\"\",-7,[2],\r\n");
        assert_eq!(csv(&["payload.b.1.c", "payload.b.0"], payload), "d,1\r\n");
        assert_eq!(csv(&["payload.nowhere"], payload), "\"\"\r\n");
        assert_eq!(csv(&["payload.nowhere", "payload.nowhere"], payload), ",\r\n");
    }

    #[test]
    fn exported_text_is_never_a_formula() {
        for text in [r#""=1+1""#, r#""@SUM(A1)""#, r#""+1""#, r#""-cmd|' /C calc'!A0""#, r#""\t=1""#] {
            assert!(csv(&["payload"], text).trim_start_matches('"').starts_with('\''), "{text}");
        }
        assert_eq!(csv(&["payload"], "-1.5e3"), "-1.5e3\r\n");
        assert_eq!(csv(&["payload"], r#""a=1""#), "a=1\r\n");
    }

    #[test]
    fn a_file_name_is_harmless() {
        assert_eq!(file_name("reading"), "reading");
        assert_eq!(file_name("../../etc/pass\"wd\r\n"), "_._.._etc_pass_wd__");
        assert_eq!(file_name("température é"), "temp_rature__");
        assert_eq!(file_name(&"x".repeat(500)).len(), 64);
    }

    #[test]
    fn exported_row_is_one_line() {
        let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let value =
            StoredValue { id, created_at: id.minted_at(), payload: RawJson::check("{\"a\":\n\r1}".into()).unwrap() };
        let mut out = Vec::new();
        line(&value, DeviceId(id.0), "e", &mut out);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(out.ends_with(b"\"payload\":{\"a\":  1}}\n"));
    }
}
