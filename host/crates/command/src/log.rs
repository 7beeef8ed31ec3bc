//! The log: text on a terminal, otherwise one JSON object per line.

use std::{
    borrow::Cow,
    env,
    ffi::OsStr,
    fmt,
    io::{self, IsTerminal, Write, stderr, stdout},
};

use innkeeper_model::foreign;
use serde_json::Value;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter, Registry,
    field::MakeExt as _,
    filter::ParseError,
    fmt::{
        FormatFields,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

use crate::{
    Exit, Failure, OrFail as _,
    plain::{plain, shortened},
};

/// Log flags, valid for every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Log (to standard error)")]
pub struct LogArgs {
    /// Log level (error, warn, info, debug, trace), also per module, as in info,innkeeper=debug
    /// [default: info, dev and plan: warn].
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "INNKEEPER_LOG",
        global = true,
        value_parser = filter
    )]
    filter: Option<String>,
    /// Log format [default: text on a terminal, otherwise json].
    #[arg(
        long = "log-format",
        value_name = "FORMAT",
        env = "INNKEEPER_LOG_FORMAT",
        global = true
    )]
    format: Option<LogFormat>,
}

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Changes the log filter at runtime.
#[derive(Clone, Debug)]
pub struct LogControl(reload::Handle<EnvFilter, Registry>);

impl LogControl {
    /// The filter.
    pub fn filter(&self) -> String {
        // Only a log that has ended has no filter, and it writes nothing.
        self.0
            .with_current(ToString::to_string)
            .unwrap_or_else(|_| "off".to_owned())
    }

    /// Changes the filter.
    pub fn set_filter(&self, filter: &str) -> Result<(), ParseError> {
        let parsed = EnvFilter::try_new(filter)?;
        // Fails only if the log has ended.
        self.0.reload(parsed).unwrap_or_default();
        Ok(())
    }
}

/// Starts the log; fails if the process already has one.
pub fn start_log(args: &LogArgs, filter_default: &str) -> Result<LogControl, Failure> {
    let LogArgs { filter, format } = args;
    let filter = filter.as_deref().unwrap_or(filter_default);
    let is_terminal = stderr().is_terminal();
    let format_default = if is_terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    };
    let (filter, control) = reload::Layer::new(EnvFilter::new(filter));
    let format = format.unwrap_or(format_default);
    let writer = move || EventWriter {
        to: stderr(),
        format,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            let has_colours = has_colours(is_terminal, no_color().as_deref());
            registry
                .with(lines.with_ansi(has_colours).fmt_fields(text_fields()))
                .try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .or_fail(Exit::Usage, "failed to start the log")?;
    Ok(LogControl(control))
}

/// Removes deceptive characters from events, and cuts long texts.
struct EventWriter<W> {
    to: W,
    format: LogFormat,
}

impl<W: Write> Write for EventWriter<W> {
    /// Writes one event: the layer passes each event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = match self.format {
            LogFormat::Text => text_line(line),
            LogFormat::Json => json_line(line),
        };
        // One call, so that threads do not mix their lines.
        self.to.write_all((line + "\n").as_bytes())?;
        // Not the length that was written: the layer would write the rest of the event again.
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Formats fields in text lines: the layer's own format leaves escape sequences in most of them.
fn text_fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&plain(&text)),
        name => write!(writer, "{name}={}", plain(&text)),
    }
}

fn text_line(line: &str) -> String {
    // Only the layer's colours contain this character: `write_field` removes it from fields.
    const ESCAPE: char = '\u{1b}';

    let parts: Vec<_> = line.split(ESCAPE).map(plain).collect();
    parts.join("\u{1b}")
}

fn json_line(line: &str) -> String {
    let event = match shortened(line) {
        // Parsing each event would cost more than writing it.
        Cow::Borrowed(_) => None,
        Cow::Owned(_) => serde_json::from_str(line).ok(),
    };
    let cut = event.map(|event| with_short_texts(event).to_string());
    foreign::escape_json(cut.as_deref().unwrap_or(line))
}

