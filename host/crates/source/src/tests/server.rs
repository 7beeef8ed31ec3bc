//! A web server that answers as a test tells it to: whole, in drops, cut off, or not at all.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

/// A received request.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    /// By name in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) manner: Manner,
}

/// The way to send a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    Whole,
    /// With an announced length, which may be wrong.
    Announced(u64),
    /// One byte each time.
    Drops(Duration),
    /// Without a length: only reading it shows the length.
    Chunked,
    /// Nothing at all, not even a head.
    Silent,
    /// The body and no head: not HTTP.
    Raw,
}

impl Reply {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            manner: Manner::Whole,
        }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) const fn manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    pub(super) fn redirect(to: impl Into<String>) -> Self {
        Self::new(302, "").header("location", to)
    }
}

/// A server on a loopback port, with everything that it was asked for.
pub(super) struct Server {
    /// Scheme, host and port.
    pub(super) origin: String,
    requests: Arc<Mutex<Vec<Request>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen("http", None, Arc::new(answer)).await
    }

    pub(super) async fn start_tls(
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("fixtures/server.pem"));
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("fixtures/server.key"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.unwrap()], key.unwrap())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen("https", Some(acceptor), Arc::new(answer)).await
    }

    async fn listen(
        scheme: &str,
        tls: Option<TlsAcceptor>,
        answer: Arc<dyn Fn(&Request) -> Reply + Send + Sync>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("{scheme}://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = Arc::clone(&answer);
                let log = Arc::clone(&log);
                let tls = tls.clone();
                connections.spawn(async move {
                    // Many tests have a client that rejects our certificate or closes early.
                    let done = match tls {
                        None => converse(stream, &*answer, &log).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => converse(stream, &*answer, &log).await,
                            Err(error) => Err(error),
                        },
                    };
                    done.ok();
                });
            }
        });
        Self {
            origin,
            requests,
            _tasks: tasks,
        }
    }

    /// Host and port.
    pub(super) fn host(&self) -> &str {
        self.origin.split_once("://").unwrap().1
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

/// One request and its response; the client opens another connection for the next one.
async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &(dyn Fn(&Request) -> Reply + Send + Sync),
    log: &Mutex<Vec<Request>>,
) -> io::Result<()> {
    let request = receive(&mut stream).await?;
    log.lock().push(request.clone());
    let Reply {
        status,
        headers,
        body,
        manner,
    } = answer(&request);
    let length = match manner {
        Manner::Silent => return stream.read(&mut [0]).await.map(|_| ()),
        Manner::Raw => {
            stream.write_all(&body).await?;
            return stream.shutdown().await;
        }
        Manner::Chunked => None,
        Manner::Announced(length) => Some(length),
        Manner::Whole | Manner::Drops(_) => Some(u64::try_from(body.len()).unwrap()),
    };
    let mut head = vec![
        format!("HTTP/1.1 {status} Test"),
        "connection: close".to_owned(),
    ];
    head.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    // A body without a length ends with the connection.
    head.extend(length.map(|length| format!("content-length: {length}")));
    let head = head.join("\r\n") + "\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    if request.method != "HEAD" {
        match manner {
            Manner::Drops(pause) => {
                for byte in body {
                    stream.write_all(&[byte]).await?;
                    stream.flush().await?;
                    sleep(pause).await;
                }
            }
            _ => stream.write_all(&body).await?,
        }
    }
    stream.flush().await?;
    stream.shutdown().await
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let method = first.next().unwrap();
    let target = first.next().unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .get("content-length")
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: pairs(query),
        headers,
        body,
    })
}

/// The pairs in a query or form.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    reqwest::Url::parse(&format!("http://test/?{text}"))
        .unwrap()
        .query_pairs()
        .into_owned()
        .collect()
}
