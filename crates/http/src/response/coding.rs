//! Content codings, and which of them a client asks for (RFC 9110, 12.5.3).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;

/// Most codings of `Accept-Encoding` that are read.
const CODINGS_MAX: usize = 64;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Brotli.
    Br,
    Gzip,
}

impl Coding {
    /// All codings, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Br, Self::Gzip];

    /// Returns its name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the offered coding that the client prefers; of equal ones, the first. `None` if it accepts none of them
    /// or prefers the plain content.
    pub fn asked_for(headers: &HeaderMap, offered: &[Self]) -> Option<Self> {
        let lines = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|line| line.to_str().ok());
        let named: Vec<_> = lines.flat_map(|line| line.split(',')).filter_map(weighted).take(CODINGS_MAX).collect();
        let of = |wanted: &str| named.iter().find(|(name, _)| name == wanted).map(|(_, quality)| *quality);
        let mut best = (None, of("identity").unwrap_or(0).max(1));
        for coding in offered {
            let (name, old_name) = (coding.name(), format!("x-{}", coding.name()));
            let quality = of(name).or_else(|| of(&old_name)).or_else(|| of("*")).unwrap_or(0);
            if quality > best.1 || (best.0.is_none() && quality == best.1) {
                best = (Some(*coding), quality);
            }
        }
        best.0
    }
}

/// Reads a name in lower case, and its quality in thousandths.
pub(crate) fn weighted(text: &str) -> Option<(String, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let named = parts.next()?.to_ascii_lowercase();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let quality = match weight {
        None => 1_000,
        Some(text) => (text.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight))? * 1_000.0) as u16,
    };
    Some((named, quality))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn coding_of_highest_quality_wins() {
        for (accepted, coding) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip;q=1.0, br;q=0.9", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("*", Some("br")),
            ("br;q=0, *", Some("gzip")),
            ("identity;q=0, gzip;q=0.001", Some("gzip")),
            ("identity, br", Some("br")),
            ("identity;q=0.5, gzip;q=0.4", None),
            ("identity", None),
            ("*;q=0", None),
            ("br;q=0, gzip;q=0", None),
            ("br;q=2, gzip;q=x", None),
            ("brotli, gzipped, deflate", None),
            ("", None),
            ("identity;q=0", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_str(accepted).unwrap())]);
            assert_eq!(Coding::asked_for(&headers, &Coding::ALL).map(Coding::name), coding, "{accepted}");
        }
        assert_eq!(Coding::asked_for(&HeaderMap::new(), &Coding::ALL), None);
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"))]);
        assert_eq!(Coding::asked_for(&headers, &[Coding::Gzip]), Some(Coding::Gzip));
    }
}
