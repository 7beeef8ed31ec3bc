//! What the cluster serves, as far as a pass has to know it.

use std::{fmt, sync::Arc};

use super::{Gvk, Scope};

/// A kind as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The kind in the version that was asked for.
    pub kind: Gvk,
    /// The lower-case plural, as in URLs.
    pub plural: Arc<str>,
    /// Where its objects live.
    pub scope: Scope,
}

/// What the cluster serves now.
pub trait Resources: Send + Sync {
    /// The kind in exactly this version; none if the cluster does not serve it.
    fn resource(&self, kind: &Gvk) -> Option<Resource>;
}

/// The key of every keyed hash that the host writes into the cluster or hands to a guest.
///
/// A plain hash of a weak password could be guessed; one with this key cannot.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Takes a key as it is; 32 bytes are as strong as the hash.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Never shows the key.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}
