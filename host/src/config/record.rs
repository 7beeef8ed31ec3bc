//! The command `record`.

use std::{path::PathBuf, time::Duration};

use innkeeper_command::{Failure, ParentName, examples, exit_codes, values::seconds};
use innkeeper_model::PluginName;
use innkeeper_server::{
    AdminAddress, AdminClientArgs,
    admin::{RECORDING_SECONDS_MAX, RECORDINGS_MAX},
};

/// Flags of `record`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true).args(["parent", "plugin"]),
    after_help = concat!(examples!("innkeeper record --parent team-a/web --admin-address 127.0.0.1:8080", "innkeeper record --plugin memcached --next-faults 3 --timeout 1h --to recordings --admin-address https://127.0.0.1:8080 --insecure-skip-tls-verify --token-file debugger.token"), exit_codes!("fewer recordings than requested within the time"))
)]
pub struct RecordArgs {
    /// Record this parent's next call. The host calls the plugin immediately.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub parent: Option<ParentName>,
    /// Record this plugin's calls.
    #[arg(long, value_name = "NAME", value_parser = PluginName::new, requires = "next_faults")]
    pub plugin: Option<PluginName>,
    /// With --plugin: record this many calls that end with a fault, 1 to 100.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RECORDINGS_MAX)), requires = "plugin")]
    pub next_faults: Option<u32>,
    /// Host with --debug-endpoints: HOST:PORT, or https://HOST:PORT with --admin-tls. For a Pod, use `kubectl
    /// port-forward`.
    #[arg(long, value_name = "ADDRESS", env = "INNKEEPER_ADMIN_ADDRESS")]
    pub admin_address: AdminAddress,
    /// Maximum wait, in seconds, 1 to 3600, or as 1h.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = seconds(1..=RECORDING_SECONDS_MAX))]
    pub timeout: Duration,
    /// Directory for PLUGIN-NAMESPACE-NAME-N.json, readable by their owner only; created if missing.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub to: PathBuf,
    /// The connection to the host.
    #[command(flatten)]
    pub client: AdminClientArgs,
}

impl RecordArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.client.check(Some(&self.admin_address))
    }
}
