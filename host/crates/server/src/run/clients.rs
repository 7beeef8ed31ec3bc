//! Separate API server clients for reads, writes and the lease, so that renewals never queue behind others; all counted.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{HeaderValue, Method, Request, Response, StatusCode, header::USER_AGENT};
use innkeeper_apply::Writer;
use innkeeper_cluster::LeaseReader;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_lease::{Claim, Claims, KeeperParts, ShardKeeper};
use innkeeper_metrics::Metrics;
use jiff::Timestamp;
use tower::{Service, layer::layer_fn};
use tracing::info;

use super::{
    lease::{HostElection, StoredLeases},
    random_u64,
    shards::HeldShards,
};
use crate::{
    args::{ConnectionArgs, RunArgs},
    connection::{ClientConfig, client_config},
};

/// Creates clients with one configuration.
pub(super) struct Clients {
    config: ClientConfig,
    /// The process's unique holder identity; none without a lease.
    identity: Option<String>,
    metrics: Arc<Metrics>,
}

impl Clients {
    /// Reads the client configuration for a host.
    pub(super) async fn for_host(args: &RunArgs, metrics: Arc<Metrics>) -> Result<Self, Failure> {
        // A restarted container keeps its name; the random suffix tells the processes apart.
        let identity = args
            .elects_leader()
            .then(|| format!("{}_{:016x}", args.lease.identity, random_u64()));
        Self::new(&args.cluster.connection, identity, metrics).await
    }

    /// Reads a cluster's client configuration.
    pub(super) async fn new(
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

    /// Creates a client with separate connections, whose requests are counted.
    pub(super) fn client(&self) -> Result<kube::Client, Failure> {
        let counted = layer_fn(|inner| CountedClient {
            inner,
            metrics: Arc::clone(&self.metrics),
        });
        Ok(self.config.builder()?.with_layer(&counted).build())
    }

    /// Returns the claims to write and the election that renews them with Leases in the host's namespace; `user` learns
    /// of each change. Without leader election, the claim is unlimited.
    pub(super) fn claims(
        &self,
        args: &RunArgs,
        user: HeldShards,
    ) -> Result<(Claims, Option<HostElection>), Failure> {
        if !args.elects_leader() {
            return Ok((Claims::unlimited(), None));
        }
        let namespace = &args.cluster.host_namespace;
        let times = args.lease.times();
        // Half, so that a hanging renewal leaves time for a second one.
        let request_timeout = times.renew_deadline / 2;
        let client = self.client()?;
        // Not the host's claims, which only these writes extend.
        let writer = Writer::new(client.clone(), Claim::unlimited()).with_deadline(request_timeout);
        let store = StoredLeases {
            reader: LeaseReader::new(client, request_timeout, namespace),
            writer,
            namespace: namespace.clone(),
            scope: args.host_scope(),
        };
        let parts = KeeperParts {
            store,
            user,
            namespace: namespace.clone(),
            name: args.lease_name(),
            identity: self.identity.clone().unwrap_or_default(),
            times,
            now: Timestamp::now,
            seed: random_u64(),
            metrics: Arc::clone(&self.metrics),
        };
        let claims = Claims::awaited(args.lease.shards);
        Ok((claims.clone(), Some(ShardKeeper::new(parts, claims))))
    }
}

/// Returns the user agent, which identifies this process in the audit log.
fn agent(identity: Option<&str>) -> HeaderValue {
    const NAME: &str = concat!("innkeeper/", env!("CARGO_PKG_VERSION"));

    identity
        .and_then(|identity| HeaderValue::from_str(&format!("{NAME} ({identity})")).ok())
        .unwrap_or(HeaderValue::from_static(NAME))
}

/// Counts requests.
struct CountedClient<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

/// A request in flight. Counted on drop, so that cancelled requests count too.
struct Sent {
    metrics: Arc<Metrics>,
    method: Method,
    status: Option<StatusCode>,
}

impl<S, A, B> Service<Request<A>> for CountedClient<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let sent = Sent {
            metrics: Arc::clone(&self.metrics),
            method: request.method().clone(),
            status: None,
        };
        let response = self.inner.call(request);
        async move {
            // Captures the whole guard instead of a field.
            let mut sent = sent;
            let response = response.await;
            sent.status = response.as_ref().ok().map(Response::status);
            response
        }
        .boxed()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // As client-go labels requests without a response.
        let code = self.status.as_ref().map_or("<error>", StatusCode::as_str);
        self.metrics.request(self.method.as_str(), code);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use super::*;

    #[test]
    fn omits_an_identity_that_is_not_a_header_value() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            agent(Some("a_1")),
            format!("innkeeper/{version} (a_1)").as_str()
        );
        assert_eq!(agent(Some("a\n")), format!("innkeeper/{version}").as_str());
        assert_eq!(agent(None), format!("innkeeper/{version}").as_str());
    }

    /// Answers every request with 409, and `TRACE` never.
    struct Server;

    impl Service<Request<()>> for Server {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Response<()>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            if request.method() == Method::TRACE {
                return pending().boxed();
            }
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::CONFLICT;
            async { Ok(answer) }.boxed()
        }
    }

    #[tokio::test]
    async fn counts_every_request_even_a_cancelled_one() {
        let metrics = Arc::new(Metrics::new());
        let mut client = CountedClient {
            inner: Server,
            metrics: Arc::clone(&metrics),
        };
        let request = |method| Request::builder().method(method).body(()).unwrap();
        for _ in 0..2 {
            let answer = client.call(request(Method::PATCH)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::CONFLICT);
        }
        drop(client.call(request(Method::TRACE)));
        let text = metrics.encode().unwrap();
        for line in [
            "rest_client_requests_total{code=\"409\",method=\"PATCH\"} 2",
            "rest_client_requests_total{code=\"<error>\",method=\"TRACE\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
