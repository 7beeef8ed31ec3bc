//! The host's labels, annotations, finalizers and field managers, and plugin names.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::syntax::is_dns_label;

/// The prefix for labels, annotations and finalizers that are reserved for the host.
pub const DOMAIN_PREFIX: &str = "innkeeper.dev/";

documented! {
    NAMES:
    /// Label on every child: the plugin that stated it. Child watches select on it.
    LABEL_PLUGIN = "innkeeper.dev/plugin";

    /// Label on a ClusterRole with a plugin's rights: the host whose role aggregates it.
    LABEL_AGGREGATE = "innkeeper.dev/aggregate-to";

    /// Annotation on every child: the key under which the guest stated it.
    ANNOTATION_KEY = "innkeeper.dev/key";

    /// Annotation on every child: a keyed hash of the last applied object.
    ANNOTATION_APPLIED = "innkeeper.dev/applied";

    /// Annotation on a child that is kept without an owner: its parent and the host's proof.
    ANNOTATION_RETAINED_FOR = "innkeeper.dev/retained-for";

    /// Annotation on a parent in deletion: with the value `true`, the host removes the finalizer without calling the guest.
    ANNOTATION_SKIP_FINALIZE = "innkeeper.dev/skip-finalize";

    /// Annotation on a parent: with the value `true`, it has no passes.
    ANNOTATION_PAUSED = "innkeeper.dev/paused";

    /// Annotation on a parent: with the value `true`, an object without an owner that has the name of a child becomes that
    /// child, if the grants allow the plugin to adopt its kind.
    ANNOTATION_ADOPT = "innkeeper.dev/adopt";

    /// Annotation on a ServiceAccount: the Plugins, separated by commas, whose children the host may write as that account.
    ANNOTATION_PLUGINS = "innkeeper.dev/plugins";

    /// Annotation on a child whose kind the same plugin reconciles: the number of such parents above it. An object that a
    /// user made has none.
    ANNOTATION_DEPTH = "innkeeper.dev/depth";

    /// Annotation on a Secret with generated values: the tokens for which they were drawn, as a JSON object by data key.
    ANNOTATION_GENERATED = "innkeeper.dev/generated";

    /// Annotation on a Secret: the web servers, separated by commas, to which the host may send the credentials in it.
    ANNOTATION_HOSTS = "innkeeper.dev/hosts";

    /// Annotation on an Event: the trace of the pass that wrote it last, if the host sends traces.
    ANNOTATION_TRACE = "innkeeper.dev/trace-id";

    /// Annotation on a host's Lease: the namespaces, separated by commas, that the host is limited to.
    ANNOTATION_NAMESPACES = "innkeeper.dev/namespaces";

    /// Annotation on a host's Lease: the selector for Plugins.
    ANNOTATION_PLUGIN_SELECTOR = "innkeeper.dev/plugin-selector";

    /// Annotation on a host's Lease: the number of shards, if there are several.
    ANNOTATION_SHARDS = "innkeeper.dev/shards";
}

/// A plugin's name: a DNS label with at most 40 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PluginName(Arc<str>);

/// A text that cannot name a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a plugin name: use at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit"
)]
pub struct InvalidPluginName(
    /// The text as given.
    pub String,
);

impl PluginName {
    /// The maximum length in characters.
    ///
    /// The longest field manager made from such a name stays below the API server's limit (128 characters).
    pub const LENGTH_MAX: usize = 40;

    /// Makes a name from a valid text.
    pub fn new(name: &str) -> Result<Self, InvalidPluginName> {
        if name.len() <= Self::LENGTH_MAX && is_dns_label(name) {
            Ok(Self(Arc::from(name)))
        } else {
            Err(InvalidPluginName(name.to_owned()))
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the field manager for this plugin's children.
    pub fn field_manager(&self) -> String {
        format!("innkeeper:{}", self.0)
    }

    /// Returns the field manager for parent status: the guest's part and the host's conditions.
    pub fn status_manager(&self) -> String {
        format!("innkeeper:{}:status", self.0)
    }

    /// Returns the field manager for the finalizer, and for the host's conditions where it states them alone.
    pub fn host_manager(&self) -> String {
        format!("innkeeper:{}:host", self.0)
    }

    /// Returns the finalizer that the host puts on this plugin's parents.
    pub fn finalizer(&self) -> String {
        format!("{DOMAIN_PREFIX}{}", self.0)
    }
}

impl From<PluginName> for String {
    fn from(name: PluginName) -> Self {
        (*name.0).to_owned()
    }
}

impl TryFrom<String> for PluginName {
    type Error = InvalidPluginName;

    fn try_from(name: String) -> Result<Self, InvalidPluginName> {
        Self::new(&name)
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_dns_labels_only() {
        for name in ["a", "memcached", "a-1", &"x".repeat(40)] {
            assert!(PluginName::new(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(41)] {
            assert!(PluginName::new(name).is_err(), "{name}");
        }
    }
}
