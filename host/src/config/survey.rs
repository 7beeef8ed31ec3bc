//! The command `status`.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use super::{
    cluster::{Connection, ConnectionArgs},
    streams::exit_codes,
};

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("a plugin is not active, or a parent is not Ready; never with --watch"))]
pub(super) struct StatusArgs {
    /// Ask the host that runs with this --admin-address and with --debug-endpoints, as HOST:PORT
    /// [default: ask the cluster, which knows no faults of plugins that were given as files].
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "INNKEEPER_ADMIN_ADDRESS",
        value_parser = host_and_port,
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    admin_address: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Go on and show every change, until stopped by Ctrl-C.
    #[arg(long, short)]
    watch: bool,
    /// With --watch, look every so many seconds, 1 to 3600.
    #[arg(
        long = "interval",
        value_name = "SECONDS",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        requires = "watch"
    )]
    interval_seconds: u64,
    /// Print in this form; with --watch, JSON is one line for every change.
    #[arg(long, short, value_enum, default_value_t = SurveyFormat::Text)]
    output: SurveyFormat,
}

/// How a survey is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SurveyFormat {
    /// Tables for people.
    Text,
    /// One JSON document.
    Json,
}

/// What `status` is to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSettings {
    /// Who is asked.
    pub asked: Asked,
    /// How often to look again; none: once.
    pub every: Option<Duration>,
    /// Whether what was shown is replaced on the screen.
    pub redraw: bool,
    /// The form.
    pub output: SurveyFormat,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A running host, at HOST:PORT.
    Host(String),
    /// The API server.
    Cluster(Connection),
}

impl StatusArgs {
    pub(super) fn into_settings(self) -> StatusSettings {
        let Self {
            admin_address,
            connection,
            watch,
            interval_seconds,
            output,
        } = self;
        StatusSettings {
            asked: match admin_address {
                Some(address) => Asked::Host(address),
                None => Asked::Cluster(connection.into_settings()),
            },
            every: watch.then(|| Duration::from_secs(interval_seconds)),
            redraw: watch && output == SurveyFormat::Text && stdout().is_terminal(),
            output,
        }
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let expected = || "give HOST:PORT, as in 127.0.0.1:8080".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    if is_host && port.parse::<u16>().is_ok_and(|port| port > 0) {
        Ok(text.to_owned())
    } else {
        Err(expected())
    }
}
