//! The command `dev`.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use innkeeper_authoring::BuildArgs;
use innkeeper_command::{Exit, Failure, examples, exit_codes, values::seconds};
use innkeeper_server::{
    AdminArgs, ClusterArgs, LeaseArgs, PluginArgs, RunArgs, ScopeArgs, SourceArgs, TraceArgs,
    plugin_files,
};

/// The end of the help: examples and exit codes.
const HELP: &str = concat!(
    examples!(
        "innkeeper dev --controlplane target/controlplane/controlplane --example tests/example/parent.yaml",
        "innkeeper dev --kubeconfig kind.yaml --plugin plugin.wasm --once"
    ),
    exit_codes!("with --once: a parent is not Ready in time"),
    "\n  130, 143  aborted by a second SIGINT or SIGTERM"
);

/// Flags of `dev`.
// The user must name the cluster: `dev` applies examples, which must not end up in the current context by accident.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(next_help_heading = "Development", after_help = HELP)]
#[command(group = plugin_files())]
#[command(mut_arg("kubeconfig", |arg| arg.help("Use the cluster of this kubeconfig instead of a local control plane.")))]
pub struct DevArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Develop the plugin crate in this directory: after each file change, build it and run it as a Plugin resource with
    /// config.yaml, if present [default: the current directory, or none with plugin files].
    ///
    /// If the build fails, or the plugin fails for a parent in the plan, the active revision stays.
    #[arg(value_name = "DIR", conflicts_with = "plugin-files")]
    crate_directory: Option<PathBuf>,
    /// Ask before each swap to a new revision of the crate.
    #[arg(long, conflicts_with_all = ["plugin-files", "yes"])]
    pub ask: bool,
    /// Do not ask before a swap that deletes children in a cluster that dev did not start.
    #[arg(long, conflicts_with = "plugin-files")]
    pub yes: bool,
    /// The host's scope.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Start a local control plane with this program, built by tests/controlplane/build [default:
    /// $INNKEEPER_CONTROLPLANE, unless --kubeconfig or --context is set].
    ///
    /// There, plugins without --grants get everything they request, with Pods at podSecurity: restricted.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    controlplane: Option<PathBuf>,
    /// Keep the control plane's data here for the next start [default: a new directory, removed at the end].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub dir: Option<PathBuf>,
    /// Leave the control plane running at the end, without a host, and print its directory and process ID.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    pub keep: bool,
    /// Apply these YAML or JSON files, and wait until the parents in them are Ready. Objects without a namespace go to
    /// the first of --namespaces, or to default.
    #[arg(long = "example", value_name = "FILE", num_args = 1..)]
    pub examples: Vec<PathBuf>,
    /// Exit when all parents are Ready.
    #[arg(long)]
    pub once: bool,
    /// With --once: fail if a parent is not Ready in time, 1 to 86400.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds(1..=86_400))]
    pub timeout: Duration,
}

impl DevArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.plugins.check()?;
        if self.names_cluster() || self.controlplane().is_some() {
            return Ok(());
        }
        let message = "dev needs a cluster: give --controlplane FILE or set INNKEEPER_CONTROLPLANE to start one, or name one with --kubeconfig FILE or --context NAME";
        Err(Failure::new(Exit::Usage, message))
    }

    /// The local control plane's program; none if the user names a cluster.
    pub fn controlplane(&self) -> Option<PathBuf> {
        self.controlplane
            .clone()
            // A cluster that the user names wins over the variable.
            .or_else(|| default_program().filter(|_| !self.names_cluster()))
    }

    const fn names_cluster(&self) -> bool {
        let connection = &self.cluster.connection;
        connection.kubeconfig.is_some() || connection.context.is_some()
    }

    /// The crate's directory; none with plugin files.
    pub fn project(&self) -> Option<&Path> {
        let has_files = !self.plugins.files().is_empty();
        self.crate_directory
            .as_deref()
            .or_else(|| (!has_files).then_some(Path::new(".")))
    }

    /// Returns the namespace for examples without one.
    pub fn examples_namespace(&self) -> &str {
        self.scope
            .namespaces
            .iter()
            .flatten()
            .next()
            .map_or("default", String::as_str)
    }

    /// Returns the host's settings: the default lease, no admin server.
    pub fn host(&self) -> RunArgs {
        let mut plugins = self.plugins.clone();
        // The local control plane is for the plugins alone.
        plugins.grants_requests = self.controlplane().is_some();
        let mut sources = SourceArgs::default();
        if let Some(directory) = self.project() {
            sources.source_dir = Some(BuildArgs::for_dev(directory).out_dir());
        }
        RunArgs {
            cluster: self.cluster.clone(),
            plugins,
            scope: self.scope.clone(),
            sources,
            lease: LeaseArgs::default(),
            admin: AdminArgs::default(),
            traces: TraceArgs::default(),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "clap would take the variable for the flag, which conflicts with those of an existing cluster"
)]
fn default_program() -> Option<PathBuf> {
    env::var_os("INNKEEPER_CONTROLPLANE").map(PathBuf::from)
}
