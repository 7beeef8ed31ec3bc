//! The command `dev`.

use std::{path::PathBuf, time::Duration};

use super::{
    Error, RunSettings, ScopeSettings,
    cluster::{ClusterArgs, ClusterSettings},
    plugins::{PluginArgs, plugin_files},
    streams::exit_codes,
};

/// The exit codes of `dev`, in its help.
const HELP: &str = concat!(
    exit_codes!("with --once: a parent is not Ready in time"),
    "\n  130, 143  aborted by a second SIGINT or SIGTERM"
);

/// Flags of `dev`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What to try out", after_help = HELP)]
#[command(group = plugin_files().required(true))]
#[command(group = clap::ArgGroup::new("dev-cluster").required(true).args(["controlplane", "kubeconfig"]))]
pub(super) struct DevArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Start a local control plane with this program (tests/controlplane/build makes it) instead of using a cluster.
    #[arg(long, value_name = "FILE")]
    controlplane: Option<PathBuf>,
    /// Keep the local control plane's data in this directory and go on from there next time [default: a new directory,
    /// removed afterwards].
    #[arg(long, value_name = "DIR", requires = "controlplane")]
    dir: Option<PathBuf>,
    /// Apply the objects of these YAML or JSON files, and wait until the parents among them are Ready.
    #[arg(long = "example", value_name = "FILE", num_args = 1..)]
    examples: Vec<PathBuf>,
    /// End when all parents are Ready instead of staying up.
    #[arg(long)]
    once: bool,
    /// With --once, fail when not all parents are Ready after so many seconds, 1 to 86400.
    #[arg(
        long = "timeout",
        value_name = "SECONDS",
        default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    timeout_seconds: u64,
}

/// The cluster that `dev` works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevCluster {
    /// One of its own, started and ended with it.
    Local {
        /// The program of the control plane.
        program: PathBuf,
        /// Where it lives; none: a temporary directory.
        dir: Option<PathBuf>,
    },
    /// One that is there.
    Existing,
}

/// Everything that `dev` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevSettings {
    /// The cluster.
    pub cluster: DevCluster,
    /// How the host in it runs; the kubeconfig of a local cluster is filled in once there is one.
    pub run: RunSettings,
    /// What to apply.
    pub examples: Vec<PathBuf>,
    /// Whether to end when all is Ready.
    pub once: bool,
    /// How long that may take.
    pub timeout: Duration,
}

impl DevArgs {
    pub(super) fn into_settings(self) -> Result<DevSettings, Error> {
        let Self {
            cluster,
            plugins,
            controlplane,
            dir,
            examples,
            once,
            timeout_seconds,
        } = self;
        let cluster: ClusterSettings = cluster.into_settings();
        Ok(DevSettings {
            cluster: match controlplane {
                Some(program) => DevCluster::Local { program, dir },
                None => DevCluster::Existing,
            },
            run: RunSettings {
                admin: None,
                cluster,
                scope: ScopeSettings::default(),
                plugins: plugins.into_settings()?,
                sources: None,
                // It is alone in a cluster of its own, and asks nobody in one that is there.
                lease: None,
            },
            examples,
            once,
            timeout: Duration::from_secs(timeout_seconds),
        })
    }
}
