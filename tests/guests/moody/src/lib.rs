//! A plugin whose configuration decides whether it works, for tests with successive revisions.

use innkeeper_sdk::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod parent;

use parent::Moody;

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Moodies;

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
        match config.mood {
            Mood::Nothing => return Ok(Desired::new().into()),
            Mood::Trap => trap(),
            Mood::Touchy if parent.spec.touchy => trap(),
            Mood::Good | Mood::Touchy => {}
        }
        let child = parent::config_map(cx, parent, &config.says);
        Ok(Desired::new().child(child).into())
    }
}

#[expect(clippy::panic, reason = "the purpose of the guest")]
fn trap() -> ! {
    panic!("in a bad mood")
}

innkeeper_sdk::export!(Moodies);
