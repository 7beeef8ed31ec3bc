//! Traces of passes.

use std::num::NonZeroU32;

use reqwest::Url;

/// The path for traces, as OTLP defines it.
const PATH: &str = "/v1/traces";

/// Flags for traces.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceArgs {
    /// Send a trace of each pass to this OTLP collector (HTTP, protobuf), as http://collector:4318; default path
    /// /v1/traces.
    ///
    /// --source-ca-file applies. OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES add headers and attributes;
    /// OTEL_BSP_* limit the queue.
    #[arg(
        long = "otlp-endpoint",
        value_name = "URL",
        env = "INNKEEPER_OTLP_ENDPOINT",
        value_parser = endpoint
    )]
    pub endpoint: Option<Url>,
    /// Trace one pass in N, at random.
    #[arg(
        long = "trace-one-in",
        value_name = "N",
        env = "INNKEEPER_TRACE_ONE_IN",
        default_value = "1"
    )]
    pub one_in: NonZeroU32,
}

impl Default for TraceArgs {
    fn default() -> Self {
        Self {
            endpoint: None,
            one_in: NonZeroU32::MIN,
        }
    }
}

fn endpoint(text: &str) -> Result<Url, String> {
    const EXPECTED: &str = "give an address with http:// or https://, as in http://collector:4318";

    let mut url: Url = text.parse().map_err(|_| EXPECTED.to_owned())?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err(EXPECTED.to_owned());
    }
    // `Url` gives this path to an address without one.
    if url.path() == "/" {
        url.set_path(PATH);
    }
    Ok(url)
}
