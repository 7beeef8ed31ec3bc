//! A kind's list and watch: the first line is the response to the list, the others are the watch stream.
//!
//! The cache reads both as it does from an API server: as children of a parent, and as Secrets whose values must not
//! reach the guest.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, Uri};
use innkeeper_cluster::{
    CacheSize, ChildInterest, Cluster, Interest, Observed, Options, Registration,
};
use innkeeper_model::{
    Access, Gvk, HashKey, ListSelector, Object, ObjectId, PluginName, ReadKind, ReadScope, Reads,
    Selector,
};
use kube::client::Body;
use serde_json::{Value, json, value::RawValue};
use tokio::{runtime, sync::Notify, time::timeout};
use tower::service_fn;

use super::{corpus::Seed, run::run_with, shapes};

/// The longest watch line here, so that inputs exceed it.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A Secret value in the corpus, as base64.
const SECRET: &str = "c2VjcmV0LXZhbHVl";

#[test]
fn a_list_and_a_watch_are_refused_or_cached_as_guests_may_see_them() {
    run_with(
        "watch",
        retained(),
        Some(|shape| shapes::object(shape).into()),
    );
}

/// An API server that answers with hostile data for two kinds.
struct Server {
    list: Vec<u8>,
    lines: Vec<u8>,
    /// The number of requests for each kind.
    asked: Mutex<BTreeMap<String, usize>>,
    done: Notify,
}

fn kind(name: &str) -> Gvk {
    match name {
        "Cache" => Gvk::new("example.com", "v1", name),
        _ => Gvk::new("", "v1", name),
    }
}

/// Reaches the guest's view of a child and of a Secret.
pub(super) fn check(input: &[u8]) -> [bool; 2] {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (list, lines) = input.split_at(end.map_or(input.len(), |end| end + 1));
    let server = Arc::new(Server {
        list: list.to_vec(),
        lines: lines.to_vec(),
        asked: Mutex::default(),
        done: Notify::new(),
    });
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(observe(server))
}

/// Fills the cache and checks the guest's view.
async fn observe(server: Arc<Server>) -> [bool; 2] {
    let answering = Arc::clone(&server);
    let service = service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&answering);
        let uri = request.uri().clone();
        async move { Ok::<_, Infallible>(server.answer(uri).await) }
    });
    let options = Options {
        watch_definitions: false,
        object_bytes_max: LINE_BYTES_MAX,
        retry_min: Duration::from_millis(1),
        retry_max: Duration::from_millis(1),
        ..Options::new(1)
    };
    let (cluster, driver) = Cluster::new(kube::Client::new(service, "default"), options);
    cluster.set_hash_key(Some(key()));
    let registration = cluster.register(interest());
    let read = async {
        let patience = Duration::from_secs(30);
        timeout(patience, server.done.notified()).await.unwrap();
    };
    tokio::select! {
        died = driver.run(|| {}) => panic!("{:?}", died.err()),
        () = read => {}
    }
    check_view(&registration).await
}

fn interest() -> Interest {
    Interest {
        plugin: PluginName::new("cache").unwrap(),
        parent: kind("Cache"),
        children: vec![ChildInterest {
            kind: kind("Service"),
            required: false,
            recorded: true,
            access: Access::Full,
        }],
        reads: vec![secrets()],
        selector: Selector::default(),
        all_shards: false,
        field_managers: BTreeSet::new(),
        namespace_max: CacheSize::UNBOUNDED,
    }
}

fn secrets() -> ReadKind {
    ReadKind {
        kind: kind("Secret"),
        access: Access::Hash,
        scope: ReadScope::Cluster,
        label_selector: Selector::default(),
    }
}

fn key() -> HashKey {
    HashKey::new([7; 32])
}

/// Services without an owner: `kept` has the host's proof if it names itself, the others carry a copy.
fn retained() -> Vec<Seed> {
    let parent = ObjectId::new(kind("Cache").group_kind(), Some("demo"), "web");
    let retained_id = ObjectId::new(kind("Service").group_kind(), Some("demo"), "kept");
    let proof = key().retained_for(&parent, &retained_id);
    let forged = format!("{} v1:{}", parent.identity(), "0".repeat(64));
    [("kept", &proof), ("copy", &proof), ("forged", &forged)]
        .map(|(name, mark)| {
            let metadata = json!({
                "namespace": "demo", "name": name, "uid": "uid-kept", "resourceVersion": "5",
                "labels": {"innkeeper.dev/plugin": "cache"},
                "annotations": {"innkeeper.dev/retained-for": mark},
            });
            let item = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
            let list = json!({
                "kind": "ServiceList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "11"}, "items": [item],
            });
            Seed::new(format!("retained-{name}"), list.to_string().into_bytes())
        })
        .into()
}

