//! The API server's audit log: a record of every request, made independently of the product.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The verbs that change an object.
const MUTATING: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// One API server's audit log.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
}

/// One mutating request that the API server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The plural with the group, `deployments.apps`, and the subresource after a slash.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty if the server was to generate one.
    pub name: String,
    /// The sender.
    pub user: String,
    /// The sending client program.
    pub user_agent: String,
    /// The path and query.
    pub uri: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The request body, if the log holds it.
    pub body: Value,
    /// When the API server received the request.
    pub received: Timestamp,
    /// When the API server sent its answer.
    pub answered: Timestamp,
}

/// A request for objects, with any verb, that the API server has answered or begun to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `patch` and so on.
    pub verb: String,
    /// The plural with the group, and the subresource after a slash.
    pub resource: String,
    /// The namespace; empty for requests without one.
    pub namespace: String,
    /// The sender.
    pub user: String,
    /// The impersonated user, if the request impersonates one.
    pub impersonated: Option<String>,
    /// The path and query.
    pub uri: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

impl Write {
    /// Returns verb, resource, name and status code, such as `patch deployments.apps web 200`.
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {}",
            self.verb, self.resource, self.name, self.code
        )
    }

    /// Returns true if the host sent it.
    pub fn is_by_host(&self) -> bool {
        self.user_agent.starts_with("innkeeper")
    }

    /// Returns true for writes to the leader-election Lease; a running host never stops sending those.
    pub fn is_of_lease(&self) -> bool {
        self.resource == "leases.coordination.k8s.io"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    #[serde(default)]
    user: EntryUser,
    #[serde(default)]
    impersonated_user: Option<EntryUser>,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Option<EntryObject>,
    #[serde(default)]
    response_status: Option<EntryStatus>,
    #[serde(default, rename = "requestURI")]
    uri: String,
    #[serde(default)]
    request_object: Value,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Default, Deserialize)]
struct EntryUser {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntryObject {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize)]
struct EntryStatus {
    code: u16,
}

impl Audit {
    /// Opens the log in this file, which may not exist yet.
    pub fn open(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the log's current end as a mark; `since` returns the later writes.
    pub fn mark(&self) -> Result<usize> {
        let mut file = self.file()?;
        let mut end = file.seek(SeekFrom::End(0))?;
        // A line that the API server is still writing belongs after the mark.
        while end > 0 {
            let start = end.saturating_sub(4096);
            file.seek(SeekFrom::Start(start))?;
            let mut piece = Vec::new();
            (&file).take(end - start).read_to_end(&mut piece)?;
            if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
                return Ok(usize::try_from(start)? + at + 1);
            }
            end = start;
        }
        Ok(0)
    }

    /// Waits until `since` returns no write for the time `quiet`; returns the log's end as a mark.
    ///
    /// Fails if the writes do not stop within `patience`.
    pub fn settle(
        &self,
        quiet: Duration,
        patience: Duration,
        since: impl Fn(usize) -> Result<Vec<Write>>,
    ) -> Result<usize> {
        let start = Instant::now();
        let mut mark = self.mark()?;
        let mut last = start;
        while last.elapsed() < quiet {
            thread::sleep(Duration::from_millis(50));
            let written = since(mark)?;
            if !written.is_empty() {
                let lines: Vec<String> = written.iter().map(Write::line).collect();
                ensure!(
                    start.elapsed() < patience,
                    "writes do not stop for {patience:?}: {lines:?}"
                );
                (mark, last) = (self.mark()?, Instant::now());
            }
        }
        self.mark()
    }

    /// Returns all writes that were answered after the mark, except access reviews.
    pub fn since(&self, mark: usize) -> Result<Vec<Write>> {
        self.answered_since(mark, |verb| MUTATING.contains(&verb))
    }

    /// Like `since`, but includes reads: gets, lists, and watches that have ended.
    pub fn requests_since(&self, mark: usize) -> Result<Vec<Write>> {
        self.answered_since(mark, |_| true)
    }

    fn answered_since(&self, mark: usize, wanted: impl Fn(&str) -> bool) -> Result<Vec<Write>> {
        self.lines(mark)?
            .iter()
            // The API server may still be writing the last line. The next call reads it whole.
            .filter_map(|line| serde_json::from_str::<Entry>(line).ok())
            .filter(|entry| entry.stage == "ResponseComplete" && wanted(&entry.verb))
            .filter_map(|entry| {
                let object = entry.object_ref?;
                if object.resource.ends_with("accessreviews") {
                    return None;
                }
                Some(Ok(Write {
                    verb: entry.verb,
                    resource: resource(&object),
                    namespace: object.namespace,
                    name: object.name,
                    user: entry.user.username,
                    user_agent: entry.user_agent,
                    uri: entry.uri,
                    code: entry.response_status?.code,
                    body: entry.request_object,
                    received: entry.request_received_timestamp,
                    answered: entry.stage_timestamp,
                }))
            })
            .collect()
    }

    /// Returns all requests after the mark for objects of a known kind, including reads and watches.
    pub fn all_requests_since(&self, mark: usize) -> Result<Vec<Request>> {
        let entries = self.lines(mark)?;
        let requests = entries
            .iter()
            .filter_map(|line| serde_json::from_str::<Entry>(line).ok())
            .filter_map(|entry| {
                let object = entry.object_ref?;
                Some(Request {
                    verb: entry.verb,
                    resource: resource(&object),
                    namespace: object.namespace,
                    user: entry.user.username,
                    impersonated: entry.impersonated_user.map(|user| user.username),
                    uri: entry.uri,
                    code: entry.response_status?.code,
                })
            });
        Ok(requests.collect())
    }

    /// Returns the host's writes after the mark, except those to the Lease.
    pub fn by_host_since(&self, mark: usize) -> Result<Vec<Write>> {
        Ok(self
            .since(mark)?
            .into_iter()
            .filter(|write| write.is_by_host() && !write.is_of_lease())
            .collect())
    }

    /// Returns the host's writes in one namespace after the mark.
    pub fn in_namespace_since(&self, mark: usize, namespace: &str) -> Result<Vec<Write>> {
        Ok(self
            .by_host_since(mark)?
            .into_iter()
            .filter(|write| write.namespace == namespace)
            .collect())
    }

    fn lines(&self, mark: usize) -> Result<Vec<String>> {
        let mut file = self.file()?;
        file.seek(SeekFrom::Start(u64::try_from(mark)?))?;
        let lines: std::io::Result<Vec<String>> = BufReader::new(file).lines().collect();
        Ok(lines?)
    }

    fn file(&self) -> Result<File> {
        File::open(&self.path)
            .with_context(|| format!("failed to open the audit log {}", self.path.display()))
    }
}

fn resource(object: &EntryObject) -> String {
    let mut text = object.resource.clone();
    if !object.api_group.is_empty() {
        text = format!("{text}.{}", object.api_group);
    }
    if !object.subresource.is_empty() {
        text = format!("{text}/{}", object.subresource);
    }
    text
}
