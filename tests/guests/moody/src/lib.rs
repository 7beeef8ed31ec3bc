//! A plugin whose configuration decides if it works, for the tests of successive revisions.

use innkeeper_sdk::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod parent;

use parent::Moody;

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Configuration of the plugin.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Behaviour of the guest.
    mood: Mood,
    /// Text for the ConfigMaps.
    #[serde(default)]
    says: String,
}

/// Behaviour of the guest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mood {
    /// Answers with a ConfigMap.
    Good,
    /// Answers without children.
    Nothing,
    /// Panics.
    Trap,
    /// Panics for touchy parents.
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
        let child = parent::config_map(request, &parent, &config.says);
        Ok(Outcome::desired([child], Report::new()))
    }
}

#[expect(clippy::panic, reason = "the purpose of the guest")]
fn trap() -> ! {
    panic!("in a bad mood")
}

innkeeper_sdk::export!(Plugin);
