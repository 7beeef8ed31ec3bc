//! A client of the host's admin address: health, metrics and debug endpoints.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::{host::Host, wait::eventually};

/// Arguments for a host that serves health and metrics on a free port.
pub const ARGUMENTS: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

/// Returns the admin address that a host has logged; waits for the line.
#[track_caller]
pub fn address(host: &Host) -> String {
    address_in(|| host.log())
}

/// Returns the admin address in a log; waits for the line.
#[track_caller]
pub fn address_in(log: impl Fn() -> Result<String>) -> String {
    eventually("the host logs its admin address", || {
        let log = log().unwrap_or_default();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "answering for health and metrics")
                .then(|| line["address"].as_str().map(str::to_owned))?
        };
        log.lines().find_map(line).ok_or(log)
    })
}

/// Sends one request; returns the response's status and body.
pub fn ask(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    exchange(TcpStream::connect(address)?, method, path, "", body)
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Result<(u16, String)> {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: innkeeper\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// The response to a request over TLS.
#[derive(Debug)]
pub struct SecureAnswer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The server certificate.
    pub certificate: Vec<u8>,
}

/// Sends one request over TLS, with a bearer token if there is one, and trusts every certificate.
pub fn ask_secure(
    address: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> Result<SecureAnswer> {
    exchange_secure(TcpStream::connect(address)?, method, path, token)
}

/// Gets a path as [`ask_secure`] does, from another loopback address of this machine.
pub fn get_secure_from(
    source: Ipv4Addr,
    address: &str,
    path: &str,
    token: &str,
) -> Result<SecureAnswer> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let connect = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        anyhow::Ok(socket.connect(address.parse::<SocketAddr>()?).await?)
    };
    let stream = runtime.block_on(connect)?.into_std()?;
    stream.set_nonblocking(false)?;
    exchange_secure(stream, "GET", path, Some(token))
}

fn exchange_secure(
    stream: TcpStream,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> Result<SecureAnswer> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost")?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream
        .sock
        .set_read_timeout(Some(Duration::from_secs(30)))?;
    let headers = token
        .map(|token| format!("authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let (status, body) = exchange(&mut stream, method, path, &headers, "")?;
    let certificates = stream.conn.peer_certificates().unwrap_or_default();
    Ok(SecureAnswer {
        status,
        body,
        certificate: certificates.first().context("no certificate")?.to_vec(),
    })
}

/// A client that accepts every certificate, as a scraper does when the host signs its certificate itself.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the host's metrics as text.
pub fn scrape(address: &str) -> Result<String> {
    let (status, metrics) = ask(address, "GET", "/metrics", "")?;
    ensure!(status == 200, "{status}: {metrics}");
    Ok(metrics)
}

/// Returns the sum over a metric's samples whose labels contain a text.
pub fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let samples = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix(name)?.strip_prefix('{')?;
        let (labels, value) = labels.split_once("} ")?;
        labels.contains(label).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}
