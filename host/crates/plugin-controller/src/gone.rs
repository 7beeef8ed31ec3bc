//! Parents of deleted Plugins: reports the deletion in their Synced condition. Their children stay, and no pass
//! follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    mem,
    time::Duration,
};

use innkeeper_cluster as cluster;
use innkeeper_model::{
    Condition, ConditionStatus, GroupKind, Gvk, Object, PluginName, error_chain, reason,
};
use innkeeper_plan::synced;
use innkeeper_reconcile::{Role, Shared};
use tokio::time::sleep;
use tracing::debug;

use crate::{
    context::{Context, id_of, plugin_kind},
    parent_watches::ParentWatches,
    unserved::{UnservedConditions, update_all},
};

/// Check interval for deleted Plugins' parents; without deleted Plugins a check costs nothing.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// A follower's check interval; each check reads the inventory.
const FOLLOWER_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Records that a Plugin was deleted, or is being deleted, to report it to the parents.
pub(crate) fn record_deletion(cx: &Context, name: &PluginName) {
    cx.gone.lock().entry(name.clone()).or_default();
}

/// Records the Plugins that were deleted while no host ran, once all Plugins are known.
async fn record_earlier_deletions(cx: &Context) {
    // Before the first list is complete, every Plugin would seem deleted.
    while !cx.registration.waiting().is_empty() {
        sleep(CHECK_PERIOD).await;
    }
    for name in cx.shared.inventory.plugins(Role::Served) {
        let is_there = cx.registration.parent(&id_of(&name)).is_some();
        if !is_there && !cx.files.contains_key(&name) {
            record_deletion(cx, &name);
        }
    }
}

/// Writes the condition to deleted Plugins' parents.
pub(crate) async fn report_deletions(cx: &Context) -> Infallible {
    record_earlier_deletions(cx).await;
    loop {
        sleep(CHECK_PERIOD).await;
        // Taken out, because the requests below must not hold the lock.
        let deleted = mem::take(&mut *cx.gone.lock());
        for (name, mut watches) in deleted {
            if watches.due().is_none() && report_deletion(cx, &name, &mut watches).await {
                continue;
            }
            cx.gone.lock().insert(name, watches);
        }
    }
}

/// Writes the condition to a deleted Plugin's parents; returns true once all have it.
async fn report_deletion(cx: &Context, name: &PluginName, watches: &mut ParentWatches) -> bool {
    // A recreated Plugin has passes, and a Plugin outside of the selection may belong to another host.
    let is_there = match cx
        .cluster()
        .live_get(&plugin_kind(), None, name.as_str())
        .await
    {
        Ok(Some(object)) if !object.is_deleting() => return true,
        Ok(object) => object.is_some(),
        // The API server deletes all Plugins with their definition.
        Err(cluster::Error::NotServed { .. }) => false,
        Err(error) => {
            debug!(plugin = %name, error = %error_chain(&error), "failed to read a Plugin that may be deleted");
            return false;
        }
    };
    let inventory = &cx.shared.inventory;
    let served = inventory.kinds(name, Role::Served);
    let mut kinds: BTreeSet<GroupKind> = served.iter().map(Gvk::group_kind).collect();
    // If another plugin serves a kind now, its passes report on the parents.
    cx.with_claims(|claims| kinds.retain(|kind| claims.holder(kind).is_none()));
    let verdict = |parent: &Object| verdict(name, parent);
    let outdated = update_all(&cx.shared, name, watches, &kinds, verdict).await;
    // The holders of other shards do theirs, and find the kinds by the record below.
    if outdated.own || outdated.others || is_there {
        return false;
    }
    // Last, because the next process finds the remaining parents by this record.
    inventory
        .remove(cx.writer(), name, Role::Served, &served)
        .await
        .inspect_err(|error| {
            debug!(plugin = %name, error = %error_chain(error), "failed to remove a deleted Plugin from the inventory");
        })
        .is_ok()
}

/// Writes the condition to the parents in a follower's shards, until the leader finds that all parents have it.
pub(crate) async fn report_deletions_as_follower(
    shared: &Shared,
    is_there: impl Fn(&PluginName) -> bool,
    has_passes: impl Fn(&GroupKind) -> bool,
) -> Infallible {
    let mut deleted: BTreeMap<PluginName, ParentWatches> = BTreeMap::new();
    loop {
        sleep(FOLLOWER_CHECK_PERIOD).await;
        if let Err(error) = shared.inventory.refresh().await {
            debug!(error = %error_chain(&error), "failed to read the inventory");
            continue;
        }
        let mut names = shared.inventory.plugins(Role::Served);
        names.retain(|name| !is_there(name));
        deleted.retain(|name, _| names.contains(name));
        for name in names {
            let served = shared.inventory.kinds(&name, Role::Served);
            let kinds = served.iter().map(Gvk::group_kind);
            let kinds = kinds.filter(|kind| !has_passes(kind)).collect();
            let watches = deleted.entry(name.clone()).or_default();
            let verdict = |parent: &Object| verdict(&name, parent);
            update_all(shared, &name, watches, &kinds, verdict).await;
        }
    }
}

fn verdict(plugin: &PluginName, parent: &Object) -> UnservedConditions {
    let unknown = ConditionStatus::Unknown;
    let remedy = if parent.is_deleting() {
        let finalizers: Vec<&str> = parent.finalizers.iter().map(|name| &**name).collect();
        format!(
            "The object is being deleted and waits for the finalizer {}",
            finalizers.join(", ")
        )
    } else {
        "The object is reconciled again once the Plugin is there again".to_owned()
    };
    let message = format!("Plugin {plugin} was deleted. The children stay as they are. {remedy}");
    UnservedConditions {
        synced: synced(unknown, reason::PLUGIN_GONE, message),
        ready: Some(Condition {
            kind: reason::READY.to_owned(),
            status: unknown,
            reason: reason::PLUGIN_GONE.to_owned(),
            message: "the host no longer observes the children".to_owned(),
        }),
    }
}
