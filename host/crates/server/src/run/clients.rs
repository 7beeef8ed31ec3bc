//! The clients of the API server: one for reads, one for writes, one for the lease, so that none waits behind another.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use innkeeper_apply::Writer;
use innkeeper_cluster::LeaseReader;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_lease::{Claim, Election, ElectionParts};
use innkeeper_metrics::Metrics;
use jiff::Timestamp;
use tower::layer::layer_fn;
use tracing::info;

use super::{
    counted::CountedClient,
    lease::{HostElection, StoredLease},
    random::random_u64,
};
use crate::{
    args::{ConnectionArgs, RunArgs},
    connection::{ClientConfig, client_config},
};

/// The clients, created from one configuration.
pub(super) struct Clients {
    config: ClientConfig,
    /// The unique holder identity of this process; none without a lease.
    identity: Option<String>,
    metrics: Arc<Metrics>,
}

impl Clients {
    /// Reads the client configuration of the cluster of a host.
    pub(super) async fn find(args: &RunArgs, metrics: Arc<Metrics>) -> Result<Self, Failure> {
        // A restarted container keeps its name but is another process: the random suffix tells them apart.
        let unique = || format!("{}_{:016x}", args.lease.identity, random_u64());
        let identity = args.elects_leader().then(unique);
        Self::of(&args.cluster.connection, identity, metrics).await
    }

    /// Reads the client configuration of a cluster.
    pub(super) async fn of(
        connection: &ConnectionArgs,
        identity: Option<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Failure> {
        let mut client = client_config(connection)
            .await
            .or_fail(Exit::Usage, "failed to find the cluster")?;
        let config = &mut client.config;
        config.connect_timeout = Some(Duration::from_secs(10));
        config
            .headers
            .push((USER_AGENT, agent(identity.as_deref())));
        info!(server = %config.cluster_url, "using the cluster");
        Ok(Self {
            config: client,
            identity,
            metrics,
        })
    }

    /// Creates a client with its own connections; all its requests are counted.
    pub(super) fn client(&self) -> Result<kube::Client, Failure> {
        let counted = layer_fn(|inner| CountedClient {
            inner,
            metrics: Arc::clone(&self.metrics),
        });
        Ok(self.config.builder()?.with_layer(&counted).build())
    }

    /// Returns the claim to write and the election that renews it with a lease in the host's namespace.
    /// Without leader election, the claim is unlimited.
    pub(super) fn claim(&self, args: &RunArgs) -> Result<(Claim, Option<HostElection>), Failure> {
        if !args.elects_leader() {
            return Ok((Claim::unlimited(), None));
        }
        let (name, namespace) = (args.lease_name(), &args.cluster.host_namespace);
        let times = args.lease.times();
        // Half, so that a renewal that hangs leaves time for a second one before the deadline.
        let request_timeout = times.renew_deadline / 2;
        let client = self.client()?;
        let writer = Writer::new(client.clone(), Claim::unlimited()).with_deadline(request_timeout);
        let store = StoredLease {
            reader: LeaseReader::new(client, request_timeout, namespace, &name),
            writer,
            namespace: namespace.clone(),
            name: name.clone(),
            scope: args.host_scope(),
        };
        let parts = ElectionParts {
            store,
            namespace: namespace.clone(),
            name,
            identity: self.identity.clone().unwrap_or_default(),
            times,
            now: Timestamp::now,
            seed: random_u64(),
            metrics: Arc::clone(&self.metrics),
        };
        let claim = Claim::awaited();
        Ok((claim.clone(), Some(Election::new(parts, claim))))
    }
}

/// Returns the user agent, by which the audit log of the API server identifies this process.
fn agent(identity: Option<&str>) -> HeaderValue {
    const NAME: &str = concat!("innkeeper/", env!("CARGO_PKG_VERSION"));

    identity
        .and_then(|identity| HeaderValue::from_str(&format!("{NAME} ({identity})")).ok())
        .unwrap_or(HeaderValue::from_static(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_is_no_valid_header_value_is_left_out() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            agent(Some("a_1")),
            format!("innkeeper/{version} (a_1)").as_str()
        );
        assert_eq!(agent(Some("a\n")), format!("innkeeper/{version}").as_str());
        assert_eq!(agent(None), format!("innkeeper/{version}").as_str());
    }
}
