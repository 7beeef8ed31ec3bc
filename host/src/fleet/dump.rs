//! The command `dump`: a file with the API server's responses to everything that a plan reads.
//!
//! A plan reads through one client. While recording, this client keeps responses; with a dump, it repeats them.

use std::{collections::BTreeMap, fs, future::pending, path::Path, sync::Arc};

use http::{Method, Request, Response, StatusCode, header::ACCEPT};
use innkeeper_cluster::hash_values;
use innkeeper_command::{Exit, Failure, HASH_KEY_SECRET, Namespaces, OrFail as _, file};
use innkeeper_model::HashKey;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::watch;
use tower::service_fn;

/// The file format.
const FORMAT: &str = "innkeeper dump v1";

/// The maximum size of a dump, in bytes: it may contain a whole cluster.
const BYTES_MAX: u64 = 4 << 30;

/// Marks requests for metadata, which have the same address as requests for whole objects.
const METADATA: &str = "PartialObjectMetadata";

/// Recorded responses, by request.
type Answers = BTreeMap<String, Answer>;

/// A dump.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Dump {
    format: String,
    /// The host's namespace.
    pub(super) host_namespace: String,
    /// The host's `--namespaces`.
    pub(super) namespaces: Option<Namespaces>,
    answers: Answers,
}

/// One recorded response.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    status: u16,
    body: Box<RawValue>,
}

/// Records a client's responses.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Answers>>);

impl Recorder {
    /// Returns a client that records another client's responses.
    pub(super) fn client(&self, inner: Client) -> Client {
        let answers = Arc::clone(&self.0);
        let send = move |request: Request<Body>| {
            let inner = inner.clone();
            let answers = Arc::clone(&answers);
            async move {
                let key = key(&request);
                #[expect(clippy::disallowed_methods, reason = "the request is one of `cluster`")]
                let response = inner.send(request).await?;
                let Some(key) = key else {
                    return Ok(response);
                };
                let (parts, body) = response.into_parts();
                let bytes = body.collect_bytes().await?;
                // The plan's reader refuses responses without JSON.
                if let Ok(body) = serde_json::from_slice(&bytes) {
                    let status = parts.status.as_u16();
                    answers.lock().insert(key, Answer { status, body });
                }
                Ok::<_, kube::Error>(Response::from_parts(parts, Body::from(bytes)))
            }
        };
        Client::new(service_fn(send), "default")
    }

    /// Writes the dump to a new file, with hashes instead of Secret values.
    pub(super) fn write(
        self,
        path: &Path,
        host_namespace: String,
        namespaces: Option<Namespaces>,
        hash_key: &HashKey,
    ) -> Result<(), Failure> {
        let failed = || format!("failed to write the dump {}", path.display());
        let own = format!("/api/v1/namespaces/{host_namespace}/secrets/{HASH_KEY_SECRET}");
        let mut answers = std::mem::take(&mut *self.0.lock());
        for (key, answer) in &mut answers {
            // The host's own hash key stays: a plan from the dump needs it.
            if has_secrets(key) && *key != own {
                let body = without_values(&answer.body, hash_key);
                answer.body = body.or_fail(Exit::Failure, failed())?;
            }
        }
        let dump = Dump {
            format: FORMAT.to_owned(),
            host_namespace,
            namespaces,
            answers,
        };
        let text = serde_json::to_vec(&dump).or_fail(Exit::Failure, failed())?;
        // The file has the hash key, with which hashes of weak passwords can be guessed.
        file::create_for_owner(path, &text).or_fail_by(file::exit, failed())
    }
}

impl Dump {
    /// Reads a dump.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let path_text = path.display();
        let text = fs::File::open(path)
            .and_then(|input| file::read_within(input, BYTES_MAX))
            .or_fail(
                Exit::Usage,
                format!("failed to read the dump {path_text}: create one with innkeeper dump"),
            )?;
        let invalid =
            || format!("{path_text} is not a dump of this version: create one with innkeeper dump");
        let dump: Self = serde_json::from_slice(&text).or_fail(Exit::Usage, invalid())?;
        if dump.format != FORMAT {
            return Err(Failure::new(Exit::Usage, invalid()));
        }
        Ok(dump)
    }

    /// Returns a client that repeats the responses, and the first request without one.
    pub(super) fn client(self) -> (Client, watch::Receiver<Option<String>>) {
        let (missing, unanswered) = watch::channel(None);
        let shared = Arc::new((self.answers, missing));
        let send = move |request: Request<Body>| {
            let shared = Arc::clone(&shared);
            async move {
                let (answers, missing) = &*shared;
                // A watch has no events, because nothing changes in a dump.
                let Some(key) = key(&request) else {
                    return pending().await;
                };
                let (status, body) = if let Some(answer) = answers.get(&key) {
                    (answer.status, answer.body.get().to_owned())
                } else {
                    missing.send_if_modified(|first| {
                        let is_first = first.is_none();
                        first.get_or_insert(key);
                        is_first
                    });
                    let status = json!({"kind": "Status", "message": "not in the dump"});
                    (StatusCode::NOT_FOUND.as_u16(), status.to_string())
                };
                let mut response = Response::new(Body::from(body.into_bytes()));
                *response.status_mut() = StatusCode::from_u16(status)?;
                Ok::<_, http::status::InvalidStatusCode>(response)
            }
        };
        (Client::new(service_fn(send), "default"), unanswered)
    }
}

