//! The trusted certificate authorities.

use std::{error::Error, io, iter, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::{Failure, FailureKind};

/// Trusts the system's authorities and the given ones.
pub fn trust(certificates_pem: &[u8]) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    // The system may have no certificates or some invalid ones: then servers that need them are not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let system_roots = roots.len();
    let invalid = |source: Box<dyn Error + Send + Sync>| {
        let message = "failed to use the certificates of trusted authorities: give them as PEM";
        FailureKind::SettingsInvalid.because(message, source)
    };
    for certificate in CertificateDer::pem_slice_iter(certificates_pem) {
        let certificate = certificate.map_err(|error| invalid(error.into()))?;
        roots
            .add(certificate)
            .map_err(|error| invalid(error.into()))?;
    }
    // Without this error, the missing trust would show only at the first connection.
    if !certificates_pem.is_empty() && roots.len() == system_roots {
        return Err(invalid("there is none".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Returns why a server's certificate is not accepted; none if a connection failed for another reason.
pub fn certificate_error(error: &reqwest::Error) -> Option<&CertificateError> {
    let first: &(dyn Error + 'static) = error;
    let mut causes = iter::successors(Some(first), |&cause| {
        // `io::Error` does not return the error inside it as its source.
        match cause.downcast_ref().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        }
    });
    causes.find_map(|cause| match cause.downcast_ref()? {
        rustls::Error::InvalidCertificate(reason) => Some(reason),
        _ => None,
    })
}
