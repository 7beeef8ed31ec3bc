//! An in-memory registry after the distribution specification; a test can replace one response.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use parking_lot::Mutex;
use serde_json::json;

use super::server::{Reply, Request, Server, pairs};
use crate::{DockerConfig, Oci};

pub(super) const USER: &str = "user";
pub(super) const PASSWORD: &str = "pass:word";
pub(super) const IDENTITY: &str = "identity";
const TOKEN: &str = "a-token";

/// The sign-in method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignIn {
    Not,
    Basic,
    Token,
}

/// The registry's content.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// By tag, and by digest.
    pub(super) manifests: BTreeMap<String, Vec<u8>>,
    /// The answer to requests whose path contains the text.
    pub(super) instead: Vec<(String, Reply)>,
    /// Serves the list of manifests that refer to another one.
    pub(super) referrers: bool,
}

pub(super) struct Registry {
    pub(super) server: Server,
    pub(super) kept: Arc<Mutex<Kept>>,
}

impl Registry {
    pub(super) async fn start(sign_in: SignIn) -> Self {
        let stored = Arc::new(Mutex::new(Kept::default()));
        let state = Arc::clone(&stored);
        let server =
            Server::start(move |request| answer(request, &mut state.lock(), sign_in)).await;
        Self {
            server,
            kept: stored,
        }
    }

    pub(super) async fn start_tls(sign_in: SignIn) -> Self {
        let stored = Arc::new(Mutex::new(Kept::default()));
        let state = Arc::clone(&stored);
        let server =
            Server::start_tls(move |request| answer(request, &mut state.lock(), sign_in)).await;
        Self {
            server,
            kept: stored,
        }
    }

    /// An artifact here, asked for without credentials.
    pub(super) fn artifact(&self, version: &str) -> Oci {
        Oci {
            reference: format!("{}/plugins/pond{version}", self.server.host())
                .parse()
                .unwrap(),
            docker_config: None,
            insecure: self.server.origin.starts_with("http:"),
        }
    }

    /// The same, with credentials.
    pub(super) fn private(&self, version: &str) -> Oci {
        let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        Oci {
            docker_config: Some(self.docker_config(&json!({"auth": auth}))),
            ..self.artifact(version)
        }
    }

    pub(super) fn docker_config(&self, login: &serde_json::Value) -> DockerConfig {
        let config = json!({"auths": {self.server.host(): login}});
        DockerConfig::from_json(config.to_string().as_bytes()).unwrap()
    }

    /// Replaces every answer to a path with this text in it.
    pub(super) fn instead(&self, path: &str, reply: Reply) {
        self.kept.lock().instead.push((path.to_owned(), reply));
    }

    pub(super) fn put_blob(&self, bytes: &[u8]) -> String {
        let digest = Digest::hash(bytes).to_string();
        self.kept
            .lock()
            .blobs
            .insert(digest.clone(), bytes.to_vec());
        digest
    }

    pub(super) fn put_manifest(&self, tag: &str, text: impl Into<Vec<u8>>) -> Digest {
        put_manifest(&mut self.kept.lock(), tag, text.into())
    }

    /// The received requests, as methods and paths.
    pub(super) fn requests(&self) -> Vec<String> {
        let requests = self.server.requests();
        requests
            .into_iter()
            .map(|request| format!("{} {}", request.method, request.path))
            .collect()
    }
}

fn put_manifest(kept: &mut Kept, tag: &str, text: Vec<u8>) -> Digest {
    let digest = Digest::hash(&text);
    kept.manifests.insert(tag.to_owned(), text.clone());
    kept.manifests.insert(digest.to_string(), text);
    digest
}

