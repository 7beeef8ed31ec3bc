//! A relay between a host and the API server that sees every request. It can stop at a write, before the API server has it
//! or before the host has the answer, and can hold back what watches tell.
//!
//! It speaks plain HTTP/1.1 to the host; `kubectl proxy` behind it adds TLS and the administrator's identity.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use innkeeper_tests::{
    ControlPlane, eventually,
    process::{Running, bound, path_from_env, spawn_bound},
};
use serde_json::json;
use tempfile::TempDir;

/// Where at the next write the relay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server never has it.
    Before,
    /// The API server has done it, the host never has the answer.
    After,
}

/// A write has stopped. Its connection is cut when the value is dropped: end the host first, or it tries again.
pub(crate) struct Stopped {
    /// Method and path.
    pub(crate) line: String,
    release: Sender<()>,
}

impl Stopped {
    /// Lets a write that the API server does not have yet go on.
    pub(crate) fn go_on(self) {
        self.release.send(()).expect("the relay waits for it");
    }
}

/// What watches tell so much later, while everything else passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// How much.
    pub(crate) by: Duration,
    /// What the paths of these watches end in; empty: all.
    pub(crate) path: &'static str,
}

/// A running relay.
pub(crate) struct Relay {
    /// What a host is started with to go through it.
    pub(crate) kubeconfig: PathBuf,
    /// What has stopped.
    pub(crate) stopped: Receiver<Stopped>,
    shared: Arc<Shared>,
    // Dropped first: the process ends before its directory goes.
    _proxy: Running,
    _directory: TempDir,
}

struct Shared {
    upstream: PathBuf,
    state: Mutex<State>,
}

struct State {
    armed: Option<Moment>,
    late: Option<Late>,
    /// What the API server has done and the host never learnt of. A host that says the same again at its next start, such
    /// as that its namespace is to exist, would never get beyond it: so it passes.
    done: BTreeSet<(String, Vec<u8>)>,
    stopped: Sender<Stopped>,
}

impl Relay {
    /// Starts one for a control plane; it stops at nothing yet.
    pub(crate) fn start(plane: &ControlPlane) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-relay-")
            .tempdir()?;
        let upstream = directory.path().join("socket");
        let mut command = bound(&path_from_env("INNKEEPER_CONTROLPLANE")?);
        command.stdout(Stdio::null()).args(["kubectl", "proxy"]);
        command.arg("--kubeconfig").arg(plane.kubeconfig());
        command.arg("--unix-socket").arg(&upstream);
        let proxy = spawn_bound(command)?;
        eventually("kubectl proxy listens", || {
            UnixStream::connect(&upstream).map(drop)
        });
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let kubeconfig = directory.path().join("kubeconfig");
        fs::write(&kubeconfig, text(listener.local_addr()?))?;
        let (sender, stopped) = mpsc::channel();
        let state = State {
            armed: None,
            late: None,
            done: BTreeSet::new(),
            stopped: sender,
        };
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::new(state),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that breaks is the host's end or the proxy's; the test sees either.
                drop(serve(&accepting, &client));
            }
        });
        Ok(Self {
            kubeconfig,
            stopped,
            shared,
            _proxy: proxy,
            _directory: directory,
        })
    }

    /// Stops at the next write, or at none.
    pub(crate) fn arm(&self, moment: Option<Moment>) {
        self.shared.lock().armed = moment;
    }

    /// Holds back what watches tell from here on, or nothing; what is held already comes at its time.
    pub(crate) fn hold_back(&self, late: Option<Late>) {
        self.shared.lock().late = late;
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock")
    }

    /// Whether to stop at a write.
    fn moment(&self, line: &str, body: Vec<u8>) -> Option<Moment> {
        let mut state = self.lock();
        let write = (line.to_owned(), body);
        if state.done.contains(&write) {
            return None;
        }
        let moment = state.armed.take();
        if moment == Some(Moment::After) {
            state.done.insert(write);
        }
        moment
    }

    /// Says that a write has stopped, and waits until it is decided whether it goes on.
    fn stop(&self, line: String) -> bool {
        let (release, released) = mpsc::channel();
        let stopped = Stopped { line, release };
        // Nobody listens when the test is over.
        self.lock().stopped.send(stopped).is_ok() && released.recv().is_ok()
    }

    /// When what comes from the API server for a request is to reach the host.
    fn due(&self, line: &str) -> Instant {
        let path = line.split(['?', ' ']).nth(1).unwrap_or_default();
        let late = self.lock().late;
        let late = late.filter(|late| is_watch(line) && path.ends_with(late.path));
        Instant::now() + late.map_or(Duration::ZERO, |late| late.by)
    }
}

