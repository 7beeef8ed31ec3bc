//! A host without a lease beside one that holds a lease: both would undo each other's writes, so it does not start.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use innkeeper_cluster::{self as cluster, LeaseReader, Viewer};
use innkeeper_command::{Exit, Failure};
use innkeeper_lease::{LABEL_LEASE, Lease};
use innkeeper_model::{Expression, GroupKind, HostScope, ResourceVersion, error_chain};
use tokio::time::sleep;
use tracing::{info, warn};

use super::tasks::retry;
use crate::args::RunArgs;

/// The time limit of one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval between two looks at the leases: a quarter of the time between two renewals.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// The longest wait for the renewal of a lease, whatever duration its holder states.
const RENEWED_WITHIN_MAX: Duration = Duration::from_mins(1);

/// Fails if another host holds a lease whose scope meets this one, whatever its name.
///
/// A lease is held if it is renewed while this host looks: no clocks are compared, and a host that was killed renews none.
pub(super) async fn check(client: kube::Client, args: &RunArgs) -> Result<(), Failure> {
    match holder(client, args).await {
        Ok(None) => Ok(()),
        Ok(Some((lease, holder))) => Err(refused(&lease, &holder)),
        Err(error) => {
            warn!(error = %error_chain(&error), "failed to look for hosts with a lease: one for the same plugins would stay unnoticed");
            Ok(())
        }
    }
}

/// Returns a lease that is renewed, and its holder.
async fn holder(
    client: kube::Client,
    args: &RunArgs,
) -> Result<Option<(String, String)>, cluster::Error> {
    const GOAL: &str = "look for hosts with a lease";
    let is_temporary = |error: &cluster::Error| !error.is_forbidden();
    // One discovery for all looks.
    let open = || Viewer::open(client.clone(), PATIENCE);
    let viewer = retry(GOAL, is_temporary, open).await?;
    let mut first_looks: BTreeMap<String, (ResourceVersion, Instant)> = BTreeMap::new();
    loop {
        let look = || held_leases(&viewer, client.clone(), args);
        let held = retry(GOAL, is_temporary, look).await?;
        let now = Instant::now();
        if first_looks.is_empty() && !held.is_empty() {
            let leases: Vec<_> = held.keys().collect();
            info!(
                ?leases,
                "waiting for a renewal of leases that a host may hold"
            );
        }
        let mut is_waiting = false;
        for (name, lease) in held {
            let (version, since) = *first_looks
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
        sleep(LOOK_PERIOD).await;
    }
}

/// Returns the leases with a holder whose scope meets that of this host, by `namespace/name`. Without the right to list
/// leases, only the one that this host would have is read.
async fn held_leases(
    viewer: &Viewer,
    client: kube::Client,
    args: &RunArgs,
) -> Result<BTreeMap<String, Lease>, cluster::Error> {
    let kind = GroupKind::new("coordination.k8s.io", "Lease");
    let Some(served) = viewer.served(&kind) else {
        return Ok(BTreeMap::new());
    };
    let (key, value) = LABEL_LEASE;
    let labelled = Expression::Equal(key.to_owned(), value.to_owned()).into();
    let leases = match viewer.list(served, &labelled).await {
        Err(error) if error.is_forbidden() => return usual_lease(client, args).await,
        leases => leases?,
    };
    let scope = args.host_scope();
    let named = leases.iter().filter_map(|object| {
        let (lease, other) = (Lease::from(object), HostScope::of_lease(object));
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let is_held = !lease.record.holder.is_empty() && scope.meets(&other);
        is_held.then(|| (format!("{namespace}/{}", object.name), lease))
    });
    Ok(named.collect())
}

async fn usual_lease(
    client: kube::Client,
    args: &RunArgs,
) -> Result<BTreeMap<String, Lease>, cluster::Error> {
    let (namespace, name) = (&args.cluster.host_namespace, args.lease_name());
    let lease = LeaseReader::new(client, PATIENCE, namespace, &name)
        .read()
        .await?;
    let held = lease.filter(|lease| !lease.record.holder.is_empty());
    Ok(held
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
