//! Parents of Plugins that were deleted: their condition Synced states it. Their children stay, and no pass follows.

use std::{collections::BTreeSet, convert::Infallible, mem, time::Duration};

use innkeeper_cluster as cluster;
use innkeeper_model::{
    Condition, ConditionStatus, GroupKind, Gvk, Object, PluginName, error_chain, reason,
};
use innkeeper_plan::synced;
use tokio::time::sleep;
use tracing::debug;

use super::{
    Manager, id_of, kind,
    unserved::{ToldParents, UnservedConditions},
};

/// The interval between two looks at the parents of deleted Plugins; without any, a look costs nothing.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

impl Manager {
    /// Remembers that a Plugin was deleted, or is being deleted: its parents state it soon.
    pub(super) fn note_gone(&self, name: &PluginName) {
        self.gone.lock().entry(name.clone()).or_default();
    }

    /// Remembers the Plugins that were deleted while no host ran, once all Plugins are known.
    async fn note_gone_before(&self) {
        while !self.registration.waiting().is_empty() {
            sleep(CHECK_PERIOD).await;
        }
        for name in self.context.shared.inventory.once_served() {
            let is_there = self.registration.parent(&id_of(&name)).is_some();
            if !is_there && !self.context.files.contains_key(&name) {
                self.note_gone(&name);
            }
        }
    }

    /// Writes the condition to the parents of deleted Plugins.
    pub async fn tell_parents_of_gone(&self) -> Infallible {
        self.note_gone_before().await;
        loop {
            sleep(CHECK_PERIOD).await;
            let gone = mem::take(&mut *self.gone.lock());
            for (name, mut told) in gone {
                if told.due().is_none() && self.tell_gone(&name, &mut told).await {
                    continue;
                }
                self.gone.lock().insert(name, told);
            }
        }
    }

    /// Tells the parents of a deleted Plugin; returns true if nothing remains to be told.
    async fn tell_gone(&self, name: &PluginName, told: &mut ToldParents) -> bool {
        // A Plugin that is created again has passes, and one outside of the selection may be another host's.
        let is_there = match self.cluster().live_get(&kind(), None, name.as_str()).await {
            Ok(Some(object)) if !object.is_deleting() => return true,
            Ok(object) => object.is_some(),
            Err(cluster::Error::NotServed { .. }) => false,
            Err(error) => {
                debug!(plugin = %name, error = %error_chain(&error), "failed to read a Plugin that may be deleted");
                return false;
            }
        };
        let inventory = &self.context.shared.inventory;
        let served = inventory.served(name);
        let mut kinds: BTreeSet<GroupKind> = served.iter().map(Gvk::group_kind).collect();
        {
            let priorities = self.priorities.lock();
            kinds.retain(|kind| priorities.holder(kind).is_none());
        }
        let verdict = |parent: &Object| verdict(name, parent);
        if !self.tell_all(name, told, &kinds, verdict).await || is_there {
            return false;
        }
        let removed = inventory.remove_served(name).await;
        let removed = removed.inspect_err(|error| {
            debug!(plugin = %name, error = %error_chain(error), "failed to remove a deleted Plugin from the inventory");
        });
        removed.is_ok()
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
