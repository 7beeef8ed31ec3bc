//! An earlier revision of `moody`, with the same parents and an additional Secret for each.

use innkeeper_sdk::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[path = "../../moody/src/parent.rs"]
mod parent;

use parent::Moody;

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Configuration of the plugin. It ignores the mood.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Config {
    /// Text for the ConfigMaps.
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
        let config_map = parent::config_map(request, &parent, &config.says);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": request.name() },
            "stringData": { "touchy": parent.spec.touchy.to_string() },
        });
        let children = [config_map, Child::new("more", &secret)];
        Ok(Outcome::desired(children, Report::new()))
    }
}

innkeeper_sdk::export!(Plugin);
