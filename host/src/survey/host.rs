//! A survey from the debug endpoint of a running host.

use std::{sync::Arc, time::Duration};

use reqwest::{StatusCode, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{Error, FaultRow, HostRow, ParentRow, PluginRow, Survey};
use crate::admin::{HostState, KindState, ParentState, PluginState};

/// A failure to create the HTTP client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS cannot be configured. The client requires a configuration although the host is asked by plain HTTP.
    #[error("failed to configure TLS")]
    Tls(#[source] rustls::Error),
    /// The client cannot be built.
    #[error("failed to build the client")]
    Build(#[source] reqwest::Error),
}

/// Asks the host at `address` for its state.
pub(super) async fn survey(address: &str, patience: Duration) -> Result<Survey, Error> {
    let client = client(patience).map_err(Error::HttpClient)?;
    let no_host = |source| Error::NoHost {
        address: address.to_owned(),
        source,
    };
    let url = format!("http://{address}/debug/state");
    let answer = client.get(url).send().await.map_err(no_host)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => {
            return Err(Error::Closed(address.to_owned()));
        }
        status => {
            return Err(Error::NotAHost {
                address: address.to_owned(),
                status: status.as_u16(),
            });
        }
    }
    let text = answer.text().await.map_err(no_host)?;
    let state = serde_json::from_str(&text).map_err(|source| Error::Understand {
        address: address.to_owned(),
        source,
    })?;
    Ok(of_state(address, state))
}

fn client(patience: Duration) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(ring::default_provider());
    // The client requires a TLS configuration. Hosts serve plain HTTP, so that no certificate needs to be trusted.
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .timeout(patience)
        .build()
        .map_err(ClientError::Build)
}

/// Converts the state of a host.
pub(super) fn of_state(address: &str, state: HostState) -> Survey {
    let HostState {
        started,
        stands_by,
        plugins_not_served,
        plugins,
        controllers: _,
        watches: _,
    } = state;
    let mut survey = Survey {
        from: format!("host {address}"),
        host: Some(HostRow {
            started,
            stands_by,
            plugins_not_served,
        }),
        ..Survey::default()
    };
    for plugin in plugins {
        survey.plugins.push(plugin_row(&plugin));
        let PluginState {
            name,
            kinds,
            last_faults,
        } = plugin;
        for kind in kinds {
            survey.parents_omitted += kind.not_ready_omitted;
            let rows = kind.not_ready.into_iter();
            survey
                .parents
                .extend(rows.map(|parent| parent_row(&name, parent)));
        }
        survey
            .faults
            .extend(last_faults.into_iter().map(|fault| FaultRow {
                plugin: name.clone(),
                parent: fault.parent,
                reason: fault.reason,
                message: fault.message,
                time: fault.time,
            }));
    }
    // Times in RFC 3339 and UTC sort as text.
    survey.faults.sort_by(|a, b| b.time.cmp(&a.time));
    survey.plugins.sort_by(|a, b| a.name.cmp(&b.name));
    survey.parents.sort();
    survey
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

fn parent_row(plugin: &str, parent: ParentState) -> ParentRow {
    let ParentState {
        kind,
        namespace,
        name,
        ready,
        synced,
        reason,
        message,
        last_pass,
    } = parent;
    ParentRow {
        plugin: plugin.to_owned(),
        kind,
        namespace,
        name,
        ready,
        synced,
        reason,
        message,
        last_pass,
    }
}
