//! A cluster that `dev` did not start: it may have a host already.

use std::time::Duration;

use innkeeper_cluster::LeaseReader;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_server::RunArgs;
use jiff::Timestamp;

use crate::survey;

/// The longest wait for an answer of the cluster. Chosen, not measured: a healthy one answers a read of one object within a
/// second, and a developer is told early that the kubeconfig names a cluster that is down.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the address of a cluster; fails if a host holds the usual lease, because two hosts would serve the same
/// Plugins, and undo each other's writes.
pub(super) async fn unserved(host: &RunArgs) -> Result<String, Failure> {
    let (address, client) = survey::client(&host.cluster.connection, PATIENCE).await?;
    let namespace = &host.cluster.host_namespace;
    let name = host.lease_name();
    let reader = LeaseReader::new(client, PATIENCE, namespace, &name);
    let lease = reader.read().await.or_fail(
        Exit::Failure,
        format!("failed to read the Lease {namespace}/{name}"),
    )?;
    let now = Timestamp::now();
    let held = lease
        .map(|it| it.record)
        .filter(|record| survey::lapse(&name, record, now).is_none());
    match held {
        None => Ok(address),
        Some(record) => {
            let message = format!(
                "{} serves the Plugins of {address}, as the Lease {namespace}/{name} says: stop it, or use another cluster",
                record.holder
            );
            Err(Failure::new(Exit::Usage, message))
        }
    }
}
