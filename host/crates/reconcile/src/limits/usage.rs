//! The use of a plugin's limits, for its status.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::{CacheSize, Registration};
use innkeeper_model::{Limits, Manifest, PluginName};
use tokio::time::Instant;

use super::budget::{NamespaceBudgets, Share, namespace_rate, to_u64};

/// The fields of `spec.limits` that apply to each namespace.
pub(super) const WRITES_PER_SECOND: &str = "writesPerSecond";
pub(super) const OBJECTS_PER_NAMESPACE: &str = "objectsPerNamespace";
pub(super) const NESTED_PARENTS_PER_NAMESPACE: &str = "nestedParentsPerNamespace";
pub(super) const BYTES_PER_NAMESPACE: &str = "bytesPerNamespace";

/// The field that limits the retained children of each parent.
pub(super) const RETAINED: &str = "retained";

/// The use of a limit in the namespace that has used most of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The field of `spec.limits`.
    pub limit: &'static str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The used part.
    pub share: Share,
}

/// Returns the use of each limit in the namespace that has used most of it, for `retained` that of the parent that retains
/// most; limits without any use are left out.
pub(crate) fn usage(
    plugin: &PluginName,
    manifest: &Manifest,
    limits: &Limits,
    budgets: &NamespaceBudgets,
    registration: &Registration,
) -> Vec<Usage> {
    let children = registration.usage_by_namespace(|_| true);
    let nested = registration.usage_by_namespace(|kind| manifest.reconciles(kind));
    let retained_share = |count| Share::new(to_u64(count), to_u64(limits.retained_max));
    let fullest = [
        (
            WRITES_PER_SECOND,
            budgets.fullest(plugin, namespace_rate(limits), Instant::now()),
        ),
        (
            OBJECTS_PER_NAMESPACE,
            fullest(&children, limits.namespace_objects_max, |size| size.objects),
        ),
        (
            NESTED_PARENTS_PER_NAMESPACE,
            fullest(&nested, limits.namespace_nested_max, |size| size.objects),
        ),
        (
            BYTES_PER_NAMESPACE,
            fullest(&children, limits.namespace_bytes_max, |size| size.bytes),
        ),
        (
            RETAINED,
            registration
                .retained_most()
                .map(|(namespace, count)| (namespace, retained_share(count))),
        ),
    ];
    fullest
        .into_iter()
        .filter_map(|(limit, fullest)| {
            let (namespace, share) = fullest?;
            Some(Usage {
                limit,
                namespace,
                share,
            })
        })
        .collect()
}

/// Returns the namespace that has used most of a limit.
fn fullest(
    sizes: &BTreeMap<Arc<str>, CacheSize>,
    limit: usize,
    amount: fn(&CacheSize) -> usize,
) -> Option<(Arc<str>, Share)> {
    let share = |size| Share::new(to_u64(amount(size)), to_u64(limit));
    sizes
        .iter()
        .map(|(namespace, size)| (Arc::clone(namespace), share(size)))
        .max_by_key(|(_, share)| *share)
}
