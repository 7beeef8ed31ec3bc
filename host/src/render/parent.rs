//! What an API server would have given the parent.

use innkeeper_model::{Manifest, Phase};
use serde_json::{Value, json};

use super::document::Document;

/// The UID of a parent that was never in a cluster.
pub(super) const UID: &str = "00000000-0000-4000-8000-000000000000";

/// A parent, and whether it was ever in a cluster.
pub(super) struct Parent {
    pub(super) document: Document,
    /// Whether children are told by the parent's UID; else by its kind and name.
    pub(super) has_uid: bool,
}

/// Fills in what is missing.
pub(super) fn complete(
    mut document: Document,
    manifest: &Manifest,
    phase: Phase,
    now_ms: u64,
) -> Parent {
    let has_uid = document.metadata("uid").is_some();
    let now = timestamp(now_ms);
    document.default_metadata("uid", UID.into());
    document.default_metadata("generation", json!(1));
    document.default_metadata("creationTimestamp", now.clone());
    if phase == Phase::Finalize {
        document.default_metadata("deletionTimestamp", now);
        document.default_metadata("finalizers", json!([]));
        add_finalizer(&mut document, &manifest.name.finalizer());
    }
    Parent { document, has_uid }
}

/// Only a parent with the finalizer ever gets such a pass.
fn add_finalizer(document: &mut Document, finalizer: &str) {
    if let Some(Value::Array(finalizers)) = document
        .object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("finalizers"))
        && !finalizers.iter().any(|one| one == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

/// A time as the API server writes it, in whole seconds.
fn timestamp(now_ms: u64) -> Value {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .unwrap_or(jiff::Timestamp::MAX)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
        .into()
}
