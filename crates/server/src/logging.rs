//! Logging to standard error: text on a terminal, JSON otherwise.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Levels of libraries, unless the setting names them: rustls warns of each odd handshake, which anybody can send by the thousand, and
/// PostgreSQL has a notice at each start for every table that is there already.
const LIBRARIES: &str = "rustls=off,sqlx::postgres::notice=warn";

/// The `log` setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChoice {
    /// Levels by target, in the syntax of tracing's `EnvFilter`.
    filter: String,
    /// True for JSON, false for text; `None` to choose by standard error.
    json: Option<bool>,
}

impl LogChoice {
    /// Parses `info`, `info,json`, `warn,isobar_hub=debug`.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut json = None;
        let mut directives = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "json" => json = Some(true),
                "text" => json = Some(false),
                directive => directives.push(check(directive)?),
            }
        }
        let filter = if directives.is_empty() { "info".to_owned() } else { directives.join(",") };
        Ok(Self { filter, json })
    }
}

fn check(directive: &str) -> Result<&str, String> {
    let level = directive.rsplit('=').next().unwrap_or(directive);
    let is_level = matches!(level, "error" | "warn" | "info" | "debug" | "trace" | "off");
    match EnvFilter::try_new(directive) {
        Ok(_) if is_level => Ok(directive),
        _ => Err(format!("{directive:?} is no level (error, warn, info, debug, trace, or target=level)")),
    }
}

fn filter(choice: &LogChoice) -> EnvFilter {
    // A directive replaces an earlier one of the same target.
    let directives = format!("{LIBRARIES},{}", choice.filter);
    EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Starts logging, panics included. Must be called once per process.
pub fn start(choice: &LogChoice) {
    let filter = filter(choice);
    let is_terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if choice.json.unwrap_or(!is_terminal) {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
    } else {
        lines.with_ansi(is_terminal).with_target(false).init();
    }
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("(no text)");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("(no name)").to_owned();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(place, thread, %backtrace, "panic: {message}");
    }));
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn levels_targets_and_formats_are_read() {
        let read = |text| LogChoice::read(text).map(|choice| (choice.filter, choice.json));
        assert_eq!(read("info"), Ok(("info".to_owned(), None)));
        assert_eq!(read("json"), Ok(("info".to_owned(), Some(true))));
        assert_eq!(read("warn, isobar_hub=debug, text"), Ok(("warn,isobar_hub=debug".to_owned(), Some(false))));
        assert!(read("loud").is_err() && read("isobar=loud").is_err());
    }

    /// Returns true if a line of a target and level is logged by these settings.
    macro_rules! is_logged {
        ($text:expr, $target:literal, $level:ident) => {
            tracing::subscriber::with_default(
                tracing_subscriber::registry().with(filter(&LogChoice::read($text).unwrap())),
                || tracing::enabled!(target: $target, tracing::Level::$level),
            )
        };
    }

    #[test]
    fn handshakes_of_strangers_are_logged_on_request_only() {
        let is_logged = |text| is_logged!(text, "rustls::msgs::handshake", WARN);
        assert_eq!(["info", "debug,json", "info,rustls=warn"].map(is_logged), [false, false, true]);
    }

    #[test]
    fn notices_of_postgresql_are_logged_as_warnings_only() {
        assert!(!is_logged!("info", "sqlx::postgres::notice", INFO));
        assert!(is_logged!("info", "sqlx::postgres::notice", WARN));
    }
}
