//! A web server for one file, which can simulate slow answers and outages.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// A web server, which stops on drop.
pub(crate) struct Web {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    bytes: Mutex<Vec<u8>>,
    asked: AtomicUsize,
    is_down: AtomicBool,
    is_held: AtomicBool,
    is_over: AtomicBool,
}

impl Web {
    /// Serves these bytes at every path.
    pub(crate) fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            bytes: Mutex::new(bytes),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    // The client may have closed the connection.
                    drop(shared.answer(stream));
                }
            }
        });
        Self { address, state }
    }

    /// Accepts requests for these bytes, and answers none until [`set_held`](Self::set_held).
    pub(crate) fn start_held(bytes: Vec<u8>) -> Self {
        let web = Self::start(bytes);
        web.set_held(true);
        web
    }

    /// The server's IP address and port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/plugin.wasm", self.address)
    }

    /// Serves other bytes from now on.
    pub(crate) fn put(&self, bytes: Vec<u8>) {
        *self
            .state
            .bytes
            .lock()
            .expect("no thread panics with the lock") = bytes;
    }

    /// Answers, or closes every connection without an answer.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Delays all answers, or releases them.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.state.is_held.store(is_held, Ordering::Relaxed);
    }

    /// The number of requests for the file, including those without an answer.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

impl State {
    fn bytes(&self) -> Vec<u8> {
        self.bytes
            .lock()
            .expect("no thread panics with the lock")
            .clone()
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            request.extend_from_slice(&buffer[..read]);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        while self.is_held.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        if self.is_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bytes = self.bytes();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            bytes.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&bytes)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then sees the flag.
        drop(TcpStream::connect(self.address));
    }
}
