//! A survey from the debug endpoint of a running host.

use std::time::Duration;

use http::Method;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_server::admin::{HostState, KindState, PluginState, client::AdminClient};

use super::{OfPlugin, PluginRow, Survey};

/// Asks a host for its state.
pub(super) async fn survey(
    client: &AdminClient<'_>,
    patience: Duration,
) -> Result<Survey, Failure> {
    let answer = client.send(Method::GET, "/debug/state", String::new(), patience);
    let text = answer
        .await?
        .text()
        .await
        .or_fail(Exit::Failure, client.no_host())?;
    let address = client.address.to_string();
    let state = serde_json::from_str(&text).or_fail(
        Exit::Failure,
        format!("failed to parse the state from {address}: check that it is an innkeeper host"),
    )?;
    Ok(of_state(&address, state))
}

/// Converts the state of a host.
pub(super) fn of_state(address: &str, state: HostState) -> Survey {
    let mut survey = Survey {
        from: format!("host {address}"),
        host: Some(state.progress),
        ..Survey::default()
    };
    for plugin in state.plugins {
        survey.plugins.push(plugin_row(&plugin));
        let name = plugin.name;
        for kind in plugin.kinds {
            survey.parents_omitted += kind.not_ready_omitted;
            let parents = kind.not_ready.into_iter();
            survey
                .parents
                .extend(parents.map(|parent| OfPlugin::by(&name, parent)));
        }
        let faults = plugin.last_faults.into_iter();
        survey
            .faults
            .extend(faults.map(|fault| OfPlugin::by(&name, fault)));
    }
    survey.sorted()
}

fn plugin_row(plugin: &PluginState) -> PluginRow {
    let sum = |count: fn(&KindState) -> usize| plugin.kinds.iter().map(count).sum();
    let waiting: Vec<&str> = plugin
        .kinds
        .iter()
        .flat_map(|kind| kind.waiting_for.iter().map(String::as_str))
        .collect();
    let is_held_up = !waiting.is_empty();
    PluginRow {
        name: plugin.name.clone(),
        serving: if is_held_up { "Unknown" } else { "True" }.to_owned(),
        reason: if is_held_up { "WaitingForCache" } else { "" }.to_owned(),
        message: waiting.join("; "),
        parents: sum(|kind| kind.parents),
        ready: sum(|kind| kind.ready),
        faults: Some(plugin.kinds.iter().map(|kind| kind.faults).sum()),
        // All parent kinds of a plugin have the same active revision.
        revision: plugin
            .kinds
            .first()
            .map(|kind| kind.revision.clone())
            .unwrap_or_default(),
    }
}