/// The host's proof is valid for one child of one parent only.
#[test]
fn only_the_child_with_its_own_proof_is_seen() {
    let changes = retained().into_iter().map(|seed| check(&seed.bytes)[0]);
    assert_eq!(changes.collect::<Vec<_>>(), [true, false, false]);
}

async fn check_view(registration: &Registration) -> [bool; 2] {
    let parent = ObjectId::new(kind("Cache").group_kind(), Some("demo"), "web");
    let Observed::Ready(observation) = registration.observe(&parent).await else {
        return [false; 2];
    };
    for child in &observation.children {
        check_object(&child.json);
        check_owner(child, &parent);
    }
    let mut reads = registration.reads(&observation.parent, &[secrets()].into());
    let all = ListSelector {
        kind: kind("Secret"),
        namespace: None,
        label_selector: None,
    };
    let secrets = reads.list(&all).unwrap_or_default();
    for secret in &secrets {
        let secret = check_object(secret);
        for field in ["data", "stringData"] {
            let shown = secret.get(field).map(Value::to_string).unwrap_or_default();
            assert!(!shown.contains(SECRET), "a guest sees a value: {shown}");
        }
    }
    [!observation.children.is_empty(), !secrets.is_empty()]
}

/// Checks that a child belongs to the parent, or has the host's proof that it was retained for the parent: the annotation
/// alone may be a copy.
fn check_owner(child: &Object, parent: &ObjectId) {
    let is_owned = child
        .controller
        .as_ref()
        .is_some_and(|uid| &*uid.0 == "uid-web");
    let mark = child.annotations.get("innkeeper.dev/retained-for");
    let proof = key().retained_for(parent, &child.id());
    let is_retained = mark.is_some_and(|mark| **mark == proof);
    assert!(is_owned || is_retained, "{}", child.json);
}

/// Checks that a guest sees valid JSON, without the hidden fields.
fn check_object(text: &str) -> Value {
    serde_json::from_str::<&RawValue>(text).unwrap();
    // The parser allows 128 levels, and the API server accepts objects with more.
    let Ok(object) = serde_json::from_str::<Value>(text) else {
        return Value::Null;
    };
    let metadata = &object["metadata"];
    for field in ["managedFields", "resourceVersion"] {
        assert_eq!(metadata.get(field), None, "{text}");
    }
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    assert_eq!(metadata["annotations"].get(annotation), None, "{text}");
    object
}

impl Server {
    async fn answer(&self, uri: Uri) -> Response<Body> {
        let path = uri.path();
        let is_watch = uri.query().is_some_and(|query| query.contains("watch="));
        let plural = path.rsplit('/').next().unwrap_or_default();
        let body = match (plural, is_watch) {
            ("api" | "apis", _) => discovery(plural == "api"),
            ("caches", false) => parents(),
            ("caches", true) => return std::future::pending().await,
            _ => self.hostile(plural, is_watch).await,
        };
        Response::new(Body::from(body))
    }

    /// Answers a kind's first list and first watch with the input. The next request shows that the answers have been
    /// read.
    async fn hostile(&self, plural: &str, is_watch: bool) -> Vec<u8> {
        let is_first = {
            let mut requests = self.asked.lock().unwrap();
            let number = requests.entry(plural.to_owned()).or_default();
            *number += 1;
            let is_first = *number == 1;
            if !is_first && !is_watch {
                *number = 9;
            }
            if requests.len() == 2 && requests.values().all(|number| *number > 2) {
                self.done.notify_one();
            }
            is_first || is_watch && requests[plural] == 2
        };
        match (is_first, is_watch) {
            (true, false) => self.list.clone(),
            (true, true) => self.lines.clone(),
            (false, _) => std::future::pending().await,
        }
    }
}

fn parents() -> Vec<u8> {
    let parent = json!({
        "namespace": "demo",
        "name": "web",
        "uid": "uid-web",
        "resourceVersion": "10",
    });
    json!({"metadata": {"resourceVersion": "10"}, "items": [{"metadata": parent}]})
        .to_string()
        .into_bytes()
}

fn discovery(core: bool) -> Vec<u8> {
    let kinds = [kind("Cache"), kind("Service"), kind("Secret")];
    let groups: Vec<Value> = kinds
        .iter()
        .filter(|kind| kind.group.is_empty() == core)
        .map(|kind| {
            let resource = json!({
                "resource": format!("{}s", kind.kind.to_lowercase()),
                "responseKind": {"kind": &*kind.kind},
                "scope": "Namespaced",
                "verbs": ["get", "list", "watch"],
            });
            let version = json!({"version": &*kind.version, "resources": [resource]});
            json!({"metadata": {"name": &*kind.group}, "versions": [version]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": groups})
        .to_string()
        .into_bytes()
}
