//! What `moody` was before it made fewer kinds: a plugin with the same parents and a Secret more for each.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Has one ConfigMap.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Moody",
    plural = "moodies",
    namespaced
)]
pub(crate) struct MoodySpec {
    /// Whether the guest breaks down over it in a touchy mood.
    #[serde(default)]
    touchy: bool,
    /// What stands in the ConfigMap beside what the configuration says.
    #[serde(default)]
    note: String,
}

/// The configuration, of which nothing matters but the text.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Config {
    /// What stands in the ConfigMaps.
    #[serde(default)]
    says: String,
}

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("moody", env!("CARGO_PKG_VERSION"))
            .parent::<Moody>()
            .child_kind("v1", "ConfigMap", true)
            .child_kind("v1", "Secret", true)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Moody = request.parent()?;
        let config: Config = request.config()?;
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": request.name() },
            "data": { "says": config.says, "note": parent.spec.note },
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": request.name() },
            "stringData": { "touchy": parent.spec.touchy.to_string() },
        });
        let children = [Child::new("only", &config_map), Child::new("more", &secret)];
        Ok(Outcome::desired(children, Report::new()))
    }
}

innkeeper_sdk::export!(Plugin);