/// Returns a request's key; none for a watch.
fn key<B>(request: &Request<B>) -> Option<String> {
    let address = request.uri().path_and_query()?.as_str();
    let is_watch = |pair: &str| pair == "watch=true" || pair == "watch=1";
    let query = request.uri().query().unwrap_or_default();
    if request.method() != Method::GET || query.split('&').any(is_watch) {
        return None;
    }
    let accept = request
        .headers()
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let is_metadata = accept.is_some_and(|accept| accept.contains(METADATA));
    Some(if is_metadata {
        format!("{METADATA} {address}")
    } else {
        address.to_owned()
    })
}

/// Returns true if the response contains Secrets.
fn has_secrets(key: &str) -> bool {
    // Keys of requests for metadata begin with METADATA and a space.
    let path = key
        .split(' ')
        .next_back()
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default();
    let Some(path) = path.strip_prefix("/api/v1/") else {
        return false;
    };
    let mut segments = path.split('/');
    match segments.next() {
        Some("namespaces") => segments.nth(1) == Some("secrets"),
        first => first == Some("secrets"),
    }
}

/// Replaces values in a Secret or a list of Secrets by hashes.
fn without_values(body: &RawValue, key: &HashKey) -> serde_json::Result<Box<RawValue>> {
    let mut body: Value = serde_json::from_str(body.get())?;
    match body.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(|item| hash_values(item, key)),
        None => hash_values(&mut body, key),
    }
    serde_json::value::to_raw_value(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn secret(name: &str) -> Value {
        json!({
            "kind": "Secret",
            "metadata": {
                "name": name, "namespace": "demo", "uid": "u",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{c2VjcmV0}"},
            },
            "data": {"password": "c2VjcmV0"}, "stringData": {"password": "secret"},
        })
    }

    #[test]
    fn a_dump_has_no_value_of_a_secret_but_the_hash_key() {
        let list = json!({"items": [secret("a"), secret("b")]});
        let answers = [
            ("/api/v1/namespaces/demo/secrets/a", secret("a")),
            ("/api/v1/secrets?limit=500", list.clone()),
            ("PartialObjectMetadata /api/v1/secrets?limit=500", list),
            (
                "/api/v1/namespaces/hosts/secrets/innkeeper-hash-key",
                json!({"data": {"key": "a2V5"}}),
            ),
        ];
        let answers = answers.map(|(key, body)| {
            let body = serde_json::value::to_raw_value(&body).unwrap();
            (key.to_owned(), Answer { status: 200, body })
        });
        let recorder = Recorder(Arc::new(Mutex::new(answers.into())));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let again = recorder.clone();
        let key = HashKey::new(KEY);
        recorder
            .write(&path, "hosts".to_owned(), None, &key)
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for value in ["c2VjcmV0", "\"secret\""] {
            assert!(!text.contains(value), "{text}");
        }
        assert!(text.contains("a2V5"), "{text}");
        assert_eq!(text.matches("hmac-sha256:").count(), 5, "{text}");
        let taken = again.write(&path, "hosts".to_owned(), None, &key);
        assert_eq!(taken.unwrap_err().exit(), Exit::Usage);
        assert_eq!(Dump::read(&path).unwrap().host_namespace, "hosts");
    }

    #[test]
    fn a_file_that_is_no_dump_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let other = r#"{"format": "innkeeper dump v2", "hostNamespace": "a", "answers": {}}"#;
        for (text, told) in [
            (None, "failed to read the dump"),
            (Some("{"), "is not a dump of this version"),
            (Some(other), "is not a dump of this version"),
        ] {
            if let Some(text) = text {
                fs::write(&path, text).unwrap();
            }
            let failure = Dump::read(&path).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(failure.to_string().contains(told), "{failure}");
        }
    }

    #[test]
    fn watches_and_writes_are_not_kept() {
        let request = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri);
            key(&request.body(()).unwrap())
        };
        let list = "/api/v1/pods?limit=500";
        assert_eq!(request(Method::GET, list).as_deref(), Some(list));
        assert_eq!(request(Method::POST, list), None);
        assert_eq!(request(Method::GET, "/api/v1/pods?&watch=true&a=b"), None);
    }
}
