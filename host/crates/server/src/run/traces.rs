//! Sends traces of passes to a collector, by OTLP over HTTP.
//!
//! The SDK's batch processor has the queue and a thread that sends, so no pass waits. It drops spans above its bounds,
//! which the variables `OTEL_BSP_*` set, and logs their number.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_metrics::{Metrics, SpanResult};
use innkeeper_model::error_chain;
use innkeeper_source::trust;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter},
};
use reqwest::{blocking::Client, redirect::Policy};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::tasks::TASK_ENDED;
use crate::args::RunArgs;

const START: &str = "failed to set up the traces for --otlp-endpoint";

/// The time limit of a request, as in OpenTelemetry's SDKs.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the last spans when the host ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The traces of a running host, if there is a collector.
pub(super) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Starts the thread that sends, if there is a collector.
    pub(super) async fn start(args: &RunArgs, metrics: &Arc<Metrics>) -> Result<Self, Failure> {
        let Some(endpoint) = &args.traces.endpoint else {
            return Ok(Self(None));
        };
        let client_args = args.clone();
        // The blocking client starts its own runtime, which fails within another.
        let client = spawn_blocking(move || client(&client_args))
            .await
            .or_fail(Exit::Failure, TASK_ENDED)??;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.as_str())
            .with_timeout(SEND_TIMEOUT)
            .build()
            .or_fail(Exit::Usage, START)?;
        let provider = SdkTracerProvider::builder()
            // A pass's steps follow the decision for the pass.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                1.0 / f64::from(args.traces.one_in.get()),
            ))))
            .with_resource(resource(args))
            .with_batch_exporter(CountedExporter {
                inner: exporter,
                metrics: Arc::clone(metrics),
                is_failing: AtomicBool::default(),
            })
            .build();
        info!(%endpoint, one_in = args.traces.one_in, "sending traces of passes");
        Ok(Self(Some(provider)))
    }

    /// Creates spans.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        Some(self.0.as_ref()?.tracer("innkeeper"))
    }

    /// Sends the remaining spans, within a time limit.
    pub(super) async fn flush(mut self) {
        let Some(provider) = self.0.take() else {
            return;
        };
        // Blocks until the processor's thread has sent the rest.
        let shutdown = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        if let Ok(Err(error)) = shutdown.await {
            warn!(%error, "failed to send the last traces to the collector");
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // The provider's own drop would wait for the collector.
            drop(provider.shutdown_with_timeout(Duration::ZERO));
        }
    }
}

fn client(args: &RunArgs) -> Result<Client, Failure> {
    let authorities = args.sources.ca_file.as_deref().unwrap_or_default();
    Client::builder()
        .tls_backend_preconfigured(trust(authorities).or_fail(Exit::Usage, START)?)
        .redirect(Policy::none())
        // The environment's proxies apply only to sources.
        .no_proxy()
        .timeout(SEND_TIMEOUT)
        .build()
        .or_fail(Exit::Failure, START)
}

/// This process's attributes.
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

/// Counts the spans that the collector received or refused.
struct CountedExporter<E> {
    inner: E,
    metrics: Arc<Metrics>,
    is_failing: AtomicBool,
}

impl<E: fmt::Debug> fmt::Debug for CountedExporter<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}

impl<E: SpanExporter> SpanExporter for CountedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.inner.export(batch).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        if let Err(error) = result {
            self.metrics.spans(SpanResult::Failed, count);
            // Once for each outage: the metric counts the rest.
            if !was_failing {
                warn!(error = %error_chain(&error), "failed to send traces to the collector");
            }
        } else {
            self.metrics.spans(SpanResult::Sent, count);
        }
        // For an error, the processor would log each batch.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