fn with_short_texts(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(with_short_texts).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, with_short_texts(value)))
            .collect(),
        other => other,
    }
}

/// Returns true if standard output is coloured.
pub fn stdout_has_colours() -> bool {
    has_colours(stdout().is_terminal(), no_color().as_deref())
}

/// A terminal is coloured unless NO_COLOR is set and not empty (<https://no-color.org>).
fn has_colours(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[expect(
    clippy::disallowed_methods,
    reason = "only flags and their defaults come from the environment"
)]
fn no_color() -> Option<std::ffi::OsString> {
    env::var_os("NO_COLOR")
}

fn filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; write it as info,innkeeper=debug")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_disables_colours_unless_it_is_empty() {
        let has_colours = |value: Option<&str>| has_colours(true, value.map(OsStr::new));
        assert!(has_colours(None));
        assert!(has_colours(Some("")));
        assert!(!has_colours(Some("1")));
        assert!(!has_colours(Some("0")));
        assert!(!super::has_colours(false, None));
    }

    /// Returns the log of one warning with a foreign text, as field and as message.
    fn logged(format: LogFormat, has_colours: bool, foreign: &str) -> String {
        #[derive(Clone, Default)]
        struct Buffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Buffer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let written = self.0.lock();
                written
                    .map_err(|_| io::Error::other("a test failed"))?
                    .write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let buffer = Buffer::default();
        let to = buffer.clone();
        let writer = move || EventWriter {
            to: to.clone(),
            format,
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(writer);
        let warn = || {
            let _span = tracing::warn_span!("pass", object = foreign).entered();
            tracing::warn!(error = %foreign, text = foreign, "{foreign}");
        };
        match format {
            LogFormat::Text => {
                let lines = lines.with_ansi(has_colours).fmt_fields(text_fields());
                tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), warn);
            }
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), warn);
            }
        }
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_without_deceptive_characters() {
        let hostile = "a\u{1b}[31mred\u{1b}]0;x\u{7}\r\n{\"level\":\"INFO\"}\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";
        for format in [LogFormat::Text, LogFormat::Json] {
            for has_colours in [false, true] {
                let log = logged(format, has_colours, hostile);
                let (line, rest) = log.split_once('\n').unwrap();
                assert_eq!(rest, "", "{log:?}");
                assert!(!log.contains("\u{1b}[31m"), "{log:?}");
                assert!(!log.contains("\u{1b}]"), "{log:?}");
                let own = |c: char| c == '\u{1b}' && has_colours && format == LogFormat::Text;
                let deceives = |c: char| foreign::is_deceptive(c) && !own(c);
                assert!(!line.contains(deceives), "{log:?}");
                if format == LogFormat::Json {
                    let event: Value = serde_json::from_str(line).unwrap();
                    assert_eq!(event["message"], hostile);
                }
            }
        }
    }

    #[test]
    fn long_texts_of_an_event_are_cut() {
        let text = "ä".repeat(100_000);
        for format in [LogFormat::Text, LogFormat::Json] {
            let written = logged(format, false, &text);
            assert!(written.len() < 100_000, "{} bytes", written.len());
            assert!(
                written.contains("bytes omitted)"),
                "{}",
                &written[written.len() - 100..]
            );
            if format == LogFormat::Json {
                let event: Value = serde_json::from_str(&written).unwrap();
                assert_eq!(event["level"], "WARN");
            }
        }
    }

    #[test]
    fn a_filter_that_does_not_parse_is_refused_with_a_remedy() {
        assert_eq!(
            filter("info,innkeeper=debug").unwrap(),
            "info,innkeeper=debug"
        );
        let message = filter("innkeeper=loud").unwrap_err();
        assert!(
            message.ends_with("write it as info,innkeeper=debug"),
            "{message}"
        );
    }
}
