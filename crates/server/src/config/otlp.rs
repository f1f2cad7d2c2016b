//! `[observability]`: export of traces and metrics.

use std::fmt;

use hyper::header::{HeaderName, HeaderValue};
use isobar_outlets::calls;

use super::{Layers, origin_of};

/// `[observability]`, with a collector.
#[derive(Clone, PartialEq)]
pub struct OtlpSettings {
    /// The collector's URL, without a trailing slash.
    pub endpoint: String,
    /// The name of its host.
    pub host: String,
    /// Headers of every request to it.
    pub headers: Vec<(String, String)>,
    /// Share of requests that are traced, from 0 to 1.
    pub sample_ratio: f64,
}

impl fmt::Debug for OtlpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may hold a token.
        let Self { endpoint, sample_ratio, .. } = self;
        let mut shown = f.debug_struct("OtlpSettings");
        shown.field("endpoint", endpoint).field("sample_ratio", sample_ratio).finish_non_exhaustive()
    }
}

impl OtlpSettings {
    /// Reads the section; `None` without a collector.
    pub(super) fn read(layers: &mut Layers) -> Option<Self> {
        let collector = layers.parsed("observability.otlp_endpoint", |text| match text {
            "" => Ok(None),
            url => endpoint(url).map(Some),
        });
        let headers = layers.list_of("observability.otlp_headers", header);
        let sample_ratio = layers.share("observability.otlp_sample_ratio");
        let (endpoint, host) = collector.flatten()?;
        Some(Self { endpoint, host, headers, sample_ratio })
    }
}

/// Parses the collector's URL; returns it and its host.
fn endpoint(text: &str) -> Result<(String, String), String> {
    let plain = text.trim_end_matches('/');
    let host = origin_of(plain).filter(|_| !plain.contains(['?', '#'])).and_then(|_| calls::host_of(plain));
    let wrong = || "must be an address like http://127.0.0.1:4318, without a username or a query".to_owned();
    host.map(|host| (plain.to_owned(), host)).ok_or_else(wrong)
}

/// Parses `name=value`. Errors do not quote the text, which may be a token.
fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || "must be a list of headers like \"authorization=Bearer TOKEN\"".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    let is_sound = HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok();
    is_sound.then(|| (name.to_owned(), value.to_owned())).ok_or_else(wrong)
}
