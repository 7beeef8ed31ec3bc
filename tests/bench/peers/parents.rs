//! Creates parents before a contender starts, and waits until all have their final status.

use std::{collections::BTreeSet, path::PathBuf, pin::pin, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use innkeeper_model::reason;
use innkeeper_tests::{ControlPlane, HostOptions, eventually, host, user::Kind};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    api::{GROUP, Memcached, parents_in},
    contender::Contender,
};

/// Concurrent requests while parents are created.
const MAKERS: usize = 16;
/// The longest time without a change to any parent. Parents change many times a second until all are final; only a
/// failing run waits that long.
const PATIENCE: Duration = Duration::from_mins(2);

/// Parents in one namespace, because the host's limits apply per namespace.
pub(crate) struct Batch {
    resource: ApiResource,
    pub(crate) namespace: String,
    pub(crate) names: BTreeSet<String>,
}

impl Batch {
    pub(crate) fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::namespaced_with(client, &self.namespace, &self.resource)
    }
}

/// Creates parents for the shipped plugin.
pub(crate) fn make(plane: &ControlPlane, count: usize) -> Result<Batch> {
    let plugins = HostOptions::with_guests(&["memcached"])?.plugins;
    make_in(plane, &plugins, GROUP, count)
}

/// Creates parents with size 0, which need no Pods, in an API group that these plugin files define.
#[expect(clippy::disallowed_methods, reason = "the bench acts as the user")]
pub(crate) fn make_in(
    plane: &ControlPlane,
    plugins: &[PathBuf],
    group: &str,
    count: usize,
) -> Result<Batch> {
    let user = plane.user();
    for object in host::manifests(plugins, &[])? {
        if object["kind"] == "CustomResourceDefinition" {
            user.apply(&object)?;
        }
    }
    let resource = parents_in(group);
    let kind = Kind::cluster(&resource.api_version, &resource.kind);
    eventually("parents are served", || user.list(kind, ""));
    let batch = Batch {
        namespace: plane.namespace("bench")?,
        names: (0..count)
            .map(|number| format!("cache-{number:05}"))
            .collect(),
        resource,
    };
    user.block_on(
        stream::iter(&batch.names)
            .map(async |name| {
                let parent = DynamicObject::new(name, &batch.resource)
                    .data(json!({ "spec": { "size": 0 } }));
                batch
                    .api(user.client())
                    .create(&PostParams::default(), &parent)
                    .await
                    .map(drop)
            })
            .buffer_unordered(MAKERS)
            .try_collect::<()>(),
    )?;
    Ok(batch)
}

/// Waits until all parents have their final status. Fails if the host throttles a write: this bench must stay within its
/// default limits.
pub(crate) fn wait_final(plane: &ControlPlane, contender: Contender, batch: &Batch) -> Result<()> {
    let user = plane.user();
    let mut remaining = batch.names.clone();
    user.block_on(async {
        let config = watcher::Config::default();
        let mut changes = pin!(watcher(batch.api(user.client()), config).default_backoff());
        while !remaining.is_empty() {
            let Ok(change) = timeout(PATIENCE, changes.try_next()).await else {
                bail!(
                    "{} of {} parents have no final status",
                    remaining.len(),
                    batch.names.len()
                );
            };
            let change = change?.context("the watch has ended")?;
            if let watcher::Event::Apply(parent) | watcher::Event::InitApply(parent) = change {
                let name = parent.name_any();
                let parent: Memcached = serde_json::from_value(serde_json::to_value(parent)?)?;
                let synced = parent
                    .status
                    .as_ref()
                    .and_then(|status| status.condition("Synced"));
                let bounds = [reason::THROTTLED, reason::QUOTA_EXCEEDED];
                if let Some(synced) =
                    synced.filter(|condition| bounds.contains(&&*condition.reason))
                {
                    bail!("{name}: {}: {}", synced.reason, synced.message);
                }
                if is_final(&parent, contender) {
                    remaining.remove(&name);
                }
            }
        }
        Ok(())
    })
}

/// Returns true if a parent has its final status.
///
/// Nothing acts on Deployments here, so `Progressing` stays true.
pub(crate) fn is_final(parent: &Memcached, contender: Contender) -> bool {
    let Some(status) = &parent.status else {
        return false;
    };
    let generation = parent.metadata.generation;
    let says = |kind, value, message: &str| {
        status.condition(kind).is_some_and(|condition| {
            condition.status == value
                && condition.observed_generation == generation
                && (message.is_empty() || condition.message == message)
        })
    };
    Some(status.observed_generation) == generation
        && status.selector.contains(&parent.name_any())
        && says("Available", "False", "0 of 0 replicas are ready")
        && says(
            "Progressing",
            "True",
            "waiting for the Deployment to be updated",
        )
        && says("Degraded", "False", "all 0 replicas are ready")
        && says("Ready", "False", "zero replicas are requested")
        && (contender != Contender::Innkeeper || says("Synced", "True", ""))
}
