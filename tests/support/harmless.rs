//! Handmade components with a valid description: a plugin without passes, one that spins in them, and the same plugin
//! with a different digest.

use serde_json::{Value, json};

use crate::handmade::{describing, describing_and_spinning, with_section};

/// The plugin with a custom section that no reader uses; each mark results in a different digest.
pub fn marked(plugin: &[u8], mark: u32) -> Vec<u8> {
    with_section(plugin, "mark", &mark.to_le_bytes())
}

/// A plugin for parents of kind `Idle`, version `v1`, in this group, with ConfigMaps as children.
///
/// Only `describe` works: `reconcile` traps, so do not create such a parent.
pub fn idle(group: &str) -> Vec<u8> {
    describing(&Image::manifest(group).data())
}

/// The same plugin with a `reconcile` that never returns.
pub fn spinning(group: &str) -> Vec<u8> {
    describing_and_spinning(&Image::manifest(group).data())
}

/// The CRD for the kind `Idle` in this group.
pub fn definition(group: &str) -> Value {
    let conditions = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object", "required": ["type"], "properties": {"type": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object"},
            "status": {"type": "object", "properties": {"conditions": conditions}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("idles.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Idle", "plural": "idles", "singular": "idle", "listKind": "IdleList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// The initial memory for a guest whose `describe` returns address 0.
struct Image {
    bytes: Vec<u8>,
}

impl Image {
    /// The first address behind the manifest; texts and lists follow.
    const REST: usize = 64;

    fn manifest(group: &str) -> Self {
        let mut image = Self {
            bytes: vec![0; Self::REST],
        };
        let parent = image.record(&[group, "v1", "Idle", "idles"], 36, None);
        let child = image.record(&["v1", "ConfigMap"], 32, Some(16));
        let words = [
            image.text("idle"),
            image.text("1.0.0"),
            (parent, 1),
            (0, 0),
            (child, 1),
        ];
        for (at, (address, length)) in words.into_iter().enumerate() {
            image.put(at * 8, address);
            image.put(at * 8 + 4, length);
        }
        image
    }

    /// Adds a record of `size` bytes that begins with texts, with `true` at the offset `truth` if there is one; returns
    /// the record's address.
    fn record(&mut self, texts: &[&str], size: usize, truth: Option<usize>) -> usize {
        let texts: Vec<_> = texts.iter().map(|text| self.text(text)).collect();
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        for (field, (address, length)) in texts.into_iter().enumerate() {
            self.put(at + field * 8, address);
            self.put(at + field * 8 + 4, length);
        }
        if let Some(truth) = truth {
            self.bytes[at + truth] = 1;
        }
        at
    }

    fn text(&mut self, text: &str) -> (usize, usize) {
        let at = self.bytes.len();
        self.bytes.extend(text.bytes());
        (at, text.len())
    }

    fn put(&mut self, at: usize, word: usize) {
        let word = u32::try_from(word).expect("addresses have 32 bits");
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Returns the memory as a data field for a core module.
    fn data(&self) -> String {
        let bytes = self.bytes.iter().map(|byte| format!("\\{byte:02x}"));
        format!("(data (i32.const 0) \"{}\")", bytes.collect::<String>())
    }
}
