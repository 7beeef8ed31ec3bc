//! Standby: waits for the lease with loaded plugins and their running watches. It neither installs CRDs nor writes.
//!
//! Once the host may write, the plugins take over these watches. Their cached objects count as possibly stale until a
//! freshness check has passed.

use std::{collections::BTreeSet, convert::Infallible, future::pending};

use futures::future::{OptionFuture, join, join_all};
use innkeeper_cluster::{Cluster, Registration};
use innkeeper_command::Failure;
use innkeeper_lease::Claim;
use innkeeper_model::PluginName;
use innkeeper_plugin_controller::{self as plugins, Loaded, Warm};
use innkeeper_reconcile::{Inventory, Role};
use tracing::info;

use super::{StatusRegistry, key, resources::PluginResources};

/// Waits for the claim with running watches; returns their registrations.
pub(super) async fn wait(
    cluster: &Cluster,
    claim: &Claim,
    namespace: &str,
    (plugins, resources): (&[Loaded], Option<&PluginResources>),
    status: &StatusRegistry,
) -> Result<Warm, Failure> {
    // The lease may have been acquired while plugin files were loading.
    if claim.is_held() {
        return Ok(Warm::new());
    }
    info!("standing by: another process may write");
    let read = async {
        // Before the first watches: a later key would restart those of children.
        if let Ok(Some(key)) = key::read(cluster, namespace).await {
            cluster.set_hash_key(Some(key));
        }
        Inventory::read(cluster, namespace).await
    };
    let inventory = tokio::select! {
        inventory = read => inventory,
        () = claim.acquired() => return Ok(Warm::new()),
    };
    let once_made = move |plugin: &PluginName| match &inventory {
        Ok(inventory) => inventory.kinds(plugin, Role::Child),
        // Read again after the takeover; until then, only declared kinds are watched.
        Err(_) => BTreeSet::new(),
    };
    let mut warm = Warm::new();
    for plugin in plugins {
        // Kinds that only an earlier revision created are watched too: their objects may have to be pruned.
        let once_made = once_made(&plugin.name);
        let interests = plugins::interests(plugin, &once_made);
        let registrations = interests
            .into_iter()
            .map(|interest| cluster.register(interest));
        warm.insert(plugin.name.clone(), registrations.collect());
    }
    status.standing_by(true);
    let idling = join_all(warm.values().map(|registrations| idle(registrations)));
    let maintain = async {
        // Some kinds cannot be watched without the key.
        let find_key = async { cluster.set_hash_key(Some(key::wait(cluster, namespace).await)) };
        join(idling, find_key).await;
        pending::<Infallible>().await
    };
    let warmer = resources.map(|resources| resources.warm(Box::new(once_made), status));
    let (warmer, warming) = warmer.unzip();
    tokio::select! {
        never = maintain => match never {},
        // Without the condition, an empty `OptionFuture` would end standby at once.
        result = OptionFuture::from(warming), if warmer.is_some() => result.unwrap_or(Ok(()))?,
        () = claim.acquired() => {}
    }
    status.standing_by(false);
    // Before any controller gets these watches: they may lack the last holder's final writes.
    cluster.require_freshness_checks();
    warm.extend(warmer.iter().flat_map(|warmer| warmer.take()));
    Ok(warm)
}

/// Discards triggers of registrations without a controller, so that they do not pile up.
pub(super) async fn idle(registrations: &[Registration]) -> Infallible {
    join_all(registrations.iter().map(ignore)).await;
    // Reached only without registrations.
    pending().await
}

async fn ignore(registration: &Registration) -> Infallible {
    /// Limits the memory for one batch.
    const TRIGGERS_MAX: usize = 1024;

    loop {
        registration.triggers(TRIGGERS_MAX).await;
    }
}
