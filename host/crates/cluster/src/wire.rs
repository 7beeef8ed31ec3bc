//! Requests: paged lists, watches by line, single objects, discovery and reviews.
//!
//! Only this module reads from the API server. Every request has a deadline, and none is retried here.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module that reads from the API server"
)]

mod failure;
mod items;

use std::{borrow::Cow, io, pin::Pin, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, TryStreamExt as _};
use http::{Request, Response, StatusCode, header, uri::InvalidUri};
use http_body_util::{BodyExt, Limited};
use innkeeper_model::{Access, Resource, ResourceVersion, Scope, Selector};
use kube::{
    Client,
    client::Body,
    core::{
        Request as Urls, Status,
        params::{GetParams, ListParams, VersionMatch, WatchParams},
    },
};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

pub use failure::WireFailure;

use items::ItemSplitter;

use super::{
    fields::{ObjectFields, Text},
    machine::Since,
    options::Options,
    section::Section,
    stored::{Malformed, check_requested, parse_version, states_kind},
};

/// The largest error body that is read; a larger one is dropped. The API server's statuses have a few hundred bytes,
/// but proxies return whole pages.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The objects that a list or a watch requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchTarget {
    /// The served kind.
    pub(super) served: Resource,
    /// Only objects in this section; a server that does not select by shard sends all.
    pub(super) section: Section,
    /// Only objects that match this label selector.
    pub(super) selector: Selector,
    /// Metadata, or whole objects for all other forms.
    pub(super) form: Access,
}

/// A selector as text; none: all objects.
pub(super) fn selector_text(selector: &Selector) -> Option<String> {
    (!selector.selects_all()).then(|| selector.to_string())
}

/// One page of a list.
pub(super) struct Page<T> {
    /// The list's version.
    pub(super) version: ResourceVersion,
    /// The cached parts of the objects.
    pub(super) items: Vec<T>,
    /// True if the server has selected by shard.
    pub(super) is_sharded: bool,
    /// The continuation token.
    next: Option<String>,
}

/// A page without objects.
#[derive(Deserialize)]
struct PageHead<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    metadata: PageMetadata<'a>,
}

#[derive(Default, Deserialize)]
struct PageMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(rename = "continue")]
    next: Option<String>,
    #[serde(rename = "shardInfo")]
    shards: Option<IgnoredAny>,
}

impl PageHead<'_> {
    fn version(&self) -> Result<ResourceVersion, Malformed> {
        parse_version(self.metadata.version.as_deref().unwrap_or_default())
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

/// A bookmark's version.
pub(super) fn bookmark_version(object: &ObjectFields<'_>) -> Result<ResourceVersion, Malformed> {
    let text = object
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.rest.get("resourceVersion"));
    let Text(version) = serde_json::from_str(text.unwrap_or("\"\""))?;
    parse_version(&version)
}

/// The failure in an error line.
pub(super) fn error_line(object: &ObjectFields<'_>) -> WireFailure {
    let status: Status = serde_json::from_str(&object.rest.text()).unwrap_or_default();
    let code = if status.code == 0 { 500 } else { status.code };
    WireFailure::from_status(code, None, status)
}

/// The client with limits.
pub(super) struct Wire {
    client: Client,
    options: Options,
    /// Bounds the pages in memory.
    pages: Semaphore,
}

impl Wire {
    pub(super) fn new(client: Client, options: Options) -> Self {
        let pages = Semaphore::new(options.pages_at_once_max.max(1).into());
        Self {
            client,
            options,
            pages,
        }
    }

    /// Creates a client with another timeout, for callers without watches.
    pub(super) fn with_timeout(client: Client, timeout: Duration) -> Self {
        let options = Options {
            request_timeout: timeout,
            // The seed is for the jitter of watches.
            ..Options::new(0)
        };
        Self::new(client, options)
    }

