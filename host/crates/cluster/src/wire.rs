//! The requests: lists in pages, watches by line, single objects, discovery.
//!
//! The only module of the host that reads from the API server. Every request has a deadline, and no request is retried
//! here.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the one module that reads from the API server"
)]

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use innkeeper_model::{Access, Resource, ResourceVersion, Scope};
use kube::{
    Client,
    client::Body,
    core::{
        Request as Urls,
        params::{GetParams, ListParams, VersionMatch, WatchParams},
    },
};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::{
    fields::{ObjectFields, Text},
    lines::LineBuffer,
    machine::{Since, StepFailure},
    options::Options,
    stored::Malformed,
};

/// The largest error body that is read; the text of a larger one is dropped. A status of the API server has a few hundred
/// bytes, and proxies answer with whole pages.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum WireFailure {
    /// The request could not be made, sent or answered.
    #[error("failed to reach the API server")]
    Transport(#[source] kube::Error),
    /// The request could not be built.
    #[error("failed to build a request")]
    Build(#[source] kube::core::request::Error),
    /// The deadline passed.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// The API server returned an error status.
    #[error("the API server answered {code}: {message}")]
    Status {
        /// The HTTP status.
        code: u16,
        /// The message of the API server.
        message: String,
        /// The pause that it requests.
        retry_after: Option<Duration>,
    },
    /// The answer is larger than the limit.
    #[error("the API server sent more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The answer could not be read.
    #[error("failed to read what the API server sent")]
    Malformed(#[source] Malformed),
}

impl WireFailure {
    /// Returns true if the API server has just started to serve the kind and requests a moment.
    pub(super) fn is_initializing(&self) -> bool {
        matches!(self, Self::Status { code: 429, message, .. } if message.contains("initializing"))
    }

    /// The meaning of the failure for a watch.
    pub(super) fn meaning(&self) -> StepFailure {
        match self {
            Self::Status { code: 410, .. } => StepFailure::Gone,
            Self::Status { code: 504, .. } => StepFailure::Behind,
            Self::Status {
                code: 401 | 403 | 404 | 405,
                ..
            } => StepFailure::Refused,
            Self::Status {
                retry_after: Some(after),
                ..
            } => StepFailure::Throttled(*after),
            Self::Malformed(_) | Self::TooLarge { .. } => StepFailure::Unreadable,
            _ => StepFailure::Broken,
        }
    }

    /// Returns true if the object or the kind does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }

    /// Returns true if the API server denied access.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(
            self,
            Self::Status {
                code: 401 | 403,
                ..
            }
        )
    }
}

impl From<serde_json::Error> for WireFailure {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(Malformed::Parse(error))
    }
}

/// The request of a list or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchTarget {
    /// The served kind.
    pub(super) served: Resource,
    /// Only the objects of this namespace.
    pub(super) namespace: Option<Arc<str>>,
    /// Only the objects that match this label selector.
    pub(super) selector: Option<String>,
    /// Metadata requests return metadata only; the other forms request whole objects.
    pub(super) form: Access,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(borrow, default)]
    metadata: PageMetadata<'a>,
    /// The objects.
    #[serde(borrow)]
    pub(super) items: Option<Vec<ObjectFields<'a>>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<'a> Page<'a> {
    /// Reads a page.
    pub(super) fn parse(text: &'a str) -> Result<Self, WireFailure> {
        Ok(serde_json::from_str(text)?)
    }

    /// The version of the list.
    pub(super) fn version(&self) -> Result<ResourceVersion, WireFailure> {
        parse_version(self.metadata.version.as_deref())
    }

    /// The continuation of the next page; none after the last one.
    pub(super) fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|next| !next.is_empty())
    }
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    /// The type of the event.
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    /// The object, or the status that ends the watch.
    #[serde(borrow)]
    pub(super) object: ObjectFields<'a>,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum LineKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// The version of a bookmark.
pub(super) fn bookmark_version(object: &ObjectFields<'_>) -> Result<ResourceVersion, WireFailure> {
    let version: Option<Text<'_>> = object
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.rest.get("resourceVersion"))
        .map(serde_json::from_str)
        .transpose()?;
    parse_version(version.as_ref().map(|Text(version)| &**version))
}

