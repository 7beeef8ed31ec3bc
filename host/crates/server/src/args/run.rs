//! The command `run`.

use innkeeper_command::{Exit, Failure, examples, exit_codes};
use innkeeper_model::HostScope;

use super::{AdminArgs, ClusterArgs, LeaseArgs, PluginArgs, ScopeArgs, SourceArgs, TraceArgs};

/// The end of the help: signals and exit codes.
const HELP: &str = concat!(
    examples!(
        "innkeeper run --source-dir /plugins --admin-address 127.0.0.1:8080",
        "innkeeper run --plugin memcached.wasm --grants memcached=grants.yaml",
        "innkeeper run --namespaces team-a,team-b --crds ignore"
    ),
    "The first SIGTERM or SIGINT lets running passes end (--drain-timeout), a second one aborts them.\n",
    "Nothing is lost: the next start completes aborted passes.\n\n",
    exit_codes!(),
    "\n  130, 143  aborted by a second SIGINT or SIGTERM"
);

/// Flags of `run`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = HELP)]
pub struct RunArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The visible part of the cluster.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// The plugin files.
    #[command(flatten)]
    pub plugins: PluginArgs,
    /// The Plugin resources.
    #[command(flatten)]
    pub sources: SourceArgs,
    /// The leader election.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// The admin server.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// The traces.
    #[command(flatten)]
    pub traces: TraceArgs,
}

impl RunArgs {
    /// Checks the flags together.
    pub fn check(&self) -> Result<(), Failure> {
        self.plugins.check()?;
        self.admin.check()?;
        if !self.serves_resources()
            && let Some(flag) = self.sources.first_given()
        {
            let message = format!(
                "{flag} is for Plugin resources, which the host does not serve beside plugin files: add --plugin-resources, or omit --plugin and --plugin-dir"
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        self.lease.check()
    }

    /// Returns true if the host serves Plugin resources: without plugin files, or if the user asks for both.
    pub fn serves_resources(&self) -> bool {
        self.sources.plugin_resources || self.plugins.files().is_empty()
    }

    /// Returns true if the host writes only while it holds a lease.
    pub fn elects_leader(&self) -> bool {
        self.lease.is_on()
    }

    /// The part of the cluster that the host serves.
    pub fn host_scope(&self) -> HostScope {
        let namespaces = self.scope.namespaces.as_ref();
        HostScope {
            namespaces: namespaces.map(|names| names.iter().cloned().collect()),
            selector: self.sources.selector.clone().unwrap_or_default(),
            shards: self.lease.shards,
        }
    }

    /// The lease name.
    pub fn lease_name(&self) -> String {
        // A host without Plugin resources has no selector.
        let selector = self.sources.selector.as_ref();
        self.lease.name(self.scope.namespaces.as_deref(), selector)
    }
}
