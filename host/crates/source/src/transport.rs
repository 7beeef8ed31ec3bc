//! The HTTP client: one request, its redirects, and a response with limited size and time.
//!
//! Credentials are sent only to their scheme, host and port. A redirect to another origin continues without them, even
//! if it later returns.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ::http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use innkeeper_model::{Digest, Digester, causes};
use reqwest::{Client, NoProxy, Proxy, Response, Url, redirect::Policy};
use rustls::CertificateError;
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Credentials, Failure, FailureKind, Proxies, Settings,
    address::{Guard, RefusedAddress, is_public, shown},
    error::check_size,
    trust::{certificate_error, trust},
};

/// Maximum number of redirects: registries need one or two.
const REDIRECTS_MAX: usize = 5;
/// The pause if a server requests one without a length: registries count pulls in minutes and hours.
const PAUSE_DEFAULT: Duration = Duration::from_mins(1);
/// The longest pause that a server can request: a wrong header must not stop a Plugin for days.
const PAUSE_MAX: Duration = Duration::from_hours(1);

/// The client and the limits.
pub(super) struct Transport {
    client: Client,
    guard: Guard,
    /// True for `https` and for `http` if there is a proxy.
    proxied: [bool; 2],
    silence: Duration,
    rate_bytes_min: u64,
}

/// One request.
#[derive(Clone)]
pub(super) struct Call {
    method: Method,
    pub(super) url: Url,
    /// All headers except the credentials.
    headers: HeaderMap,
    /// Sent only to the address's origin.
    pub(super) credentials: Option<HeaderValue>,
    body: Bytes,
}

impl Call {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            credentials: None,
            body: Bytes::new(),
        }
    }

    pub(super) fn get(url: Url, accept: &'static str) -> Self {
        let mut call = Self::new(Method::GET, url);
        call.headers
            .insert(ACCEPT, HeaderValue::from_static(accept));
        call
    }

    pub(super) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        self.headers.insert(CONTENT_TYPE, content_type);
        self.body = body.into();
        self
    }
}

/// A response head with an unread body.
pub(super) struct HttpAnswer<'a> {
    transport: &'a Transport,
    response: Response,
    signed_in: bool,
}

