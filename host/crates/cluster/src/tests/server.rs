//! An API server that answers as a test scripts it.
//!
//! It answers discovery and the watch of CustomResourceDefinitions itself; every other request waits for the test,
//! which may answer in pieces, abort, or never answer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::Gvk;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Long enough for the slowest machine; reached only if a test fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A scripted API server on a loopback port.
pub(super) struct Server {
    pub(super) url: String,
    waiting: Arc<Mutex<VecDeque<Exchange>>>,
    served: Arc<Mutex<Vec<Gvk>>>,
    tasks: JoinSet<()>,
}

/// One request that waits for a response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    stream: TcpStream,
}

impl Server {
    pub(super) async fn start(served: &[Gvk]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let served = Arc::new(Mutex::new(served.to_vec()));
        let mut tasks = JoinSet::new();
        let queue = Arc::clone(&waiting);
        let kinds = Arc::clone(&served);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(receive(stream, Arc::clone(&queue), Arc::clone(&kinds)));
            }
        });
        Self {
            url,
            waiting,
            served,
            tasks,
        }
    }

    /// Changes the discovery document.
    pub(super) fn serve(&self, served: &[Gvk]) {
        *self.served.lock() = served.to_vec();
    }

    /// The next list request for a plural.
    pub(super) async fn list(&self, plural: &str) -> Exchange {
        self.next(plural, |query| {
            !query.contains_key("watch") && query.get("limit").is_none_or(|l| l != "1")
        })
        .await
    }

    /// The next request for the present version.
    pub(super) async fn check(&self, plural: &str) -> Exchange {
        self.next(plural, |query| {
            query.get("limit").is_some_and(|limit| limit == "1")
        })
        .await
    }

    /// The next watch request for a plural.
    pub(super) async fn watch(&self, plural: &str) -> Exchange {
        self.next(plural, |query| query.contains_key("watch")).await
    }

    /// The next read request for one object.
    pub(super) async fn next_object(&self, name: &str) -> Exchange {
        self.next(&format!("/{name}"), |_| true).await
    }

    /// Returns true if a request for a plural waits.
    pub(super) fn is_asked(&self, plural: &str) -> bool {
        self.waiting
            .lock()
            .iter()
            .any(|exchange| exchange.path.ends_with(plural))
    }

    async fn next(
        &self,
        plural: &str,
        fits: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Exchange {
        let request = timeout(PATIENCE, async {
            loop {
                {
                    let mut waiting = self.waiting.lock();
                    let at = waiting.iter().position(|exchange| {
                        exchange.path.ends_with(plural) && fits(&exchange.query)
                    });
                    if let Some(exchange) = at.and_then(|at| waiting.remove(at)) {
                        return exchange;
                    }
                }
                sleep(Duration::from_millis(2)).await;
            }
        });
        request.await.unwrap_or_else(|_| {
            panic!(
                "nobody asked for {plural}, but for {:?}",
                self.waiting.lock()
            )
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

impl Exchange {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// Answers with a whole body.
    pub(super) async fn answer(mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        self.write((head + body).as_bytes()).await;
    }

    /// Answers a list.
    pub(super) async fn items(self, version: u64, items: &[Value]) {
        let list = json!({"metadata": {"resourceVersion": version.to_string()}, "items": items});
        self.answer(200, "", &list.to_string()).await;
    }

    /// Answers with an error.
    pub(super) async fn refuse(self, code: u16, headers: &str) {
        let body = status(code).to_string();
        self.answer(code, headers, &body).await;
    }

    /// Begins the response to a watch, which ends when this is dropped.
    pub(super) async fn open(mut self) -> Self {
        self.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            .await;
        self
    }

    /// Sends a watch line.
    pub(super) async fn send(&mut self, kind: &str, object: &Value) {
        self.write(format!("{}\n", json!({"type": kind, "object": object})).as_bytes())
            .await;
    }

    /// Sends a bookmark.
    pub(super) async fn bookmark(&mut self, version: u64) {
        let object = json!({"metadata": {"resourceVersion": version.to_string()}});
        self.send("BOOKMARK", &object).await;
    }

    /// Sends bytes as they are, at once.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        // The client may have disconnected, which some tests are about.
        if self.stream.write_all(bytes).await.is_ok() {
            self.stream.flush().await.unwrap_or_default();
        }
    }

    /// Ends the connection by a reset.
    pub(super) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

/// An error body.
pub(super) fn status(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": format!("error {code}")})
}

async fn receive(
    mut stream: TcpStream,
    waiting: Arc<Mutex<VecDeque<Exchange>>>,
    served: Arc<Mutex<Vec<Gvk>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await {
            Ok(1) => head.extend(byte),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split_whitespace().nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| {
            (
                name.to_owned(),
                value.replace("%2F", "/").replace("%3D", "="),
            )
        })
        .collect();
    let exchange = Exchange {
        path: path.to_owned(),
        query,
        stream,
    };
    match path {
        "/api" => answer_discovery(exchange, &served, true).await,
        "/apis" => answer_discovery(exchange, &served, false).await,
        path if path.ends_with("/customresourcedefinitions") => exchange.refuse(403, "").await,
        _ => waiting.lock().push_back(exchange),
    }
}

async fn answer_discovery(exchange: Exchange, served: &Mutex<Vec<Gvk>>, core: bool) {
    let served = served.lock().clone();
    let groups: Vec<Value> = served
        .iter()
        .filter(|kind| kind.group.is_empty() == core)
        .map(|kind| {
            let plural = format!("{}s", kind.kind.to_lowercase());
            json!({"metadata": {"name": &*kind.group}, "versions": [{"version": &*kind.version, "resources": [{
                "resource": plural, "responseKind": {"kind": &*kind.kind}, "scope": "Namespaced",
                "verbs": ["get", "list", "watch"],
            }]}]})
        })
        .collect();
    let body = json!({"kind": "APIGroupDiscoveryList", "items": groups}).to_string();
    exchange.answer(200, "", &body).await;
}