/// The failure in an error line.
pub(super) fn error_line(object: &ObjectFields<'_>) -> WireFailure {
    let text = object.rest.text();
    let code = serde_json::from_str::<StatusText>(&text)
        .ok()
        .and_then(|status| status.code)
        .unwrap_or(500);
    status_failure(code, &HeaderMap::new(), &text)
}

/// The client with its limits.
#[derive(Clone)]
pub(super) struct Wire {
    client: Client,
    options: Options,
}

impl Wire {
    pub(super) const fn new(client: Client, options: Options) -> Self {
        Self { client, options }
    }

    /// One page of a list.
    pub(super) async fn page(
        &self,
        target: &WatchTarget,
        since: Since,
        next: Option<&str>,
        limit: Option<u32>,
    ) -> Result<String, WireFailure> {
        let mut params = ListParams {
            label_selector: target.selector.clone(),
            limit,
            continue_token: next.map(str::to_owned),
            ..ListParams::default()
        };
        // A continuation has its own version: the API server rejects another one beside it.
        if let (Since::NotOlderThan(version), None) = (since, next) {
            params = params
                .at(&version.to_string())
                .matching(VersionMatch::NotOlderThan);
        }
        let urls = Urls::new(target.path());
        let request = match target.form {
            Access::Metadata => urls.list_metadata(&params),
            Access::Full | Access::Hash => urls.list(&params),
        };
        let bytes_max = self.options.page_bytes_max;
        self.text(request.map_err(WireFailure::Build)?, bytes_max)
            .await
    }

