//! A survey from the debug endpoint of a running host.

use std::{sync::Arc, time::Duration};

use reqwest::{StatusCode, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{OfPlugin, PluginRow, Survey};
use crate::{
    admin::{HostState, KindState, PluginState},
    config::Exit,
    failure::{Failure, OrFail as _},
};

/// Asks the host at `address` for its state.
pub(super) async fn survey(address: &str, patience: Duration) -> Result<Survey, Failure> {
    let client = client(patience)?;
    let no_host = || {
        format!(
            "no host answers at {address}: check that it is running and that its --admin-address is the same"
        )
    };
    let url = format!("http://{address}/debug/state");
    let answer = client
        .get(url)
        .send()
        .await
        .or_fail(Exit::Failure, no_host())?;
    let problem = match answer.status() {
        StatusCode::OK => None,
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Some(format!(
            "the host at {address} does not serve its state: start it with --debug-endpoints and ask from its machine (kubectl port-forward), or omit --admin-address to ask the cluster"
        )),
        status => Some(format!(
            "the server at {address} is not an innkeeper host: it answered with status {}",
            status.as_u16()
        )),
    };
    if let Some(problem) = problem {
        return Err(Failure::new(Exit::Failure, problem));
    }
    let text = answer.text().await.or_fail(Exit::Failure, no_host())?;
    let state = serde_json::from_str(&text).or_fail(
        Exit::Failure,
        format!("failed to parse the state from {address}: check that it is an innkeeper host"),
    )?;
    Ok(of_state(address, state))
}

fn client(patience: Duration) -> Result<reqwest::Client, Failure> {
    const FAILED: &str = "failed to create an HTTP client";

    let provider = Arc::new(ring::default_provider());
    // The client requires a TLS configuration. Hosts serve plain HTTP, so that no certificate needs to be trusted.
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .or_fail(Exit::Failure, FAILED)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .timeout(patience)
        .build()
        .or_fail(Exit::Failure, FAILED)
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
