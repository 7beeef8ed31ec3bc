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
    Manager, PluginState, kind,
    unserved::{ToldParents, UnservedConditions},
};

/// The interval between two looks at the parents of deleted Plugins; without any, a look costs nothing.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// A Plugin that was deleted, until all its parents state it.
#[derive(Default)]
pub(super) struct GonePlugin {
    kinds: BTreeSet<GroupKind>,
    told: ToldParents,
}

impl Manager {
    /// Remembers that a Plugin was deleted, or is being deleted: its parents state it soon.
    pub(super) fn note_gone(&self, name: &PluginName, state: &PluginState) {
        let mut kinds = state.unserved.kinds.clone();
        let recorded = self.context.shared.inventory.parents(name);
        kinds.extend(recorded.iter().map(Gvk::group_kind));
        if let Some((_, declared)) = &state.read {
            kinds.extend(declared.terms.grants.parents.keys().cloned());
        }
        let mut gone = self.gone.lock();
        gone.entry(name.clone()).or_default().kinds.extend(kinds);
    }

    /// Writes the condition to the parents of deleted Plugins.
    pub async fn tell_parents_of_gone(&self) -> Infallible {
        loop {
            sleep(CHECK_PERIOD).await;
            let gone = mem::take(&mut *self.gone.lock());
            for (name, mut plugin) in gone {
                if plugin.told.due().is_none() && self.tell_gone(&name, &mut plugin).await {
                    continue;
                }
                let mut gone = self.gone.lock();
                let entry = gone.entry(name).or_default();
                plugin.kinds.extend(mem::take(&mut entry.kinds));
                *entry = plugin;
            }
        }
    }

    /// Tells the parents of a deleted Plugin; returns true if nothing remains to be told.
    async fn tell_gone(&self, name: &PluginName, plugin: &mut GonePlugin) -> bool {
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
        let mut kinds = plugin.kinds.clone();
        {
            let priorities = self.priorities.lock();
            kinds.retain(|kind| priorities.holder(kind).is_none());
        }
        let verdict = |parent: &Object| verdict(name, parent);
        let all_told = self.tell_all(name, &mut plugin.told, &kinds, verdict).await;
        all_told && !is_there
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
