//! How plugins and parents are, for people: `innkeeper status` and `innkeeper get`.
//!
//! A running host is asked for what it knows, or the cluster for what it shows; either way one [`Survey`] comes of it,
//! which is written as tables or as JSON.
//! It changes nothing and decides nothing.

mod cluster;
mod host;
mod show;

use std::{future::Future, io, time::Duration};

use innkeeper_model::error_chain;
use serde::Serialize;

use crate::{
    admin::PassState,
    config::{self, Asked, Exit, GetSettings, Listed, StatusSettings, Streams, SurveyFormat},
};

/// How long whoever is asked may take for one answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The asynchronous runtime did not start.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The HTTP client cannot be made.
    #[error("failed to make an HTTP client")]
    HttpClient(#[source] host::ClientError),
    /// Nobody answers.
    #[error(
        "no host answers at {address}: is it running, and is this what it was given as --admin-address?"
    )]
    NoHost {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The host does not show its state.
    #[error(
        "the host at {0} does not show its state: start it with --debug-endpoints, or leave out --admin-address to ask the cluster"
    )]
    Closed(
        /// Where.
        String,
    ),
    /// What answers is something else.
    #[error("what answers at {address} is no innkeeper host: it answered {status}")]
    NotAHost {
        /// Where.
        address: String,
        /// The status of its answer.
        status: u16,
    },
    /// What answers is something else, or a host of another time.
    #[error("failed to understand what answers at {address}: is it an innkeeper host?")]
    Understand {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The cluster is not known.
    #[error("failed to find the cluster")]
    Config(#[source] config::Error),
    /// The client cannot be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// The cluster cannot be asked.
    #[error("failed to ask the cluster")]
    Cluster(#[source] Box<innkeeper_cluster::Error>),
    /// The result cannot be written.
    #[error("failed to write the result")]
    Write(#[source] io::Error),
    /// The result has no form in JSON.
    #[error("failed to encode the result")]
    Encode(#[source] serde_json::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::NoHost { .. }
            | Self::Closed(_)
            | Self::NotAHost { .. }
            | Self::Understand { .. }
            | Self::Cluster(_) => Exit::NoAnswer,
            _ => Exit::BadUse,
        }
    }
}

/// How plugins and parents are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Survey {
    /// Who said so: `host ADDRESS` or `cluster URL`.
    from: String,
    /// What the host does; none where the cluster was asked.
    host: Option<HostRow>,
    plugins: Vec<PluginRow>,
    /// Those that are not Ready, from `status`; all, from `get`.
    parents: Vec<ParentRow>,
    /// How many more there are, of whom only their number is known.
    parents_omitted: usize,
    /// The latest first.
    faults: Vec<FaultRow>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct HostRow {
    /// Whether all its plugins serve, or were tried and do not.
    started: bool,
    /// Whether it waits for the lease.
    stands_by: bool,
    /// How many plugins were tried and do not serve.
    plugins_not_served: usize,
}

/// A plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginRow {
    name: String,
    /// `True`, `False`, `Unknown`; empty where nobody says.
    serving: String,
    /// Why it does not serve, or what keeps its passes from running.
    reason: String,
    message: String,
    parents: usize,
    /// Parents that are Synced and Ready.
    ready: usize,
    /// Passes of the revision that serves that ended with a fault; none where nobody says.
    faults: Option<u64>,
    /// Empty where nobody says.
    revision: String,
}

/// A parent.
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
    /// How its last pass ended, where a host was asked.
    last_pass: Option<PassState>,
    /// Whether no plugin is to have it, so that it is no concern of anybody's how it is.
    #[serde(skip)]
    left_out: bool,
}

/// A fault.
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
    /// Whether everything is as it should be.
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
    /// What is shown again when it differs: everything but what only grows older.
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

/// Shows how plugins and parents are, once or until stopped.
pub fn status(settings: &StatusSettings, streams: &mut Streams<'_>) -> Exit {
    let shown = show_status(settings, streams);
    streams.end(shown, Error::exit)
}

/// Lists plugins or parents.
pub fn get(settings: &GetSettings, streams: &mut Streams<'_>) -> Exit {
    let shown = show_list(settings, streams);
    streams.end(shown, Error::exit)
}

fn show_status(settings: &StatusSettings, streams: &mut Streams<'_>) -> Result<Exit, Error> {
    let StatusSettings {
        asked,
        every,
        redraw,
        output,
    } = settings;
    block_on(async {
        let ask = async || match asked {
            Asked::Host(address) => host::survey(address, PATIENCE).await,
            Asked::Cluster(connection) => {
                let mut survey = cluster::survey(connection, PATIENCE, None).await?;
                survey
                    .parents
                    .retain(|parent| !parent.is_ready() && !parent.left_out);
                Ok(survey)
            }
        };
        // Whoever cannot be asked at all need not be watched.
        let mut survey = ask().await?;
        let Some(every) = every else {
            let text = match output {
                SurveyFormat::Text => show::status(&survey),
                SurveyFormat::Json => show::json(&survey)?,
            };
            write(streams, &text)?;
            return Ok(if survey.is_well() {
                Exit::Success
            } else {
                Exit::NotWell
            });
        };
        let mut shown = None;
        let mut said = None;
        loop {
            let essence = survey.essence();
            if *redraw || shown.as_ref() != Some(&essence) {
                let text = match output {
                    SurveyFormat::Text => show::status(&survey),
                    SurveyFormat::Json => show::json_line(&survey)?,
                };
                let before = match (redraw, output, &shown) {
                    // Home, and away with everything.
                    (true, ..) => "\x1b[H\x1b[2J\x1b[3J",
                    (false, SurveyFormat::Text, Some(_)) => "\n",
                    (false, ..) => "",
                };
                write(streams, &format!("{before}{text}"))?;
                shown = Some(essence);
            }
            tokio::time::sleep(*every).await;
            match ask().await {
                Ok(next) => {
                    survey = next;
                    said = None;
                }
                // It may come back; what was shown last stays until then.
                Err(error) => {
                    let text = error_chain(&error).to_string();
                    if said.as_ref() != Some(&text) {
                        streams.report(&error);
                        said = Some(text);
                    }
                }
            }
        }
    })
}

fn show_list(settings: &GetSettings, streams: &mut Streams<'_>) -> Result<Exit, Error> {
    let GetSettings {
        what,
        plugin,
        namespace,
        connection,
        output,
    } = settings;
    let mut survey = block_on(cluster::survey(connection, PATIENCE, namespace.as_deref()))?;
    if let Some(plugin) = plugin {
        survey.plugins.retain(|row| row.name == *plugin);
        survey.parents.retain(|row| row.plugin == *plugin);
    }
    let text = match (what, output) {
        (Listed::Plugins, SurveyFormat::Text) => show::plugins(&survey.plugins),
        (Listed::Plugins, SurveyFormat::Json) => show::json(&survey.plugins)?,
        (Listed::Parents, SurveyFormat::Text) => show::parents(&survey.parents),
        (Listed::Parents, SurveyFormat::Json) => show::json(&survey.parents)?,
    };
    write(streams, &text)?;
    Ok(Exit::Success)
}

fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(work)
}

fn write(streams: &mut Streams<'_>, text: &str) -> Result<(), Error> {
    streams.write(text.as_bytes()).map_err(Error::Write)
}

#[cfg(test)]
mod tests;
