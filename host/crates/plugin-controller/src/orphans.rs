//! Parents without passes: a user can have their finalizer removed without a guest.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use innkeeper_model::PluginName;
use innkeeper_reconcile::{Role, Shared};
use tokio::time::sleep;

use super::{finalizers::ReleaseScope, parent_watches::ParentWatches};

/// Check interval. A check reads only the cache.
const CHECK_PERIOD: Duration = Duration::from_secs(3);

/// Checks between two reads of the inventory by a host with shards.
const CHECKS_PER_REFRESH: u32 = 10;

/// Removes plugin finalizers from parents that are being deleted with the annotation to skip the guest, where no pass
/// does so: the plugin was deleted, cannot be active, or is suspended.
///
/// `has_passes` returns true if this or another host runs passes for the plugin.
pub async fn tend_orphans(shared: &Shared, has_passes: impl Fn(&PluginName) -> bool) -> Infallible {
    let mut orphans: BTreeMap<PluginName, ParentWatches> = BTreeMap::new();
    let has_shards = !shared.writers.shards().is_one();
    let mut checks: u32 = 0;
    loop {
        sleep(CHECK_PERIOD).await;
        checks = checks.wrapping_add(1);
        // Other hosts record kinds as well. A failed read is repeated.
        if has_shards && checks.is_multiple_of(CHECKS_PER_REFRESH) {
            drop(shared.inventory.refresh().await);
        }
        let mut names = shared.inventory.plugins(Role::Finalizing);
        names.retain(|name| !has_passes(name));
        orphans.retain(|name, _| names.contains(name));
        for name in names {
            let kinds = shared.inventory.kinds(&name, Role::Finalizing);
            let watches = orphans.entry(name.clone()).or_default();
            // The next check repeats failed writes, whose waits `watches` keeps.
            watches
                .release(shared, &name, &kinds, ReleaseScope::Skipping)
                .await;
        }
    }
}