fn answer(request: &Request, kept: &mut Kept, sign_in: SignIn) -> Reply {
    let instead = kept
        .instead
        .iter()
        .find(|(path, _)| request.path.contains(path));
    if let Some((_, reply)) = instead {
        return reply.clone();
    }
    if request.path == "/token" {
        return token(request);
    }
    let host = &request.headers["host"];
    let authorization = match sign_in {
        SignIn::Not => None,
        SignIn::Basic => Some((
            format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}"))),
            "Basic realm=\"test\"".to_owned(),
        )),
        SignIn::Token => Some((
            format!("Bearer {TOKEN}"),
            format!("Bearer realm=\"http://{host}/token\",service=\"test\",scope=\"ignored\""),
        )),
    };
    if let Some((header, challenge)) = authorization
        && request.headers.get("authorization") != Some(&header)
    {
        let body = json!({"errors": [{"code": "UNAUTHORIZED", "message": "sign in"}]});
        return Reply::new(401, body.to_string()).header("www-authenticate", challenge);
    }
    let Some(path) = request.path.strip_prefix("/v2/plugins/pond/") else {
        return missing();
    };
    match (request.method.as_str(), path.split_once('/')) {
        ("GET", Some(("manifests", version))) => found(kept.manifests.get(version)),
        ("GET" | "HEAD", Some(("blobs", digest))) => found(kept.blobs.get(digest)),
        ("GET", Some(("referrers", digest))) if kept.referrers => referrers(kept, digest),
        ("POST", Some(("blobs", "uploads/"))) => {
            Reply::new(202, "").header("location", "/v2/plugins/pond/blobs/uploads/1?state=x")
        }
        ("PUT", Some(("blobs", "uploads/1"))) => {
            let digest = Digest::hash(&request.body).to_string();
            if request.query["digest"] != digest || request.query["state"] != "x" {
                return Reply::new(400, "");
            }
            kept.blobs.insert(digest, request.body.clone());
            Reply::new(201, "")
        }
        ("PUT", Some(("manifests", tag))) => {
            // A registry refuses a manifest with a missing blob.
            let manifest: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            let mut parts = manifest["layers"].as_array().unwrap().clone();
            parts.push(manifest["config"].clone());
            let complete = parts.iter().all(|part| {
                let blob = kept.blobs.get(part["digest"].as_str().unwrap());
                blob.is_some_and(|blob| u64::try_from(blob.len()).ok() == part["size"].as_u64())
            });
            if !complete || request.headers["content-type"] != manifest["mediaType"] {
                return Reply::new(400, "");
            }
            put_manifest(kept, tag, request.body.clone());
            Reply::new(201, "")
        }
        _ => missing(),
    }
}

/// All manifests that name this one as their subject.
fn referrers(kept: &Kept, digest: &str) -> Reply {
    let mut manifests = Vec::new();
    for (name, text) in &kept.manifests {
        let manifest: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        if name.starts_with("sha256:") && manifest["subject"]["digest"] == digest {
            manifests.push(json!({
                "mediaType": manifest["mediaType"],
                "digest": name,
                "size": text.len(),
                "artifactType": manifest["artifactType"],
                "annotations": manifest["annotations"],
            }));
        }
    }
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    Reply::new(200, index.to_string())
}

fn token(request: &Request) -> Reply {
    let basic = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let form = pairs(str::from_utf8(&request.body).unwrap());
    let (wanted, granted) = match request.method.as_str() {
        "GET" => (
            &request.query,
            request.headers.get("authorization") == Some(&basic),
        ),
        _ => (
            &form,
            form.get("refresh_token")
                .is_some_and(|token| token == IDENTITY),
        ),
    };
    let scoped = wanted["scope"].starts_with("repository:plugins/pond:pull");
    if granted && scoped && wanted["service"] == "test" {
        Reply::new(200, json!({"token": TOKEN}).to_string())
    } else {
        Reply::new(401, "no")
    }
}

fn found(bytes: Option<&Vec<u8>>) -> Reply {
    bytes.map_or_else(missing, |bytes| Reply::new(200, bytes.clone()))
}

fn missing() -> Reply {
    let body = json!({"errors": [{"code": "UNKNOWN", "message": "not here"}]});
    Reply::new(404, body.to_string())
}
