//! What operators and machines ask a running host: does it live, is it ready, what does it measure, what is it doing.
//!
//! Answers come from a thread with a runtime of its own: should the host's runtime be stuck, the answer is that it is
//! stuck, and not silence.
//! Nothing here knows what it shows: [`Shown`] does, and `run` implements it.
//!
//! | path | answer |
//! |---|---|
//! | `GET /livez` | 200 while everything that has to move does, else 500 and what stands still |
//! | `GET /readyz` | 200 once the host serves or stands by to, else 503 and what is missing |
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /debug/state` | JSON: [`HostState`]; only where asked for |
//! | `GET`, `PUT /debug/log` | the filter of the log; only where asked for |

mod beat;
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

pub use beat::{Beat, Heart};
pub use state::{
    ControllerState, FaultState, KindState, ParentState, PassState, PluginState,
    State as HostState, WatchState,
};

/// Why nobody can ask.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("failed to listen on {address} for health and metrics: give another --admin-address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The operating system gave no thread, or no runtime.
    #[error("failed to start the thread that answers for health and metrics")]
    Start(#[source] io::Error),
}

/// One thing that has to be in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What, in a word.
    pub name: String,
    /// What is wrong with it; none: nothing.
    pub problem: Option<String>,
}

/// What is shown.
pub trait Shown: Send + Sync + 'static {
    /// Everything that has to move.
    fn alive(&self) -> Vec<Check>;

    /// Everything that has to be there before the host serves.
    fn ready(&self) -> Vec<Check>;

    /// The metrics as text of the type [`CONTENT_TYPE`](innkeeper_metrics::CONTENT_TYPE).
    fn metrics(&self) -> String;

    /// Everything, for people.
    fn state(&self) -> HostState;

    /// The filter of the log.
    fn log_filter(&self) -> String;

    /// Changes the filter of the log; says why it cannot be.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;
}

/// Answers until it is dropped.
pub struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    // None only while it is dropped.
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens, and starts the thread; port 0 takes any that is free.
    pub fn start(address: SocketAddr, shown: Arc<dyn Shown>, debug: bool) -> Result<Self, Error> {
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed, and nobody depends on it.
            drop(thread.join());
        }
    }
}

async fn answer(listener: TcpListener, shown: Arc<dyn Shown>, debug: bool) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "nobody answers for health and metrics");
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
        tracing::error!(%error, "nobody answers for health and metrics any more");
    }
}

type Asked = State<Arc<dyn Shown>>;

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
    // It consists of what has a form in JSON.
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

/// One line for each check and one for all, as the API server answers the same questions.
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