    /// Starts a watch that the API server ends after `duration`.
    pub(super) async fn watch(
        &self,
        target: &WatchTarget,
        from: ResourceVersion,
        duration: Duration,
    ) -> Result<WatchStream, WireFailure> {
        let params = WatchParams {
            label_selector: target.selector.clone(),
            // Zero would mean the default of the API server, which is half an hour and more.
            timeout: Some(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let urls = Urls::new(target.path());
        let mut request = match target.form {
            Access::Metadata => urls.watch_metadata(&params, &from.to_string()),
            Access::Full | Access::Hash => urls.watch(&params, &from.to_string()),
        }
        .map_err(WireFailure::Build)?;
        // A compressed watch has one member per event, and not every decoder reads all of them.
        let identity = header::HeaderValue::from_static("identity");
        request
            .headers_mut()
            .insert(header::ACCEPT_ENCODING, identity);
        let begun = Instant::now();
        let response = self
            .send(request, begun + self.options.request_timeout)
            .await?;
        Ok(WatchStream {
            body: response.into_body(),
            lines: LineBuffer::default(),
            deadline: begun + duration + self.options.watch_grace,
            allowed: duration + self.options.watch_grace,
            bytes_max: self.options.object_bytes_max,
        })
    }

    /// Returns one object from a quorum; none if it does not exist.
    pub(super) async fn object(
        &self,
        served: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<String>, WireFailure> {
        let urls = Urls::new(path(served, namespace));
        let request = urls
            .get(name, &GetParams::default())
            .map_err(WireFailure::Build)?;
        match self.text(request, self.options.object_bytes_max).await {
            Ok(text) => Ok(Some(text)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns a discovery document with its tag; none if the document with `tag` is still valid.
    pub(super) async fn discovery(
        &self,
        path: &str,
        tag: Option<&str>,
    ) -> Result<Option<(String, Option<String>)>, WireFailure> {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let mut builder = Request::get(path).header(header::ACCEPT, accept);
        if let Some(tag) = tag {
            builder = builder.header(header::IF_NONE_MATCH, tag);
        }
        let request = builder.body(Vec::new()).map_err(|source| {
            WireFailure::Build(kube::core::request::Error::BuildRequest(source))
        })?;
        let deadline = Instant::now() + self.options.request_timeout;
        let response = self.send(request, deadline).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let tag = response
            .headers()
            .get(header::ETAG)
            .and_then(|tag| tag.to_str().ok())
            .map(str::to_owned);
        let text = self
            .collect(response, deadline, self.options.page_bytes_max)
            .await?;
        Ok(Some((text, tag)))
    }

    /// Returns the body of an answer.
    pub(super) async fn text(
        &self,
        request: Request<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<String, WireFailure> {
        let deadline = Instant::now() + self.options.request_timeout;
        let response = self.send(request, deadline).await?;
        self.collect(response, deadline, bytes_max).await
    }

    async fn collect(
        &self,
        response: Response<Body>,
        deadline: Instant,
        bytes_max: usize,
    ) -> Result<String, WireFailure> {
        let body = Limited::new(response.into_body(), bytes_max).collect();
        let body = timeout_at(deadline, body)
            .await
            .map_err(|_| WireFailure::Timeout(self.options.request_timeout))?
            .map_err(|source| body_failure(source, bytes_max))?;
        String::from_utf8(body.to_bytes().into())
            .map_err(|_| WireFailure::Malformed(Malformed::NotUtf8))
    }

    /// Sends a request. Every status except success and "not modified" is a failure.
    async fn send(
        &self,
        request: Request<Vec<u8>>,
        deadline: Instant,
    ) -> Result<Response<Body>, WireFailure> {
        let sent = self.client.send(request.map(Body::from));
        let response = timeout_at(deadline, sent)
            .await
            .map_err(|_| WireFailure::Timeout(self.options.request_timeout))?
            .map_err(WireFailure::Transport)?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let text = self.collect(response, deadline, ERROR_BYTES_MAX).await;
        Err(status_failure(
            status.as_u16(),
            &headers,
            &text.unwrap_or_default(),
        ))
    }
}

/// A watch that is open.
pub(super) struct WatchStream {
    body: Body,
    lines: LineBuffer,
    deadline: Instant,
    allowed: Duration,
    bytes_max: usize,
}

impl WatchStream {
    /// Returns the next line; none at the end. An incomplete last line is dropped.
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, WireFailure> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            if self.lines.pending() > self.bytes_max {
                let bytes_max = self.bytes_max;
                return Err(WireFailure::TooLarge { bytes_max });
            }
            let frame = timeout_at(self.deadline, self.body.frame())
                .await
                .map_err(|_| WireFailure::Timeout(self.allowed))?;
            match frame {
                None => return Ok(None),
                Some(Err(source)) => return Err(WireFailure::Transport(source)),
                Some(Ok(frame)) => {
                    if let Some(chunk) = frame.data_ref() {
                        self.lines.push(chunk);
                    }
                }
            }
        }
    }

    /// Returns true if the received bytes end within a line.
    pub(super) fn is_within_line(&self) -> bool {
        self.lines.pending() > 0
    }
}

impl WatchTarget {
    fn path(&self) -> String {
        path(&self.served, self.namespace.as_deref())
    }
}

/// The URL path of the objects of a kind, in all namespaces or in one.
pub(super) fn path(served: &Resource, namespace: Option<&str>) -> String {
    let root = match &*served.kind.group {
        "" => format!("/api/{}", served.kind.version),
        group => format!("/apis/{group}/{}", served.kind.version),
    };
    match namespace.filter(|_| served.scope == Scope::Namespaced) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", served.plural),
        None => format!("{root}/{}", served.plural),
    }
}

fn parse_version(text: Option<&str>) -> Result<ResourceVersion, WireFailure> {
    let text = text.unwrap_or_default();
    let version = text
        .parse()
        .map_err(|_| WireFailure::Malformed(Malformed::Version(text.to_owned())))?;
    Ok(ResourceVersion(version))
}

#[derive(Deserialize)]
struct StatusText {
    code: Option<u16>,
    message: Option<String>,
    details: Option<StatusDetails>,
}

#[derive(Deserialize)]
struct StatusDetails {
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: Option<u64>,
}

fn status_failure(code: u16, headers: &HeaderMap, text: &str) -> WireFailure {
    let status: Option<StatusText> = serde_json::from_str(text).ok();
    let header = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let details = status.as_ref().and_then(|status| status.details.as_ref());
    let seconds = header.or_else(|| details?.retry_after_seconds);
    let message = status.and_then(|status| status.message);
    WireFailure::Status {
        code,
        message: message.unwrap_or_else(|| text.trim().chars().take(256).collect()),
        retry_after: seconds.map(Duration::from_secs),
    }
}

fn body_failure(source: Box<dyn std::error::Error + Send + Sync>, bytes_max: usize) -> WireFailure {
    match source.downcast::<kube::Error>() {
        Ok(source) => WireFailure::Transport(*source),
        Err(source) if source.is::<http_body_util::LengthLimitError>() => {
            WireFailure::TooLarge { bytes_max }
        }
        Err(source) => WireFailure::Transport(kube::Error::Service(source)),
    }
}
