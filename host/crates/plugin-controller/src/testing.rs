//! Declarations for tests.

use serde_json::{Value, json};

use crate::resource::{Declared, Plugin};

/// Declares a Plugin with a source, granted parents, and more spec fields.
pub(crate) fn declared(more: Value) -> Declared {
    let mut spec = json!({
        "source": {"file": {"path": "web.wasm"}},
        "grants": {"parents": [{"group": "example.com", "kind": "Web"}]},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web"}, "spec": spec,
    });
    Plugin::read(&plugin.to_string())
        .unwrap()
        .declared()
        .unwrap()
}
