//! The trusted certificate authorities.

use std::{error::Error, io, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::Failure;

/// Trusts the authorities of the system and those given.
pub(super) fn trust(certificates_pem: &[u8]) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    // The system may have no certificates or some invalid ones: then servers that need them are not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let known = roots.len();
    for certificate in CertificateDer::pem_slice_iter(certificates_pem) {
        let certificate = certificate.map_err(|source| Failure::Certificates {
            source: Box::new(source),
        })?;
        roots
            .add(certificate)
            .map_err(|source| Failure::Certificates {
                source: Box::new(source),
            })?;
    }
    if !certificates_pem.is_empty() && roots.len() == known {
        return Err(Failure::Certificates {
            source: "there is none".into(),
        });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| Failure::Certificates {
            source: Box::new(source),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Returns true if a connection ended because no trusted authority signed the server's certificate.
pub(super) fn is_untrusted(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(next) = cause {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) =
            next.downcast_ref()
        {
            return true;
        }
        // `io::Error` does not return the error inside it as its source.
        let held = next.downcast_ref().and_then(io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => next.source(),
        };
    }
    false
}
