//! The admin server of a running host: liveness, readiness, metrics and debug endpoints.
//!
//! It has its own thread and runtime, so that `/livez` still fails properly when the host's runtime is blocked.
//! If the thread ends, the process ends.
//! `run` implements [`StatusProvider`], which has all answers.
//!
//! | path | answer |
//! |---|---|
//! | `GET /livez` | 200 while all heartbeats arrive in time, otherwise 500 with the silent components |
//! | `GET /readyz` | 200 once the host is active or on standby, otherwise 503 with the failed checks |
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /debug/state` | JSON: plugins, unready parents, controllers and watches; with `--debug-endpoints` |
//! | `GET /debug/plans/NAME` | JSON: the plan of a Plugin's candidate, as from `innkeeper plan`; with `--debug-endpoints` |
//! | `GET`, `PUT /debug/log` | the log filter; with `--debug-endpoints` |
//! | `POST /debug/recordings` | one recorded call per line, for a [`RecordingOrder`]; with `--debug-endpoints` |
//!
//! With TLS, the API server authorizes callers of metrics and debug endpoints for the path, as with controller-runtime.
//! Probes have no token, so health is open to everyone.

mod access;
pub mod client;
mod connections;
mod heartbeat;
mod order;
mod tls;

use std::{
    future::pending,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
};

use axum::{
    Extension, Router,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use innkeeper_cluster::Reviewer;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_plugin_controller::CandidatePlans;
use tokio::{net::TcpListener, sync::mpsc, task::JoinError, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::args::AdminArgs;

use access::Access;
use connections::MoreTime;
pub use heartbeat::{Heartbeat, Heartbeats};
pub use order::{
    OrderRefusal, RECORDING_SECONDS_MAX, RECORDINGS_MAX, RecordingOrder, RecordingTarget,
};
use tls::Tls;

/// The result of one health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, for example `plugin/web`.
    pub name: String,
    /// Why the check fails; none if it passes.
    pub problem: Option<String>,
}

/// What the admin server shows.
pub trait StatusProvider: Send + Sync + 'static {
    /// Liveness checks.
    fn alive(&self) -> Vec<Check>;

    /// Readiness checks.
    fn ready(&self) -> Vec<Check>;

    /// Metrics as text of the type [`CONTENT_TYPE`](innkeeper_metrics::CONTENT_TYPE).
    fn metrics(&self) -> String;

    /// The host's state, for debugging.
    fn state(&self) -> serde_json::Value;

    /// The plan of a Plugin's candidate as JSON; none if no candidate waits.
    fn plan(&self, plugin: &str) -> Option<String>;

    /// The reviewer of callers; none before the host has connected to the API server.
    fn reviewer(&self) -> Option<Arc<Reviewer>>;

    /// The log filter.
    fn log_filter(&self) -> String;

    /// Changes the log filter; fails with the reason if it is invalid.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;

    /// Starts recordings; the channel closes when the order ends.
    fn record(&self, order: &RecordingOrder) -> Result<mpsc::Receiver<String>, OrderRefusal>;
}

/// The admin server; it answers until it is dropped.
pub struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    thread_ended: CancellationToken,
    // None only during the drop.
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds the address and starts the thread; port 0 selects a free port. None without an address.
    pub fn start(
        args: AdminArgs,
        provider: Arc<dyn StatusProvider>,
    ) -> Result<Option<Self>, Failure> {
        const START: &str = "failed to start the thread for health and metrics";

        let Some(address) = args.address else {
            return Ok(None);
        };
        let tls = args
            .tls
            .then(|| Tls::new(args.certificate()))
            .transpose()
            .or_fail(Exit::Usage, "failed to prepare TLS for --admin-address")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .or_fail(Exit::Failure, START)?;
        // Bound in the caller's thread: an address in use then fails the start instead of only appearing in the log.
        let bound = runtime
            .block_on(TcpListener::bind(address))
            .and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.or_fail(
            Exit::Usage,
            format!(
                "failed to listen on {address} for health and metrics; set another --admin-address"
            ),
        )?;
        let stop = CancellationToken::new();
        let thread_ended = CancellationToken::new();
        let router = router(provider, args.debug, tls.is_some());
        let serving = stop
            .clone()
            .run_until_cancelled_owned(serve(listener, router, tls));
        let end = thread_ended.clone().drop_guard();
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                // Also dropped on a panic.
                let _end = end;
                if let Some(error) = runtime.block_on(serving) {
                    error!(%error, "failed to answer for health and metrics");
                }
                // Only reading a certificate file can still block.
                runtime.shutdown_background();
            })
            .or_fail(Exit::Failure, START)?;
        Ok(Some(Self {
            address,
            stop,
            thread_ended,
            thread: Some(thread),
        }))
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs a host until it ends, or until the admin server's thread ends: probes would then get no answer.
    pub async fn run_host(
        &self,
        host: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        const ENDED: &str =
            "the thread that answers for health and metrics ended: see the log for the cause";

        tokio::select! {
            result = host => result,
            () = self.thread_ended.cancelled() => Err(Failure::new(Exit::Failure, ENDED)),
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.cancel();
        // Waits, so that the port is free once the server is dropped.
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            drop(thread.join());
        }
    }
}

/// Serves connections, and reloads the certificate.
async fn serve(listener: TcpListener, router: Router, tls: Option<Tls>) -> JoinError {
    let acceptor = tls.as_ref().map(Tls::acceptor);
    let serving = connections::serve(listener, router, acceptor);
    let reloading = async {
        if let Some(tls) = tls {
            tls.reload().await;
        }
        // `reload` returns at once without files; connections are served all the same.
        pending().await
    };
    tokio::select! {
        error = serving => error,
        error = reloading => error,
    }
}

fn router(provider: Arc<dyn StatusProvider>, debug: bool, checks_callers: bool) -> Router {
    let mut guarded = Router::new().route("/metrics", get(metrics));
    if debug {
        guarded = guarded
            .route("/debug/state", get(state))
            .route(&format!("{}{{plugin}}", CandidatePlans::PATH), get(plan))
            .route("/debug/log", get(log_filter).put(set_log_filter))
            .route("/debug/recordings", post(record));
    }
    if checks_callers {
        let access = Access::new(Arc::clone(&provider));
        // Not `layer`, which also covers the fallback: an unknown path would cost a review and no longer be a 404.
        guarded = guarded.route_layer(middleware::from_fn_with_state(access, access::check));
    }
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .merge(guarded)
        .with_state(provider)
}

type Provider = State<Arc<dyn StatusProvider>>;

async fn livez(State(provider): Provider) -> Response {
    verdict(
        "livez",
        &provider.alive(),
        StatusCode::INTERNAL_SERVER_ERROR,
    )
}

async fn readyz(State(provider): Provider) -> Response {
    verdict("readyz", &provider.ready(), StatusCode::SERVICE_UNAVAILABLE)
}

async fn metrics(State(provider): Provider) -> Response {
    let kind = HeaderValue::from_static(innkeeper_metrics::CONTENT_TYPE);
    ([(CONTENT_TYPE, kind)], provider.metrics()).into_response()
}

async fn state(State(provider): Provider) -> Response {
    json(format!("{:#}\n", provider.state()))
}

async fn plan(State(provider): Provider, Path(plugin): Path<String>) -> Response {
    const NONE: &str = "this host has no waiting candidate for this Plugin: ask the host that holds the lease, and see status.candidate\n";
    match provider.plan(&plugin) {
        Some(text) => json(text),
        None => (StatusCode::NOT_FOUND, NONE).into_response(),
    }
}

fn json(text: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, kind)], text).into_response()
}

async fn log_filter(State(provider): Provider) -> String {
    format!("{}\n", provider.log_filter())
}

async fn set_log_filter(State(provider): Provider, filter: String) -> Response {
    match provider.set_log_filter(filter.trim()) {
        Ok(()) => format!("{}\n", provider.log_filter()).into_response(),
        Err(problem) => (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response(),
    }
}

async fn record(
    State(provider): Provider,
    Extension(more): Extension<MoreTime>,
    order: String,
) -> Response {
    let order = match RecordingOrder::parse(&order) {
        Ok(order) => order,
        Err(problem) => return (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response(),
    };
    let (status, problem) = match provider.record(&order) {
        Ok(from) => {
            // An order may last an hour, far longer than other responses may take.
            more.grant(order.time());
            return order::lines(from, Instant::now() + order.time()).into_response();
        }
        Err(OrderRefusal::Unknown(problem)) => (StatusCode::UNPROCESSABLE_ENTITY, problem),
        Err(OrderRefusal::Refused(problem)) => (StatusCode::CONFLICT, problem),
    };
    (status, format!("{problem}\n")).into_response()
}

/// Formats one line per check and a final line, as the API server does for its own `/livez` and `/readyz`.
fn verdict(name: &str, checks: &[Check], failure: StatusCode) -> Response {
    let mut lines: Vec<String> = checks
        .iter()
        .map(|check| match &check.problem {
            None => format!("[+]{} ok", check.name),
            Some(problem) => format!("[-]{} failed: {problem}", check.name),
        })
        .collect();
    let (status, result) = if checks.iter().all(|check| check.problem.is_none()) {
        (StatusCode::OK, "passed")
    } else {
        (failure, "failed")
    };
    lines.push(format!("{name} check {result}\n"));
    (status, lines.join("\n")).into_response()
}

#[cfg(test)]
mod tests;
