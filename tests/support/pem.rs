//! PEM encoding for certificates and keys.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Encodes a PEM block with this label, such as `CERTIFICATE`.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}
