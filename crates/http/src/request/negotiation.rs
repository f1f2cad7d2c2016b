//! Content negotiation: the media type that a client prefers, by its header `Accept` (RFC 9110, 12.5.1).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use crate::response::weighted;

/// Most media ranges that are read.
const MEDIA_RANGES_MAX: usize = 64;

/// Returns the index of the offered media type that the client prefers; of equal ones, the first. A client that accepts
/// none gets the first: a response of another type is more useful than a refusal.
pub(crate) fn preferred(headers: &HeaderMap, offered: &[&str]) -> usize {
    let lines = headers.get_all(ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    let ranges: Vec<_> = lines.flat_map(|line| line.split(',')).filter_map(range).take(MEDIA_RANGES_MAX).collect();
    let mut best = (0, 0);
    for (place, offer) in offered.iter().enumerate() {
        let quality = quality(&ranges, offer);
        if quality > best.1 {
            best = (place, quality);
        }
    }
    best.0
}

/// Reads a media range and its quality in thousandths. Other parameters than `q` are ignored.
fn range(text: &str) -> Option<(String, u16)> {
    weighted(text).filter(|(range, _)| range.contains('/'))
}

/// Returns the quality of a media type, by the most specific range.
fn quality(ranges: &[(String, u16)], offer: &str) -> u16 {
    let of = |wanted: &str| ranges.iter().find(|(range, _)| range == wanted).map(|(_, quality)| *quality);
    let group = offer.split('/').next().unwrap_or_default();
    of(offer).or_else(|| of(&format!("{group}/*"))).or_else(|| of("*/*")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn liked(accept: &str) -> &'static str {
        const OFFERED: [&str; 3] = ["application/json", "text/csv", "application/x-ndjson"];
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())]);
        OFFERED[preferred(&headers, &OFFERED)]
    }

    #[test]
    fn media_type_of_highest_quality_wins() {
        for (accept, form) in [
            ("text/csv", "text/csv"),
            ("Text/CSV; charset=utf-8", "text/csv"),
            ("text/*", "text/csv"),
            ("text/csv, */*;q=0.1", "text/csv"),
            ("application/json;q=0.5, text/csv;q=0.6", "text/csv"),
            ("application/x-ndjson, text/csv;q=0.9", "application/x-ndjson"),
            ("application/*;q=0.4, application/json;q=0", "application/x-ndjson"),
        ] {
            assert_eq!(liked(accept), form, "{accept}");
        }
    }

    #[test]
    fn other_clients_get_the_first_media_type() {
        for accept in [
            "",
            "*/*",
            "application/json",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html",
            "text/csv;q=0",
            "text/csv;q=high",
            "text/csv;q=-1",
            "text/csv;q=NaN",
            "csv",
            ";;;,,,q=1",
        ] {
            assert_eq!(liked(accept), "application/json", "{accept}");
        }
        assert_eq!(preferred(&HeaderMap::new(), &["a/b", "c/d"]), 0);
    }
}
