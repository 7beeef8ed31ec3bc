//! Stops a host without a lease from starting beside one that holds a lease: they would undo each other's writes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use innkeeper_cluster::{self as cluster, LeaseReader, Viewer};
use innkeeper_command::{Exit, Failure};
use innkeeper_lease::Lease;
use innkeeper_model::{HostScope, ResourceVersion, error_chain};
use tokio::time::sleep;
use tracing::{info, warn};

use super::tasks::retry;
use crate::args::RunArgs;

/// The time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A quarter of the default renewal interval.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum wait for a renewal, whatever duration the holder states.
const RENEWED_WITHIN_MAX: Duration = Duration::from_mins(1);

/// Fails if another host holds a lease with an overlapping scope, whatever the lease's name.
///
/// A lease is held if someone renews it while this host watches: this compares no clocks, and a killed host renews nothing.
pub(super) async fn check(client: kube::Client, args: &RunArgs) -> Result<(), Failure> {
    match holder(client, args).await {
        Ok(None) => Ok(()),
        Ok(Some((lease, holder))) => Err(refused(&lease, &holder)),
        Err(error) => {
            warn!(error = %error_chain(&error), "failed to check for other hosts with a lease: two hosts with the same plugins would undo each other's writes");
            // Only a missing permission ends up here, and it must not stop the host.
            Ok(())
        }
    }
}

/// Returns a lease that its holder renews, and the holder.
async fn holder(
    client: kube::Client,
    args: &RunArgs,
) -> Result<Option<(String, String)>, cluster::Error> {
    const GOAL: &str = "check for hosts with a lease";
    let is_temporary = |error: &cluster::Error| !error.is_forbidden();
    // One discovery for all lists.
    let open = || Viewer::open(client.clone(), REQUEST_TIMEOUT);
    let viewer = retry(GOAL, is_temporary, open).await?;
    let mut first_seen: BTreeMap<String, (ResourceVersion, Instant)> = BTreeMap::new();
    loop {
        let list = || leases_with_holders(&viewer, client.clone(), args);
        let leases = retry(GOAL, is_temporary, list).await?;
        let now = Instant::now();
        if first_seen.is_empty() && !leases.is_empty() {
            let names: Vec<_> = leases.keys().collect();
            info!(leases = ?names, "checking whether a host renews these leases");
        }
        let mut is_waiting = false;
        for (name, lease) in leases {
            let (version, since) = *first_seen
                .entry(name.clone())
                .or_insert((lease.version, now));
            if version != lease.version {
                return Ok(Some((name, lease.record.holder)));
            }
            let duration = Duration::from_secs(lease.record.duration_s.into());
            is_waiting |= now.duration_since(since) < duration.min(RENEWED_WITHIN_MAX);
        }
        if !is_waiting {
            return Ok(None);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the leases with a holder and an overlapping scope, by `namespace/name`. Without permission to list leases,
/// reads only the one that this host would have.
async fn leases_with_holders(
    viewer: &Viewer,
    client: kube::Client,
    args: &RunArgs,
) -> Result<BTreeMap<String, Lease>, cluster::Error> {
    let leases = match viewer.leases().await {
        Err(error) if error.is_forbidden() => return default_lease(client, args).await,
        leases => leases?,
    };
    let scope = args.host_scope();
    let overlapping = leases.iter().filter_map(|object| {
        let lease = Lease::from(object);
        let other = HostScope::from_lease(object);
        let namespace = object.namespace.as_deref().unwrap_or_default();
        // A released Lease stays, with an empty holder.
        let is_held = !lease.record.holder.is_empty() && scope.meets(&other);
        is_held.then(|| (format!("{namespace}/{}", object.name), lease))
    });
    Ok(overlapping.collect())
}

async fn default_lease(
    client: kube::Client,
    args: &RunArgs,
) -> Result<BTreeMap<String, Lease>, cluster::Error> {
    let namespace = &args.cluster.host_namespace;
    let name = args.lease_name();
    let lease = LeaseReader::new(client, REQUEST_TIMEOUT, namespace)
        .read(&name)
        .await?;
    Ok(lease
        .filter(|lease| !lease.record.holder.is_empty())
        .map(|lease| (format!("{namespace}/{name}"), lease))
        .into_iter()
        .collect())
}

fn refused(lease: &str, holder: &str) -> Failure {
    let message = format!(
        "{holder} holds the Lease {lease} and writes for the same namespaces and Plugins, so this host would undo its writes: stop that host, or run this one without --leader-elect=false to stand by"
    );
    Failure::new(Exit::Failure, message)
}
