//! The names and the parts of a cluster that several commands take.

use std::collections::BTreeSet;

use crate::values::dns_label;

/// The host's namespace outside of a cluster.
pub const HOST_NAMESPACE: &str = "innkeeper-system";

/// The name of the hash key's Secret in the host's namespace.
pub const HASH_KEY_SECRET: &str = "innkeeper-hash-key";

/// The names of namespaces, sorted, each once.
pub type Namespaces = Vec<String>;

/// The treatment of CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Definitions {
    /// Install those of plugins, and watch all, so that a new kind is known at once.
    #[default]
    Install,
    /// Neither write nor read them; a new kind is known within a minute.
    Ignore,
}

/// Parses the names of namespaces with commas between them.
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
