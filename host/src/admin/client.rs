//! A client of the debug endpoints of a running host.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Request, Response, StatusCode, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::{
    config::Exit,
    failure::{Failure, OrFail as _},
};

/// The failure to send a request, or to read its answer.
pub(crate) fn no_host(address: &str) -> String {
    format!(
        "no host answers at {address}: check that it is running and that its --admin-address is the same; a host with --admin-tls is asked as in deploy/docs/debugging.md"
    )
}

/// Sends a request to the host at an address; returns an answer with status 200.
///
/// `patience` is the time until the end of the answer.
pub(crate) async fn send(
    address: &str,
    request: impl FnOnce(&Client) -> reqwest::Result<Request>,
    patience: Duration,
) -> Result<Response, Failure> {
    let client = client(patience)?;
    let request = request(&client).or_fail(Exit::Usage, no_host(address))?;
    let answer = client.execute(request).await;
    let answer = answer.or_fail(Exit::Failure, no_host(address))?;
    let (exit, problem) = match answer.status() {
        StatusCode::OK => return Ok(answer),
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => (
            Exit::Failure,
            format!(
                "the host at {address} does not serve its state: start it with --debug-endpoints"
            ),
        ),
        StatusCode::UNPROCESSABLE_ENTITY => (Exit::Usage, said(answer, address).await),
        StatusCode::CONFLICT => (Exit::Failure, said(answer, address).await),
        status => (
            Exit::Failure,
            format!(
                "the server at {address} is not an innkeeper host: it answered with status {}",
                status.as_u16()
            ),
        ),
    };
    Err(Failure::new(exit, problem))
}

/// Returns the reason of a refusal.
async fn said(answer: Response, address: &str) -> String {
    let reason = answer.text().await.unwrap_or_default();
    format!("the host at {address} refuses: {}", reason.trim_end())
}

fn client(patience: Duration) -> Result<Client, Failure> {
    const FAILED: &str = "failed to create an HTTP client";

    let provider = Arc::new(ring::default_provider());
    // The client requires a TLS configuration. Hosts serve plain HTTP, so that no certificate needs to be trusted.
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .or_fail(Exit::Failure, FAILED)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .timeout(patience)
        .build()
        .or_fail(Exit::Failure, FAILED)
}
