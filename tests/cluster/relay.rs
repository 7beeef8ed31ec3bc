//! A relay between a host and the API server. It records every request, applies rules to them, and can
//! stop a write before the API server receives it or before the host receives the answer.
//!
//! The host connects with plain HTTP/1.1; `kubectl proxy` behind the relay adds TLS and the
//! administrator's identity.

mod connection;
pub(crate) mod rules;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Condvar, Mutex, Weak,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use innkeeper_tests::{
    ControlPlane, eventually,
    process::{Running, bound, path_from_env, spawn_bound},
};
use serde_json::json;
use tempfile::TempDir;

use connection::{Connection, serve};
use rules::{Action, End, On, Rule, Rules, Verb};

/// When the relay stops the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server has not received it.
    Before,
    /// The API server has done it, and the host has not received the answer.
    After,
}

/// A stopped write. Dropping this value closes the connection: kill the host first, or it retries.
pub(crate) struct Stopped {
    /// Method and path.
    pub(crate) line: String,
    release: Sender<()>,
}

impl Stopped {
    /// Forwards a write that stopped before the API server.
    pub(crate) fn resume(self) {
        self.release.send(()).expect("the relay waits for it");
    }
}

/// Delays watch events; everything else passes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) by: Duration,
    /// A substring of the watched paths; empty for all watches.
    pub(crate) path: &'static str,
}

pub(crate) struct Relay {
    /// The kubeconfig for connections through the relay.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) stopped: Receiver<Stopped>,
    shared: Arc<Shared>,
    // Fields drop in order: the process must end before the directory is deleted.
    _proxy: Running,
    _directory: TempDir,
}

struct Shared {
    upstream: PathBuf,
    state: Mutex<State>,
    /// Notified when held requests and answers may pass.
    cleared: Condvar,
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Method and path.
    pub(crate) line: String,
    /// The action that a rule applied to the request.
    pub(crate) action: Option<Action>,
}

struct State {
    armed: Option<Moment>,
    rules: Rules,
    refuses: bool,
    seen: Vec<Seen>,
    open: Vec<Weak<Connection>>,
    /// The writes that were stopped after the API server. They pass when a host repeats them:
    /// otherwise a host that starts with the same write every time, such as its namespace, would
    /// never get past it.
    done: BTreeSet<(String, Vec<u8>)>,
    stopped: Sender<Stopped>,
}

impl Relay {
    /// Starts a relay that does not stop writes until `arm` is called.
    pub(crate) fn start(plane: &ControlPlane) -> Result<Self> {
        Self::start_for(&plane.kubeconfig())
    }

    /// Starts a relay for a kubeconfig's user and API server.
    pub(crate) fn start_for(kubeconfig: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-relay-")
            .tempdir()?;
        let upstream = directory.path().join("socket");
        let mut command = bound(&path_from_env("INNKEEPER_CONTROLPLANE")?);
        command
            .args(["kubectl", "proxy"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--unix-socket")
            .arg(&upstream)
            .stdout(Stdio::null())
            // kubectl reports each connection that a test breaks, which would fill the test output.
            .stderr(File::create(directory.path().join("log"))?);
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
            rules: Rules::default(),
            refuses: false,
            seen: Vec::new(),
            open: Vec::new(),
            done: BTreeSet::new(),
            stopped: sender,
        };
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::new(state),
            cleared: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // An error means that the host or the proxy has ended, which the test notices.
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

    /// Stops the next write, or none.
    pub(crate) fn arm(&self, moment: Option<Moment>) {
        self.shared.lock().armed = moment;
    }

    /// Delays these watches' events from now on, or none; events that are already delayed keep
    /// their delay.
    pub(crate) fn hold_back(&self, late: Option<Late>) {
        self.clear();
        if let Some(Late { by, path }) = late {
            let verb = Verb::Watch;
            let by = by.as_millis().try_into().expect("a delay is short");
            self.add(Rule::always(On { verb, path }, Action::Late(by)));
        }
    }

    /// Adds a rule; earlier rules take precedence.
    pub(crate) fn add(&self, rule: Rule) {
        self.shared.lock().rules.add(rule);
    }

    /// Removes all rules; held requests and answers pass.
    pub(crate) fn clear(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.refuses = false;
        drop(state);
        self.shared.cleared.notify_all();
    }

    /// Resets every new connection until the rules are cleared.
    pub(crate) fn refuse_connections(&self) {
        self.shared.lock().refuses = true;
    }

    /// Ends the connections whose last request matches.
    pub(crate) fn close_connections(&self, on: On, end: End) {
        let open: Vec<_> = self.shared.lock().open.clone();
        for connection in open.iter().filter_map(Weak::upgrade) {
            if on.matches(&connection.asked().line) {
                connection.end(end);
            }
        }
    }

    /// Returns the requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().seen)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }

    /// Returns when a write must stop, if at all.
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

    /// Reports a stopped write, and waits until the test resumes or drops it. Returns true if it
    /// resumes.
    fn stop(&self, line: String) -> bool {
        let (release, released) = mpsc::channel();
        let stopped = Stopped { line, release };
        // The receiver is gone when the test is over.
        self.lock().stopped.send(stopped).is_ok() && released.recv().is_ok()
    }

    /// Waits until a request may pass, and returns true if it had to wait.
    fn hold(&self, line: &str) -> bool {
        let is_held = self.lock().rules.holds(line);
        drop(self.wait_while_held(line));
        is_held
    }

    /// Records a request, and returns the first matching rule's action.
    fn admit(&self, line: &str) -> Option<Action> {
        let mut state = self.lock();
        let action = state.rules.request(line);
        state.seen.push(Seen {
            at: Instant::now(),
            line: line.to_owned(),
            action,
        });
        action
    }

    fn wait_while_held(&self, line: &str) -> std::sync::MutexGuard<'_, State> {
        let state = self
            .cleared
            .wait_while(self.lock(), |state| state.rules.holds(line));
        state.expect("no thread panics with the lock")
    }
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