    /// Reads a list, in pages or not.
    ///
    /// `keep` gets each object when the text has arrived, with the list's kind if that is known. Only what `keep`
    /// returns stays in memory until the page is complete.
    pub(super) async fn list<T, E: From<WireFailure>>(
        &self,
        target: &WatchTarget,
        since: Since,
        paged: bool,
        mut keep: impl FnMut(&ObjectFields<'_>, Option<&str>) -> Result<T, Malformed>,
        mut take: impl FnMut(Page<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let limit_min = self.options.page_objects_min;
        let mut limit = paged.then_some(self.options.page_objects_max);
        let mut next: Option<String> = None;
        loop {
            let permits = limit.map_or(self.options.pages_at_once_max, |_| 1).into();
            // Held until the page is applied, because it bounds memory.
            let _permit = self.pages.acquire_many(permits).await;
            let (request, bytes_max) = self.page(target, since, next.as_deref(), limit)?;
            let mut page = match self.objects(request, bytes_max, &mut keep).await {
                // Asks for smaller pages. A server that still sends too many bytes ignores the limit, so the rest is
                // read without pages.
                Err(WireFailure::TooLarge { .. }) if limit.is_some() => {
                    limit = limit.filter(|limit| *limit > limit_min).map(|_| limit_min);
                    continue;
                }
                page => page?,
            };
            next = page.next.take();
            take(page)?;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the present version with the smallest possible list.
    pub(super) async fn version(
        &self,
        mut target: WatchTarget,
    ) -> Result<ResourceVersion, WireFailure> {
        target.form = Access::Metadata;
        // The server would look for an object of these shards, which may be the last or none.
        if target.section.shards().is_some() {
            target.section = Section::Whole;
        }
        let (request, bytes_max) = self.page(&target, Since::Now, None, Some(1))?;
        let page = self.objects(request, bytes_max, |_, _| Ok(())).await?;
        Ok(page.version)
    }

    /// Fetches a page.
    async fn objects<T>(
        &self,
        request: Request<Vec<u8>>,
        bytes_max: usize,
        mut keep: impl FnMut(&ObjectFields<'_>, Option<&str>) -> Result<T, Malformed>,
    ) -> Result<Page<T>, WireFailure> {
        let deadline = Instant::now() + self.options.request_timeout;
        let response = self.send(request, deadline).await?;
        let mut body = Limited::new(response.into_body(), bytes_max);
        let mut splitter = ItemSplitter::default();
        let mut items = Vec::new();
        // None before the first object.
        let mut list: Option<Option<String>> = None;
        // For custom resources, the API server writes the list's kind after the objects.
        let mut unchecked: Option<Vec<u8>> = None;
        while let Some(frame) = self.in_time(deadline, body.frame()).await? {
            let frame = frame.map_err(|source| body_failure(source, bytes_max))?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            for item in splitter.feed(&chunk) {
                if list.is_none() {
                    let head = splitter.head_before_items();
                    let head: PageHead<'_> = serde_json::from_str(utf8(&head)?)?;
                    list = Some(head.kind.map(Cow::into_owned));
                }
                let object = serde_json::from_str(utf8(&item)?)?;
                let list = list.as_ref().and_then(Option::as_deref);
                items.push(keep(&object, list)?);
                if list.is_none() && unchecked.is_none() && !states_kind(&object) {
                    unchecked = Some(item);
                }
            }
        }
        let head: PageHead<'_> = serde_json::from_str(utf8(splitter.head())?)?;
        if let Some(item) = unchecked {
            let object = serde_json::from_str(utf8(&item)?)?;
            keep(&object, head.kind.as_deref())?;
        }
        Ok(Page {
            version: head.version()?,
            items,
            is_sharded: head.metadata.shards.is_some(),
            next: head.metadata.next.filter(|next| !next.is_empty()),
        })
    }

    /// Returns the request for a page, and the most bytes in the response.
    fn page(
        &self,
        target: &WatchTarget,
        since: Since,
        next: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Request<Vec<u8>>, usize), WireFailure> {
        let mut params = ListParams {
            label_selector: selector_text(&target.selector),
            limit,
            continue_token: next.map(str::to_owned),
            ..ListParams::default()
        };
        // A continuation token has a version: the API server rejects another one beside it.
        if let (Since::NotOlderThan(version), None) = (since, next) {
            params = params
                .at(&version.to_string())
                .matching(VersionMatch::NotOlderThan);
        }
        let urls = section_urls(target);
        let request = match target.form {
            Access::Metadata => urls.list_metadata(&params),
            Access::Full | Access::Hash => urls.list(&params),
        };
        let request = select_shards(request?, &target.section)?;
        let bytes_max = match limit {
            Some(_) => self.options.page_bytes_max,
            None => self.options.list_bytes_max,
        };
        Ok((request, bytes_max))
    }

    /// Returns true if the server selects the objects of a section of shards.
    pub(super) async fn selects_shards(&self, target: &WatchTarget) -> Result<bool, WireFailure> {
        let (request, bytes_max) = self.page(target, Since::Now, None, Some(1))?;
        let page = self.objects(request, bytes_max, |_, _| Ok(())).await?;
        Ok(page.is_sharded)
    }

    /// Starts a watch that the API server ends after `duration`.
    pub(super) async fn watch(
        &self,
        target: &WatchTarget,
        from: ResourceVersion,
        duration: Duration,
    ) -> Result<WatchStream, WireFailure> {
        let params = WatchParams {
            label_selector: selector_text(&target.selector),
            // Zero would mean the API server's default, which is half an hour and more.
            timeout: Some(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let urls = section_urls(target);
        let request = match target.form {
            Access::Metadata => urls.watch_metadata(&params, &from.to_string()),
            Access::Full | Access::Hash => urls.watch(&params, &from.to_string()),
        };
        let mut request = select_shards(request?, &target.section)?;
        // A compressed watch has one member per event, and not every decoder reads all of them.
        let identity = header::HeaderValue::from_static("identity");
        request
            .headers_mut()
            .insert(header::ACCEPT_ENCODING, identity);
        let started = Instant::now();
        let response = self
            .send(request, started + self.options.request_timeout)
            .await?;
        let chunks = response.into_body().into_data_stream();
        Ok(WatchStream {
            lines: Box::pin(chunks.map_err(io::Error::other).into_async_read()),
            is_within_line: false,
            // A server that is frozen, or behind a connection that is silently gone, never ends the watch.
            deadline: started + duration + self.options.watch_grace,
            allowed: duration + self.options.watch_grace,
            bytes_max: self.options.object_bytes_max,
        })
    }

    /// Returns one object from a quorum, as `parse` reads it; none if it does not exist.
    pub(super) async fn object<T>(
        &self,
        served: &Resource,
        namespace: Option<&str>,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Result<Option<T>, WireFailure> {
        let request = urls(served, namespace).get(name, &GetParams::default())?;
        let is_namespaced = served.scope == Scope::Namespaced;
        match self.text(request, self.options.object_bytes_max).await {
            Ok(text) => {
                let place = (namespace.filter(|_| is_namespaced), Some(name));
                check_requested(&serde_json::from_str(&text)?, None, &served.kind, place)?;
                Ok(Some(parse(&text)?))
            }
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
        let request = builder
            .body(Vec::new())
            .map_err(kube::core::request::Error::BuildRequest)?;
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

    /// Creates a review, which the API server does not store.
    pub(super) async fn review(&self, path: &str, body: Vec<u8>) -> Result<String, WireFailure> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::core::request::Error::BuildRequest)?;
        self.text(request, self.options.object_bytes_max).await
    }

    /// Returns a response body.
    async fn text(
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
        let body = self
            .in_time(deadline, body)
            .await?
            .map_err(|source| body_failure(source, bytes_max))?;
        Ok(String::from_utf8(body.to_bytes().into()).map_err(|_| Malformed::NotUtf8)?)
    }

    /// Waits for a step of a request until its deadline.
    async fn in_time<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = T>,
    ) -> Result<T, WireFailure> {
        timeout_at(deadline, step)
            .await
            .map_err(|_| WireFailure::Timeout(self.options.request_timeout))
    }

    /// Sends a request. Every status except success and "not modified" is a failure.
    async fn send(
        &self,
        request: Request<Vec<u8>>,
        deadline: Instant,
    ) -> Result<Response<Body>, WireFailure> {
        let send = self.client.send(request.map(Body::from));
        let response = self
            .in_time(deadline, send)
            .await?
            .map_err(WireFailure::Transport)?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        // The status decides alone: a body that is too large or breaks off must not hide it.
        let text = self
            .collect(response, deadline, ERROR_BYTES_MAX)
            .await
            .unwrap_or_default();
        let mut details: Status = serde_json::from_str(&text).unwrap_or_default();
        // Proxies answer with text or HTML, not with a Status.
        if details.message.is_empty() {
            details.message = text.trim().chars().take(256).collect();
        }
        Err(WireFailure::from_status(status.as_u16(), after, details))
    }
}

/// An open watch.
pub(super) struct WatchStream {
    lines: Pin<Box<dyn AsyncBufRead + Send>>,
    /// True if the last bytes end within a line.
    pub(super) is_within_line: bool,
    deadline: Instant,
    allowed: Duration,
    bytes_max: usize,
}

impl WatchStream {
    /// Returns the next line; none at the end. An incomplete last line is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, WireFailure> {
        let mut line = Vec::new();
        loop {
            let bytes_max = u64::try_from(self.bytes_max).unwrap_or(u64::MAX);
            let mut limited = (&mut self.lines).take(bytes_max);
            let read = timeout_at(self.deadline, limited.read_until(b'\n', &mut line)).await;
            let is_full = limited.limit() == 0;
            let is_whole = line.ends_with(b"\n");
            // Set before the errors: the connection may also break within a line.
            self.is_within_line = !is_whole && !line.is_empty();
            read.map_err(|_| WireFailure::Timeout(self.allowed))?
                .map_err(|error| WireFailure::Transport(client_error(error)))?;
            match (is_whole, is_full) {
                (false, false) => return Ok(None),
                (false, true) => {
                    let bytes_max = self.bytes_max;
                    return Err(WireFailure::TooLarge { bytes_max });
                }
                (true, _) if line.trim_ascii().is_empty() => line.clear(),
                (true, _) => return Ok(Some(line)),
            }
        }
    }
}

/// Unwraps the client's error from the line stream.
fn client_error(error: io::Error) -> kube::Error {
    let wrapped = |error| kube::Error::Service(Box::new(error));
    error.downcast().unwrap_or_else(wrapped)
}

fn urls(served: &Resource, namespace: Option<&str>) -> Urls {
    Urls::new(served.path(namespace))
}

fn section_urls(target: &WatchTarget) -> Urls {
    let namespace = target.section.namespace();
    urls(&target.served, namespace.map(|name| &**name))
}

/// Adds the parameter by which the API server selects the section's shards. Servers that do not know it ignore it.
fn select_shards(
    mut request: Request<Vec<u8>>,
    section: &Section,
) -> Result<Request<Vec<u8>>, WireFailure> {
    if let Some(selector) = section.shard_selector() {
        let uri = request.uri();
        let sign = if uri.query().is_some() { '&' } else { '?' };
        let uri = format!("{uri}{sign}shardSelector={selector}").parse();
        *request.uri_mut() = uri
            .map_err(|error: InvalidUri| kube::core::request::Error::BuildRequest(error.into()))?;
    }
    Ok(request)
}

fn utf8(text: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(text).map_err(|_| Malformed::NotUtf8)
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

#[cfg(test)]
mod tests {
    use futures::stream;
    use proptest::prelude::*;

    use super::*;

    /// Reads all lines from a watch body in chunks; true if it ends within a line.
    async fn read(chunks: Vec<io::Result<Vec<u8>>>) -> Result<(Vec<String>, bool), WireFailure> {
        let mut stream = WatchStream {
            lines: Box::pin(stream::iter(chunks).into_async_read()),
            is_within_line: false,
            deadline: Instant::now() + Duration::from_mins(1),
            allowed: Duration::ZERO,
            bytes_max: 300,
        };
        let mut lines = Vec::new();
        while let Some(line) = stream.next().await? {
            lines.push(String::from_utf8(line).unwrap());
        }
        Ok((lines, stream.is_within_line))
    }

    proptest! {
        #[test]
        fn cuts_of_chunks_do_not_matter(
            lines in prop::collection::vec("[a-zäß漢 ]{0,12}", 0..12),
            cuts in prop::collection::vec(1_usize..7, 1..40),
            truncated in "[a-zä]{0,5}",
        ) {
            let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
            let text = lines.concat() + &truncated;
            let mut rest = text.as_bytes();
            let mut cuts = cuts.iter().cycle();
            let mut chunks = Vec::new();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                chunks.push(Ok(chunk.to_vec()));
                rest = tail;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let (read, is_cut) = runtime.unwrap().block_on(read(chunks)).unwrap();
            let whole: Vec<String> = lines.into_iter().filter(|l| !l.trim().is_empty()).collect();
            prop_assert_eq!(read, whole);
            prop_assert_eq!(is_cut, !truncated.is_empty());
        }
    }

    #[tokio::test]
    async fn a_line_has_a_limit() {
        let whole = "x".repeat(299) + "\n";
        let long = whole.clone() + &"x".repeat(300);
        assert_eq!(
            read(vec![Ok(whole.clone().into())]).await.unwrap().0,
            [whole]
        );
        let failure = read(vec![Ok(long.into())]).await.unwrap_err();
        assert!(
            matches!(failure, WireFailure::TooLarge { bytes_max: 300 }),
            "{failure}"
        );
    }
}