fn is_watch(line: &str) -> bool {
    line.contains("watch=")
}

fn text(address: SocketAddr) -> String {
    let name = "relay";
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": name, "user": {} }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    })
    .to_string()
}

/// Relays one connection, either way in a thread of its own.
fn serve(shared: &Arc<Shared>, client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let server = UnixStream::connect(&shared.upstream)?;
    let connection = Arc::new(Connection {
        shared: Arc::clone(shared),
        client: client.try_clone()?,
        server,
        asked: Mutex::default(),
    });
    let answers = Arc::clone(&connection);
    thread::spawn(move || {
        drop(connection.relay_requests());
        connection.cut();
    });
    thread::spawn(move || drop(answers.relay_answers()));
    Ok(())
}

struct Connection {
    shared: Arc<Shared>,
    client: TcpStream,
    server: UnixStream,
    asked: Mutex<Asked>,
}

/// The last request of a connection; they follow each other.
#[derive(Default)]
struct Asked {
    line: String,
    /// Whether its answer is to stop.
    stops: bool,
}

impl Connection {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().expect("nothing panics with the lock")
    }

    /// The last request; its answer stops at its beginning only.
    fn answered(&self) -> Asked {
        let mut asked = self.asked();
        let stops = std::mem::take(&mut asked.stops);
        Asked {
            line: asked.line.clone(),
            stops,
        }
    }

    fn cut(&self) {
        // It may be cut already.
        drop(self.server.shutdown(Shutdown::Both));
        drop(self.client.shutdown(Shutdown::Both));
    }

    fn relay_requests(&self) -> Result<()> {
        let mut client = BufReader::new(&self.client);
        while let Some(Request { line, bytes, body }) = read_request(&mut client)? {
            let mut stops = false;
            if !line.starts_with("GET ") && !line.contains("accessreviews") {
                match self.shared.moment(&line, body) {
                    Some(Moment::Before) if !self.shared.stop(line.clone()) => return Ok(()),
                    Some(Moment::After) => stops = true,
                    Some(Moment::Before) | None => {}
                }
            }
            *self.asked() = Asked { line, stops };
            (&self.server).write_all(&bytes)?;
        }
        Ok(())
    }

    fn relay_answers(self: &Arc<Self>) -> io::Result<()> {
        // Reading goes on while something is held back, or the delays would add up.
        let (sender, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
        let connection = Arc::clone(self);
        thread::spawn(move || {
            for (due, piece) in pieces {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if (&connection.client).write_all(&piece).is_err() {
                    break;
                }
            }
            // The API server has closed its side, and all that it said has passed.
            connection.cut();
        });
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = (&self.server).read(&mut buffer)?;
            let Asked { line, stops } = self.answered();
            if stops && !self.shared.stop(line.clone()) {
                self.cut();
                return Ok(());
            }
            let piece = (self.shared.due(&line), buffer[..count].to_vec());
            if count == 0 || sender.send(piece).is_err() {
                return Ok(());
            }
        }
    }
}

/// One request as the host sent it.
struct Request {
    /// Method and path.
    line: String,
    /// All of it.
    bytes: Vec<u8>,
    body: Vec<u8>,
}

/// The next request of a connection; none when the host has closed it.
fn read_request(client: &mut impl BufRead) -> Result<Option<Request>> {
    let mut bytes = Vec::new();
    let mut length = 0;
    loop {
        let start = bytes.len();
        if client.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let header = String::from_utf8_lossy(&bytes[start..]).to_ascii_lowercase();
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let first = bytes.split(|byte| *byte == b'\r').next();
    let line = String::from_utf8_lossy(first.context("a request has a line")?).into_owned();
    let mut body = Vec::new();
    client.by_ref().take(length).read_to_end(&mut body)?;
    bytes.extend_from_slice(&body);
    Ok(Some(Request { line, bytes, body }))
}
