//! A TCP tunnel between a host and the API server, to inject faults below HTTP.

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

/// Time limit for a client's first bytes.
const READ: Duration = Duration::from_secs(1);

/// How the tunnel treats new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Forwards them to the API server.
    Open,
    /// Closes them before any data.
    Closed,
    /// Answers as a server without TLS.
    Plain,
}

/// A tunnel, which closes on drop.
pub(crate) struct Tunnel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    /// The number of connections that were not forwarded.
    refused: AtomicUsize,
    is_over: AtomicBool,
}

struct State {
    passage: Passage,
    open: Vec<TcpStream>,
}

impl Tunnel {
    /// Opens a tunnel to a control plane's API server.
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
                    // Either end may be closed already.
                    drop(serving.take(stream));
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the administrator's kubeconfig with the tunnel as the server.
    pub(crate) fn kubeconfig(&self, plane: &ControlPlane) -> Result<Value> {
        let mut kubeconfig = kubeconfig(plane)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.address));
        Ok(kubeconfig)
    }

    /// Closes all connections, and changes how new ones are treated.
    pub(crate) fn set_passage(&self, passage: Passage) {
        let mut state = self.shared.lock();
        state.passage = passage;
        for stream in state.open.drain(..) {
            // The connection may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Returns the number of connections that were not forwarded.
    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.set_passage(Passage::Closed);
        // Wakes the accepting thread.
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
                // Closing a socket with unread data resets the connection, which could discard the
                // answer.
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

/// Copies bytes in one direction until one end closes.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // Both ends notice a closed connection themselves.
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
}

/// Returns the administrator's kubeconfig.
pub(crate) fn kubeconfig(plane: &ControlPlane) -> Result<Value> {
    let text = std::fs::read_to_string(plane.kubeconfig())?;
    Ok(manifest::parse(&text)?.swap_remove(0))
}
