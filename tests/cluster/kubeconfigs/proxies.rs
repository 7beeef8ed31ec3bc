//! Small loopback proxies: HTTP CONNECT, the same over TLS, and SOCKS 5, each with or without a
//! user.

use std::{
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// User for a proxy that requires one, as a URL and as texts.
pub(super) const USER: &str = "ann:p%40ss";
const NAME: &str = "ann";
const PASSWORD: &str = "p@ss";

/// How long a tunnel direction waits for bytes.
const TURN: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(super) enum Kind {
    Http,
    Https(Arc<ServerConfig>),
    Socks,
}

/// A proxy, which serves until the tests end.
pub(super) struct Proxy {
    address: SocketAddr,
    scheme: &'static str,
    tunnels: Arc<AtomicUsize>,
}

impl Proxy {
    pub(super) fn start(kind: &Kind, requires_user: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tunnels = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tunnels);
        let serving = kind.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                let kind = serving.clone();
                // A client may close a connection at any time.
                thread::spawn(move || drop(serve(stream, &kind, requires_user, &counted)));
            }
        });
        let scheme = match kind {
            Kind::Http => "http",
            Kind::Https(_) => "https",
            Kind::Socks => "socks5",
        };
        Self {
            address,
            scheme,
            tunnels,
        }
    }

    /// Returns the address, with a user unless it is empty.
    pub(super) fn url(&self, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("{}://{user}{at}{}", self.scheme, self.address)
    }

    /// Returns the number of tunnels since the last call.
    pub(super) fn take_tunnels(&self) -> usize {
        self.tunnels.swap(0, Ordering::Relaxed)
    }
}

/// Returns TLS settings for a proxy, with a self-signed certificate.
pub(super) fn tls() -> Arc<ServerConfig> {
    let certified_key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified_key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified_key.cert.der().clone()], key)
        .unwrap();
    Arc::new(config)
}

fn serve(
    stream: TcpStream,
    kind: &Kind,
    requires_user: bool,
    tunnels: &AtomicUsize,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let reader = stream.try_clone()?;
    match kind {
        Kind::Http => {
            let mut client = stream;
            let upstream = connect(&mut client, requires_user)?;
            tunnels.fetch_add(1, Ordering::Relaxed);
            relay(client, &reader, &upstream)
        }
        Kind::Https(config) => {
            let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
            let mut client = StreamOwned::new(tls, stream);
            let upstream = connect(&mut client, requires_user)?;
            tunnels.fetch_add(1, Ordering::Relaxed);
            relay(client, &reader, &upstream)
        }
        Kind::Socks => {
            let mut client = stream;
            let upstream = socks(&mut client, requires_user)?;
            tunnels.fetch_add(1, Ordering::Relaxed);
            relay(client, &reader, &upstream)
        }
    }
}

/// Answers a CONNECT request, and returns the connection to the target.
fn connect<S: Read + Write>(client: &mut S, requires_user: bool) -> io::Result<TcpStream> {
    let mut lines = Vec::new();
    // One byte at a time: what follows belongs to the tunnel.
    let mut reader = BufReader::with_capacity(1, &mut *client);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let expected = format!("basic {}", STANDARD.encode(format!("{NAME}:{PASSWORD}")));
    let is_user = |line: &String| {
        line.split_once(": ").is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("proxy-authorization")
                && value.eq_ignore_ascii_case(&expected)
        })
    };
    if requires_user && !lines.iter().any(is_user) {
        client.write_all(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        )?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let target = lines
        .first()
        .and_then(|line| line.strip_prefix("CONNECT "))
        .and_then(|target| target.split(' ').next())
        .unwrap_or_default();
    let upstream = TcpStream::connect(target)?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    Ok(upstream)
}

/// Answers a SOCKS 5 request for an IPv4 address, and returns the connection to it.
fn socks(client: &mut TcpStream, requires_user: bool) -> io::Result<TcpStream> {
    let [_, count] = read(client)?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods)?;
    let method = if requires_user { 2 } else { 0 };
    if !methods.contains(&method) {
        client.write_all(&[5, 255])?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[5, method])?;
    if requires_user {
        let [_] = read(client)?;
        let name = text(client)?;
        let password = text(client)?;
        let is_user = name == NAME && password == PASSWORD;
        client.write_all(&[1, u8::from(!is_user)])?;
        if !is_user {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let [_, _, _, _] = read(client)?;
    let ip: [u8; 4] = read(client)?;
    let port = u16::from_be_bytes(read(client)?);
    let upstream = TcpStream::connect(SocketAddr::from((ip, port)))?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    Ok(upstream)
}

fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn text(stream: &mut TcpStream) -> io::Result<String> {
    let [length] = read(stream)?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Carries bytes in turns, because a TLS stream has no halves.
fn relay<S: Read + Write>(
    mut client: S,
    socket: &TcpStream,
    mut upstream: &TcpStream,
) -> io::Result<()> {
    socket.set_read_timeout(Some(TURN))?;
    upstream.set_read_timeout(Some(TURN))?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if let Some(length) = turn(client.read(&mut buffer))? {
            upstream.write_all(&buffer[..length])?;
        }
        if let Some(length) = turn(upstream.read(&mut buffer))? {
            client.write_all(&buffer[..length])?;
            client.flush()?;
        }
    }
}

/// Returns how many bytes a turn read, or none if there are none yet.
fn turn(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(length) => Ok(Some(length)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
