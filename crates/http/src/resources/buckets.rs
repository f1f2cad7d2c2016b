//! Series aggregated in buckets of time: as JSON, or as CSV with a row a bucket. Both are written piece by piece, at
//! their reader's pace.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures::stream;
use isobar_hub::{BucketAnswer, BucketRow, BucketRows, FieldRow};
use isobar_model::access::Action;
use isobar_model::buckets::{Function, Functions, Told};
use isobar_model::error::Error;
use isobar_model::ids::DeviceId;
use serde::Serialize;
use utoipa::ToSchema;

use super::export::{self, ValuesFormat, plain_or_quoted, text_cell};
use super::values::{Id, Time};
use crate::problem::Problem;
use crate::request::buckets::BucketsAsked;
use crate::request::{Call, after, both};
use crate::response::{self, Answer, Response};

/// Bytes of a piece; the bucket that exceeds it still belongs to it.
const BUCKETS_PIECE_BYTES: usize = 64 << 10;

pub(crate) async fn buckets(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let (mut query, format) = (call.query(), ValuesFormat::of_table(call));
    let asked = query.buckets();
    let allowed = async {
        call.hub().allow_device(&call.principal, id, Action::DeviceRead).await?;
        // An unknown element is 404, before any fault of the parameters.
        match call.element_name() {
            Ok(element) => call.hub().last_values(&call.principal, id, element).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    };
    let input = both(query.end(asked), call.element_name().map_err(Problem::from));
    let (BucketsAsked { request, names }, element) = after(allowed, input).await?;
    let answer = call.hub().buckets(&call.principal, id, element, request).await?;
    written(answer, names, format, false, element)
}

pub(crate) async fn fleet_buckets(call: &mut Call) -> Answer {
    let (mut query, format) = (call.query(), ValuesFormat::of_table(call));
    let (asked, (devices, apart), element) = (query.buckets(), query.bucket_devices(), query.element_name_required());
    let (hub, caller) = (call.hub(), call.caller()?);
    let allowed = async {
        match &devices {
            Some(devices) => hub.allow_buckets_of(caller, devices).await,
            None => hub.allow(caller, Action::DeviceRead).await,
        }
    };
    let BucketsAsked { request, names } = after(allowed, query.end(asked)).await?;
    let Some(devices) = &devices else { return Err(Error::invalid("query.deviceIds", "is required").into()) };
    let answer = hub.buckets_of_many(caller, devices, &element, request, apart).await?;
    written(answer, names, format, apart, &element)
}

fn written(answer: BucketAnswer, names: Vec<String>, format: ValuesFormat, apart: bool, element: &str) -> Answer {
    let mut writing = Writing::begin(answer, names, format, apart);
    let mut piece = Vec::with_capacity(4 << 10);
    let is_whole = writing.fill(&mut piece)?;
    let mut response: Response = response::raw_json(StatusCode::OK, Bytes::new());
    *response.body_mut() = if is_whole {
        response::ResponseBody::Whole(piece.into())
    } else {
        let rest = stream::try_unfold(Some(writing), |writing| async move {
            let Some(mut writing) = writing else { return Ok(None) };
            let mut piece = Vec::with_capacity(BUCKETS_PIECE_BYTES + BUCKETS_PIECE_BYTES / 8);
            let is_last = writing.fill(&mut piece)?;
            Ok::<_, Error>(Some((Bytes::from(piece), (!is_last).then_some(writing))))
        });
        let first = stream::once(std::future::ready(Ok(Bytes::from(piece))));
        Body::from_stream(futures::StreamExt::chain(first, rest)).into()
    };
    Ok(export::in_format(response, format, element))
}

/// An answer that is being written.
struct Writing {
    answer: BucketAnswer,
    names: Vec<String>,
    format: ValuesFormat,
    /// True if each series is written with its device.
    apart: bool,
    is_begun: bool,
    /// Index of the current series.
    series: usize,
    rows: Option<BucketRows>,
    /// True before the first bucket of a list.
    is_first: bool,
}

impl Writing {
    fn begin(answer: BucketAnswer, names: Vec<String>, format: ValuesFormat, apart: bool) -> Self {
        Self { answer, names, format, apart, is_begun: false, series: 0, rows: None, is_first: true }
    }

    /// Writes until the piece is full. Returns true if nothing is left.
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.head(out)?;
        }
        while self.series < self.answer.series().len() {
            if out.len() >= BUCKETS_PIECE_BYTES {
                return Ok(false);
            }
            let mut rows = match self.rows.take() {
                Some(rows) => rows,
                None => {
                    self.series_begins(out)?;
                    BucketRows::default()
                }
            };
            match self.answer.next_row(self.series, &mut rows) {
                Some(row) => {
                    let is_first = std::mem::take(&mut self.is_first);
                    self.row(&row, is_first, out)?;
                    self.rows = Some(rows);
                }
                None => {
                    self.series_ends(out);
                    self.series += 1;
                }
            }
        }
        if self.format == ValuesFormat::Json {
            out.extend_from_slice(b"]}");
        }
        Ok(true)
    }

    fn head(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.format == ValuesFormat::Json {
            out.extend_from_slice(b"{\"meta\":");
            serde_json::to_writer(&mut *out, &BucketsMetaJson::of(&self.answer)).map_err(Error::internal)?;
            out.extend_from_slice(b",\"data\":[");
            return Ok(());
        }
        out.extend_from_slice(if self.apart { b"deviceId,from,to,count" } else { b"from,to,count" });
        for name in &self.names {
            for function in self.answer.functions().each() {
                out.push(b',');
                text_cell(&format!("{name}.{}", function.name()), out);
            }
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn series_begins(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let series = self.answer.series().nth(self.series);
        let (ValuesFormat::Json, true, Some((device, series))) = (self.format, self.apart, series) else {
            return Ok(());
        };
        self.is_first = true;
        if self.series > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"deviceId\":");
        serde_json::to_writer(&mut *out, &device.map(|device| Id(device.0))).map_err(Error::internal)?;
        out.extend_from_slice(
            format!(",\"values\":{},\"skipped\":{},\"buckets\":[", series.values, series.skipped).as_bytes(),
        );
        Ok(())
    }

    fn series_ends(&self, out: &mut Vec<u8>) {
        if self.format == ValuesFormat::Json && self.apart {
            out.extend_from_slice(b"]}");
        }
    }

    fn row(&self, row: &BucketRow<'_>, is_first: bool, out: &mut Vec<u8>) -> Result<(), Error> {
        let functions = self.answer.functions();
        if self.format == ValuesFormat::Csv {
            let device = self.answer.series().nth(self.series).and_then(|(device, _)| device);
            return csv_row(row, device, functions, out);
        }
        if !is_first {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"from\":\"");
        out.extend_from_slice(&row.stretch.from.text());
        out.extend_from_slice(b"\",\"to\":\"");
        out.extend_from_slice(&row.stretch.to.text());
        out.extend_from_slice(format!("\",\"count\":{},\"fields\":{{", row.count).as_bytes());
        for (place, (name, field)) in self.names.iter().zip(&row.fields).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, name).map_err(Error::internal)?;
            for (place, function) in functions.each().enumerate() {
                out.extend_from_slice(if place > 0 { b",\"" } else { b":{\"" });
                out.extend_from_slice(function.name().as_bytes());
                out.extend_from_slice(b"\":");
                if !number(*field, function, out)? {
                    out.extend_from_slice(b"null");
                }
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
        Ok(())
    }
}

