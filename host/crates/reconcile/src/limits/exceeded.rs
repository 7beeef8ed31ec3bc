//! The limits that make writes wait, in words.

use innkeeper_cluster::NamespaceFull;
use innkeeper_model::{LABEL_PLUGIN, Limits, PluginName, reason};

use super::usage::{
    BYTES_PER_NAMESPACE, NESTED_PARENTS_PER_NAMESPACE, OBJECTS_PER_NAMESPACE, RETAINED,
    WRITES_PER_SECOND,
};

/// An exceeded limit.
///
/// The text contains no changing counts, so the condition stays equal while the limit is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded {
    /// The reason in the condition `Synced`.
    pub(crate) reason: &'static str,
    /// The exceeded limit as a clause.
    pub(crate) because: String,
    pub(crate) remedy: String,
}

impl LimitExceeded {
    pub(crate) fn parent_writes(limits: &Limits) -> Self {
        let max = limits.writes_per_minute_max;
        Self {
            reason: reason::THROTTLED,
            because: format!("this parent has reached its limit of {max} writes per minute"),
            remedy: "check if the plugin's answer differs in every pass, or if another field manager keeps changing the children".to_owned(),
        }
    }

    pub(crate) fn first_writes(limits: &Limits) -> Self {
        let max = limits.children_max;
        Self {
            reason: reason::THROTTLED,
            because: format!(
                "this parent has reached its limit of {max} child creates and deletes per minute"
            ),
            remedy: "edit the parent less often".to_owned(),
        }
    }

    pub(crate) fn namespace_writes(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let max = limits.writes_per_second_max;
        let place = describe_place(place);
        Self {
            reason: reason::THROTTLED,
            because: format!("{place} has reached its limit of {max} writes per second"),
            remedy: format!(
                "check if the plugin's answers differ in every pass, or raise spec.limits.{WRITES_PER_SECOND} of the Plugin"
            ),
        }
    }

    pub(crate) fn objects(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let max = format!("{} children", limits.namespace_objects_max);
        Self::namespace_quota(place, &max, OBJECTS_PER_NAMESPACE)
    }

    pub(crate) fn nested(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let max = format!("{} children that are parents", limits.namespace_nested_max);
        Self::namespace_quota(place, &max, NESTED_PARENTS_PER_NAMESPACE)
    }

    pub(crate) fn bytes(place: (&PluginName, Option<&str>), limits: &Limits) -> Self {
        let max = format!("{} bytes for all children", limits.namespace_bytes_max);
        Self::namespace_quota(place, &max, BYTES_PER_NAMESPACE)
    }

    pub(crate) fn retained(limits: &Limits) -> Self {
        let max = limits.retained_max;
        Self::quota(
            format!("this parent has reached its limit of {max} retained children"),
            "unneeded retained children",
            RETAINED,
        )
    }

    /// The cache limit. It counts all objects of the plugin's parents that have the plugin's label, whoever created them.
    pub(crate) fn cache(plugin: &PluginName, full: &NamespaceFull) -> Self {
        let NamespaceFull {
            namespace,
            by_objects,
            max,
            largest,
        } = full;
        // The cache counts cluster-scoped objects under the empty name.
        let place = describe_place((plugin, Some(&**namespace).filter(|name| !name.is_empty())));
        let (max, limit) = if *by_objects {
            (format!("{} children", max.objects), OBJECTS_PER_NAMESPACE)
        } else {
            (
                format!("{} bytes of children", max.bytes),
                BYTES_PER_NAMESPACE,
            )
        };
        Self {
            reason: reason::NAMESPACE_CACHE_FULL,
            because: format!("{place} exceeds the cache limit of {max}, most of them {largest}"),
            remedy: format!(
                "delete unneeded ones with the label {LABEL_PLUGIN}={plugin}, or raise spec.limits.{limit} of the Plugin"
            ),
        }
    }

    /// Returns the limit and the remedy.
    pub(crate) fn sentence(&self) -> String {
        format!("{}; {}", self.because, self.remedy)
    }

    fn namespace_quota(place: (&PluginName, Option<&str>), max: &str, limit: &str) -> Self {
        let place = describe_place(place);
        let because = format!("{place} has reached its limit of {max}");
        Self::quota(because, "parents", limit)
    }

    fn quota(because: String, objects: &str, limit: &str) -> Self {
        Self {
            reason: reason::QUOTA_EXCEEDED,
            because,
            remedy: format!("delete {objects}, or raise spec.limits.{limit} of the Plugin"),
        }
    }
}

fn describe_place((plugin, namespace): (&PluginName, Option<&str>)) -> String {
    match namespace {
        Some(name) => format!("plugin {plugin} in namespace {name}"),
        None => format!("plugin {plugin}, for cluster-scoped objects,"),
    }
}
