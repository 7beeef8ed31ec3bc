//! A plugin that has work to do before its parent goes, for the tests of finalizers.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Has one ConfigMap, and ends as it is told.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Farewell",
    plural = "farewells",
    namespaced
)]
pub(crate) struct FarewellSpec {
    /// What the guest answers while the parent is being deleted.
    end: End,
}

/// What the guest answers while the parent is being deleted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// Desires a second ConfigMap, and lets the parent go once that is there.
    Goodbye,
    /// Leaves the children as they are.
    Keep,
    /// Asks to be tried again.
    Retry,
    /// Says that the parent is wrong.
    Invalid,
    /// Panics.
    Trap,
}

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("farewell", env!("CARGO_PKG_VERSION"))
            .parent::<Farewell>()
            .child_kind("v1", "ConfigMap", true)
            .finalize()
    }

    fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
        Ok(Outcome::desired([child(request, "hello")], Report::new()))
    }

    fn finalize(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Farewell = request.parent()?;
        match parent.spec.end {
            End::Goodbye if request.children.by_key("goodbye").is_some() => {
                Ok(Outcome::finalized(Report::new()))
            }
            End::Goodbye => {
                let children = ["hello", "goodbye"].map(|key| child(request, key));
                Ok(Outcome::desired(children, Report::new()))
            }
            End::Keep => Ok(Outcome::keep(Report::new())),
            End::Retry => Err(Fault::retry("told to try again")),
            End::Invalid => Err(Fault::invalid("spec.end: told to be wrong")),
            End::Trap => trap(),
        }
    }
}

fn child(request: &Request, key: &str) -> Child {
    Child::new(key, &config_map(request, key))
}

fn config_map(request: &Request, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("{}-{key}", request.name()) },
        "data": { "said": key },
    })
}

#[expect(clippy::panic, reason = "this is what the guest is for")]
fn trap() -> ! {
    panic!("told to trap")
}

innkeeper_sdk::export!(Plugin);
