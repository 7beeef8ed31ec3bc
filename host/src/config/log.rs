//! The log: text for people on a terminal, one JSON object per line for everything else.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{
    EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use super::Error;

/// Flags of the log, valid for every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log (to standard error)")]
pub(super) struct LogArgs {
    /// Log from this level on (error, warn, info, debug, trace), or levels per module as in info,innkeeper=debug
    /// [default: info, dev: warn].
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "INNKEEPER_LOG",
        global = true
    )]
    filter: Option<String>,
    /// Write the log in this form [default: text on a terminal, json otherwise].
    #[arg(
        long = "log-format",
        value_name = "FORMAT",
        env = "INNKEEPER_LOG_FORMAT",
        global = true
    )]
    format: Option<LogFormat>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How to log; the log goes to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// What is logged, in `tracing_subscriber`'s form.
    pub filter: String,
    /// How it is written.
    pub format: LogFormat,
    /// Whether levels are coloured.
    pub colour: bool,
}

impl LogArgs {
    pub(super) fn into_settings(self, filter_default: &str) -> LogSettings {
        let Self { filter, format } = self;
        let terminal = stderr().is_terminal();
        LogSettings {
            filter: filter.unwrap_or_else(|| filter_default.to_owned()),
            format: format.unwrap_or(if terminal {
                LogFormat::Text
            } else {
                LogFormat::Json
            }),
            colour: terminal,
        }
    }
}

/// The log of the process, which can be told to say more or less while it runs.
#[derive(Clone, Debug)]
pub struct LogControl(reload::Handle<EnvFilter, Registry>);

impl LogControl {
    /// What is logged.
    pub fn filter(&self) -> String {
        // Only a log that is gone has no filter, and then nothing is logged.
        self.0
            .with_current(ToString::to_string)
            .unwrap_or_else(|_| "off".to_owned())
    }

    /// Changes what is logged, from now on and until the process ends.
    pub fn set_filter(&self, filter: &str) -> Result<(), Error> {
        let parsed = parse(filter)?;
        // As above: nothing is logged anyway.
        self.0.reload(parsed).unwrap_or_default();
        Ok(())
    }
}

/// Starts the log of the process.
/// Fails if the filter does not parse, or if the process already has a log.
pub fn start_log(settings: &LogSettings) -> Result<LogControl, Error> {
    let LogSettings {
        filter,
        format,
        colour,
    } = settings;
    let (filter, control) = reload::Layer::new(parse(filter)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(lines.with_ansi(*colour)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(Error::StartLog)?;
    Ok(LogControl(control))
}

fn parse(filter: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(filter).map_err(|source| Error::LogFilter {
        filter: filter.to_owned(),
        source,
    })
}
