//! Hashes for names and annotations, and hashed Secrets and ConfigMaps, whose values stay with the host.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

/// A Secret or ConfigMap read with [`Access::Hash`](crate::manifest::Access::Hash).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Hashed {
    /// `Secret` or `ConfigMap`.
    pub kind: String,
    /// The object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Secret's type.
    #[serde(default, rename = "type")]
    pub type_: Option<String>,
    /// Per data key `hmac-sha256:<hex>` instead of the value.
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
    /// The same for the binary keys of a ConfigMap.
    #[serde(default, rename = "binaryData", deserialize_with = "null_as_default")]
    pub binary_data: BTreeMap<String, String>,
}

fn null_as_default<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Hashed {
    /// The object's name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns whether there is a value under this key.
    pub fn has(&self, key: &str) -> bool {
        self.hash_of(key).is_some()
    }

    /// Returns `hmac-sha256:<hex>` for the value under this key. The hash depends on the object's UID: an object that is
    /// deleted and recreated has another hash for the same value.
    pub fn hash_of(&self, key: &str) -> Option<&str> {
        self.data
            .get(key)
            .or_else(|| self.binary_data.get(key))
            .map(String::as_str)
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.merged().into_keys()
    }

    /// The lines `<Kind>/<name>/<key>=<hash>` of all keys, sorted.
    pub fn lines(&self) -> Vec<String> {
        self.merged()
            .iter()
            .map(|(key, hash)| self.line(key, hash))
            .collect()
    }

    /// The lines of the named keys that exist, sorted.
    pub fn hash_lines_for(&self, keys: &[&str]) -> Vec<String> {
        self.merged()
            .into_iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(key, hash)| self.line(key, hash))
            .collect()
    }

    fn line(&self, key: &str, hash: &str) -> String {
        format!("{}/{}/{key}={hash}", self.kind, self.name())
    }

    fn merged(&self) -> BTreeMap<&str, &str> {
        self.data
            .iter()
            .chain(&self.binary_data)
            .map(|(key, hash)| (key.as_str(), hash.as_str()))
            .collect()
    }
}

/// SHA-256 in hex over all keys of these objects, in any order; an object named twice counts once.
///
/// For a Pod annotation that changes with the Pod's Secrets and ConfigMaps. Recreating such an object replaces the Pods
/// once, even with the same values.
pub fn content_hash<'a>(objects: impl IntoIterator<Item = &'a Hashed>) -> String {
    hash_lines(objects.into_iter().flat_map(Hashed::lines))
}

/// SHA-256 in hex of these lines, sorted, each once, joined by line feeds.
pub fn hash_lines(lines: impl IntoIterator<Item = String>) -> String {
    let sorted: std::collections::BTreeSet<String> = lines.into_iter().collect();
    sha256_hex(sorted.into_iter().collect::<Vec<_>>().join("\n"))
}

/// SHA-256 in lower-case hex.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    Sha256::digest(bytes)
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(HEX[usize::from(digit)]))
        .collect()
}

/// The first 8 hex digits of a SHA-256, for names.
///
/// ```
/// assert_eq!(innkeeper_sdk::hash::short_hash("example.com"), "a379a6f6");
/// ```
pub fn short_hash(bytes: impl AsRef<[u8]>) -> String {
    let mut hex = sha256_hex(bytes);
    hex.truncate(8);
    hex
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Hashed, content_hash, sha256_hex};

    fn secret(name: &str, data: serde_json::Value) -> Hashed {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data,
        }))
        .unwrap()
    }

    #[test]
    fn hashes_the_sorted_lines() {
        let a = secret("a", json!({"y": "hmac-sha256:2", "x": "hmac-sha256:1"}));
        let b = secret("b", json!({"x": "hmac-sha256:3"}));
        let text = "Secret/a/x=hmac-sha256:1\nSecret/a/y=hmac-sha256:2\nSecret/b/x=hmac-sha256:3";
        assert_eq!(content_hash([&b, &a]), sha256_hex(text));
        assert_eq!(content_hash([&a, &b, &a]), sha256_hex(text));
        assert_eq!(a.hash_lines_for(&["x", "z"]), ["Secret/a/x=hmac-sha256:1"]);
    }

    #[test]
    fn depends_on_the_name() {
        let data = json!({"x": "hmac-sha256:1"});
        assert_ne!(
            content_hash([&secret("a", data.clone())]),
            content_hash([&secret("b", data)])
        );
    }

    #[test]
    fn knows_the_binary_keys_of_a_config_map() {
        let map: Hashed = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": null, "binaryData": {"b": "hmac-sha256:1"},
        }))
        .unwrap();
        assert!(map.has("b"));
        assert_eq!(map.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn is_sha_256() {
        assert_eq!(
            sha256_hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        );
    }
}
