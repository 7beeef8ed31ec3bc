//! The part of the cluster that the host sees.

use std::collections::BTreeSet;

use super::values::dns_label;

/// The names of namespaces, sorted, each once.
pub type Namespaces = Vec<String>;

/// Flags that limit the scope of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ScopeArgs {
    /// Watch and write in these namespaces only: parents elsewhere have no passes, and reads of other namespaces are
    /// refused. Roles in these namespaces are enough; the chart and `innkeeper manifests --namespaces` make them
    /// [default: all namespaces].
    #[arg(
        long,
        value_name = "NAME,...",
        env = "INNKEEPER_NAMESPACES",
        value_parser = namespaces
    )]
    pub namespaces: Option<Namespaces>,
    /// Install the CustomResourceDefinitions of plugins and keep them as the plugins state them, or do not install CRDs:
    /// compatible definitions must already exist.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub crds: Definitions,
}

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
pub(super) fn namespaces(text: &str) -> Result<Namespaces, String> {
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
