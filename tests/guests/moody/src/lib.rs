//! A plugin that works or does not as its configuration says, for the tests of one revision after another.

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

/// The configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What the guest does.
    mood: Mood,
    /// What stands in the ConfigMaps.
    #[serde(default)]
    says: String,
}

/// What the guest does.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mood {
    /// Answers with a ConfigMap.
    Good,
    /// Answers that no child is desired.
    Nothing,
    /// Panics.
    Trap,
    /// Panics over touchy parents.
    Touchy,
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
        match config.mood {
            Mood::Nothing => return Ok(Outcome::desired([], Report::new())),
            Mood::Trap => trap(),
            Mood::Touchy if parent.spec.touchy => trap(),
            Mood::Good | Mood::Touchy => {}
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": request.name() },
            "data": { "says": config.says, "note": parent.spec.note },
        });
        let child = Child::new("only", &object);
        Ok(Outcome::desired([child], Report::new()))
    }
}

#[expect(clippy::panic, reason = "this is what the guest is for")]
fn trap() -> ! {
    panic!("in a bad mood")
}

innkeeper_sdk::export!(Plugin);
