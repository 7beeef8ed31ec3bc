//! A relay between a host and the API server that sees every request. It can stop at a write, before the API server has it
//! or before the host has the answer, and does what its rules say to all the others.
//!
//! It speaks plain HTTP/1.1 to the host; `kubectl proxy` behind it adds TLS and the administrator's identity.

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
    /// Told when what was held may pass.
    cleared: Condvar,
}

/// A request that the relay has seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Method and path.
    pub(crate) line: String,
    /// What a rule made of it.
    pub(crate) action: Option<Action>,
}

struct State {
    armed: Option<Moment>,
    rules: Rules,
    refuses: bool,
    seen: Vec<Seen>,
    open: Vec<Weak<Connection>>,
    /// What the API server has done and the host never learnt of. A host that says the same again at its next start, such
    /// as that its namespace is to exist, would never get beyond it: so it passes.
    done: BTreeSet<(String, Vec<u8>)>,
    stopped: Sender<Stopped>,
}

impl Relay {
    /// Starts one for a control plane; it stops at nothing yet.
    pub(crate) fn start(plane: &ControlPlane) -> Result<Self> {
        Self::start_for(&plane.kubeconfig())
    }

    /// Starts one for whom a kubeconfig names, at the API server that it names.
    pub(crate) fn start_for(kubeconfig: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-relay-")
            .tempdir()?;
        let upstream = directory.path().join("socket");
        let mut command = bound(&path_from_env("INNKEEPER_CONTROLPLANE")?);
        // What it says of connections that were broken on purpose is not for the suite's output.
        let log = File::create(directory.path().join("log"))?;
        command.stdout(Stdio::null()).stderr(log);
        command.args(["kubectl", "proxy"]);
        command.arg("--kubeconfig").arg(kubeconfig);
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
        self.clear();
        if let Some(Late { by, path }) = late {
            let verb = Verb::Watch;
            let by = by.as_millis().try_into().expect("a delay is short");
            self.add(Rule::always(On { verb, path }, Action::Late(by)));
        }
    }

    /// Adds a rule; those that were added before it are asked first.
    pub(crate) fn add(&self, rule: Rule) {
        self.shared.lock().rules.add(rule);
    }

    /// Takes all rules away; what was held passes.
    pub(crate) fn clear(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.refuses = false;
        drop(state);
        self.shared.cleared.notify_all();
    }

    /// Resets every connection that is tried from now on, until the rules are cleared.
    pub(crate) fn refuse(&self) {
        self.shared.lock().refuses = true;
    }

    /// Ends the connections whose last request was one of these.
    pub(crate) fn sever(&self, on: On, end: End) {
        let open: Vec<_> = self.shared.lock().open.clone();
        for connection in open.iter().filter_map(Weak::upgrade) {
            if on.meets(&connection.asked().line) {
                connection.end(end);
            }
        }
    }

    /// The requests since the last time that this was asked.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().seen)
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

    /// Waits until a request may pass at all; whether it had to.
    fn hold(&self, line: &str) -> bool {
        let is_held = self.lock().rules.holds(line);
        drop(self.wait_while_held(line));
        is_held
    }

    /// What a rule makes of a request.
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
        state.expect("nothing panics with the lock")
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