fn csv_row(
    row: &BucketRow<'_>,
    device: Option<DeviceId>,
    functions: Functions,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if let Some(device) = device {
        plain_or_quoted(&device.to_string(), out);
        out.push(b',');
    }
    out.extend_from_slice(&row.stretch.from.text());
    out.push(b',');
    out.extend_from_slice(&row.stretch.to.text());
    out.extend_from_slice(format!(",{}", row.count).as_bytes());
    for field in &row.fields {
        for function in functions.each() {
            out.push(b',');
            number(*field, function, out)?;
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes the result of a function on a field. Returns false if there is none.
fn number(field: FieldRow<'_>, function: Function, out: &mut Vec<u8>) -> Result<bool, Error> {
    let told = match function {
        Function::Count => Some(Told::Whole(field.count)),
        _ => field.tally.and_then(|tally| tally.told(function)),
    };
    match told {
        None => return Ok(false),
        Some(Told::Whole(number)) => out.extend_from_slice(number.to_string().as_bytes()),
        Some(Told::Number(number)) => serde_json::to_writer(out, &number).map_err(Error::internal)?,
        Some(Told::Sent(text)) => out.extend_from_slice(text.as_bytes()),
    }
    Ok(true)
}

/// Numbers of a device by buckets of time.
#[derive(Serialize, ToSchema)]
#[schema(as = Buckets)]
pub(crate) struct BucketsJson {
    meta: BucketsMetaJson,
    data: Vec<BucketJson>,
}

/// The same of many devices: buckets of all of them together, or a series of each.
#[derive(Serialize, ToSchema)]
#[schema(as = FleetBuckets)]
pub(crate) struct FleetBucketsJson {
    meta: BucketsMetaJson,
    data: Vec<FleetBucketsItem>,
}

/// A bucket of all devices together or, with `groupBy=device`, the series of one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = FleetBucketsItem)]
#[expect(dead_code, reason = "it is described; answers are written by hand")]
enum FleetBucketsItem {
    Bucket(BucketJson),
    Series(DeviceBucketsJson),
}

/// The series of one device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceBuckets)]
struct DeviceBucketsJson {
    device_id: Id,
    /// Values in its buckets.
    values: u64,
    /// The number of times that a field was no number, or the time was missing.
    skipped: u64,
    buckets: Vec<BucketJson>,
}

/// The parameters of the answer, and the number of values in it.
#[derive(Serialize, ToSchema)]
#[schema(as = BucketsMeta)]
struct BucketsMetaJson {
    /// The start that was asked for; without one, where the values begin. null: there are none.
    from: Option<Time>,
    /// The end that was asked for; without one, right behind the last value. null: there are none.
    to: Option<Time>,
    /// The width of a bucket; null: one bucket holds all.
    every: Option<String>,
    zone: String,
    /// Values in all buckets.
    values: u64,
    /// The number of times that a field was no number, or the time was missing.
    skipped: u64,
}

impl BucketsMetaJson {
    fn of(answer: &BucketAnswer) -> Self {
        let (values, skipped) = answer.totals();
        Self {
            from: answer.range().from.map(Time),
            to: answer.range().to.map(Time),
            every: answer.grid().map(|grid| grid.width().to_string()),
            zone: answer.zone().to_string(),
            values,
            skipped,
        }
    }
}

/// A bucket of time.
#[derive(Serialize, ToSchema)]
#[schema(as = Bucket)]
struct BucketJson {
    from: Time,
    to: Time,
    /// Values in it.
    count: u64,
    /// By field and function; null: there is nothing to tell.
    fields: BTreeMap<String, BTreeMap<String, Option<f64>>>,
}
