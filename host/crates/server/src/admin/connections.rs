//! The connections of the admin server.
//!
//! Every client that reaches the port can open connections without end, so a connection is cheap and short: it carries
//! one request, and the oldest one is closed for a new one above the maximum.
//! Probes get through, because they send their request at once, and clients that keep connections open lose them first.

use std::{
    collections::VecDeque,
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

/// Answers connections, by TLS if there is an acceptor, until answering one panics.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
) -> JoinError {
    let mut open = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            biased;
            Some(ended) = open.join_next() => match ended {
                Err(error) if error.is_panic() => return error,
                Err(_) | Ok(()) => {
                    oldest_first.retain(|connection| !connection.is_finished());
                    continue;
                }
            },
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                oldest_first.push_back(open.spawn(answer(stream, router.clone(), tls.clone())));
                if oldest_first.len() > CONNECTIONS_MAX
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
                // Each connection of a burst gets a turn before later ones push it out.
                yield_now().await;
            }
            Err(error) => {
                if let Some(oldest) = oldest_first.pop_front() {
                    sleep(DESCRIPTOR_WAIT).await;
                    oldest.abort();
                } else {
                    warn!(%error, "failed to accept a connection for health and metrics");
                    sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }
}

/// Answers one request.
async fn answer(stream: TcpStream, router: Router, tls: Option<TlsAcceptor>) {
    let more = MoreTime::default();
    let answered = async {
        let Some(tls) = tls else {
            return respond(stream, router, &more).await;
        };
        if let Ok(Ok(stream)) = timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
            respond(stream, router, &more).await;
        }
    };
    // A client that is slow, leaves or sends no valid request loses its connection; the host has nothing to do.
    let mut answered = pin!(answered);
    let in_time = timeout(CONNECTION_TIMEOUT, answered.as_mut()).await;
    if let (Err(_), Some(time)) = (in_time, more.0.get()) {
        drop(timeout(*time, answered).await);
    }
}

async fn respond(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, more: &MoreTime) {
    let respond = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(more.clone());
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
