//! The HTTP client: one request, its redirects, and an answer that is bounded in size and time.
//!
//! Credentials are sent only to their scheme, host and port. A redirect to another origin continues without them, even
//! if it later returns.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ::http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RETRY_AFTER},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use innkeeper_model::{Digest, Digester, causes};
use reqwest::{Client, NoProxy, Proxy, Response, Url, redirect::Policy};
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Credentials, Failure, Proxies, Settings,
    address::{Guard, RefusedAddress, is_public},
    trust::{is_untrusted, trust},
};

/// The limit of redirects: registries need one or two.
const REDIRECTS_MAX: usize = 5;
/// The read part of an error body, in bytes.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;
/// The shown part of it, in characters.
const DETAIL_MAX: usize = 200;
/// The pause if a server requests one without its length.
const PAUSE_DEFAULT: Duration = Duration::from_mins(1);
/// The longest pause that a server can request.
const PAUSE_MAX: Duration = Duration::from_hours(1);

/// The client and its limits.
pub(super) struct Transport {
    client: Client,
    guard: Guard,
    /// True for `https` and for `http` if there is a proxy.
    proxied: [bool; 2],
    silence: Duration,
    rate_bytes_min: u64,
}

/// One request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    /// All headers except the credentials.
    pub(super) headers: HeaderMap,
    /// Sent only to the origin of the address.
    pub(super) credentials: Option<HeaderValue>,
    pub(super) body: Bytes,
}

/// The head of an answer with an unread body.
pub(super) struct HttpAnswer {
    response: Response,
    url: Url,
    signed_in: bool,
    silence: Duration,
    rate_bytes_min: u64,
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
        let failed = |source| Failure::Client { source };
        let mut builder = Client::builder()
            .user_agent(concat!("innkeeper/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(trust(&settings.certificates_pem)?)
            .dns_resolver(Arc::new(guard.clone()))
            .redirect(Policy::none())
            .referer(false)
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

    /// Returns a note for users about the proxy of a failed connection.
    fn between(&self, url: &Url) -> &'static str {
        match (url.scheme(), self.proxied) {
            ("https", [true, _]) => {
                ", through the proxy of HTTPS_PROXY unless NO_PROXY names the host"
            }
            ("http", [_, true]) => {
                ", through the proxy of HTTP_PROXY unless NO_PROXY names the host"
            }
            _ => "",
        }
    }

    /// Sends a request, and follows the redirects of a GET or HEAD.
    pub(super) async fn send(&self, mut call: Call) -> Result<HttpAnswer, Failure> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send_once(&call).await?;
            let reads = matches!(call.method, Method::GET | Method::HEAD);
            let target = response.headers().get(LOCATION).cloned();
            let (true, true, Some(target)) = (reads, response.status().is_redirection(), target)
            else {
                return Ok(HttpAnswer {
                    response,
                    url: call.url,
                    signed_in: call.credentials.is_some(),
                    silence: self.silence,
                    rate_bytes_min: self.rate_bytes_min,
                });
            };
            let target = follow(&call.url, &target)?;
            if target.origin() != call.url.origin() {
                call.credentials = None;
            }
            call.url = target;
        }
        Err(Failure::RedirectRefused {
            from: shown(call.url.as_str()),
            to: "yet another address".to_owned(),
            problem: "there were too many before",
        })
    }

    async fn send_once(&self, call: &Call) -> Result<Response, Failure> {
        self.check(&call.url)?;
        let mut request = self
            .client
            .request(call.method.clone(), call.url.clone())
            .headers(call.headers.clone())
            // The digest is that of the uncompressed bytes, so compression is not accepted.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(credentials) = &call.credentials {
            request = request.header(AUTHORIZATION, credentials.clone());
        }
        if !matches!(call.method, Method::GET | Method::HEAD) {
            request = request.body(call.body.clone());
        }
        // A server answers only after it has received the whole body, so the upload at the slowest rate comes on top.
        let sent = u64::try_from(call.body.len()).unwrap_or(u64::MAX);
        let patience = self.silence + at_rate(sent, self.rate_bytes_min);
        match timeout(patience, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(not_sent(&call.url, error, self.between(&call.url))),
            Err(_) => Err(Failure::Silent {
                url: shown(call.url.as_str()),
                waited: patience,
            }),
        }
    }

    /// Refuses addresses by their text; the resolver refuses the others.
    fn check(&self, url: &Url) -> Result<(), Failure> {
        let refused = |problem| {
            Err(Failure::UrlRefused {
                url: shown(url.as_str()),
                problem,
            })
        };
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
                Err(Failure::AddressRefused {
                    host: shown(url.as_str()),
                    address,
                })
            }
            _ => Ok(()),
        }
    }
}

