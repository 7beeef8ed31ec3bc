//! A later revision of `moody`, whose parents have one optional field more.
//!
//! Its configuration decides if it requires that field.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
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
    /// Ignored.
    #[serde(default)]
    touchy: bool,
    /// Text for the ConfigMap, beside that of the configuration.
    #[serde(default)]
    note: String,
    /// Owner, who is also in the ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Configuration of the plugin. It ignores the mood.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Text for the ConfigMaps.
    #[serde(default)]
    says: String,
    /// Returns Invalid for parents without an owner.
    #[serde(default)]
    requires_owner: bool,
}

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("moody", env!("CARGO_PKG_VERSION"))
            .parent::<Moody>()
            .child_kind("v1", "ConfigMap", true)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Moody = request.parent()?;
        let config: Config = request.config()?;
        if config.requires_owner && parent.spec.owner.is_none() {
            return Err(Fault::invalid("spec: missing field `owner`"));
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": request.name() },
            "data": {
                "says": config.says,
                "note": parent.spec.note,
                "owner": parent.spec.owner.unwrap_or_default(),
            },
        });
        Ok(Outcome::desired(
            [Child::new("only", &object)],
            Report::new(),
        ))
    }
}

innkeeper_sdk::export!(Plugin);
