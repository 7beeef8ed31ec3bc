//! An API server that answers from a script and records requests.

use std::{sync::Arc, time::Duration};

use innkeeper_model::{Shard, Shards};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};

use crate::{Claim, Writer, Writers};

/// The reaction to one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Status, headers and body.
    Say(u16, &'static str, Value),
    /// The connection is closed without a word.
    HangUp,
    /// No answer ever comes.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) line: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

pub(crate) struct Scripted {
    pub(crate) requests: Arc<Mutex<Vec<RecordedRequest>>>,
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the answers in their order; after the last one the last is repeated.
#[expect(
    clippy::disallowed_methods,
    reason = "the server of a test ends with the test"
)]
pub(crate) async fn serve(answers: Vec<Answer>) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answers = answers.clone();
            let recorded = Arc::clone(&recorded);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = read(&mut stream).await {
                    let line = request.line.clone();
                    let place = {
                        let mut recorded = recorded.lock();
                        recorded.push(request);
                        recorded.len() - 1
                    };
                    let answer = answers.get(place).or_else(|| answers.last()).unwrap();
                    if !reply(&mut stream, &line, answer).await {
                        return;
                    }
                }
            });
        }
    });
    Scripted {
        requests,
        port,
        task,
    }
}

impl Scripted {
    pub(crate) fn writer(&self, deadline: Duration, concurrency_max: usize) -> Writer {
        writer_to(self.port, deadline, concurrency_max)
    }

    /// A writer that writes while a claim holds.
    pub(crate) fn writer_with(&self, claim: Claim) -> Writer {
        claimed_writer(self.port, claim, Duration::from_secs(20), 4)
    }

    /// Writers for these shards, with the claims of those that are held.
    pub(crate) fn writers(&self, shards: Shards, is_held: impl Fn(Shard) -> bool) -> Writers {
        Writers::new(client(self.port), shards, |shard| {
            if is_held(shard) {
                Claim::unlimited()
            } else {
                Claim::awaited()
            }
        })
    }

    /// Each request's method and path.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests
            .lock()
            .iter()
            .map(|request| request.line.clone())
            .collect()
    }
}

pub(crate) fn writer_to(port: u16, deadline: Duration, concurrency_max: usize) -> Writer {
    claimed_writer(port, Claim::unlimited(), deadline, concurrency_max)
}

fn claimed_writer(port: u16, claim: Claim, deadline: Duration, concurrency_max: usize) -> Writer {
    Writer {
        permits: Arc::new(Semaphore::new(concurrency_max)),
        ..Writer::new(client(port), claim).with_deadline(deadline)
    }
}

fn client(port: u16) -> kube::Client {
    let url = format!("http://127.0.0.1:{port}").parse().unwrap();
    let mut config = kube::Config::new(url);
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<RecordedRequest> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        head.iter()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
            .unwrap_or_default()
    };
    let length = header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let line = head.first()?.trim_end_matches(" HTTP/1.1").to_owned();
    Some(RecordedRequest {
        line,
        content_type: header("content-type"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// Returns the answer to a request, about the object in its path unless it names one.
fn named(body: &Value, line: &str) -> Value {
    let path = line.split([' ', '?']).nth(1).unwrap_or_default();
    let parts: Vec<&str> = path.trim_end_matches("/status").split('/').collect();
    let mut body = body.clone();
    if let Some(metadata) = body
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .filter(|metadata| !metadata.contains_key("name"))
    {
        metadata.insert("name".to_owned(), (*parts.last().unwrap()).into());
        let namespaced = parts.iter().position(|part| *part == "namespaces");
        if let Some(at) = namespaced.filter(|at| at + 2 < parts.len()) {
            metadata.insert("namespace".to_owned(), parts[at + 1].into());
        }
    }
    body
}

/// Returns whether the connection stays open.
async fn reply(stream: &mut BufReader<TcpStream>, line: &str, answer: &Answer) -> bool {
    match answer {
        Answer::HangUp => false,
        Answer::Silence => std::future::pending().await,
        Answer::Say(code, headers, body) => {
            let body = named(body, line).to_string();
            let text = format!(
                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.is_ok()
        }
    }
}
