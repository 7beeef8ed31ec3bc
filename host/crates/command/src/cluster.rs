//! Names and flag values for clusters.

use std::collections::BTreeSet;

use crate::values::dns_label;

/// The host's namespace outside a cluster.
pub const HOST_NAMESPACE: &str = "innkeeper-system";

/// The hash key's Secret in the host's namespace.
pub const HASH_KEY_SECRET: &str = "innkeeper-hash-key";

/// Sorted namespace names without duplicates.
pub type Namespaces = Vec<String>;

/// What the host does with CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Definitions {
    /// Install those of plugins, and watch all of them, so that new kinds are known immediately.
    #[default]
    Install,
    /// Neither write nor read them; new kinds are known within a minute.
    Ignore,
}

/// Parses comma-separated namespace names.
pub fn namespaces(text: &str) -> Result<Namespaces, String> {
    let mut names = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        if name.is_empty() {
            let remedy =
                "it has an empty name: write it as a,b, or omit the flag to see all namespaces";
            return Err(remedy.to_owned());
        }
        let name =
            dns_label(name).map_err(|remedy| format!("\"{name}\" is not a name: {remedy}"))?;
        if !names.insert(name.clone()) {
            return Err(format!("it has {name} twice: name each namespace once"));
        }
    }
    Ok(names.into_iter().collect())
}
