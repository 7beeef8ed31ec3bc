//! The admin server of a running host: liveness, readiness, metrics and the state for debugging.
//!
//! The server has its own thread and runtime, so that `/livez` still answers, with an error, if the host's runtime is
//! blocked.
//! This module does not know the content of the answers: `run` implements [`StatusProvider`].
//!
//! | path | answer |
//! |---|---|
//! | `GET /livez` | 200 while all heartbeats arrive in time, else 500 with the silent components |
//! | `GET /readyz` | 200 once the host is active or on standby, else 503 with the failed checks |
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /debug/state` | JSON: [`HostState`]; only if debugging is enabled |
//! | `GET`, `PUT /debug/log` | the log filter; only if debugging is enabled |

mod heartbeat;
mod state;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio_util::sync::CancellationToken;

pub use heartbeat::{Heartbeat, Heartbeats};
pub use state::{
    ControllerState, FaultState, HostState, KindState, ParentState, PassState, PluginState,
    WatchState,
};

/// A failure to start the admin server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("failed to listen on {address} for health and metrics; set another --admin-address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The thread or its runtime cannot be created.
    #[error("failed to start the thread for health and metrics")]
    Start(#[source] io::Error),
}

/// The result of one health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, for example `plugin/web`.
    pub name: String,
    /// The reason for which the check fails; none if it passes.
    pub problem: Option<String>,
}

/// The source of the answers.
pub trait StatusProvider: Send + Sync + 'static {
    /// The liveness checks.
    fn alive(&self) -> Vec<Check>;

    /// The readiness checks.
    fn ready(&self) -> Vec<Check>;

    /// The metrics as text of the type [`CONTENT_TYPE`](innkeeper_metrics::CONTENT_TYPE).
    fn metrics(&self) -> String;

    /// The state of the host, for debugging.
    fn state(&self) -> HostState;

    /// The filter of the log.
    fn log_filter(&self) -> String;

    /// Changes the filter of the log; returns the reason if the filter is invalid.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;
}

/// The admin server; it answers until it is dropped.
pub struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    // None only during the drop.
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds the address and starts the thread; port 0 selects a free port.
    pub fn start(
        address: SocketAddr,
        shown: Arc<dyn StatusProvider>,
        debug: bool,
    ) -> Result<Self, Error> {
        let listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Error::Start)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.run_until_cancelled(answer(listener, shown, debug)));
            })
            .map_err(Error::Start)?;
        Ok(Self {
            address: bound,
            stop,
            thread: Some(thread),
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already, and no other thread needs its result.
            drop(thread.join());
        }
    }
}

async fn answer(listener: TcpListener, shown: Arc<dyn StatusProvider>, debug: bool) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "failed to start serving health and metrics");
            return;
        }
    };
    let mut router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics));
    if debug {
        router = router
            .route("/debug/state", get(state))
            .route("/debug/log", get(log_filter).put(set_log_filter));
    }
    if let Err(error) = axum::serve(listener, router.with_state(shown)).await {
        tracing::error!(%error, "the server of health and metrics ended");
    }
}

type Asked = State<Arc<dyn StatusProvider>>;

async fn livez(State(shown): Asked) -> Response {
    verdict("livez", &shown.alive(), StatusCode::INTERNAL_SERVER_ERROR)
}

async fn readyz(State(shown): Asked) -> Response {
    verdict("readyz", &shown.ready(), StatusCode::SERVICE_UNAVAILABLE)
}

async fn metrics(State(shown): Asked) -> Response {
    let kind = HeaderValue::from_static(innkeeper_metrics::CONTENT_TYPE);
    ([(CONTENT_TYPE, kind)], shown.metrics()).into_response()
}

async fn state(State(shown): Asked) -> Response {
    let kind = HeaderValue::from_static("application/json");
    // Encoding cannot fail: the state consists of plain structs, lists, texts and numbers.
    let text = serde_json::to_string_pretty(&shown.state()).unwrap_or_default();
    ([(CONTENT_TYPE, kind)], format!("{text}\n")).into_response()
}

async fn log_filter(State(shown): Asked) -> String {
    format!("{}\n", shown.log_filter())
}

async fn set_log_filter(State(shown): Asked, filter: String) -> Response {
    match shown.set_log_filter(filter.trim()) {
        Ok(()) => format!("{}\n", shown.log_filter()).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

/// Formats one line per check and a final line, as the API server does for its own `/livez` and `/readyz`.
fn verdict(name: &str, checks: &[Check], otherwise: StatusCode) -> Response {
    let mut lines: Vec<String> = checks
        .iter()
        .map(|check| match &check.problem {
            None => format!("[+]{} ok", check.name),
            Some(problem) => format!("[-]{} failed: {problem}", check.name),
        })
        .collect();
    let passed = checks.iter().all(|check| check.problem.is_none());
    let word = if passed { "passed" } else { "failed" };
    lines.push(format!("{name} check {word}\n"));
    let status = if passed { StatusCode::OK } else { otherwise };
    (status, lines.join("\n")).into_response()
}

#[cfg(test)]
mod tests;
