//! A later revision of `moody`, whose parents have one more optional field.
//!
//! The configuration decides whether that field is required.

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

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Moodies;

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

impl Reconciler for Moodies {
    type Parent = Moody;
    type Children = ();
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("moody", env!("CARGO_PKG_VERSION"))
            .parent::<Moody>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
    }

    fn reconcile(parent: &Moody, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let config = cx.config();
        if config.requires_owner && parent.spec.owner.is_none() {
            return Err(Fault::invalid("spec: missing field `owner`"));
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": cx.name() },
            "data": {
                "says": &config.says,
                "note": &parent.spec.note,
                "owner": parent.spec.owner.clone().unwrap_or_default(),
            },
        });
        Ok(Desired::new().child(Child::untyped("only", &object)).into())
    }
}

innkeeper_sdk::export!(Moodies);
