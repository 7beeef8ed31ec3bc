//! One connection through a relay, with a thread for requests and a thread for answers.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use tokio::net::TcpSocket;

use super::{
    Moment, Shared,
    rules::{Action, End, FLOOD, answer, expired, is_write},
};

pub(super) fn serve(shared: &Arc<Shared>, client: &TcpStream) -> Result<()> {
    if shared.lock().refuses {
        return reset_on_close(client);
    }
    client.set_nodelay(true)?;
    let server = UnixStream::connect(&shared.upstream)?;
    let connection = Arc::new(Connection {
        shared: Arc::clone(shared),
        client: client.try_clone()?,
        server,
        asked: Mutex::default(),
        is_reset: AtomicBool::new(false),
    });
    let mut state = shared.lock();
    state.open.retain(|open| open.strong_count() > 0);
    state.open.push(Arc::downgrade(&connection));
    drop(state);
    let answers = Arc::clone(&connection);
    thread::spawn(move || {
        drop(connection.relay_requests());
        connection.cut();
    });
    thread::spawn(move || drop(answers.relay_answers()));
    Ok(())
}

/// Makes closing the connection send a reset.
fn reset_on_close(client: &TcpStream) -> Result<()> {
    Ok(TcpSocket::from_std_stream(client.try_clone()?).set_zero_linger()?)
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    client: TcpStream,
    server: UnixStream,
    asked: Mutex<Asked>,
    /// True if the host must see a reset, which a shutdown of the write side would prevent.
    is_reset: AtomicBool,
}

/// A connection's last request; HTTP/1.1 has one request at a time.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) line: String,
    /// Counts the connection's requests.
    number: usize,
    /// True if the relay stops the answer.
    stops: bool,
    action: Option<Action>,
}

/// A part of an answer, in the delivery queue.
struct Piece {
    due: Instant,
    line: String,
    bytes: Vec<u8>,
    /// How to end the connection after this piece, if at all.
    end: Option<End>,
}

impl Connection {
    pub(super) fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().expect("no thread panics with the lock")
    }

    /// Returns the last request and clears `stops`, because only the start of an answer stops.
    fn answered(&self) -> Asked {
        let mut last = self.asked();
        let stops = std::mem::take(&mut last.stops);
        Asked {
            stops,
            ..last.clone()
        }
    }

    pub(super) fn end(&self, end: End) {
        match end {
            End::Close => self.cut(),
            End::Reset => {
                // An error means that the connection is already closed.
                drop(reset_on_close(&self.client));
                self.is_reset.store(true, Ordering::Relaxed);
                self.cut();
            }
            // The request thread closes the connection when the host does.
            End::Silence => {}
        }
    }

    fn cut(&self) {
        // It may be cut already.
        drop(self.server.shutdown(Shutdown::Both));
        let directions = if self.is_reset.load(Ordering::Relaxed) {
            Shutdown::Read
        } else {
            Shutdown::Both
        };
        drop(self.client.shutdown(directions));
    }

    /// Returns true if the host has closed its side.
    fn is_abandoned(&self) -> bool {
        let peeked = self
            .client
            .set_nonblocking(true)
            .and_then(|()| self.client.peek(&mut [0]));
        self.client.set_nonblocking(false).is_err() || peeked.is_ok_and(|count| count == 0)
    }

    fn relay_requests(&self) -> Result<()> {
        let mut client = BufReader::new(&self.client);
        let mut number = 0;
        while let Some(Request {
            line,
            mut bytes,
            body,
        }) = read_request(&mut client)?
        {
            // Drops a held request if the host has ended meanwhile, as a failed network would.
            if self.shared.hold(&line) && self.is_abandoned() {
                return Ok(());
            }
            let action = self.shared.admit(&line);
            match action {
                Some(Action::Answer { code, retry_after }) => {
                    (&self.client).write_all(&answer(code, retry_after))?;
                    continue;
                }
                Some(Action::Expire) => {
                    (&self.client).write_all(&expired())?;
                    continue;
                }
                Some(Action::Forge(bytes)) => {
                    (&self.client).write_all(bytes)?;
                    return Ok(());
                }
                Some(Action::Flood) => {
                    (&self.client).write_all(FLOOD)?;
                    // Until the host closes its side.
                    io::copy(&mut io::repeat(b'x'), &mut (&self.client))?;
                    return Ok(());
                }
                Some(Action::NoBookmarks) => bytes = without_bookmarks(&bytes),
                _ => {}
            }
            let mut stops = false;
            if is_write(&line) {
                match self.shared.moment(&line, body) {
                    Some(Moment::Before) if !self.shared.stop(line.clone()) => return Ok(()),
                    Some(Moment::After) => stops = true,
                    Some(Moment::Before) | None => {}
                }
            }
            number += 1;
            *self.asked() = Asked {
                line,
                number,
                stops,
                action,
            };
            (&self.server).write_all(&bytes)?;
        }
        Ok(())
    }

    fn relay_answers(self: &Arc<Self>) -> io::Result<()> {
        // A separate thread delivers the pieces: with reads in the same thread, delays would add up.
        let (sender, pieces) = mpsc::channel::<Piece>();
        let connection = Arc::clone(self);
        thread::spawn(move || connection.deliver(&pieces));
        let mut buffer = vec![0; 64 * 1024];
        let mut number = 0;
        let mut cut = None;
        loop {
            let count = (&self.server).read(&mut buffer)?;
            let asked = self.answered();
            if asked.stops && !self.shared.stop(asked.line.clone()) {
                self.cut();
                return Ok(());
            }
            if count == 0 {
                return Ok(());
            }
            let mut state = self.shared.lock();
            if number != asked.number {
                (number, cut) = (asked.number, None);
            }
            cut = cut.or_else(|| state.rules.cut(&asked.line));
            let due = Instant::now() + state.rules.late(&asked.line);
            drop(state);
            let mut bytes = buffer[..count].to_vec();
            let mut end = None;
            match asked.action {
                Some(Action::Lose) => (bytes, end) = (Vec::new(), Some(End::Close)),
                Some(Action::Replace(other)) => (bytes, end) = (other.to_vec(), Some(End::Close)),
                Some(Action::GiveUp) => (bytes, end) = (answer(504, None), Some(End::Close)),
                _ => {}
            }
            if let Some((after, kind)) = &mut cut {
                if bytes.len() >= *after {
                    bytes.truncate(*after);
                    end = Some(*kind);
                } else {
                    *after -= bytes.len();
                }
            }
            let line = asked.line;
            let piece = Piece {
                due,
                line,
                bytes,
                end,
            };
            if sender.send(piece).is_err() || end.is_some() {
                return Ok(());
            }
        }
    }

    /// Writes the API server's answers to the host when they are due.
    fn deliver(&self, pieces: &Receiver<Piece>) {
        for piece in pieces {
            thread::sleep(piece.due.saturating_duration_since(Instant::now()));
            drop(self.shared.wait_while_held(&piece.line));
            if (&self.client).write_all(&piece.bytes).is_err() {
                break;
            }
            if let Some(end) = piece.end {
                self.end(end);
                return;
            }
        }
        // The API server has closed the connection, and all answers have passed.
        self.cut();
    }
}

/// Turns off bookmarks in a watch request.
fn without_bookmarks(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(bytes)
        .replacen("allowWatchBookmarks=true", "allowWatchBookmarks=false", 1)
        .into_bytes()
}

struct Request {
    /// Method and path.
    line: String,
    /// The whole request.
    bytes: Vec<u8>,
    body: Vec<u8>,
}

/// Reads the next request; `None` if the host has closed the connection.
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
