//! The kinds that the cluster serves, as far as a pass needs to know them.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{GroupKind, Gvk, ObjectId, Scope, hex};

/// A kind as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The kind in the requested version.
    pub kind: Gvk,
    /// The lower-case plural, as in URLs.
    pub plural: Arc<str>,
    /// The kind's scope.
    pub scope: Scope,
}

impl Resource {
    /// The objects' URL path, in all namespaces or in one; a cluster-scoped kind is in none.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let Self {
            kind,
            plural,
            scope,
        } = self;
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let version = kind.api_version();
        match namespace.filter(|_| *scope == Scope::Namespaced) {
            Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
            None => format!("/{root}/{version}/{plural}"),
        }
    }
}

/// The kinds that the cluster serves now.
pub trait Resources: Send + Sync {
    /// Returns the resource in exactly this version; `None` if the cluster does not serve it.
    fn resource(&self, kind: &Gvk) -> Option<Resource>;

    /// Returns true if one of this host's plugins serves parents of the kind; without a host none does.
    fn has_parents(&self, _kind: &GroupKind) -> bool {
        false
    }
}

/// The key for every keyed hash that the host writes into the cluster or passes to a guest.
///
/// From a plain hash, a reader could guess a weak password by trying values; without the key that is not possible.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Creates a key from bytes; with 32 bytes it is as strong as the hash.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Hashes texts with the key, and returns hexadecimal digits.
    ///
    /// `usage` names the hash's use, so that no hash for one use is valid in another.
    pub fn hash(&self, usage: &str, texts: &[&str]) -> String {
        let mut mac = self.mac();
        for text in [usage].iter().chain(texts) {
            let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
            // Otherwise `a`, `bc` and `ab`, `c` would be the same bytes.
            mac.update(&length.to_be_bytes());
            mac.update(text.as_bytes());
        }
        hex(&mac.finalize().into_bytes())
    }

    /// Returns the value of [`ANNOTATION_RETAINED_FOR`](super::ANNOTATION_RETAINED_FOR) on a child:
    /// `<group>/<kind>/<namespace>/<name> v1:<hash>`, the parent's identity and the host's proof.
    ///
    /// The hash covers both identities. Without it, a claim template of a StatefulSet could make any object a child of
    /// any parent, and a child could be copied.
    pub fn retained_for(&self, parent: &ObjectId, child: &ObjectId) -> String {
        self.with_proof(&parent.identity(), child)
    }

    /// Returns the parent's identity from the annotation [`ANNOTATION_RETAINED_FOR`](super::ANNOTATION_RETAINED_FOR) on
    /// a child; none if this key did not make the value for this child.
    pub fn verified<'a>(&self, value: &'a str, child: &ObjectId) -> Option<&'a str> {
        let (identity, _) = value.split_once(' ')?;
        (self.with_proof(identity, child) == value).then_some(identity)
    }

    fn mac(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(self.as_bytes()).expect("an HMAC should take a key of any length")
    }

    fn with_proof(&self, parent: &str, child: &ObjectId) -> String {
        let hash = self.hash("retained-for", &[parent, &child.identity()]);
        format!("{parent} v1:{hash}")
    }
}

/// Prints a placeholder, so that the key never reaches a log.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_uses_of_a_hash_cannot_be_shifted() {
        let key = HashKey::new(*b"key");
        let hash = key.hash("use", &["a", "bc"]);
        assert_eq!(hash.len(), 64);
        for (usage, texts) in [
            ("use", &["ab", "c"][..]),
            ("use", &["a", "b", "c"]),
            ("use", &["abc"]),
            ("use", &["a", "bc", ""]),
            ("usea", &["", "bc"]),
            ("other", &["a", "bc"]),
        ] {
            assert_ne!(key.hash(usage, texts), hash, "{usage} {texts:?}");
        }
        assert_ne!(HashKey::new(*b"other").hash("use", &["a", "bc"]), hash);
    }

    #[test]
    fn a_mark_is_valid_for_its_parent_child_and_key_only() {
        let id = |text| ObjectId::parse_identity(text).unwrap();
        let parent = id("g/Web/demo/shop");
        let child = id("/Secret/demo/a");
        let key = HashKey::new(*b"key");
        let value = key.retained_for(&parent, &child);
        assert_eq!(key.verified(&value, &child), Some("g/Web/demo/shop"));
        for other in ["/Secret/demo/b", "/Secret/other/a", "/ConfigMap/demo/a"] {
            assert_eq!(key.verified(&value, &id(other)), None, "{other}");
        }
        let proof = value.split_once(' ').unwrap().1;
        for forged in [
            "",
            "g/Web/demo/shop",
            "g/Web/demo/shop ",
            &format!("g/Web/demo/other {proof}"),
            &format!("{value} "),
            &format!(" {proof}"),
        ] {
            assert_eq!(key.verified(forged, &child), None, "{forged}");
        }
        assert_eq!(HashKey::new(*b"other").verified(&value, &child), None);
    }
}
