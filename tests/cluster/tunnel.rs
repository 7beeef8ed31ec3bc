//! A tunnel between a host and the API server that carries raw bytes, for faults below HTTP.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use http::Uri;
use innkeeper_tests::{ControlPlane, manifest};
use serde_json::{Value, json};

/// Time limit for the first bytes of a client.
const READ: Duration = Duration::from_secs(1);

/// The treatment of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It leads to the API server.
    Open,
    /// It is closed before any data.
    Closed,
    /// It leads to a server that does not speak TLS.
    Plain,
}

/// The tunnel; it closes when this value is dropped.
pub(crate) struct Tunnel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    /// The number of connections that were not carried.
    refused: AtomicUsize,
    is_over: AtomicBool,
}

struct State {
    passage: Passage,
    open: Vec<TcpStream>,
}

impl Tunnel {
    /// Opens a tunnel to the API server of a control plane.
    pub(crate) fn to(plane: &ControlPlane) -> Result<Self> {
        let kubeconfig = kubeconfig(plane)?;
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str();
        let server: Uri = server.context("no server in the kubeconfig")?.parse()?;
        let upstream = server.authority().context("no address")?.as_str();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: upstream.parse()?,
            state: Mutex::new(State {
                passage: Passage::Open,
                open: Vec::new(),
            }),
            refused: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    // Either end may be gone already.
                    drop(serving.take(stream));
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// The kubeconfig of a control plane's administrator, with the tunnel as the server.
    pub(crate) fn kubeconfig(&self, plane: &ControlPlane) -> Result<Value> {
        let mut kubeconfig = kubeconfig(plane)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.address));
        Ok(kubeconfig)
    }

    /// Ends all connections, and treats new ones in this way.
    pub(crate) fn set_passage(&self, passage: Passage) {
        let mut state = self.shared.lock();
        state.passage = passage;
        for stream in state.open.drain(..) {
            // It may have ended by itself.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// The number of connections so far that were not carried.
    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.set_passage(Passage::Closed);
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }

    fn take(&self, mut client: TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        if state.passage != Passage::Open {
            self.refused.fetch_add(1, Ordering::Relaxed);
            if state.passage == Passage::Plain {
                drop(state);
                // Closing with unread data would reset the connection, and the client might not
                // receive the answer.
                client.set_read_timeout(Some(READ))?;
                let _hello = client.read(&mut [0; 4096])?;
                client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")?;
            }
            return Ok(());
        }
        let server = TcpStream::connect(self.upstream)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            state.open.push(stream.try_clone()?);
        }
        carry(client.try_clone()?, server.try_clone()?);
        carry(server, client);
        Ok(())
    }
}

/// Carries bytes one way until one end closes.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // Each end notices by itself that the connection has ended.
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
}

/// The kubeconfig of a control plane's administrator.
pub(crate) fn kubeconfig(plane: &ControlPlane) -> Result<Value> {
    let text = std::fs::read_to_string(plane.kubeconfig())?;
    let mut documents = manifest::parse(&text)?;
    Ok(documents.swap_remove(0))
}
