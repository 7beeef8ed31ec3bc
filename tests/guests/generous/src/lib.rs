//! An earlier revision of `moody`, with the same parents and an additional Secret for each.

use innkeeper_sdk::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[path = "../../moody/src/parent.rs"]
mod parent;

use parent::Moody;

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Moodies;

/// Configuration of the plugin. It ignores the mood.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Config {
    /// Text for the ConfigMaps.
    #[serde(default)]
    says: String,
}

impl Reconciler for Moodies {
    type Parent = Moody;
    type Children = ();
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("moody", env!("CARGO_PKG_VERSION"))
            .parent::<Moody>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .untyped_child(ChildKind::new("v1", "Secret"))
    }

    fn reconcile(parent: &Moody, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let config_map = parent::config_map(cx, parent, &cx.config().says);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": cx.name() },
            "stringData": { "touchy": parent.spec.touchy.to_string() },
        });
        let children = [config_map, Child::untyped("more", &secret)];
        Ok(Desired::new().children(children).into())
    }
}

innkeeper_sdk::export!(Moodies);
