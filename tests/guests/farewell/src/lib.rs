//! A plugin that cleans up before the parent is deleted, for finalizer tests.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Farewells;

/// A parent with one ConfigMap. Its spec decides how it is finalized.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Farewell",
    plural = "farewells",
    namespaced
)]
pub(crate) struct FarewellSpec {
    /// Answer of the guest while the parent is being deleted.
    end: End,
}

/// Answer of the guest while the parent is being deleted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// States a second ConfigMap, and answers `finalized` once that exists.
    Goodbye,
    /// As `goodbye`, but answers `finalized` at once where nothing can be created any more.
    GoodbyeOrNothing,
    /// Leaves the children as they are.
    Keep,
    /// Asks to be tried again.
    Retry,
    /// Answers that the parent is invalid.
    Invalid,
    /// Panics.
    Trap,
}

impl Reconciler for Farewells {
    type Parent = Farewell;
    type Children = ();
    type Config = NoConfig;

    fn describe() -> Manifest {
        Manifest::new("farewell", env!("CARGO_PKG_VERSION"))
            .parent::<Farewell>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .finalize()
    }

    fn reconcile(_: &Farewell, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        Ok(Desired::new().child(child(cx, "hello")).into())
    }

    fn finalize(parent: &Farewell, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        match parent.spec.end {
            End::Goodbye | End::GoodbyeOrNothing if cx.children.by_key("goodbye").is_some() => {
                Ok(Answer::finalized(Report::new()))
            }
            End::GoodbyeOrNothing if cx.namespace_terminating => {
                Ok(Answer::finalized(Report::new()))
            }
            End::Goodbye | End::GoodbyeOrNothing => {
                let children = ["hello", "goodbye"].map(|key| child(cx, key));
                Ok(Desired::new().children(children).into())
            }
            End::Keep => Ok(Answer::keep(Report::new())),
            End::Retry => Err(Fault::retry("told to try again")),
            End::Invalid => Err(Fault::invalid("spec.end: told to be wrong")),
            End::Trap => trap(),
        }
    }
}

fn child(request: &Request, key: &str) -> Child {
    Child::untyped(key, &config_map(request, key))
}

fn config_map(request: &Request, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("{}-{key}", request.name()) },
        "data": { "said": key },
    })
}

#[expect(clippy::panic, reason = "the purpose of the guest")]
fn trap() -> ! {
    panic!("told to trap")
}

innkeeper_sdk::export!(Farewells);
