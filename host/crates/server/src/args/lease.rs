//! Leader election.

use std::{env, time::Duration};

use innkeeper_command::{Exit, Failure, values::seconds};
use innkeeper_lease::Times;
use innkeeper_model::{Digest, Selector, Shards};

/// Flags of leader election.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaseArgs {
    /// Write only while holding the lease, so that one of several hosts is active. With false, the host does not start
    /// while another holds a lease for the same namespaces and Plugins [default: true].
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        // As in Kubernetes: `--leader-elect` alone is true, and a value needs `=`.
        require_equals = true,
        default_missing_value = "true"
    )]
    leader_elect: Option<bool>,
    /// Lease in the host's namespace. One host's replicas share it; hosts side by side need different ones [default:
    /// innkeeper, or innkeeper-HASH of --namespaces and --plugin-selector].
    #[arg(long, value_name = "NAME")]
    lease_name: Option<String>,
    /// Number of parts in which the host's replicas share out the parents, by namespace, 1 to 64. Each part has a lease,
    /// and any replica may hold it. All replicas need the same number.
    #[arg(
        long,
        value_name = "N",
        env = "INNKEEPER_SHARDS",
        default_value = "1",
        value_parser = shards
    )]
    pub shards: Shards,
    /// Host name in the lease, followed by random characters [default: the Pod's name].
    #[arg(
        long = "lease-identity",
        value_name = "NAME",
        env = "INNKEEPER_LEASE_IDENTITY",
        default_value_t = pod_name(),
        hide_default_value = true
    )]
    pub identity: String,
    /// Time after the last renewal until another host takes over, 1 to 3600.
    #[arg(long = "lease-duration", value_name = "SECONDS", default_value = "15", value_parser = seconds(1..=3600))]
    duration: Duration,
    /// Time after the last renewal until this host stops writing and exits, 1 to 3600.
    #[arg(long = "lease-renew-deadline", value_name = "SECONDS", default_value = "10", value_parser = seconds(1..=3600))]
    renew_deadline: Duration,
    /// Renewal interval, 1 to 3600.
    #[arg(long = "lease-retry", value_name = "SECONDS", default_value = "2", value_parser = seconds(1..=3600))]
    retry: Duration,
}

impl Default for LeaseArgs {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            leader_elect: None,
            lease_name: None,
            shards: Shards::ONE,
            identity: pod_name(),
            // The defaults in client-go.
            duration: seconds(15),
            renew_deadline: seconds(10),
            retry: seconds(2),
        }
    }
}

impl LeaseArgs {
    /// Checks that the holder stops before another host takes over, and that shards have holders.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if !self.is_on() {
            if self.shards.is_one() {
                return Ok(());
            }
            let message = format!(
                "--shards {} needs a lease for each shard: omit --leader-elect=false",
                self.shards
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        // No write begins in the last fifth of the deadline, so every renewal must come before it.
        let is_late = self.retry * 5 >= self.renew_deadline * 4;
        if self.duration > self.renew_deadline && !is_late {
            return Ok(());
        }
        let message = format!(
            "--lease-duration {} must be more than --lease-renew-deadline {}, and four fifths of that more than --lease-retry {}",
            self.duration.as_secs(),
            self.renew_deadline.as_secs(),
            self.retry.as_secs()
        );
        Err(Failure::new(Exit::Usage, message))
    }

    /// Returns true if the host elects a leader.
    pub(super) fn is_on(&self) -> bool {
        self.leader_elect.unwrap_or(true)
    }

    /// Returns the lease name for a host with this scope.
    pub(super) fn name(
        &self,
        namespaces: Option<&[String]>,
        selector: Option<&Selector>,
    ) -> String {
        self.lease_name
            .clone()
            .unwrap_or_else(|| lease_name(namespaces, selector))
    }

    /// The election's times.
    pub const fn times(&self) -> Times {
        Times {
            duration: self.duration,
            renew_deadline: self.renew_deadline,
            retry: self.retry,
        }
    }
}

fn shards(text: &str) -> Result<Shards, String> {
    text.parse()
        .ok()
        .and_then(Shards::new)
        .ok_or_else(|| format!("give a number from 1 to {}", Shards::MAX))
}

/// Returns the default lease name for this scope: hosts with different scopes must not wait for each other.
fn lease_name(namespaces: Option<&[String]>, plugin_selector: Option<&Selector>) -> String {
    /// Enough to tell the hosts of one namespace apart.
    const HASH_LENGTH: usize = 10;

    if namespaces.is_none() && plugin_selector.is_none() {
        return "innkeeper".to_owned();
    }
    let namespaces = namespaces.unwrap_or_default().join(",");
    let selector = plugin_selector.map(Selector::to_string).unwrap_or_default();
    // Unambiguous: neither part contains a line break.
    let hash: String = Digest::hash(format!("{namespaces}\n{selector}").as_bytes())
        .to_hex()
        .chars()
        .take(HASH_LENGTH)
        .collect();
    format!("innkeeper-{hash}")
}

/// Returns the Pod's name, which is its host name.
#[expect(
    clippy::disallowed_methods,
    reason = "only flags and their defaults come from the environment"
)]
fn pod_name() -> String {
    env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "innkeeper".to_owned())
}
