//! The parents of `moody`, and the child that every revision creates for them.
//!
//! `generous` includes this file, because it is an earlier revision of the same plugin.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A parent with one ConfigMap.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Moody",
    plural = "moodies",
    namespaced
)]
pub(crate) struct MoodySpec {
    /// Let the guest panic for this parent if its mood is touchy.
    #[serde(default)]
    pub(crate) touchy: bool,
    /// Text for the ConfigMap, beside that of the configuration.
    #[serde(default)]
    note: String,
}

pub(crate) fn config_map(request: &Request, parent: &Moody, says: &str) -> Child {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": request.name() },
        "data": { "says": says, "note": parent.spec.note },
    });
    Child::untyped("only", &object)
}
