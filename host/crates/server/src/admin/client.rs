//! A client for a running host's debug endpoints.

use std::time::Duration;

use http::{Method, header::AUTHORIZATION};
use innkeeper_command::{Exit, Failure, OrFail as _, Streams};
use kube::{Config, client::ConfigExt as _};
use reqwest::{Client, Response, StatusCode, redirect::Policy};
use rustls::ClientConfig;

use crate::args::{AdminAddress, AdminClientArgs};
use innkeeper_source::{certificate_error, trust};

const FAILED: &str = "failed to create an HTTP client";

/// A client for one host.
pub struct AdminClient<'a> {
    /// The host's address.
    pub address: &'a AdminAddress,
    args: &'a AdminClientArgs,
    client: Client,
}

impl<'a> AdminClient<'a> {
    /// Creates a client; warns if it does not verify the host's certificate.
    pub fn new(
        address: &'a AdminAddress,
        args: &'a AdminClientArgs,
        streams: &mut Streams<'_>,
    ) -> Result<Self, Failure> {
        if args.insecure_skip_tls_verify {
            streams.note(&format!(
                "warning: the certificate of the host at {address} is not verified: connect only through kubectl port-forward"
            ));
        }
        // The environment's proxies apply only to sources.
        let client = Client::builder()
            .tls_backend_preconfigured(tls(args)?)
            .redirect(Policy::none())
            .no_proxy()
            .build()
            .or_fail(Exit::Failure, FAILED)?;
        Ok(Self {
            address,
            args,
            client,
        })
    }

    /// Sends a request; fails unless the status is 200. `timeout` includes reading the response.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        timeout: Duration,
    ) -> Result<Response, Failure> {
        let address = self.address;
        let mut request = self.client.request(method, address.url(path)).body(body);
        if let Some(token) = &self.args.token_file {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request
            .timeout(timeout)
            .build()
            .or_fail(Exit::Usage, self.no_host())?;
        let response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) if certificate_error(&error).is_some() => {
                return Err(error).or_fail(Exit::Failure, self.not_verified());
            }
            Err(error) => return Err(error).or_fail(Exit::Failure, self.no_host()),
        };
        let (exit, problem) = match response.status() {
            StatusCode::OK => return Ok(response),
            StatusCode::NOT_FOUND => (
                Exit::Failure,
                format!(
                    "the host at {address} has no debug endpoints: start it with --debug-endpoints"
                ),
            ),
            StatusCode::UNAUTHORIZED if self.args.token_file.is_none() => (
                Exit::Failure,
                format!(
                    "the host at {address} requires a token: give --token-file with the output of `kubectl create token ACCOUNT`"
                ),
            ),
            // The order names a parent or plugin that this host does not serve.
            StatusCode::UNPROCESSABLE_ENTITY => (Exit::Usage, refusal(response, address).await),
            StatusCode::CONFLICT
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE => (Exit::Failure, refusal(response, address).await),
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

    /// Returns the message for a failed request.
    pub fn no_host(&self) -> String {
        let address = self.address;
        let scheme = if address.is_secure {
            "without --admin-tls needs http://HOST:PORT"
        } else {
            "with --admin-tls needs https://HOST:PORT"
        };
        format!(
            "no host answers at {address}: check that it is running and that its --admin-address is the same; a host {scheme}"
        )
    }

    fn not_verified(&self) -> String {
        let address = self.address;
        format!(
            "failed to verify the certificate of the host at {address}: use an address in the certificate, and give its authority with --ca-file; a self-signed certificate needs --insecure-skip-tls-verify"
        )
    }
}

async fn refusal(response: Response, address: &AdminAddress) -> String {
    let reason = response.text().await.unwrap_or_default();
    format!("the host at {address} refuses: {}", reason.trim_end())
}

fn tls(args: &AdminClientArgs) -> Result<ClientConfig, Failure> {
    if !args.insecure_skip_tls_verify {
        let authorities = args.ca_file.as_deref().unwrap_or_default();
        return trust(authorities).or_fail(Exit::Usage, FAILED);
    }
    // kube's client has a verifier that accepts every certificate.
    let mut config = Config::new(http::Uri::default());
    config.accept_invalid_certs = true;
    // Otherwise kube would load the system's authorities, and fail in an image without any.
    config.root_cert = Some(Vec::new());
    config.rustls_client_config().or_fail(Exit::Failure, FAILED)
}
