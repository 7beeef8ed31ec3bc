//! The admin server's connections.
//!
//! Every client that reaches the port can flood it with connections, so a connection carries one request and has short
//! timeouts. Above the maximum, a new connection closes the oldest one from the busiest address.
//! Probes get through because they send their request immediately.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::Router;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinError, JoinSet, yield_now},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;
use tracing::warn;

use super::access::share_address;

/// The maximum number of open connections: far more than probes and scrapers need.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// The time limit for the TLS handshake, and then for the request's header; below a probe's timeout (5 s).
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// The time limit for request and response; scrapes have 10 s by default.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum request header, in bytes. Probes, scrapers and browsers send less than 4 KiB.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The wait before closing the oldest connection if no descriptor is left. Answering a request takes less.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(10);

/// The wait after a failed accept without open connections: other parts of the process use all descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Extra time for one response.
#[derive(Clone, Debug, Default)]
pub(super) struct MoreTime(Arc<OnceLock<Duration>>);

impl MoreTime {
    pub(super) fn grant(&self, time: Duration) {
        self.0.get_or_init(|| time);
    }
}

/// The client's address after [`share_address`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// An open connection and its client.
struct Connection {
    client: IpAddr,
    task: AbortHandle,
}

/// Serves connections, over TLS if there is an acceptor, until a handler panics.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
) -> JoinError {
    let mut open = JoinSet::new();
    let mut oldest_first: Vec<Connection> = Vec::new();
    loop {
        let accepted = tokio::select! {
            // Ended connections first: they no longer count, and their descriptors are free.
            biased;
            Some(result) = open.join_next() => match result {
                Err(error) if error.is_panic() => return error,
                // An error is the abort from `close_one`.
                Err(_) | Ok(()) => {
                    oldest_first.retain(|connection| !connection.task.is_finished());
                    continue;
                }
            },
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let client = share_address(address.ip());
                let task = open.spawn(answer(stream, client, router.clone(), tls.clone()));
                oldest_first.push(Connection { client, task });
                // Closes an old connection instead of refusing the new one, which may be a probe.
                if oldest_first.len() > CONNECTIONS_MAX {
                    close_one(&mut oldest_first);
                }
                // In a burst, each connection gets a turn before later ones close it.
                yield_now().await;
            }
            Err(error) => {
                if oldest_first.is_empty() {
                    warn!(%error, "failed to accept a connection for health and metrics");
                    sleep(ACCEPT_RETRY_INTERVAL).await;
                } else {
                    sleep(DESCRIPTOR_WAIT).await;
                    close_one(&mut oldest_first);
                }
            }
        }
    }
}

/// Closes the oldest connection among the clients with most connections, so that other clients keep theirs.
fn close_one(oldest_first: &mut Vec<Connection>) {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for connection in &*oldest_first {
        *counts.entry(connection.client).or_default() += 1;
    }
    let most = counts.values().max();
    let oldest = oldest_first
        .iter()
        .position(|connection| counts.get(&connection.client) == most);
    if let Some(oldest) = oldest {
        oldest_first.remove(oldest).task.abort();
    }
}

/// Answers one request.
async fn answer(stream: TcpStream, client: IpAddr, router: Router, tls: Option<TlsAcceptor>) {
    let more = MoreTime::default();
    let responding = async {
        let Some(tls) = tls else {
            return respond(stream, client, router, &more).await;
        };
        if let Ok(Ok(stream)) = timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
            respond(stream, client, router, &more).await;
        }
    };
    // Slow clients and invalid requests only lose their connection.
    let mut responding = pin!(responding);
    let in_time = timeout(CONNECTION_TIMEOUT, responding.as_mut()).await;
    // Only recordings have more time.
    if let (Err(_), Some(time)) = (in_time, more.0.get()) {
        drop(timeout(*time, responding).await);
    }
}

async fn respond(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    client: IpAddr,
    router: Router,
    more: &MoreTime,
) {
    let respond = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(more.clone());
        request.extensions_mut().insert(ClientAddress(client));
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        // Otherwise idle clients would occupy the connections.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    drop(connection.await);
}