impl Transport {
    pub(super) fn new(settings: &Settings) -> Result<Self, Failure> {
        let Proxies {
            https,
            http,
            no_proxy,
        } = &settings.proxies;
        let proxies = [https, http].into_iter().flatten();
        let guard = Guard {
            allow_local: settings.allow_local,
            trusted: proxies.filter_map(|proxy| proxy_name(proxy)).collect(),
        };
        let failed = |source: reqwest::Error| {
            FailureKind::SettingsInvalid.because("failed to set up the HTTP client", source)
        };
        let mut builder = Client::builder()
            .user_agent(concat!("innkeeper/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(trust(&settings.certificates_pem)?)
            .dns_resolver(Arc::new(guard.clone()))
            // `send` follows them, because each address has to be checked and may not get the credentials.
            .redirect(Policy::none())
            .referer(false)
            // reqwest would take proxies from the environment; those in the settings follow.
            .no_proxy()
            .connect_timeout(settings.connect)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(10));
        let direct = || no_proxy.as_deref().and_then(NoProxy::from_string);
        if let Some(proxy) = https {
            builder = builder.proxy(Proxy::https(proxy).map_err(failed)?.no_proxy(direct()));
        }
        if let Some(proxy) = http {
            builder = builder.proxy(Proxy::http(proxy).map_err(failed)?.no_proxy(direct()));
        }
        Ok(Self {
            client: builder.build().map_err(failed)?,
            guard,
            proxied: [https.is_some(), http.is_some()],
            silence: settings.silence,
            rate_bytes_min: settings.rate_bytes_min,
        })
    }

    /// Sends a request, and follows redirects for GET and HEAD.
    pub(super) async fn send(&self, mut call: Call) -> Result<HttpAnswer<'_>, Failure> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send_once(&call).await?;
            let is_read = matches!(call.method, Method::GET | Method::HEAD);
            let target = response.headers().get(LOCATION).cloned();
            let (true, true, Some(target)) = (is_read, response.status().is_redirection(), target)
            else {
                return Ok(HttpAnswer {
                    transport: self,
                    response,
                    signed_in: call.credentials.is_some(),
                });
            };
            let target = follow(&call.url, &target)?;
            // For good: a redirect back is the other server's choice.
            if target.origin() != call.url.origin() {
                call.credentials = None;
            }
            call.url = target;
        }
        let problem = "there were too many before";
        Err(redirect_refused(&call.url, "yet another address", problem))
    }

    async fn send_once(&self, call: &Call) -> Result<Response, Failure> {
        self.check(&call.url)?;
        let mut request = self
            .client
            .request(call.method.clone(), call.url.clone())
            .headers(call.headers.clone())
            // The digest covers the uncompressed bytes, so compression is not accepted.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(credentials) = &call.credentials {
            request = request.header(AUTHORIZATION, credentials.clone());
        }
        if !matches!(call.method, Method::GET | Method::HEAD) {
            request = request.body(call.body.clone());
        }
        // A server answers only after it has received the whole body, so add the upload time at the slowest rate.
        let patience = self.silence + self.at_slowest(bytes_of(call.body.len()));
        match timeout(patience, request.send()).await {
            Ok(response) => response.map_err(|error| self.not_sent(&call.url, error)),
            Err(_) => Err(silent(&call.url, patience)),
        }
    }

    /// Rejects addresses by their text; the resolver rejects the others.
    fn check(&self, url: &Url) -> Result<(), Failure> {
        let refused = |problem| Err(Failure::url_refused(&shown(url.as_str()), problem));
        if !matches!(url.scheme(), "http" | "https") {
            return refused("write it as https://host/path");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("user and password belong into a Secret");
        }
        let Some(host) = url.host_str() else {
            return refused("it has no host");
        };
        // The proxy may have any address, so it must not be usable as a source.
        if self.guard.trusts(host) && !self.guard.allow_local {
            return refused("this is the proxy");
        }
        match literal(host) {
            Some(address) if !self.guard.allow_local && !is_public(address) => {
                Err(address_refused(&shown(url.as_str()), address))
            }
            _ => Ok(()),
        }
    }

    /// The transfer time at the slowest accepted rate.
    fn at_slowest(&self, bytes: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate_bytes_min.max(1))
    }

    fn not_sent(&self, url: &Url, error: reqwest::Error) -> Failure {
        let refused = causes(&error).find_map(|cause| cause.downcast_ref());
        if let Some(RefusedAddress { host, address }) = refused {
            return address_refused(host, *address);
        }
        let shown = shown(url.as_str());
        if certificate_error(&error) == Some(&CertificateError::UnknownIssuer) {
            let message = format!(
                "the certificate of {shown} is not trusted: for a private authority, give its certificate as PEM \
                 with --source-ca-file (host) or --ca-file (other commands)"
            );
            // The error would show the query, which may be a secret.
            return FailureKind::Untrusted.because(message, error.without_url());
        }
        // The server accepted the connection, and then closed it or sent something that is not HTTP.
        if !error.is_connect() {
            return interrupted(url, error);
        }
        let proxy_hint = match (url.scheme(), self.proxied) {
            ("https", [true, _]) => {
                ", through the proxy of HTTPS_PROXY unless NO_PROXY names the host"
            }
            ("http", [_, true]) => {
                ", through the proxy of HTTP_PROXY unless NO_PROXY names the host"
            }
            _ => "",
        };
        let message = format!("failed to connect to {shown}{proxy_hint}");
        FailureKind::Unreachable.because(message, error.without_url())
    }
}

impl HttpAnswer<'_> {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The address that responded, after all redirects.
    pub(super) fn url(&self) -> &Url {
        self.response.url()
    }

    /// Returns a successful response's body, within the limit, and the digest.
    pub(super) async fn body_if_ok(
        mut self,
        what: &str,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Digest), Failure> {
        if self.status() != StatusCode::OK {
            return Err(self.refusal(what));
        }
        // Saves the reading. The loop counts too, because the length may be missing or wrong.
        let announced = self.response.content_length().unwrap_or_default();
        check_size(what, announced, bytes_max)?;
        let started = Instant::now();
        let mut bytes = Vec::new();
        let mut digester = Digester::default();
        while let Some(chunk) = self.chunk(started, bytes_of(bytes.len())).await? {
            check_size(what, bytes_of(bytes.len() + chunk.len()), bytes_max)?;
            digester.update(&chunk);
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, digester.finish()))
    }

    /// Returns the next body chunk. Fails after too long a silence, or once the transfer is behind the slowest rate by
    /// the same time.
    async fn chunk(&mut self, started: Instant, received: u64) -> Result<Option<Bytes>, Failure> {
        let Transport {
            silence,
            rate_bytes_min,
            ..
        } = *self.transport;
        let silent_at = Instant::now() + silence;
        let slow_at = started + silence + self.transport.at_slowest(received);
        let chunk = timeout_at(silent_at.min(slow_at), self.response.chunk()).await;
        match chunk {
            Ok(chunk) => chunk.map_err(|error| interrupted(self.url(), error)),
            Err(_) if received > 0 && slow_at < silent_at => {
                let url = shown(self.url().as_str());
                Err(FailureKind::TooSlow.failure(format!(
                    "{url} sends less than {rate_bytes_min} bytes per second: {received} bytes came"
                )))
            }
            Err(_) => Err(silent(self.url(), silence)),
        }
    }

    /// Returns the failure for an error status, for a request about the named object.
    ///
    /// Does not read the body: the server writes it, and conditions would show it to others than the Plugin's author.
    pub(super) fn refusal(&self, what: &str) -> Failure {
        let status = self.status();
        let url = shown(self.url().as_str());
        let answered = format!("{url} answered {}", status.as_u16());
        let pause = pause(self.headers());
        let throttled = |retry_after: Duration| {
            let seconds = retry_after.as_secs();
            FailureKind::Throttled { retry_after }
                .failure(format!("{url} asks for a pause of {seconds} s"))
        };
        match (status, pause) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                let advice = if self.signed_in {
                    "the credentials are wrong or do not allow this"
                } else {
                    "credentials are required: name a Secret that holds them"
                };
                FailureKind::Denied.failure(format!("{answered}: {advice}"))
            }
            (StatusCode::NOT_FOUND, _) => {
                FailureKind::NotFound.failure(format!("{answered}: {what} is not there"))
            }
            // A 503 may have Retry-After, too.
            (_, Some(pause)) => throttled(pause),
            (StatusCode::TOO_MANY_REQUESTS, None) => throttled(PAUSE_DEFAULT),
            (_, None) => FailureKind::ServerFailed.failure(answered),
        }
    }
}

