//! How much of a cluster the host sees.

use std::collections::BTreeSet;

use innkeeper_model::is_dns_label;

use super::Error;

/// Flags that limit what the host sees of a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ScopeArgs {
    /// See objects of these namespaces only, and write to no other: parents elsewhere are not reconciled, and what
    /// plugins read elsewhere is refused. Roles in these namespaces suffice, `innkeeper manifests --namespaces` prints
    /// them [default: all namespaces].
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        env = "INNKEEPER_NAMESPACES"
    )]
    pub(super) namespaces: Option<Vec<String>>,
    /// Whether the CustomResourceDefinitions that plugins bring are installed and kept as they are there; ignored, they
    /// are neither written nor read, and whoever installs them answers for that they fit.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub(super) crds: Definitions,
}

/// What becomes of CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Definitions {
    /// Those that plugins bring are installed; all are watched, to see at once when a kind appears.
    #[default]
    Install,
    /// They are left to others. A kind that appears is seen within a minute.
    Ignore,
}

impl Definitions {
    /// The word for it on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Ignore => "ignore",
        }
    }
}

/// How much of a cluster the host sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSettings {
    /// The namespaces, sorted; none: all.
    pub namespaces: Option<Vec<String>>,
    /// What becomes of CustomResourceDefinitions.
    pub crds: Definitions,
}

impl ScopeArgs {
    pub(super) fn into_settings(self) -> Result<ScopeSettings, Error> {
        let Self { namespaces, crds } = self;
        let namespaces = namespaces.map(checked).transpose()?;
        Ok(ScopeSettings { namespaces, crds })
    }
}

/// The names in order, each once.
fn checked(names: Vec<String>) -> Result<Vec<String>, Error> {
    let mut known = BTreeSet::new();
    for name in names {
        let name = name.trim();
        if name.is_empty() {
            return Err(Error::NoNamespace);
        }
        if !is_dns_label(name) {
            return Err(Error::NamespaceName(name.to_owned()));
        }
        if !known.insert(name.to_owned()) {
            return Err(Error::NamespaceTwice(name.to_owned()));
        }
    }
    Ok(known.into_iter().collect())
}
