//! The command `dev`.

use std::{path::PathBuf, time::Duration};

use super::{
    AdminArgs, ClusterArgs, LeaseArgs, PluginArgs, RunArgs, ScopeArgs, SourceArgs, TraceArgs,
    plugins::plugin_files,
    streams::{examples, exit_codes},
    values::seconds,
};
use crate::failure::Failure;

/// The exit codes of `dev`, in its help.
const HELP: &str = concat!(
    examples!(
        "innkeeper dev --controlplane target/controlplane/controlplane --plugin plugin.wasm --example parent.yaml",
        "innkeeper dev --kubeconfig kind.yaml --plugin plugin.wasm --once"
    ),
    exit_codes!("with --once: a parent is not Ready in time"),
    "\n  130, 143  aborted by a second SIGINT or SIGTERM"
);

/// Flags of `dev`.
// The user must name the cluster: `dev` applies examples, which do not belong into whatever cluster is the current one.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Development", after_help = HELP)]
#[command(group = plugin_files().required(true))]
#[command(group = clap::ArgGroup::new("dev-cluster").required(true).args(["controlplane", "kubeconfig"]))]
#[command(mut_arg("kubeconfig", |arg| arg.help("Use the cluster of this kubeconfig instead of a local control plane.")))]
pub struct DevArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Start a local control plane with this program (built by tests/controlplane/build) instead of using a cluster.
    ///
    /// There, plugins without --grants get everything that they ask for, with Pods at podSecurity: restricted.
    #[arg(long, value_name = "FILE")]
    pub controlplane: Option<PathBuf>,
    /// Keep the data of the local control plane in this directory, and continue with it at the next start
    /// [default: a new directory, removed at the end].
    #[arg(long, value_name = "DIR", requires = "controlplane")]
    pub dir: Option<PathBuf>,
    /// Leave the control plane running at the end, without a host; its directory and its process are printed.
    #[arg(long, requires = "controlplane")]
    pub keep: bool,
    /// Apply the objects of these YAML or JSON files, and wait until the parents among them are Ready.
    #[arg(long = "example", value_name = "FILE", num_args = 1..)]
    pub examples: Vec<PathBuf>,
    /// Exit when all parents are Ready.
    #[arg(long)]
    pub once: bool,
    /// With --once: fail if a parent is not Ready after this number of seconds, 1 to 86400.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds(1..=86_400))]
    pub timeout: Duration,
}

impl DevArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.plugins.check()
    }

    /// Returns the settings of the host: plugin files only, without a lease and an admin server.
    ///
    /// `dev` is the only host of a local cluster, and a lease in another cluster would delay the next start.
    pub fn host(&self) -> RunArgs {
        let mut plugins = self.plugins.clone();
        // The local control plane is for the plugins alone.
        plugins.grants_requests = self.controlplane.is_some();
        RunArgs {
            cluster: self.cluster.clone(),
            plugins,
            scope: ScopeArgs::default(),
            sources: SourceArgs::default(),
            lease: LeaseArgs::off(),
            admin: AdminArgs::default(),
            traces: TraceArgs::default(),
        }
    }
}
