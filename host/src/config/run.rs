//! The command `run`.

use super::{
    AdminSettings, Error,
    admin::AdminArgs,
    cluster::{ClusterArgs, ClusterSettings},
    lease::{LeaseArgs, LeaseSettings, lease_name},
    plugins::{PluginArgs, PluginSettings},
    scope::{ScopeArgs, ScopeSettings},
    sources::{SourceArgs, SourceSettings},
    streams::exit_codes,
};

/// The signals and exit codes of `run`, in its help.
const HELP: &str = concat!(
    "The first SIGTERM or SIGINT lets running passes end (--drain-timeout), a second one aborts them.\n",
    "Nothing is lost: the next start completes them.\n\n",
    exit_codes!(),
    "\n  130, 143  aborted by a second SIGINT or SIGTERM"
);

/// Flags of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct RunArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Everything that a running host needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// Which cluster.
    pub cluster: ClusterSettings,
    /// How much of it is seen.
    pub scope: ScopeSettings,
    /// Which plugins.
    pub plugins: PluginSettings,
    /// Where the plugins of Plugin resources may come from; none: Plugins are not looked at.
    pub sources: Option<SourceSettings>,
    /// By which lease hosts take turns; none: this one is alone.
    pub lease: Option<LeaseSettings>,
    /// Where to answer for health and metrics; none: nowhere.
    pub admin: Option<AdminSettings>,
}

impl RunArgs {
    pub(super) fn into_settings(self) -> Result<RunSettings, Error> {
        let Self {
            cluster,
            scope,
            plugins,
            sources,
            lease,
            admin,
        } = self;
        let cluster = cluster.into_settings();
        let scope = scope.into_settings()?;
        let plugins = plugins.into_settings()?;
        let sources = sources.into_settings(!plugins.files.is_empty())?;
        let selector = sources
            .as_ref()
            .and_then(|sources| sources.selector.as_deref());
        let default_name = lease_name(scope.namespaces.as_deref(), selector);
        Ok(RunSettings {
            lease: lease.into_settings(cluster.kubeconfig.as_deref(), default_name)?,
            cluster,
            scope,
            sources,
            plugins,
            admin: admin.into_settings(),
        })
    }
}
