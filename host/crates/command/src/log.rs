//! The log: text on a terminal, else one JSON object per line.

use std::{
    env,
    ffi::OsStr,
    io::{IsTerminal, stderr, stdout},
};

use tracing_subscriber::{
    EnvFilter, Registry, filter::ParseError, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use crate::{Exit, Failure, OrFail as _};

/// Flags of the log, valid for every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Log (to standard error)")]
pub struct LogArgs {
    /// Log level (error, warn, info, debug, trace), or levels per module as in info,innkeeper=debug
    /// [default: info, dev and plan: warn].
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "INNKEEPER_LOG",
        global = true,
        value_parser = filter
    )]
    filter: Option<String>,
    /// Log format [default: text on a terminal, else json].
    #[arg(
        long = "log-format",
        value_name = "FORMAT",
        env = "INNKEEPER_LOG_FORMAT",
        global = true
    )]
    format: Option<LogFormat>,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The log of the process, whose filter can be changed at any time.
#[derive(Clone, Debug)]
pub struct LogControl(reload::Handle<EnvFilter, Registry>);

impl LogControl {
    /// The filter.
    pub fn filter(&self) -> String {
        // Only a log that has ended has no filter, and then nothing is logged.
        self.0
            .with_current(ToString::to_string)
            .unwrap_or_else(|_| "off".to_owned())
    }

    /// Changes the filter until the end of the process.
    pub fn set_filter(&self, filter: &str) -> Result<(), ParseError> {
        let parsed = EnvFilter::try_new(filter)?;
        // As above: a log that has ended has nothing to change.
        self.0.reload(parsed).unwrap_or_default();
        Ok(())
    }
}

/// Starts the log of the process; fails if the process already has one.
pub fn start_log(args: &LogArgs, filter_default: &str) -> Result<LogControl, Failure> {
    let LogArgs { filter, format } = args;
    let filter = filter.as_deref().unwrap_or(filter_default);
    let is_terminal = stderr().is_terminal();
    let usual = if is_terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    };
    let (filter, control) = reload::Layer::new(EnvFilter::new(filter));
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match format.unwrap_or(usual) {
        LogFormat::Text => {
            let has_colours = has_colours(is_terminal, no_color().as_deref());
            registry.with(lines.with_ansi(has_colours)).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .or_fail(Exit::Usage, "failed to start the log")?;
    Ok(LogControl(control))
}

/// Returns true if the standard output is coloured.
pub fn stdout_has_colours() -> bool {
    has_colours(stdout().is_terminal(), no_color().as_deref())
}

/// Returns true if a stream is coloured: on a terminal, unless NO_COLOR is set and not empty (<https://no-color.org>).
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
