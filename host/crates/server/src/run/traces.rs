//! The traces of passes on their way to a collector, by OTLP over HTTP.
//!
//! Passes put their spans into a bounded queue, and one task sends them in batches. A pass never waits: spans above the
//! bound are dropped and counted, as are those that the collector does not take.

use std::{mem, sync::Arc, time::Duration};

use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_metrics::{Metrics, SpanResult};
use innkeeper_model::error_chain;
use innkeeper_source::trust;
use opentelemetry::{Context, KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
    },
};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tracing::{debug, info, warn};

use super::tasks::joined;
use crate::args::RunArgs;

/// The largest number of spans that wait to be sent, as in the SDKs of OpenTelemetry.
const WAITING_MAX: usize = 2048;

/// The largest number of spans in a request, as in the SDKs of OpenTelemetry.
const BATCH_MAX: usize = 512;

/// The longest time that a span waits for others. Chosen: a trace is there when a person looks for it, and an idle host
/// sends nothing.
const BATCH_WAIT: Duration = Duration::from_secs(2);

/// The time limit of a request, as in the SDKs of OpenTelemetry.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the last spans when the host ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The traces of a running host; without a collector there are none.
#[derive(Default)]
pub(super) struct Traces {
    provider: Option<SdkTracerProvider>,
    task: JoinSet<()>,
}

/// The queue between passes and the task that sends.
struct SpanQueue {
    /// None once the host ends.
    sender: Mutex<Option<Sender<SpanData>>>,
    metrics: Arc<Metrics>,
}

impl Traces {
    /// Starts the task that sends, if the user has named a collector.
    pub(super) fn start(args: &RunArgs, metrics: &Arc<Metrics>) -> Result<Self, Failure> {
        const START: &str = "failed to set up the traces for --otlp-endpoint";

        let Some(endpoint) = &args.traces.endpoint else {
            return Ok(Self::default());
        };
        let authorities = args.sources.ca_file.as_deref().unwrap_or_default();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(trust(authorities).or_fail(Exit::Usage, START)?)
            .redirect(Policy::none())
            .no_proxy()
            .timeout(SEND_TIMEOUT)
            .build()
            .or_fail(Exit::Failure, START)?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.as_str())
            .with_timeout(SEND_TIMEOUT)
            .build()
            .or_fail(Exit::Usage, START)?;
        let resource = resource(args);
        exporter.set_resource(&resource);
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        let queue = SpanQueue {
            sender: Mutex::new(Some(sender)),
            metrics: Arc::clone(metrics),
        };
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                1.0 / f64::from(args.traces.one_in.get()),
            ))))
            .with_resource(resource)
            .with_span_processor(queue)
            .build();
        let mut task = JoinSet::new();
        task.spawn(send_all(exporter, waiting, Arc::clone(metrics)));
        info!(%endpoint, one_in = args.traces.one_in, "sending traces of passes");
        Ok(Self {
            provider: Some(provider),
            task,
        })
    }

    /// The maker of spans.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        let provider = self.provider.as_ref()?;
        Some(provider.tracer("innkeeper"))
    }

    /// Waits until the task fails; pending without one.
    pub(super) async fn died(&mut self) -> Failure {
        const ENDED: &str = "the task that sends traces ended";

        match self.task.join_next().await {
            Some(ended) => joined(ended.map(Ok))
                .err()
                .unwrap_or_else(|| Failure::new(Exit::Failure, ENDED)),
            None => std::future::pending().await,
        }
    }

    /// Sends the spans that still wait, within a time limit.
    pub(super) async fn flush(mut self) {
        let Some(provider) = self.provider.take() else {
            return;
        };
        if let Err(error) = provider.shutdown() {
            debug!(%error, "failed to end the traces");
        }
        let ended = timeout(FLUSH_TIMEOUT, self.task.join_next()).await;
        if ended.is_err() {
            warn!("the last traces were not sent: the collector is too slow");
        }
    }
}

/// The attributes of this process.
fn resource(args: &RunArgs) -> Resource {
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
    Resource::builder()
        .with_service_name("innkeeper")
        .with_attributes([
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &args.lease.identity),
            text("k8s.namespace.name", &args.cluster.host_namespace),
        ])
        .build()
}

/// Sends the spans in batches until the queue is closed and empty.
async fn send_all(exporter: SpanExporter, mut waiting: Receiver<SpanData>, metrics: Arc<Metrics>) {
    let mut is_failing = false;
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let until = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            let more = waiting.recv_many(&mut batch, room);
            if !matches!(timeout_at(until, more).await, Ok(1..)) {
                break;
            }
        }
        let count = batch.len();
        let sent = exporter.export(mem::take(&mut batch)).await;
        let result = match sent {
            Ok(()) => SpanResult::Sent,
            Err(_) => SpanResult::Failed,
        };
        metrics.spans(result, count);
        if let Err(error) = &sent
            && !is_failing
        {
            // Once for each outage: the metric counts the rest.
            warn!(error = %error_chain(error), "failed to send traces to the collector");
        }
        is_failing = sent.is_err();
    }
}

impl std::fmt::Debug for SpanQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SpanQueue").finish_non_exhaustive()
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let sender = self.sender.lock();
        let is_taken = sender
            .as_ref()
            .is_some_and(|sender| sender.try_send(span).is_ok());
        if !is_taken {
            self.metrics.spans(SpanResult::Dropped, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        self.sender.lock().take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::Tracer as _;

    use super::*;

    #[test]
    fn spans_above_the_bound_are_dropped_and_counted() {
        let (sender, mut waiting) = mpsc::channel(3);
        let metrics = Arc::new(Metrics::new());
        let queue = SpanQueue {
            sender: Mutex::new(Some(sender)),
            metrics: Arc::clone(&metrics),
        };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .build();
        let tracer = provider.tracer("test");
        for _ in 0..5 {
            drop(tracer.start("pass"));
        }
        let line = "innkeeper_trace_spans_total{result=\"dropped\"} 2";
        assert!(metrics.encode().unwrap().contains(line));
        provider.shutdown().unwrap();
        let mut kept = 0;
        while waiting.blocking_recv().is_some() {
            kept += 1;
        }
        assert_eq!(kept, 3);
    }
}
