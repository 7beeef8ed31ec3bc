//! The connections of the admin server.
//!
//! Every client that reaches the port can open connections without end, so a connection is cheap and short: it carries
//! one request, and above the maximum, the oldest one of the address with most of them is closed for a new one.
//! Probes get through, because they send their request at once, and clients that keep connections open lose them first.

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

/// The largest number of open connections.
/// Chosen, not measured: far more than probes and scrapers open, and little memory, even if each waits for metrics.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// The time for a client to send the header of its request, and before that for the handshake of TLS: within the timeout of a probe (5 s).
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// The time for a client to send the request and to read the answer.
/// Chosen, not measured: the time limit of a scrape is 10 s by default.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest header of a request, in bytes. Probes, scrapers and browsers send less than 4 KiB.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The pause before the oldest connection is closed because no descriptor is left: a request that has arrived is
/// answered in less.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(10);

/// The pause after a failure to accept a connection while none is open: others of the process use the descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time that the answer to one request may take beyond the usual.
#[derive(Clone, Debug, Default)]
pub(super) struct MoreTime(Arc<OnceLock<Duration>>);

impl MoreTime {
    pub(super) fn grant(&self, time: Duration) {
        self.0.get_or_init(|| time);
    }
}

/// The address that stands for the client of a request: see [`share_address`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// An open connection and its client.
struct Connection {
    client: IpAddr,
    task: AbortHandle,
}

/// Answers connections, by TLS if there is an acceptor, until answering one panics.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
) -> JoinError {
    let mut open = JoinSet::new();
    let mut oldest_first: Vec<Connection> = Vec::new();
    loop {
        let accepted = tokio::select! {
            biased;
            Some(ended) = open.join_next() => match ended {
                Err(error) if error.is_panic() => return error,
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
                let answer = answer(stream, client, router.clone(), tls.clone());
                let task = open.spawn(answer);
                oldest_first.push(Connection { client, task });
                if oldest_first.len() > CONNECTIONS_MAX {
                    close_one(&mut oldest_first);
                }
                // Each connection of a burst gets a turn before later ones push it out.
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

/// Closes the oldest connection of those clients that have most, so that a client with few keeps its own.
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
    let answered = async {
        let Some(tls) = tls else {
            return respond(stream, client, router, &more).await;
        };
        if let Ok(Ok(stream)) = timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
            respond(stream, client, router, &more).await;
        }
    };
    // A client that is slow, leaves or sends no valid request loses its connection; the host has nothing to do.
    let mut answered = pin!(answered);
    let in_time = timeout(CONNECTION_TIMEOUT, answered.as_mut()).await;
    if let (Err(_), Some(time)) = (in_time, more.0.get()) {
        drop(timeout(*time, answered).await);
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
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    drop(connection.await);
}
