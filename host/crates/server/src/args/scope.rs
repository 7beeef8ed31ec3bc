//! The part of the cluster that the host sees.

use innkeeper_command::{Definitions, Namespaces, namespaces};

/// Flags that limit the scope of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ScopeArgs {
    /// Watch and write only in these namespaces; ignore parents and refuse reads elsewhere. The host then needs only
    /// Roles there, which the chart and `innkeeper manifests --namespaces` create [default: all namespaces].
    #[arg(
        long,
        value_name = "NAME,...",
        env = "INNKEEPER_NAMESPACES",
        value_parser = namespaces
    )]
    pub namespaces: Option<Namespaces>,
    /// Install and restore the plugins' CustomResourceDefinitions, or ignore CRDs; compatible ones must then exist.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub crds: Definitions,
}
