//! The limits that hold the writes of a parent back, in words.

use std::sync::Arc;

use innkeeper_cluster::NamespaceFull;
use innkeeper_model::{LABEL_PLUGIN, Limits, PluginName, reason};

use crate::limits::budget::Share;

/// The fields of `spec.limits` that bound a plugin in each namespace.
pub(crate) const WRITES_PER_SECOND: &str = "writesPerSecond";
pub(crate) const OBJECTS_PER_NAMESPACE: &str = "objectsPerNamespace";
pub(crate) const NESTED_PARENTS_PER_NAMESPACE: &str = "nestedParentsPerNamespace";
pub(crate) const BYTES_PER_NAMESPACE: &str = "bytesPerNamespace";

/// The field that bounds the retained children of a parent.
pub(crate) const RETAINED: &str = "retained";

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

/// A limit that holds writes back.
///
/// Its text has no counts that change, so the condition stays equal while the limit holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The reason of the condition `Synced`.
    pub(crate) reason: &'static str,
    /// The limit that is reached, as it reads after "because".
    pub(crate) because: String,
    pub(crate) remedy: String,
}

impl Bound {
    pub(crate) fn parent_writes(limits: &Limits) -> Self {
        let max = limits.writes_per_minute_max;
        Self {
            reason: reason::THROTTLED,
            because: format!("this parent has used up its {max} writes per minute"),
            remedy: "check if the plugin's answer differs in every pass, or if another field manager keeps changing the children".to_owned(),
        }
    }

    pub(crate) fn first_writes(limits: &Limits) -> Self {
        let max = limits.children_max;
        Self {
            reason: reason::THROTTLED,
            because: format!(
                "this parent has used up its {max} creates and deletions of children per minute"
            ),
            remedy: "edit the parent less often".to_owned(),
        }
    }

    pub(crate) fn namespace_writes(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let (max, place) = (limits.writes_per_second_max, place_of(place));
        Self {
            reason: reason::THROTTLED,
            because: format!("{place} has used up its {max} writes per second"),
            remedy: format!(
                "check if the plugin's answers differ in every pass, or raise spec.limits.{WRITES_PER_SECOND} of the Plugin"
            ),
        }
    }

    pub(crate) fn objects(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let (max, place) = (limits.namespace_objects_max, place_of(place));
        Self::quota(
            format!("{place} has the {max} children that it may have"),
            "parents",
            OBJECTS_PER_NAMESPACE,
        )
    }

    pub(crate) fn nested(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let (max, place) = (limits.namespace_nested_max, place_of(place));
        Self::quota(
            format!("{place} has the {max} children that it may have that are parents"),
            "parents",
            NESTED_PARENTS_PER_NAMESPACE,
        )
    }

    pub(crate) fn bytes(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let (max, place) = (limits.namespace_bytes_max, place_of(place));
        Self::quota(
            format!("{place} has children of the {max} bytes that they may have together"),
            "parents",
            BYTES_PER_NAMESPACE,
        )
    }

    pub(crate) fn retained(limits: &Limits) -> Self {
        let max = limits.retained_max;
        Self::quota(
            format!("this parent has the {max} retained children that it may have"),
            "retained children that are not needed",
            RETAINED,
        )
    }

    /// The bound of the cache. It counts all objects with the label of the plugin that belong to its parents, also those
    /// that it has not made.
    pub(crate) fn cache(plugin: &PluginName, full: &NamespaceFull) -> Self {
        let NamespaceFull {
            namespace,
            by_objects,
            max,
            largest,
        } = full;
        let place = place_of((plugin, Some(&**namespace).filter(|name| !name.is_empty())));
        let (bound, limit) = if *by_objects {
            (max.objects.to_string(), OBJECTS_PER_NAMESPACE)
        } else {
            (format!("{} bytes of", max.bytes), BYTES_PER_NAMESPACE)
        };
        Self {
            reason: reason::NAMESPACE_CACHE_FULL,
            because: format!(
                "{place} has more than the {bound} children that the host caches, most of them {largest}"
            ),
            remedy: format!(
                "delete those with the label {LABEL_PLUGIN}={plugin} that nobody needs, or raise spec.limits.{limit} of the Plugin"
            ),
        }
    }

    /// Returns the limit and the remedy.
    pub(crate) fn sentence(&self) -> String {
        format!("{}; {}", self.because, self.remedy)
    }

    fn quota(because: String, objects: &str, limit: &str) -> Self {
        Self {
            reason: reason::QUOTA_EXCEEDED,
            because,
            remedy: format!("delete {objects}, or raise spec.limits.{limit} of the Plugin"),
        }
    }
}

fn place_of((plugin, namespace): (&PluginName, Option<&str>)) -> String {
    match namespace {
        Some(name) => format!("plugin {plugin} in namespace {name}"),
        None => format!("plugin {plugin}, for cluster-scoped objects,"),
    }
}
