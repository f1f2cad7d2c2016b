//! Logging to standard error: text on a terminal, JSON otherwise.
//!
//! Fields quote strangers. No line holds a character that a terminal acts upon, except the colours of tracing itself, and no field
//! begins a line: in JSON all of them are escaped, and in text a line break is followed by an indent.

mod newest;

use std::io::{self, Write};

pub use newest::newest_lines;
use tracing::Level;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, registry, reload};

use crate::output::{self, push_escaped};

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

/// Changes the levels of a log that has started.
#[derive(Clone)]
pub struct Levels(reload::Handle<EnvFilter, Registry>);

impl Levels {
    /// Uses the levels of a setting from now on; the form of lines stays.
    pub fn change(&self, choice: &LogChoice) -> Result<(), String> {
        self.0.reload(filter(choice)).map_err(|error| error.to_string())
    }
}

/// Starts logging, panics included, and returns what changes its levels. Must be called once per process. The newest lines
/// are also kept in memory, in JSON and without what libraries log below INFO.
pub fn start(choice: &LogChoice) -> Levels {
    let is_terminal = output::is_error_terminal();
    let is_json = choice.json.unwrap_or(!is_terminal);
    let json = || fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
    let lines = if is_json {
        json().with_writer(move || LineWriter { is_json }).boxed()
    } else {
        fmt::layer().with_writer(move || LineWriter { is_json }).with_ansi(is_terminal).with_target(false).boxed()
    };
    let kept = json().with_writer((|| newest::NewestLines).with_max_level(Level::INFO)).boxed();
    let (levels, handle) = reload::Layer::new(filter(choice));
    registry().with(levels).with(vec![lines, kept]).init();
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("(no text)");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("(no name)").to_owned();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(place, thread, %backtrace, "panic: {message}");
    }));
    Levels(handle)
}

/// The writer of one line, which comes in one piece.
struct LineWriter {
    is_json: bool,
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        output::write_log(if self.is_json { json_line(&text) } else { text_line(&text) }.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes what the writer of JSON leaves: DEL, C1, and what changes the direction of text.
fn json_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    line.trim_end_matches('\n').chars().for_each(|character| push_escaped(&mut out, character));
    out.push('\n');
    out
}

/// Escapes what strangers may have brought, and indents what follows a line break.
fn text_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.trim_end_matches('\n');
    while let Some(character) = rest.chars().next() {
        // An escape of a field is escaped by tracing already.
        if let Some(length) = colour_length(rest) {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        match character {
            '\n' => out.push_str("\n    "),
            '\t' => out.push('\t'),
            character => push_escaped(&mut out, character),
        }
        rest = &rest[character.len_utf8()..];
    }
    out.push('\n');
    out
}

/// Returns the length of the colour sequence at the start of a text.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    parameters[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use isobar_model::quote::is_command;

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

    /// Bytes that the lines of one test are written to.
    #[derive(Clone, Default)]
    struct Lines(std::sync::Arc<parking_lot::Mutex<String>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().push_str(&String::from_utf8_lossy(line));
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\r\nERROR forged";

    #[test]
    fn log_line_holds_no_command_of_a_stranger() {
        let lines = Lines::default();
        let of_test = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || of_test.clone()).json().finish();
        tracing::subscriber::with_default(subscriber, || tracing::error!(error = HOSTILE, "failed"));
        let line = json_line(&lines.0.lock());
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["fields"]["error"], HOSTILE);
        assert!(!line.trim_end().chars().any(is_command), "{line:?}");

        for is_coloured in [false, true] {
            let lines = Lines::default();
            let of_test = lines.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || of_test.clone()).with_ansi(is_coloured);
            tracing::subscriber::with_default(subscriber.finish(), || tracing::error!(error = %HOSTILE, "failed"));
            let line = text_line(&lines.0.lock());
            assert_eq!(line.contains("\u{1b}["), is_coloured);
            assert!(!line.contains("\u{1b}[2J") && !line.contains("\nERROR"), "{line:?}");
            assert!(!line.replace(['\u{1b}', '\n'], "").chars().any(is_command), "{line:?}");
        }
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
