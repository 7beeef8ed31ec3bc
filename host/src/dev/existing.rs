//! A cluster that `dev` did not start may have a host already.

use std::time::Duration;

use innkeeper_cluster::LeaseReader;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_server::RunArgs;
use jiff::Timestamp;

use crate::status;

/// The time limit of a request. A healthy cluster answers within a second, and a developer learns early that the
/// kubeconfig names a cluster that is down.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the cluster's address. Fails if a host holds the default lease: two hosts would undo each other's writes.
pub(super) async fn check_no_host(host: &RunArgs) -> Result<String, Failure> {
    let (address, client) = status::client(&host.cluster.connection, TIMEOUT).await?;
    let namespace = &host.cluster.host_namespace;
    let name = host.lease_name();
    let lease = LeaseReader::new(client, TIMEOUT, namespace)
        .read(&name)
        .await
        .or_fail(
            Exit::Failure,
            format!("failed to read the Lease {namespace}/{name}"),
        )?;
    let now = Timestamp::now();
    let current = lease
        .map(|lease| lease.record)
        .filter(|record| status::expired(&name, record, now).is_none());
    match current {
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
