//! Reads numbers of devices, and their charts, for a screen on a wall.

use isobar_model::buckets::{Function, Zone};
use isobar_model::error::Result;
use isobar_model::ids::DeviceId;
use isobar_model::json::RawJson;
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;
use isobar_model::widget::{WidgetKey, meaning_at, names_in, value_at};
use isobar_store::telemetry::PayloadTime;

use super::bucket_rows::{BucketAnswer, BucketRows};
use super::buckets::{BucketFill, BucketRequest, BucketWidth};
use crate::Hub;
use crate::error::if_there;
use crate::identity::authentication::Principal;

/// Longest delay between the time in a payload and its arrival, in milliseconds: 31 days, the most that buckets accept.
const WALL_LATE_MILLIS: i64 = 31 * 86_400_000;

/// The range and resolution of a chart.
#[derive(Clone)]
pub(super) struct WallCourse {
    pub range: TimeRange,
    /// Number of points, at most.
    pub points: usize,
    /// The path of the time in payloads, if it defines the time axis.
    pub time: Option<Vec<String>>,
}

/// A number of a device.
pub struct WallReading {
    /// Its device, element and path.
    pub key: WidgetKey,
    /// The number; `None` if the device or the element is missing or out of reach.
    pub known: Option<WallKnown>,
}

/// A number with its description and chart.
#[derive(Default)]
pub struct WallKnown {
    /// The time of the element's newest value.
    pub updated_at: Option<Timestamp>,
    /// The value at the path, if there is one.
    pub value: Option<RawJson>,
    /// The design's description of it.
    pub meaning: Option<RawJson>,
    /// Its chart, in order of time.
    pub points: Vec<WallPoint>,
}

/// The numbers of one bucket of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WallPoint {
    /// The beginning of the bucket.
    pub from: Timestamp,
    /// The end of the bucket.
    pub to: Timestamp,
    /// Number of values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their minimum.
    pub min: f64,
    /// Their maximum.
    pub max: f64,
}

impl Hub {
    /// Reads these numbers, and their charts if requested, with one query for each element of each device.
    pub(super) async fn wall_readings(
        &self,
        reader: &Principal,
        keys: Vec<WidgetKey>,
        course: Option<WallCourse>,
    ) -> Result<Vec<WallReading>> {
        let mut readings: Vec<_> = keys.into_iter().map(|key| WallReading { key, known: None }).collect();
        for (device, element) in elements_of(&readings) {
            let is_of = |reading: &WallReading| reading.key.device == device && reading.key.element == element;
            let paths: Vec<String> =
                readings.iter().filter(|reading| is_of(reading)).map(|reading| reading.key.path.clone()).collect();
            let read = self.wall_element(reader, device, &element, &paths, course.clone()).await;
            let Some(known) = if_there(read)? else { continue };
            for (reading, known) in readings.iter_mut().filter(|reading| is_of(reading)).zip(known) {
                reading.known = Some(known);
            }
        }
        Ok(readings)
    }

    /// Reads the values at these paths of an element.
    async fn wall_element(
        &self,
        reader: &Principal,
        device: DeviceId,
        element: &str,
        paths: &[String],
        course: Option<WallCourse>,
    ) -> Result<Vec<WallKnown>> {
        let last = self.last_values(reader, device, element).await?;
        let fields = self.storage_fields(reader, device, element).await?;
        let courses = match course {
            Some(course) => courses(&self.buckets(reader, device, element, request_of(course, paths)).await?, paths),
            None => Vec::new(),
        };
        let (values, fields) = (last.as_ref().map(|last| last.values.tree()), fields.as_ref().map(RawJson::tree));
        let mut courses = courses.into_iter();
        let known = |path: &String| WallKnown {
            updated_at: last.as_ref().map(|last| last.updated_at),
            value: values.as_ref().and_then(|values| value_at(values, path)).map(RawJson::from),
            meaning: fields.as_ref().and_then(|fields| meaning_at(fields, path)).map(RawJson::from),
            points: courses.next().unwrap_or_default(),
        };
        Ok(paths.iter().map(known).collect())
    }
}

/// Returns the elements of devices to read, each once.
fn elements_of(readings: &[WallReading]) -> Vec<(DeviceId, String)> {
    let mut elements: Vec<(DeviceId, String)> = Vec::new();
    for WallReading { key, .. } in readings {
        if !elements.iter().any(|(device, element)| (*device, &**element) == (key.device, &*key.element)) {
            elements.push((key.device, key.element.clone()));
        }
    }
    elements
}

fn request_of(WallCourse { range, points, time }: WallCourse, paths: &[String]) -> BucketRequest {
    BucketRequest {
        fields: paths.iter().map(|path| names_in(path)).collect(),
        functions: [Function::Count, Function::Mean, Function::Min, Function::Max].into_iter().collect(),
        width: BucketWidth::Points(points),
        zone: Zone::default(),
        range,
        filters: Vec::new(),
        time: time.map(|path| PayloadTime { path, late_millis: WALL_LATE_MILLIS }),
        fill: BucketFill::None,
    }
}

/// Returns the chart of each field of an answer.
fn courses(answer: &BucketAnswer, paths: &[String]) -> Vec<Vec<WallPoint>> {
    let mut courses = vec![Vec::new(); paths.len()];
    let mut rows = BucketRows::default();
    while let Some(row) = answer.next_row(0, &mut rows) {
        for (course, field) in courses.iter_mut().zip(&row.fields) {
            let told = |function| field.tally?.number(function);
            let numbers = (told(Function::Mean), told(Function::Min), told(Function::Max));
            if let (Some(mean), Some(min), Some(max)) = numbers {
                let (from, to) = (row.stretch.from, row.stretch.to);
                course.push(WallPoint { from, to, count: field.count, mean, min, max });
            }
        }
    }
    courses
}
