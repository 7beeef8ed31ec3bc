//! A web server with one file, which can be told to be down.

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

/// The server; ends with its value.
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
    /// Serves these bytes for whatever is asked for.
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
                    // Whoever asked may be gone already.
                    drop(shared.answer(stream));
                }
            }
        });
        Self { address, state }
    }

    /// Where the file is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/plugin.wasm", self.address)
    }

    /// Serves other bytes from now on.
    pub(crate) fn put(&self, bytes: Vec<u8>) {
        *self.state.bytes.lock().expect("nobody panics with it") = bytes;
    }

    /// Answers, or closes every connection without a word.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Answers no more until told otherwise.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.state.is_held.store(is_held, Ordering::Relaxed);
    }

    /// How often it was asked for the file, also while it was down.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

impl State {
    fn bytes(&self) -> Vec<u8> {
        let bytes = self.bytes.lock();
        bytes.expect("nobody panics with it").clone()
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
        // Whoever waits for a connection gets one, and sees that.
        drop(TcpStream::connect(self.address));
    }
}