impl HttpAnswer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the body of a successful answer.
    pub(super) async fn body_if_ok(
        self,
        what: &'static str,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Digest), Failure> {
        if self.status() == StatusCode::OK {
            self.body(what, bytes_max).await
        } else {
            Err(self.refusal(what).await)
        }
    }

    /// Returns the body, within the limit, and its digest.
    async fn body(
        mut self,
        what: &'static str,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Digest), Failure> {
        let too_large = Failure::TooLarge {
            what,
            max: bytes_max,
        };
        if self
            .response
            .content_length()
            .is_some_and(|length| length > bytes_max)
        {
            return Err(too_large);
        }
        let started = Instant::now();
        let (mut bytes, mut digester, mut received) = (Vec::new(), Digester::default(), 0_u64);
        while let Some(chunk) = self.chunk(started, received).await? {
            received = received.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if received > bytes_max {
                return Err(too_large);
            }
            digester.update(&chunk);
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, digester.finish()))
    }

    /// Returns the next chunk of the body. Fails after too long a silence, and after the transfer has fallen behind the
    /// slowest rate by the same time.
    async fn chunk(&mut self, started: Instant, received: u64) -> Result<Option<Bytes>, Failure> {
        let url = shown(self.url.as_str());
        let silent_at = Instant::now() + self.silence;
        let slow_at = started + self.silence + at_rate(received, self.rate_bytes_min);
        match timeout_at(silent_at.min(slow_at), self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(source)) => Err(Failure::Interrupted {
                url,
                source: source.without_url(),
            }),
            Err(_) if received > 0 && slow_at < silent_at => Err(Failure::TooSlow {
                url,
                received,
                rate_min: self.rate_bytes_min,
            }),
            Err(_) => Err(Failure::Silent {
                url,
                waited: self.silence,
            }),
        }
    }

    /// Returns the failure for an error status of a request for the named object.
    pub(super) async fn refusal(mut self, what: &'static str) -> Failure {
        let (status, url) = (self.status(), shown(self.url.as_str()));
        let pause = pause(self.headers());
        let detail = detail(&self.start_of_body().await);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Denied {
                url,
                status: status.as_u16(),
                advice: if self.signed_in {
                    "the credentials are wrong or do not allow this"
                } else {
                    "credentials are required: name a Secret that holds them"
                },
                detail,
            },
            StatusCode::NOT_FOUND => Failure::NotFound { url, what },
            StatusCode::TOO_MANY_REQUESTS => Failure::Throttled {
                url,
                retry_after: pause.unwrap_or(PAUSE_DEFAULT),
            },
            _ => match pause {
                Some(retry_after) => Failure::Throttled { url, retry_after },
                None => Failure::Status {
                    url,
                    status: status.as_u16(),
                    detail,
                },
            },
        }
    }

    /// Returns the start of an error body; if it does not come, the error has no detail.
    async fn start_of_body(&mut self) -> Vec<u8> {
        let (started, mut bytes) = (Instant::now(), Vec::new());
        while bytes.len() < REFUSAL_BYTES_MAX {
            match self.chunk(started, 0).await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) | Err(_) => break,
            }
        }
        bytes.truncate(REFUSAL_BYTES_MAX);
        bytes
    }
}

/// The transfer time of bytes at a rate in bytes per second.
fn at_rate(bytes: u64, rate: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
}

/// Returns an address without the parts that may be secret.
pub(super) fn shown(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else {
        return "an address that cannot be read".to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    // These fail only for addresses that can have neither, and then there is none to remove.
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_or_else(|()| url.scheme().to_owned(), |()| url.to_string())
}

pub(super) fn parse_url(address: &str) -> Result<Url, Failure> {
    Url::parse(address).map_err(|_| Failure::UrlRefused {
        url: shown(address),
        problem: "write it as https://host/path",
    })
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
    let mut value = HeaderValue::try_from(text).map_err(|_| Failure::Credentials {
        host: what.to_owned(),
        problem: "it holds characters that cannot be sent",
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the host name of a proxy if it must be resolved. The proxy may be written without a scheme.
fn proxy_name(proxy: &str) -> Option<String> {
    let url = Url::parse(proxy)
        .ok()
        .filter(Url::has_host)
        .or_else(|| Url::parse(&format!("http://{proxy}")).ok())?;
    let host = url.host_str()?;
    literal(host).is_none().then(|| host.to_owned())
}

/// Returns the IP address if the host is one.
///
/// The URL parser has already normalized every way to write an address, and put IPv6 into brackets.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// Returns the target of a redirect.
fn follow(from: &Url, location: &HeaderValue) -> Result<Url, Failure> {
    let refused = |to: String, problem| Failure::RedirectRefused {
        from: shown(from.as_str()),
        to,
        problem,
    };
    let target = location.to_str().ok().and_then(|text| from.join(text).ok());
    let Some(target) = target else {
        return Err(refused("something".to_owned(), "it is not an address"));
    };
    if from.scheme() == "https" && target.scheme() != "https" {
        return Err(refused(
            shown(target.as_str()),
            "it leads from https to a connection that anybody can change",
        ));
    }
    Ok(target)
}

fn not_sent(url: &Url, error: reqwest::Error, between: &'static str) -> Failure {
    let refused = causes(&error).find_map(|cause| cause.downcast_ref());
    if let Some(RefusedAddress { host, address }) = refused {
        return Failure::AddressRefused {
            host: host.clone(),
            address: *address,
        };
    }
    let (url, connected) = (shown(url.as_str()), !error.is_connect());
    let is_untrusted = is_untrusted(&error);
    let source = error.without_url();
    if is_untrusted {
        Failure::Untrusted { url, source }
    } else if connected {
        Failure::Interrupted { url, source }
    } else {
        Failure::Connect {
            url,
            between,
            source,
        }
    }
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// Returns the message of a server in one line: the errors of a registry, or the first line of a text.
fn detail(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let messages = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|answer| {
            let errors = answer.get("errors")?.as_array()?;
            let messages = errors
                .iter()
                .filter_map(|error| error.get("message")?.as_str());
            Some(messages.collect::<Vec<_>>().join("; "))
        });
    let said: String = messages
        .as_deref()
        .unwrap_or_else(|| text.lines().next().unwrap_or_default())
        .chars()
        .filter(|character| !character.is_control())
        .take(DETAIL_MAX)
        .collect();
    match said.trim() {
        "" => String::new(),
        said => format!(": {said}"),
    }
}
