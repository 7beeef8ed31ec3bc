//! The state of plugins and parents: `innkeeper status`.
//!
//! The source is either a running host or the conditions in the cluster. Both give one [`Survey`], which is printed as
//! tables or as JSON.
//! The command only reads.

mod cluster;
mod host;
mod show;

use std::{
    io::{self, IsTerminal, stdout},
    time::Duration,
};

use innkeeper_model::error_chain;
use serde::Serialize;

use crate::{
    admin::PassState,
    config::{self, Exit, StatusArgs, Streams, SurveyFormat},
    runtime,
};

/// The timeout of one request to the host or the API server.
const PATIENCE: Duration = Duration::from_secs(15);

/// A failure to read or print the state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokio runtime did not start.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The HTTP client cannot be created.
    #[error("failed to create an HTTP client")]
    HttpClient(#[source] host::ClientError),
    /// No process answers at the address.
    #[error(
        "no host answers at {address}: check that it is running and that its --admin-address is the same"
    )]
    NoHost {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The host does not serve its state, or not to this machine.
    #[error(
        "the host at {0} does not serve its state: start it with --debug-endpoints and ask from its machine (kubectl port-forward), or omit --admin-address to ask the cluster"
    )]
    Closed(
        /// The address.
        String,
    ),
    /// The server at the address is not a host.
    #[error("the server at {address} is not an innkeeper host: it answered with status {status}")]
    NotAHost {
        /// The address.
        address: String,
        /// The status of its answer.
        status: u16,
    },
    /// The server at the address is not a host, or is of an incompatible version.
    #[error("failed to parse the state from {address}: check that it is an innkeeper host")]
    Understand {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The client configuration of the cluster was not found, or is invalid.
    #[error("failed to find the cluster")]
    Config(#[source] config::Error),
    /// The client of the API server cannot be created.
    #[error("failed to create a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// A request to the API server failed.
    #[error("failed to ask the cluster")]
    Cluster(#[source] Box<innkeeper_cluster::Error>),
    /// The result cannot be written.
    #[error("failed to write the result")]
    Write(#[source] io::Error),
    /// The result cannot be encoded as JSON.
    #[error("failed to encode the result")]
    Encode(#[source] serde_json::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::Usage,
            _ => Exit::Failure,
        }
    }
}

/// The state of plugins and parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Survey {
    /// The source: `host ADDRESS` or `cluster URL`.
    from: String,
    /// The state of the host; none if the source is the cluster.
    host: Option<HostRow>,
    plugins: Vec<PluginRow>,
    /// The selected parents that are not Ready.
    parents: Vec<ParentRow>,
    /// The number of parents that are not Ready and that the host did not list.
    parents_omitted: usize,
    /// The last faults, the latest first.
    faults: Vec<FaultRow>,
}

/// The row of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct HostRow {
    /// True once every plugin from a file is active or was tried, and while the host stands by.
    started: bool,
    /// True while the host waits for the lease.
    stands_by: bool,
    /// The number of plugins that were tried and are not active.
    plugins_not_served: usize,
}

/// The row of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginRow {
    name: String,
    /// `True`, `False` or `Unknown`; empty if the source does not know it.
    serving: String,
    /// The reason for which the plugin is not active, or for which its passes wait.
    reason: String,
    message: String,
    parents: usize,
    /// The number of parents that are Synced and Ready.
    ready: usize,
    /// The number of passes of the active revision that ended with a fault; none if the source does not know it.
    faults: Option<u64>,
    /// The active revision; empty if the source does not know it.
    revision: String,
}

/// The row of a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct ParentRow {
    plugin: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    ready: String,
    synced: String,
    reason: String,
    message: String,
    /// The end of the last pass; none if the source is the cluster.
    last_pass: Option<PassState>,
}

/// The row of a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FaultRow {
    plugin: String,
    parent: String,
    reason: String,
    message: String,
    time: String,
}

impl Survey {
    /// Returns true if the host has started, no plugin is inactive or waits, and all selected parents are ready.
    fn is_well(&self) -> bool {
        let host = self.host.as_ref();
        let is_up = host.is_none_or(|host| host.started && host.plugins_not_served == 0);
        let serves = |plugin: &PluginRow| !matches!(&*plugin.serving, "False" | "Unknown");
        let is_ready = |plugin: &PluginRow| plugin.ready == plugin.parents;
        is_up
            && self
                .plugins
                .iter()
                .all(|plugin| serves(plugin) && is_ready(plugin))
    }
}

impl Survey {
    /// Returns the survey without the ages of passes: a changed age alone is no reason to print it again.
    fn essence(&self) -> Self {
        let mut essence = self.clone();
        let passes = essence.parents.iter_mut();
        for pass in passes.filter_map(|parent| parent.last_pass.as_mut()) {
            pass.seconds_ago = 0;
        }
        essence
    }
}

impl ParentRow {
    fn is_ready(&self) -> bool {
        self.ready == "True" && self.synced == "True"
    }
}

/// Shows the state of plugins and parents, once or until stopped.
pub fn status(args: &StatusArgs, streams: &mut Streams<'_>) -> Exit {
    let shown = runtime::block_on(show_status(args, streams))
        .map_err(Error::Runtime)
        .flatten();
    streams.end(shown, Error::exit)
}

async fn show_status(args: &StatusArgs, streams: &mut Streams<'_>) -> Result<Exit, Error> {
    // A failure of the first request ends the command; later failures are reported and retried.
    let survey = ask(args).await?;
    if args.watch {
        return watch(args, survey, streams).await;
    }
    let text = match args.output {
        SurveyFormat::Text => show::status(&survey),
        SurveyFormat::Json => show::json(&survey)?,
    };
    write(streams, &text)?;
    Ok(if survey.is_well() {
        Exit::Success
    } else {
        Exit::Finding
    })
}

async fn ask(args: &StatusArgs) -> Result<Survey, Error> {
    match &args.admin_address {
        Some(address) => host::survey(address, PATIENCE).await,
        None => cluster::survey(&args.connection, PATIENCE).await,
    }
}

/// Shows every change. Only a failure to write ends it.
async fn watch(
    args: &StatusArgs,
    mut survey: Survey,
    streams: &mut Streams<'_>,
) -> Result<Exit, Error> {
    let redraws = args.output == SurveyFormat::Text && stdout().is_terminal();
    let mut shown = None;
    let mut said = None;
    loop {
        let essence = survey.essence();
        if redraws || shown.as_ref() != Some(&essence) {
            let text = match args.output {
                SurveyFormat::Text => show::status(&survey),
                SurveyFormat::Json => show::json_line(&survey)?,
            };
            let before = match (redraws, args.output, &shown) {
                // Move the cursor home, and erase the screen and the scrollback.
                (true, ..) => "\x1b[H\x1b[2J\x1b[3J",
                (false, SurveyFormat::Text, Some(_)) => "\n",
                (false, ..) => "",
            };
            write(streams, &format!("{before}{text}"))?;
            shown = Some(essence);
        }
        tokio::time::sleep(args.interval).await;
        match ask(args).await {
            Ok(next) => {
                survey = next;
                said = None;
            }
            // The failure may be temporary: keep the last table on the screen and report each new error once.
            Err(error) => {
                let text = error_chain(&error).to_string();
                if said.as_ref() != Some(&text) {
                    streams.report(&error);
                    said = Some(text);
                }
            }
        }
    }
}

fn write(streams: &mut Streams<'_>, text: &str) -> Result<(), Error> {
    streams.write(text.as_bytes()).map_err(Error::Write)
}

#[cfg(test)]
mod tests;
