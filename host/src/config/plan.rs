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
#[command(after_help = concat!(examples!("innkeeper plan memcached.wasm", "innkeeper plan oci://registry.example/plugins/memcached:1.5.0 --against oci://registry.example/plugins/memcached:1.4.0", "innkeeper plan memcached.wasm --config config.yaml --parent team-a/web", "innkeeper plan memcached.wasm --output markdown", "innkeeper plan memcached.wasm --from memcached.dump"), exit_codes!("children would be deleted, the plugin fails for a parent, or a plugin failed to describe itself")))]
pub struct PlanArgs {
    /// The candidate.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Leave out the changes that this plugin makes, too, with the configuration of the Plugin in the cluster; give the
    /// active revision to see only the effects of the candidate [default: compare with the live objects]
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub against: Option<Inspected>,
    /// Print the differences for this parent below the summary; may be given more than once
    #[arg(long = "parent", value_name = "NAMESPACE/NAME")]
    pub parents: Vec<ParentName>,
    /// Read this file of `innkeeper dump` instead of a cluster; it also has the namespaces [default: read the cluster]
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["kubeconfig", "context"])]
    pub from: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
}

/// Flags of `dump`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    long_about = "Write all that `innkeeper plan` reads from a cluster for a plugin to a file, for plans without the cluster; writes nothing to the cluster.\n\nThe file has the parents and children of the plugin and the objects that it may read. It has no value of a Secret, only the keyed hashes that plugins see. It has the hash key of the host, without which no plan is possible: with the file, guesses of a weak password can be checked, so keep it as a Secret.",
    after_help = concat!(examples!("innkeeper dump memcached.wasm --to memcached.dump", "innkeeper plan memcached.wasm --from memcached.dump"), exit_codes!("the plugin failed to describe itself"))
)]
pub struct DumpArgs {
    /// The plugin.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// File to write, which is made for its owner only; must not exist
    #[arg(long, value_name = "DUMP")]
    pub to: PathBuf,
}

/// Flags of a candidate for live parents.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Candidate: a .wasm file, or an artifact in a registry
    #[arg(value_name = "PLUGIN", value_parser = PathBufValueParser::new().map(Inspected::from), required_unless_present = "plugin")]
    pub plugin_file: Option<Inspected>,
    /// Candidate, as the argument PLUGIN
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from), conflicts_with = "plugin_file")]
    pub plugin: Option<Inspected>,
    /// Name of the Plugin in the cluster, by which its children are found [default: the name in the component]
    #[arg(long, value_name = "NAME", value_parser = PluginName::new)]
    pub name: Option<PluginName>,
    /// Configuration of the candidate: a YAML or JSON file with one object [default: that of the Plugin in the cluster, or
    /// an empty object]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Grants: a YAML or JSON file in the form of `spec.grants` of a Plugin [default: those of the Plugin in the cluster, or
    /// those of `manifests --print-grants`]
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// The API server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Namespace of the host, with its hash key and inventory [default: the Pod's own, or innkeeper-system outside of a
    /// cluster]
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
    /// Read these namespaces only, as a host with --namespaces [default: all namespaces]
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

/// The output format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// Lines for people.
    Text,
    /// One JSON object with the writes of every parent.
    Json,
    /// Markdown, for a pull request.
    Markdown,
}