fn bytes_of(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn silent(url: &Url, waited: Duration) -> Failure {
    let url = shown(url.as_str());
    let waited = waited.as_secs();
    FailureKind::TooSlow.failure(format!("{url} was silent for {waited} s"))
}

fn interrupted(url: &Url, error: reqwest::Error) -> Failure {
    let url = shown(url.as_str());
    let message = format!("the connection to {url} broke before the answer was complete");
    FailureKind::Unreachable.because(message, error.without_url())
}

fn address_refused(host: &str, address: IpAddr) -> Failure {
    FailureKind::AddressRefused.failure(format!(
        "{host} is at {address}, which is not a public address: move it, or let the host use local addresses"
    ))
}

fn redirect_refused(from: &Url, to: &str, problem: &str) -> Failure {
    let from = shown(from.as_str());
    let message = format!("{from} redirects to {to}, which is not followed: {problem}");
    FailureKind::AddressRefused.failure(message)
}

pub(super) fn parse_url(address: &str) -> Result<Url, Failure> {
    Url::parse(address)
        .map_err(|_| Failure::url_refused(&shown(address), "write it as https://host/path"))
}

/// Rejects an address to which credentials would go over plain HTTP, except for loopback.
pub(super) fn check_private(url: &Url) -> Result<(), Failure> {
    let host = url.host_str().unwrap_or_default();
    let is_loopback = literal(host).is_some_and(|address| address.is_loopback());
    if url.scheme() == "https" || is_loopback || host == "localhost" {
        return Ok(());
    }
    let problem = "credentials are sent only over https, because plain http is not encrypted";
    Err(Failure::url_refused(&shown(url.as_str()), problem))
}

/// Returns the header with the credentials.
pub(super) fn authorization(credentials: &Credentials) -> Result<HeaderValue, Failure> {
    let (text, what) = match credentials {
        Credentials::Basic { user, password } => {
            let pair = format!("{user}:{}", password.expose_secret());
            (format!("Basic {}", STANDARD.encode(pair)), "a password")
        }
        // Files, and so Secrets, end with a line break.
        Credentials::Bearer(token) => (
            format!("Bearer {}", token.expose_secret().trim()),
            "a token",
        ),
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| Failure::credentials(what, "it holds characters that cannot be sent"))?;
    // Hides it in debug output.
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a proxy's host name if it must be resolved. The proxy may be written without a scheme.
fn proxy_name(proxy: &str) -> Option<String> {
    let url = Url::parse(proxy)
        .ok()
        .filter(Url::has_host)
        .or_else(|| Url::parse(&format!("http://{proxy}")).ok())?;
    let host = url.host_str()?;
    // An address is not resolved, so the resolver need not trust it.
    literal(host).is_none().then(|| host.to_owned())
}

/// Returns the IP address if the host is one.
///
/// The URL parser has already normalized every way to write an address, and put IPv6 into brackets.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// Returns a redirect's target.
fn follow(from: &Url, location: &HeaderValue) -> Result<Url, Failure> {
    let target = location.to_str().ok().and_then(|text| from.join(text).ok());
    let Some(target) = target else {
        return Err(redirect_refused(from, "something", "it is not an address"));
    };
    if from.scheme() == "https" && target.scheme() != "https" {
        let problem = "it leads from https to a connection without encryption";
        return Err(redirect_refused(from, &shown(target.as_str()), problem));
    }
    Ok(target)
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    // HTTP also allows a date, which counts as missing.
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}
