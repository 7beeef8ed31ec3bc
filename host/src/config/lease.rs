//! Whether hosts take turns, and how fast.

use std::{env, path::Path, time::Duration};

use innkeeper_model::Digest;
use innkeeper_reconcile::lease::Times;

use super::{Error, cluster::POD_NAMESPACE_FILE};

/// Flags of leader election.
#[derive(Debug, clap::Args)]
pub(super) struct LeaseArgs {
    /// Whether this host writes only while it holds the lease, so that several can run and one of them works; by
    /// default it does in a Pod, and does not with a kubeconfig.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    leader_elect: Option<bool>,
    /// The name of the lease, in the host's namespace. Hosts that take turns have the same one, and hosts that are to
    /// work side by side do not [default: innkeeper; with --namespaces or --plugin-selector innkeeper-HASH, the same for
    /// the same values of these].
    #[arg(long, value_name = "NAME")]
    lease_name: Option<String>,
    /// What this host is called in the lease, followed by random characters; by default the name of its Pod.
    #[arg(long, value_name = "NAME", env = "INNKEEPER_LEASE_IDENTITY")]
    lease_identity: Option<String>,
    /// After so many seconds without a renewal another host takes over.
    #[arg(long = "lease-duration", value_name = "SECONDS", default_value_t = 15, value_parser = seconds())]
    duration_seconds: u32,
    /// After so many seconds without a renewal this host stops to write, and ends.
    #[arg(long = "lease-renew-deadline", value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    renew_deadline_seconds: u32,
    /// So many seconds are between two renewals.
    #[arg(long = "lease-retry", value_name = "SECONDS", default_value_t = 2, value_parser = seconds())]
    retry_seconds: u32,
}

fn seconds() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=3600)
}

/// A lease, and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The lease's name.
    pub name: String,
    /// What the host is called in it; what makes it unique is to be added.
    pub identity: String,
    /// How fast it changes hands.
    pub times: Times,
}

impl LeaseArgs {
    /// None without leader election.
    ///
    /// A host outside of the cluster is mostly somebody's who tries something out and is alone there: it should not
    /// leave a lease behind that the next start has to wait for.
    pub(super) fn into_settings(
        self,
        kubeconfig: Option<&Path>,
        default_name: String,
    ) -> Result<Option<LeaseSettings>, Error> {
        let Self {
            leader_elect,
            lease_name,
            lease_identity,
            duration_seconds,
            renew_deadline_seconds,
            retry_seconds,
        } = self;
        let in_pod = || kubeconfig.is_none() && Path::new(POD_NAMESPACE_FILE).exists();
        if !leader_elect.unwrap_or_else(in_pod) {
            return Ok(None);
        }
        // In the last fifth of the deadline no write begins, so that every renewal has to come before it.
        let is_late = retry_seconds * 5 >= renew_deadline_seconds * 4;
        if duration_seconds <= renew_deadline_seconds || is_late {
            return Err(Error::LeaseTimes {
                duration_s: duration_seconds,
                renew_deadline_s: renew_deadline_seconds,
                retry_s: retry_seconds,
            });
        }
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(Some(LeaseSettings {
            name: lease_name.unwrap_or(default_name),
            identity: lease_identity.unwrap_or_else(pod_name),
            times: Times {
                duration: seconds(duration_seconds),
                renew_deadline: seconds(renew_deadline_seconds),
                retry: seconds(retry_seconds),
            },
        }))
    }
}

/// The name of the lease of hosts that see so much of a cluster.
///
/// Hosts that see another part of it do other work, and one must not wait until the other one ends.
pub fn lease_name(namespaces: Option<&[String]>, plugin_selector: Option<&str>) -> String {
    /// Digits of the hash that are told: enough for the hosts of one namespace.
    const TOLD: usize = 10;

    if namespaces.is_none() && plugin_selector.is_none() {
        return "innkeeper".to_owned();
    }
    let namespaces = namespaces.unwrap_or_default().join(",");
    let selector = plugin_selector.unwrap_or_default().trim();
    let hash = Digest::of(format!("{namespaces}\n{selector}").as_bytes()).to_hex();
    let told: String = hash.chars().take(TOLD).collect();
    format!("innkeeper-{told}")
}

/// The name of the Pod, which is its host name.
#[expect(
    clippy::disallowed_methods,
    reason = "config is the only reader of the environment"
)]
fn pod_name() -> String {
    env::var("HOSTNAME").unwrap_or_else(|_| "innkeeper".to_owned())
}
