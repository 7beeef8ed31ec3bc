//! The state of plugins and parents: `innkeeper status`.
//!
//! The source is either a running host or the conditions in the cluster. Both give one [`Survey`], which is printed as
//! tables or as JSON.
//! The command only reads.

mod cluster;
mod host;
mod show;

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use innkeeper_command::{Exit, Failure, Output, ResultFormat, Streams, runtime};
use innkeeper_model::error_chain;
use innkeeper_server::admin::{FaultState, HostProgress, ParentState, client::AdminClient};
use serde::Serialize;

pub(crate) use cluster::{client, lapse};
pub(crate) use show::table;

use crate::config::StatusArgs;

/// The timeout of one request to the host or the API server. Chosen, not measured: a busy API server lists thousands of
/// parents within seconds, and a user who asks for the state does not wait longer for an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The state of plugins and parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Survey {
    /// The source: `host ADDRESS` or `cluster URL`.
    from: String,
    /// The state of the host; none if the source is the cluster.
    host: Option<HostProgress>,
    /// The problems of the host that the cluster shows; empty if the source is the host.
    problems: Vec<String>,
    plugins: Vec<PluginRow>,
    /// The selected parents that are not Ready.
    parents: Vec<OfPlugin<ParentState>>,
    /// The number of parents that are not Ready and that the host did not list.
    parents_omitted: usize,
    /// The last faults, the latest first.
    faults: Vec<OfPlugin<FaultState>>,
}

/// A parent or a fault, with its plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct OfPlugin<T> {
    plugin: String,
    #[serde(flatten)]
    state: T,
}

impl PluginRow {
    /// Returns the row of a plugin before anything is known of it.
    fn unknown(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            ..Self::default()
        }
    }
}

impl<T> OfPlugin<T> {
    fn by(plugin: &str, state: T) -> Self {
        let plugin = plugin.to_owned();
        Self { plugin, state }
    }
}

/// The row of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginRow {
    name: String,
    /// `True`, `False` or `Unknown`; empty if the source does not know it.
    serving: String,
    /// The reason for which the declared revision is not active, or for which its passes wait; empty if it is well.
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

impl Survey {
    /// Returns true if the host runs and has started, every declared revision is active, and all selected parents are
    /// ready.
    fn is_well(&self) -> bool {
        let host = self.host.as_ref();
        let is_up = host.is_none_or(|host| host.started && host.plugins_not_served == 0);
        let serves = |plugin: &PluginRow| {
            plugin.reason.is_empty() && !matches!(&*plugin.serving, "False" | "Unknown")
        };
        let is_ready = |plugin: &PluginRow| plugin.ready == plugin.parents;
        is_up
            && self.problems.is_empty()
            && self
                .plugins
                .iter()
                .all(|plugin| serves(plugin) && is_ready(plugin))
    }

    /// Returns the survey with its rows in a stable order.
    fn sorted(mut self) -> Self {
        self.plugins.sort_by(|a, b| a.name.cmp(&b.name));
        self.parents.sort();
        // Times in RFC 3339 and UTC sort as text.
        self.faults.sort_by(|a, b| b.state.time.cmp(&a.state.time));
        self
    }

    /// Returns the survey without the ages of passes: a changed age alone is no reason to print it again.
    fn essence(&self) -> Self {
        let mut essence = self.clone();
        let passes = essence.parents.iter_mut();
        for pass in passes.filter_map(|parent| parent.state.last_pass.as_mut()) {
            pass.seconds_ago = 0;
        }
        essence
    }
}

/// Shows the state of plugins and parents, once or until stopped.
pub fn status(args: &StatusArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    runtime::block_on(show_status(args, streams))
}

async fn show_status(args: &StatusArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let address = args.admin_address.as_ref();
    let host = address
        .map(|address| AdminClient::new(address, &args.client, streams))
        .transpose()?;
    // A failure of the first request ends the command; later failures are reported and retried.
    let survey = ask(args, host.as_ref()).await?;
    if args.watch {
        return watch(args, host.as_ref(), survey, streams).await;
    }
    let output = match args.output {
        ResultFormat::Text => show::status(&survey),
        ResultFormat::Json => Output::json(&survey)?,
    };
    streams.print(&output)?;
    Ok(if survey.is_well() {
        Exit::Success
    } else {
        Exit::Finding
    })
}

async fn ask(args: &StatusArgs, host: Option<&AdminClient<'_>>) -> Result<Survey, Failure> {
    match host {
        Some(client) => host::survey(client, PATIENCE).await,
        None => cluster::survey(&args.connection, PATIENCE).await,
    }
}

/// Shows every change. Only a failure to write ends it.
async fn watch(
    args: &StatusArgs,
    host: Option<&AdminClient<'_>>,
    mut survey: Survey,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let redraws = args.output == ResultFormat::Text && stdout().is_terminal();
    let mut shown = None;
    let mut said = None;
    loop {
        let essence = survey.essence();
        if redraws || shown.as_ref() != Some(&essence) {
            let mut output = Output::default();
            match (redraws, args.output, &shown) {
                (true, ..) => output.erase_screen(),
                (false, ResultFormat::Text, Some(_)) => output.line(""),
                (false, ..) => {}
            }
            output.append(&match args.output {
                ResultFormat::Text => show::status(&survey),
                ResultFormat::Json => Output::json_line(&survey)?,
            });
            streams.print(&output)?;
            shown = Some(essence);
        }
        tokio::time::sleep(args.interval).await;
        match ask(args, host).await {
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

#[cfg(test)]
mod tests;
