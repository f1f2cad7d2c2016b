//! Conversion of `/metrics` to OTLP: the Prometheus text that exists anyway is parsed, so that both agree.

use std::borrow::Cow;
use std::collections::BTreeMap;

use isobar_model::time::Timestamp;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, Summary, SummaryDataPoint, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;

/// Labels of a series, in order.
type Labels = Vec<(String, String)>;

/// Start of counting and time of the export, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

/// A series of a histogram or a summary, collected from its lines.
#[derive(Default)]
struct Distribution {
    /// Bounds of buckets with cumulative counts, or quantiles with values.
    steps: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

/// Converts the text of `/metrics` to a message for the collector. Ignores lines that are not series.
pub fn request(
    text: &str,
    resource: &ResourceAttributesWithSchema,
    start: Timestamp,
    now: Timestamp,
) -> ExportMetricsServiceRequest {
    let times = Times { start: nanoseconds(start), now: nanoseconds(now) };
    let mut metrics = Vec::new();
    for family in text.split("# TYPE ").skip(1) {
        let mut lines = family.lines();
        let Some((name, kind)) = lines.next().and_then(|head| head.split_once(' ')) else { continue };
        let series: Vec<_> = lines.take_while(|line| !line.starts_with('#')).filter_map(read).collect();
        let data = match kind {
            "counter" => Some(Data::Sum(Sum {
                data_points: numbers(series, times),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            })),
            "gauge" => Some(Data::Gauge(Gauge { data_points: numbers(series, times) })),
            "histogram" => Some(histogram(gather(name, series, "le"), times)),
            "summary" => Some(summary(gather(name, series, "quantile"), times)),
            _ => None,
        };
        metrics.push(Metric { name: name.to_owned(), data, ..Metric::default() });
    }
    let scope = Some(InstrumentationScope { name: "isobar".to_owned(), ..InstrumentationScope::default() });
    let resource = Some(Resource { attributes: resource.attributes.0.clone(), ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.millis()).unwrap_or(0).saturating_mul(1_000_000)
}

/// Parses a line: name of the series, labels, value.
fn read(line: &str) -> Option<(&str, Labels, f64)> {
    let (series, value) = line.trim().rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else { return Some((series, Vec::new(), value)) };
    Some((name, labels_of(labels.strip_suffix('}')?)?, value))
}

/// Parses `name="value",name="value"`; a backslash escapes the next character of a value.
fn labels_of(mut text: &str) -> Option<Labels> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut is_escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        })?;
        let (value, rest) = rest.split_at(end.0);
        labels.push((name.to_owned(), plain(value).into_owned()));
        text = rest[1..].trim_start_matches(',');
    }
    Some(labels)
}

fn plain(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        plain.push(match c {
            '\\' => match characters.next() {
                Some('n') => '\n',
                other => other.unwrap_or('\\'),
            },
            c => c,
        });
    }
    Cow::Owned(plain)
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    let attribute = |(key, value)| {
        let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
        KeyValue { key, value, ..KeyValue::default() }
    };
    labels.into_iter().map(attribute).collect()
}

fn numbers(series: Vec<(&str, Labels, f64)>, times: Times) -> Vec<NumberDataPoint> {
    let point = |(_, labels, value)| NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    };
    series.into_iter().map(point).collect()
}

/// Groups the lines of a family by series; the label `step` names the bucket or quantile.
fn gather(family: &str, lines: Vec<(&str, Labels, f64)>, step: &str) -> BTreeMap<Labels, Distribution> {
    let mut gathered = BTreeMap::<Labels, Distribution>::new();
    for (name, mut labels, value) in lines {
        let at = labels.iter().position(|(label, _)| label == step).map(|at| labels.remove(at).1);
        let series = gathered.entry(labels).or_default();
        match (name.strip_prefix(family), at) {
            (Some("_sum"), None) => series.sum = value,
            (Some("_count"), None) => series.count = value,
            (_, Some(at)) => series.steps.extend(at.parse().ok().map(|at: f64| (at, value))),
            _ => {}
        }
    }
    gathered
}

fn histogram(series: BTreeMap<Labels, Distribution>, times: Times) -> Data {
    let point = |(labels, Distribution { steps, sum, count }): (Labels, Distribution)| {
        let mut below = 0.0;
        // Prometheus counts cumulatively, OTLP per bucket; the last bucket has no bound.
        let bucket = |(_, at_or_below): &(f64, f64)| (at_or_below - std::mem::replace(&mut below, *at_or_below)) as u64;
        HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            count: count as u64,
            sum: Some(sum),
            bucket_counts: steps.iter().map(bucket).collect(),
            explicit_bounds: steps.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
            ..HistogramDataPoint::default()
        }
    };
    Data::Histogram(Histogram {
        data_points: series.into_iter().map(point).collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    })
}

fn summary(series: BTreeMap<Labels, Distribution>, times: Times) -> Data {
    let point = |(labels, Distribution { steps, sum, count }): (Labels, Distribution)| SummaryDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: count as u64,
        sum,
        quantile_values: steps.into_iter().map(|(quantile, value)| ValueAtQuantile { quantile, value }).collect(),
        ..SummaryDataPoint::default()
    };
    Data::Summary(Summary { data_points: series.into_iter().map(point).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 3\na_total{x=\"q\\\"\\\\\\n,{}= z\",y=\"\"} 4.5\n\n\
        # TYPE g gauge\ng -2\nno series at all\n\n\
        # TYPE h histogram\nh_bucket{r=\"a\",le=\"0.5\"} 1\nh_bucket{r=\"a\",le=\"2\"} 1\nh_bucket{r=\"a\",le=\"+Inf\"} 4\n\
        h_sum{r=\"a\"} 9.5\nh_count{r=\"a\"} 4\n\n\
        # TYPE s summary\ns{quantile=\"0.5\"} 7\ns{quantile=\"1\"} 8\ns_sum 15\ns_count 2\n";

    fn metrics(text: &str) -> Vec<Metric> {
        let resource = ResourceAttributesWithSchema::default();
        let mut request = request(text, &resource, Timestamp::from_millis(1), Timestamp::from_millis(2));
        request.resource_metrics.remove(0).scope_metrics.remove(0).metrics
    }

    #[test]
    fn each_kind_of_metric_is_converted() {
        let metrics = metrics(TEXT);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["a_total", "g", "h", "s"]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        let labels = attributes(vec![("x".to_owned(), "q\"\\\n,{}= z".to_owned()), ("y".to_owned(), String::new())]);
        assert_eq!(sum.data_points[1].attributes, labels);
        assert_eq!(sum.data_points[1].value, Some(number_data_point::Value::AsDouble(4.5)));
        assert_eq!(
            (sum.data_points[1].start_time_unix_nano, sum.data_points[1].time_unix_nano),
            (1_000_000, 2_000_000)
        );
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert_eq!(gauge.data_points.len(), 1);
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &histogram.data_points[0];
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 0, 3][..], &[0.5, 2.0][..]));
        assert_eq!((point.count, point.sum), (4, Some(9.5)));
        let Some(Data::Summary(summary)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        assert_eq!((summary.data_points[0].count, summary.data_points[0].quantile_values.len()), (2, 2));
    }
}
