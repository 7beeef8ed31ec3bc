//! Names that the host writes into the cluster, and the name of a plugin.

use std::{fmt, sync::Arc};

/// Labels, annotations and finalizers below this prefix are the host's alone.
pub const DOMAIN_PREFIX: &str = "innkeeper.dev/";

/// Label on every child: the name of the plugin that stated it. Child watches select on it.
pub const LABEL_PLUGIN: &str = "innkeeper.dev/plugin";

/// Annotation on every child: the key under which the guest stated it.
pub const ANNOTATION_KEY: &str = "innkeeper.dev/key";

/// Annotation on every child: a keyed hash of what was applied last.
pub const ANNOTATION_APPLIED: &str = "innkeeper.dev/applied";

/// Annotation on a child that is kept without an owner: `<group>/<kind>/<namespace>/<name>` of its parent.
pub const ANNOTATION_RETAINED_FOR: &str = "innkeeper.dev/retained-for";

/// Annotation on a parent that releases our finalizer without running the guest.
pub const ANNOTATION_SKIP_FINALIZE: &str = "innkeeper.dev/skip-finalize";

/// Annotation on a parent that stops its passes.
pub const ANNOTATION_PAUSED: &str = "innkeeper.dev/paused";

/// On a parent, with the value `true`: what has the name of a child and belongs to nobody becomes that child, where the
/// plugin may adopt its kind.
pub const ANNOTATION_ADOPT: &str = "innkeeper.dev/adopt";

/// On a ServiceAccount: the names of the Plugins whose children may be written as it, separated by commas.
pub const ANNOTATION_PLUGINS: &str = "innkeeper.dev/plugins";

/// Whether a text can name a namespace: at most 63 lower-case letters, digits and dashes, none of these at an end.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The name of a plugin: a DNS label of at most 40 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The longest name; a field manager made of it stays below the API server's 128 characters.
    pub const LENGTH_MAX: usize = 40;

    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, InvalidPluginName> {
        if name.len() <= Self::LENGTH_MAX && is_dns_label(name) {
            Ok(Self(Arc::from(name)))
        } else {
            Err(InvalidPluginName(name.to_owned()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The field manager of this plugin's children.
    pub fn field_manager(&self) -> String {
        format!("innkeeper:{}", self.0)
    }

    /// The field manager of the guest's status and conditions.
    pub fn status_manager(&self) -> String {
        format!("innkeeper:{}:status", self.0)
    }

    /// The field manager of the host's conditions and of the finalizer.
    pub fn host_manager(&self) -> String {
        format!("innkeeper:{}:host", self.0)
    }

    /// The finalizer that this plugin puts on its parents.
    pub fn finalizer(&self) -> String {
        format!("{DOMAIN_PREFIX}{}", self.0)
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
