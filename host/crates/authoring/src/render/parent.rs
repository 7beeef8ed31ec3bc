//! Parent fields that an API server would set.

use innkeeper_model::{Manifest, Phase};
use serde_json::{Value, json};

use crate::document::Document;

/// The UID for a parent that was never in a cluster.
pub(crate) const UID: &str = "00000000-0000-4000-8000-000000000000";

/// A parent with all fields that an API server sets.
pub(super) struct Parent {
    pub(super) document: Document,
    /// True if the file contains a UID: children then refer to the parent by UID, else by kind and name.
    pub(super) has_uid: bool,
}

/// Sets the missing fields.
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

/// Adds the finalizer: a host runs the finalize phase only for parents that have it.
fn add_finalizer(document: &mut Document, finalizer: &str) {
    if let Some(Value::Array(finalizers)) = document
        .object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("finalizers"))
        && !finalizers.iter().any(|existing| existing == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

/// Formats a time as the API server does, in whole seconds.
fn timestamp(now_ms: u64) -> Value {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .unwrap_or(jiff::Timestamp::MAX)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
        .into()
}
