//! The admin server's certificate: the user's, reloaded when its files change, or a self-signed one.
//!
//! The self-signed one proves nothing, but the encryption hides callers' tokens from listeners. It never expires, because
//! it lives only as long as the process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        pem::{self, PemObject as _},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{task::spawn_blocking, time::interval};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::args::CertificateFiles;
use innkeeper_model::error_chain;

/// Interval of checks for changed files. Mounted Secrets lag their objects by about a minute, and certificates are renewed
/// long before they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The name in a self-signed certificate.
const SELF_SIGNED_NAME: &str = "localhost";

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A file cannot be read.
    #[error("failed to read {}: give readable files with --admin-tls-cert and --admin-tls-key", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file contains no certificate or key in PEM form.
    #[error("failed to parse {}: it must contain {content} in PEM form", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The expected content.
        content: &'static str,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The key does not belong to the certificate, or has an unknown type.
    #[error(
        "failed to use the key {} with the certificate {}: give the key of this certificate (RSA, P-256, P-384 or Ed25519)",
        files.key.display(), files.certificate.display()
    )]
    Use {
        /// The files.
        files: CertificateFiles,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// Creating a self-signed certificate failed.
    #[error("failed to create a certificate: give one with --admin-tls-cert and --admin-tls-key")]
    Create(#[source] rcgen::Error),
    /// The self-signed certificate cannot be used.
    #[error("failed to set up TLS for the admin server")]
    SetUp(#[source] rustls::Error),
}

/// The content of the files.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The current certificate.
#[derive(Debug)]
struct Certificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// TLS for the admin server.
pub(super) struct Tls {
    certificate: Arc<Certificate>,
    acceptor: TlsAcceptor,
    source: Option<Source>,
}

/// The files and their last content.
struct Source {
    files: CertificateFiles,
    content: Pair,
}

impl Tls {
    /// Reads the certificate, or creates one.
    pub(super) fn new(files: Option<CertificateFiles>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let (first, source) = match files {
            Some(files) => {
                let content = Pair::read(&files)?;
                let certificate = content.parse(&files, &provider)?;
                (certificate, Some(Source { files, content }))
            }
            None => (self_signed(&provider)?, None),
        };
        let certificate = Arc::new(Certificate(RwLock::new(Arc::new(first))));
        let resolver: Arc<dyn ResolvesServerCert> = certificate.clone();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::SetUp)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        Ok(Self {
            certificate,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            source,
        })
    }

    /// Accepts connections.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Replaces the certificate whenever its files change. Reports an unusable one once, and keeps the last good one.
    pub(super) async fn reload(self) {
        let Some(mut source) = self.source else {
            return;
        };
        let provider = ring::default_provider();
        let mut ticks = interval(CHECK_INTERVAL);
        let mut reported = None;
        loop {
            ticks.tick().await;
            let files = source.files.clone();
            // A hanging file system must not block probes.
            let Ok(read) = spawn_blocking(move || Pair::read(&files)).await else {
                return;
            };
            let renewed = read.and_then(|pair| {
                // By content: the kubelet updates a mounted Secret by replacing a symbolic link.
                let is_new = pair != source.content;
                let parse = || pair.parse(&source.files, &provider);
                let parsed = is_new.then(parse).transpose()?;
                Ok(parsed.map(|certificate| (pair, certificate)))
            });
            match renewed {
                Ok(None) => reported = None,
                Ok(Some((pair, certificate))) => {
                    *self.certificate.0.write() = Arc::new(certificate);
                    source.content = pair;
                    reported = None;
                    info!("replaced the admin server's certificate");
                }
                // Also if only one of the two files is replaced yet: the next check finds both.
                Err(error) => {
                    let error = error_chain(&error).to_string();
                    if reported.as_ref() != Some(&error) {
                        warn!(
                            error,
                            "failed to replace the admin server's certificate: the last one stays in use"
                        );
                        reported = Some(error);
                    }
                }
            }
        }
    }
}

impl Pair {
    fn read(files: &CertificateFiles) -> Result<Self, Error> {
        let read = |path: &Path| {
            fs::read(path).map_err(|source| Error::Read {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn parse(
        &self,
        files: &CertificateFiles,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, Error> {
        let failed = |path: &Path, content| {
            let path = path.to_owned();
            move |source| Error::Parse {
                path,
                content,
                source,
            }
        };
        let failed_certificate = || failed(&files.certificate, "a certificate");
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed_certificate())?;
        if chain.is_empty() {
            return Err(failed_certificate()(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(failed(&files.key, "a private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::Use {
            files: files.clone(),
            source,
        })
    }
}

fn self_signed(provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let pair =
        rcgen::generate_simple_self_signed([SELF_SIGNED_NAME.to_owned()]).map_err(Error::Create)?;
    let key = PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
    let chain = vec![pair.cert.der().clone()];
    CertifiedKey::from_der(chain, key.into(), provider).map_err(Error::SetUp)
}
