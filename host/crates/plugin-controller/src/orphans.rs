//! Parents without passes: those that ask for it lose their finalizer without a guest.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use innkeeper_model::PluginName;
use innkeeper_reconcile::Shared;
use tokio::time::sleep;

use super::finalizers::{Finalizers, Parents};

/// Between two looks.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(3);

/// Removes the finalizers of plugins from parents that are being deleted with the annotation to skip the guest, where no
/// pass would do so: the plugin is gone, cannot be served, or is suspended.
///
/// `is_looked_after` says of which plugins others see to that.
pub async fn tend_orphans(
    shared: &Shared,
    is_looked_after: impl Fn(&PluginName) -> bool,
) -> Infallible {
    let mut orphans: BTreeMap<PluginName, Finalizers> = BTreeMap::new();
    loop {
        sleep(LOOKED_AT_EVERY).await;
        let mut names = shared.inventory.finalizing();
        names.retain(|name| !is_looked_after(name));
        orphans.retain(|name, _| names.contains(name));
        for name in names {
            let kinds = shared.inventory.parents(&name);
            let finalizers = orphans.entry(name.clone()).or_default();
            finalizers
                .release(shared, &name, &kinds, Parents::Skipping)
                .await;
        }
    }
}
