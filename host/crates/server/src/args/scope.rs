//! The part of the cluster that the host sees.

use innkeeper_command::{Definitions, Namespaces, namespaces};

/// Flags that limit the scope of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ScopeArgs {
    /// Watch and write only in these namespaces: the host ignores parents elsewhere and refuses reads from other
    /// namespaces. It then needs only Roles in them, which the chart and `innkeeper manifests --namespaces` create
    /// [default: all namespaces].
    #[arg(
        long,
        value_name = "NAME,...",
        env = "INNKEEPER_NAMESPACES",
        value_parser = namespaces
    )]
    pub namespaces: Option<Namespaces>,
    /// Install the plugins' CustomResourceDefinitions and keep them as the plugins state them, or ignore CRDs: compatible
    /// definitions must then exist already.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub crds: Definitions,
}
