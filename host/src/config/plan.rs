//! The command `plan`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_authoring::{Inspected, LoadArgs};
use innkeeper_command::{
    Namespaces, ParentName, examples, exit_codes, namespaces, values::dns_label,
};
use innkeeper_model::PluginName;
use innkeeper_server::{ConnectionArgs, default_namespace};

/// Flags of `plan`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper plan memcached.wasm", "innkeeper plan oci://registry.example/plugins/memcached:1.5.0 --against oci://registry.example/plugins/memcached:1.4.0", "innkeeper plan memcached.wasm --config config.yaml --parent team-a/web", "innkeeper plan memcached.wasm --output markdown"), exit_codes!("children would be deleted, the plugin fails for a parent, or a plugin failed to describe itself")))]
pub struct PlanArgs {
    /// Omit changes that this plugin, such as the active revision, makes too, with the configuration in the cluster
    /// [default: compare with the live objects].
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub against: Option<Inspected>,
    /// Print this parent's differences below the summary; repeatable.
    #[arg(long = "parent", value_name = "NAMESPACE/NAME")]
    pub parents: Vec<ParentName>,
    /// Read this `innkeeper dump` file, which also has the namespaces, instead of a cluster.
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["kubeconfig", "context"])]
    pub from: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
    /// The candidate.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

/// Flags of `dump`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    long_about = "Write everything that `innkeeper plan` reads from a cluster to a file, for plans without the cluster; writes nothing to the cluster.\n\nThe file contains the plugin's parents and children and the objects that it may read. It contains no Secret values, only the keyed hashes that plugins see. It also contains the host's hash key, which plans need: whoever has the file can check guesses of a weak password, so protect it like a Secret.",
    after_help = concat!(examples!("innkeeper dump memcached.wasm --to memcached.dump", "innkeeper plan memcached.wasm --from memcached.dump"), exit_codes!("the plugin failed to describe itself"))
)]
pub struct DumpArgs {
    /// File to create, readable by its owner only; must not exist.
    #[arg(long, value_name = "DUMP")]
    pub to: PathBuf,
    /// The plugin.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

/// Flags for a candidate and its cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Candidate: a .wasm file, or an artifact in a registry.
    #[arg(value_name = "PLUGIN", value_parser = PathBufValueParser::new().map(Inspected::from), required_unless_present = "plugin")]
    pub plugin_file: Option<Inspected>,
    /// Same as PLUGIN.
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from), conflicts_with = "plugin_file")]
    pub plugin: Option<Inspected>,
    /// The Plugin's name in the cluster, which labels its children [default: the component's name].
    #[arg(long, value_name = "NAME", value_parser = PluginName::new)]
    pub name: Option<PluginName>,
    /// Configuration as YAML or JSON [default: the Plugin's in the cluster, or an empty object].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Grants (`spec.grants`) as YAML or JSON [default: the Plugin's in the cluster, or those of `manifests
    /// --print-grants`].
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// The API server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// The host's namespace [default: the Pod's, or innkeeper-system outside a cluster].
    #[arg(
        long,
        value_name = "NAME",
        env = "INNKEEPER_HOST_NAMESPACE",
        default_value_t = default_namespace(),
        hide_default_value = true,
        value_parser = dns_label,
        help_heading = "Cluster"
    )]
    pub host_namespace: String,
    /// Read only these namespaces, like a host with --namespaces [default: all namespaces].
    #[arg(
        long,
        value_name = "NAME,...",
        env = "INNKEEPER_NAMESPACES",
        value_parser = namespaces,
        help_heading = "Cluster"
    )]
    pub namespaces: Option<Namespaces>,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// A plan's output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// Lines for people.
    Text,
    /// One JSON object with the writes of every parent.
    Json,
    /// Markdown, for a pull request.
    Markdown,
}
