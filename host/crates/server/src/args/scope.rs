//! The part of the cluster that the host sees.

use innkeeper_command::{Definitions, Namespaces, namespaces};

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
