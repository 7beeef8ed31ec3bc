//! An in-memory API server on loopback: lists, watches, and as much server-side apply as a pass needs.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// The served kinds: API version, kind, plural.
const KINDS: [(&str, &str, &str); 5] = [
    ("example.com/v1", "Web", "webs"),
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Namespace", "namespaces"),
    ("v1", "Pod", "pods"),
    ("v1", "Service", "services"),
];

/// Plural, namespace, name.
type Place = (String, String, String);

pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<State>,
    _task: JoinSet<()>,
}

struct State {
    world: Mutex<World>,
    version: watch::Sender<u64>,
    /// Each write takes a permit; there are none while writes are held.
    writing: Semaphore,
    /// Each answer to a write takes a permit; there are none while answers are held.
    answering: Semaphore,
    /// Each Event takes a permit; there are none while they are held.
    recording: Semaphore,
    /// Watches show events up to this version.
    shown: Mutex<u64>,
}

#[derive(Default)]
struct World {
    objects: BTreeMap<Place, Stored>,
    version: u64,
    /// The watch events: version, plural, type and object.
    events: Vec<(u64, String, &'static str, Value)>,
    writes: Vec<String>,
    /// The Event reasons.
    recorded: Vec<String>,
    /// The start of a write's line, and the response's status code and body.
    refused: Vec<(String, u16, Value)>,
}

#[derive(Clone, Default)]
struct Stored {
    /// The user's fields.
    stated: Value,
    /// The applied fields, by manager and subresource.
    applied: BTreeMap<(String, &'static str), Value>,
    uid: String,
    version: u64,
    generation: u64,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            // Not 0: for the API server, a list or a watch from version 0 may start anywhere.
            world: Mutex::new(World {
                version: 1,
                ..World::default()
            }),
            version: watch::Sender::new(0),
            writing: Semaphore::new(Semaphore::MAX_PERMITS),
            answering: Semaphore::new(Semaphore::MAX_PERMITS),
            recording: Semaphore::new(Semaphore::MAX_PERMITS),
            shown: Mutex::new(u64::MAX),
        });
        let mut task = JoinSet::new();
        let shared = Arc::clone(&state);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            port,
            state,
            _task: task,
        }
    }

    /// Creates or changes an object as a user.
    pub(crate) fn put(&self, plural: &str, namespace: &str, name: &str, stated: Value) {
        self.state.change(place(plural, namespace, name), |stored| {
            if stored.stated["spec"] != stated["spec"] {
                stored.generation += 1;
            }
            stored.stated = stated;
        });
    }

    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.state.remove(&place(plural, namespace, name));
    }

    pub(crate) fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let world = self.state.world.lock();
        let place = place(plural, namespace, name);
        world.objects.get(&place).map(|stored| stored.shown(&place))
    }

    /// Returns verb, plural, namespace and name for each write so far, except Events.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state.world.lock().writes.clone()
    }

    /// Returns the reasons of all Events so far.
    pub(crate) fn recorded(&self) -> Vec<String> {
        self.state.world.lock().recorded.clone()
    }

    /// Makes Events wait until `record`.
    pub(crate) fn hold_recording(&self) {
        let all = self.state.recording.available_permits();
        self.state.recording.forget_permits(all);
    }

    pub(crate) fn record(&self) {
        self.state.recording.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Rejects writes from now on whose lines, as in `writes`, begin with `writes`.
    pub(crate) fn refuse(&self, writes: &str, code: u16, answer: Value) {
        let mut whole = status(code, "Refused");
        merge(&mut whole, &answer);
        let mut world = self.state.world.lock();
        world.refused.push((writes.to_owned(), code, whole));
    }

    /// Makes writes wait until the returned value is dropped.
    pub(crate) fn hold_writes(&self) -> Held {
        let all = self.state.writing.available_permits();
        self.state.writing.forget_permits(all);
        Held(Arc::clone(&self.state))
    }

    /// Lets writes happen, but makes their answers wait until `answer`.
    pub(crate) fn hold_answers(&self) {
        let all = self.state.answering.available_permits();
        self.state.answering.forget_permits(all);
    }

    pub(crate) fn answer(&self) {
        self.state.answering.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Makes the events from now on wait until `show_events`.
    pub(crate) fn hold_events(&self) {
        *self.state.shown.lock() = self.state.world.lock().version;
    }

    pub(crate) fn show_events(&self) {
        *self.state.shown.lock() = u64::MAX;
        self.state.version.send_modify(|_| {});
    }
}

pub(crate) struct Held(Arc<State>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.writing.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

fn place(plural: &str, namespace: &str, name: &str) -> Place {
    (plural.to_owned(), namespace.to_owned(), name.to_owned())
}

impl State {
    fn change(&self, place: Place, change: impl FnOnce(&mut Stored)) -> Value {
        let mut world = self.world.lock();
        let version = world.version + 1;
        let before = world.objects.get(&place).cloned();
        let mut after = before.clone().unwrap_or_else(|| Stored {
            uid: format!("uid-{version}"),
            version,
            ..Stored::default()
        });
        change(&mut after);
        // As in the API server, a write without a change makes no new version.
        if before
            .as_ref()
            .is_some_and(|before| before.shown(&place) == after.shown(&place))
        {
            return after.shown(&place);
        }
        after.version = version;
        let shown = after.shown(&place);
        let kind = if before.is_none() {
            "ADDED"
        } else {
            "MODIFIED"
        };
        world.version = version;
        world
            .events
            .push((version, place.0.clone(), kind, shown.clone()));
        world.objects.insert(place, after);
        drop(world);
        self.version.send_replace(version);
        shown
    }

    fn remove(&self, place: &Place) {
        let mut world = self.world.lock();
        let Some(mut stored) = world.objects.remove(place) else {
            return;
        };
        let version = world.version + 1;
        stored.version = version;
        world.version = version;
        let shown = stored.shown(place);
        world
            .events
            .push((version, place.0.clone(), "DELETED", shown));
        drop(world);
        self.version.send_replace(version);
    }

    /// Answers an apply; a version in the body must be the current one.
    fn apply(&self, place: &Place, sub: &'static str, manager: &str, body: Value) -> (u16, Value) {
        let current = self.world.lock().objects.get(place).cloned();
        let metadata = body["metadata"].clone();
        let bound = metadata["resourceVersion"].as_str();
        match (&current, bound) {
            (Some(_), Some("1")) => return (409, status(409, "AlreadyExists")),
            (Some(current), Some(bound)) if bound != current.version.to_string() => {
                return (409, status(409, "Conflict"));
            }
            (None, Some(bound)) if bound != "1" => return (404, status(404, "NotFound")),
            _ => {}
        }
        let code = if current.is_some() { 200 } else { 201 };
        let shown = self.change(place.clone(), |stored| {
            for ((other, _), known) in &mut stored.applied {
                if other != manager {
                    give_up(known, &body);
                }
            }
            stored.applied.insert((manager.to_owned(), sub), body);
        });
        (code, shown)
    }
}

impl Stored {
    fn shown(&self, (plural, namespace, name): &Place) -> Value {
        let (api_version, kind, _) = KINDS.iter().find(|(.., known)| known == plural).unwrap();
        let mut object = match &self.stated {
            Value::Object(_) => self.stated.clone(),
            _ => json!({}),
        };
        let mut managed = Vec::new();
        for ((manager, sub), body) in &self.applied {
            merge(&mut object, body);
            let mut entry =
                json!({"manager": manager, "operation": "Apply", "fieldsV1": owned(body)});
            if !sub.is_empty() {
                entry["subresource"] = (*sub).into();
            }
            managed.push(entry);
        }
        object["apiVersion"] = (*api_version).into();
        object["kind"] = (*kind).into();
        let metadata = &mut object["metadata"];
        metadata["name"] = name.as_str().into();
        metadata["namespace"] = namespace.as_str().into();
        metadata["uid"] = self.uid.as_str().into();
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["generation"] = self.generation.into();
        metadata["managedFields"] = managed.into();
        object
    }

    fn has(&self, selector: Option<&str>, place: &Place) -> bool {
        let Some((label, value)) = selector.and_then(|text| text.split_once('=')) else {
            return true;
        };
        self.shown(place)["metadata"]["labels"][label] == value
    }
}

fn merge(object: &mut Value, body: &Value) {
    match (object, body) {
        (Value::Object(known), Value::Object(stated)) => {
            for (key, value) in stated {
                merge(known.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(known), Value::Array(stated)) if keyed(stated).is_some() => {
            let key = keyed(stated).unwrap();
            for item in stated {
                match known.iter_mut().find(|other| other[key] == item[key]) {
                    Some(known) => merge(known, item),
                    None => known.push(item.clone()),
                }
            }
        }
        (object, body) => *object = body.clone(),
    }
}

/// Removes the values from what a manager applied that another manager has changed by force.
fn give_up(known: &mut Value, body: &Value) {
    match (known, body) {
        (Value::Object(known), Value::Object(stated)) => {
            known.retain(|key, value| match stated.get(key) {
                Some(stated) if value.is_object() || value.is_array() => {
                    give_up(value, stated);
                    true
                }
                Some(stated) => value == stated,
                None => true,
            });
        }
        (Value::Array(known), Value::Array(stated)) => {
            let Some(key) = keyed(stated) else { return };
            for item in known {
                if let Some(stated) = stated.iter().find(|other| other[key] == item[key]) {
                    give_up(item, stated);
                }
            }
        }
        _ => {}
    }
}

/// The key by which a list's items are merged.
fn keyed(items: &[Value]) -> Option<&'static str> {
    let first = items.first()?;
    ["type", "uid"]
        .into_iter()
        .find(|key| !first[*key].is_null())
}

/// Returns the fields that an apply's manager owns, as `FieldsV1`.
fn owned(body: &Value) -> Value {
    const SYSTEM: [&str; 6] = [
        "apiVersion",
        "kind",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
    ];

    match body {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, value)| !(SYSTEM.contains(&key.as_str()) && value.is_string()))
            .map(|(key, value)| (format!("f:{key}"), owned(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => match keyed(items) {
            Some(key) => items
                .iter()
                .map(|item| {
                    let mut fields = match key {
                        "type" => owned(item),
                        _ => json!({}),
                    };
                    if key == "type" {
                        fields["."] = json!({});
                    }
                    (format!("k:{}", json!({key: item[key]})), fields)
                })
                .collect::<Map<_, _>>()
                .into(),
            None => json!({}),
        },
        _ => json!({}),
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

struct Request {
    method: String,
    path: Vec<String>,
    query: BTreeMap<String, String>,
    body: Value,
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let is_watch = request.query.contains_key("watch");
        let namespaced = path.iter().position(|part| *part == "namespaces");
        let object = namespaced
            .and_then(|at| path.get(at + 1..))
            .unwrap_or_default();
        let (code, body) = match (path.as_slice(), object) {
            (["api"], _) => (200, discovery(true)),
            (["apis"], _) => (200, discovery(false)),
            (["apis", "apiextensions.k8s.io", ..], _) => (403, status(403, "Forbidden")),
            (["apis", "events.k8s.io", ..], [namespace, _, name @ ..]) => {
                state.recording.acquire().await.unwrap().forget();
                let reason = request.body["reason"].as_str().unwrap_or("counted");
                state.world.lock().recorded.push(reason.to_owned());
                let from_body = || request.body["metadata"]["name"].clone();
                let name = name.first().map_or_else(from_body, |name| json!(name));
                let metadata = json!({"namespace": namespace, "name": name, "uid": "e", "resourceVersion": "1"});
                (201, json!({ "metadata": metadata }))
            }
            (_, [namespace, plural, name, rest @ ..]) if request.method != "GET" => {
                let sub = if rest.is_empty() { "" } else { "status" };
                state.writing.acquire().await.unwrap().forget();
                let answer = write(&state, &place(plural, namespace, name), sub, request);
                state.answering.acquire().await.unwrap().forget();
                answer
            }
            (_, [namespace, plural, name]) => {
                let place = place(plural, namespace, name);
                let world = state.world.lock();
                match world.objects.get(&place) {
                    Some(stored) => (200, stored.shown(&place)),
                    None => (404, status(404, "NotFound")),
                }
            }
            ([.., plural], _) if is_watch => {
                return watch(stream, &state, plural, &request.query).await;
            }
            ([.., plural], _) => (200, list(&state, plural, &request.query)),
            ([], _) => (404, status(404, "NotFound")),
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn write(state: &State, place: &Place, sub: &'static str, request: Request) -> (u16, Value) {
    let (plural, namespace, name) = place;
    let sub_path = if sub.is_empty() { "" } else { "/status" };
    let line = format!("{} {plural}{sub_path} {namespace}/{name}", request.method);
    let refused = {
        let mut world = state.world.lock();
        let is_it = |(begin, ..): &&(String, u16, Value)| line.starts_with(begin);
        let refused = world.refused.iter().find(is_it).cloned();
        world.writes.push(line);
        refused
    };
    if let Some((_, code, answer)) = refused {
        return (code, answer);
    }
    let takes_off_the_finalizer = request.body.is_array();
    if request.method == "DELETE" || takes_off_the_finalizer {
        let removed = state.world.lock().objects.get(place).cloned();
        state.remove(place);
        return (
            200,
            removed.map_or(Value::Null, |removed| removed.shown(place)),
        );
    }
    let manager = request
        .query
        .get("fieldManager")
        .cloned()
        .unwrap_or_default();
    let mut body = request.body;
    // A status apply changes only the status.
    if !sub.is_empty() {
        body = json!({"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": body["status"]});
    }
    state.apply(place, sub, &manager, body)
}

fn list(state: &State, plural: &str, query: &BTreeMap<String, String>) -> Value {
    let world = state.world.lock();
    let selector = query.get("labelSelector").map(String::as_str);
    let items: Vec<Value> = world
        .objects
        .iter()
        .filter(|(place, stored)| place.0 == plural && stored.has(selector, place))
        .map(|(place, stored)| stored.shown(place))
        .collect();
    json!({"metadata": {"resourceVersion": world.version.to_string()}, "items": items})
}

async fn watch(
    mut stream: BufReader<TcpStream>,
    state: &State,
    plural: &str,
    query: &BTreeMap<String, String>,
) {
    let mut version = state.version.subscribe();
    let mut sent: u64 = query["resourceVersion"].parse().unwrap();
    let selector = query.get("labelSelector").map(String::as_str);
    if stream
        .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        .await
        .is_err()
    {
        return;
    }
    loop {
        let lines: Vec<String> = {
            let shown = *state.shown.lock();
            let world = state.world.lock();
            let happened = |at: u64, of: &str| at > sent && at <= shown && of == plural;
            let lines = world
                .events
                .iter()
                .filter(|(at, of, ..)| happened(*at, of))
                .filter(|(.., object)| {
                    let labels = &object["metadata"]["labels"];
                    selector
                        .and_then(|text| text.split_once('='))
                        .is_none_or(|(label, value)| labels[label] == value)
                })
                .map(|(.., kind, object)| format!("{}\n", json!({"type": kind, "object": object})))
                .collect();
            sent = world.version.min(shown);
            lines
        };
        let lines = lines.concat();
        if stream.write_all(lines.as_bytes()).await.is_err() || version.changed().await.is_err() {
            return;
        }
    }
}

fn discovery(core: bool) -> Value {
    let groups: Vec<Value> = KINDS
        .iter()
        .filter(|(api_version, ..)| api_version.contains('/') != core)
        .map(|(api_version, kind, plural)| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let scope = if *kind == "Namespace" {
                "Cluster"
            } else {
                "Namespaced"
            };
            json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [{
                "resource": plural, "responseKind": {"kind": kind}, "scope": scope,
                "verbs": ["get", "list", "watch"],
            }]}]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": groups})
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head
        .iter()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let mut words = head.first()?.split_whitespace();
    let method = words.next()?;
    let target = words.next()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let plain = |text: &str| {
        text.replace("%2F", "/")
            .replace("%3D", "=")
            .replace("%3A", ":")
    };
    Some(Request {
        method: method.to_owned(),
        path: path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(plain)
            .collect(),
        query: query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), plain(value)))
            .collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
