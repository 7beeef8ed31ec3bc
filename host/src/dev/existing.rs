//! A cluster that `dev` did not start: it may have a host already.

use std::time::Duration;

use innkeeper_cluster::LeaseReader;
use jiff::Timestamp;

use crate::{
    config::{self, Exit, RunArgs},
    failure::{Failure, OrFail as _},
};

/// The longest wait for an answer of the cluster.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the address of a cluster; fails if a host holds the usual lease, because two hosts would serve the same
/// Plugins, and undo each other's writes.
pub(super) async fn unserved(host: &RunArgs) -> Result<String, Failure> {
    let mut settings = config::client_config(&host.cluster.connection)
        .await
        .or_fail(Exit::Usage, "failed to find the cluster")?;
    settings.connect_timeout = Some(PATIENCE);
    settings.default_retry = false;
    let address = settings.cluster_url.to_string();
    let client = kube::Client::try_from(settings)
        .or_fail(Exit::Failure, "failed to create a client of the API server")?;
    let namespace = &host.cluster.host_namespace;
    let name = host.lease_name();
    let reader = LeaseReader::new(client, PATIENCE, namespace, &name);
    let lease = reader.read().await.or_fail(
        Exit::Failure,
        format!("failed to read the Lease {namespace}/{name}"),
    )?;
    let held = lease.map(|it| it.record).filter(|record| {
        let age = |renewed| Timestamp::now().duration_since(renewed).as_secs();
        let is_fresh = |age| age <= i64::from(record.duration_s);
        !record.holder.is_empty() && record.renewed.map(age).is_some_and(is_fresh)
    });
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
