//! The kinds that the cluster serves, as far as a pass needs to know them.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Digest, Gvk, Scope};

/// A kind as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The kind in the requested version.
    pub kind: Gvk,
    /// The lower-case plural, as in URLs.
    pub plural: Arc<str>,
    /// The scope of the kind.
    pub scope: Scope,
}

/// The kinds that the cluster serves now.
pub trait Resources: Send + Sync {
    /// Returns the resource of exactly this version; `None` if the cluster does not serve it.
    fn resource(&self, kind: &Gvk) -> Option<Resource>;
}

/// The key of every keyed hash that the host writes into the cluster or passes to a guest.
///
/// A reader of a plain hash could guess a weak password by trying values; without the key that is not possible.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Makes a key from bytes; 32 bytes make it as strong as the hash.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Computes the keyed hash of a text: its HMAC-SHA-256.
    ///
    /// The first bytes have to differ between uses, so that no use gives away a hash of another one.
    ///
    /// # Panics
    ///
    /// Never: an HMAC takes a key of any length.
    pub fn mac(&self, text: &[u8]) -> Digest {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("an HMAC should take a key of any length");
        mac.update(text);
        Digest::new(mac.finalize().into_bytes().into())
    }
}

/// Prints a placeholder, so that the key never reaches a log.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}
