//! A plugin that misbehaves as the parent's spec demands, for tests of how the host reacts.
//!
//! It uses the SDK. Answers that the SDK makes impossible come from `garbage`.

use std::hint::black_box;

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Unrulies;

/// The key of the child with a made-up name.
const MADE_UP: &str = "made-up";

/// A parent whose spec decides on the behaviour of the guest.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Unruly",
    plural = "unrulies",
    namespaced,
    status = "UnrulyStatus"
)]
pub(crate) struct UnrulySpec {
    /// Behaviour of the guest.
    behaviour: Behaviour,
    /// Numbers for the first ConfigMap of a good answer.
    numbers: Option<Vec<f64>>,
}

/// Status of the parent, which no answer has: only the host's conditions are ever stored.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub(crate) struct UnrulyStatus {
    /// Field that the type requires.
    address: String,
}

/// Behaviour of the guest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behaviour {
    /// Answers with two ConfigMaps.
    Good,
    /// Answers with one ConfigMap of a made-up name, unless it sees one already.
    MadeUpName,
    /// States a ConfigMap with other content in every pass: the time.
    Restless,
    /// States a ConfigMap with other content in every pass: random numbers.
    Random,
    /// States a ConfigMap whose content alternates between two values.
    Flip,
    /// States a ConfigMap with other content in every pass, and sends sixty events about it.
    Chatter,
    /// States ten ConfigMaps of a hundred kilobytes.
    Megabyte,
    /// Answers with a status that its definition does not allow.
    UnknownStatus,
    /// Answers without children: the only case in which the host deletes all of them.
    Nothing,
    /// Leaves the children as they are.
    Keep,
    /// Asks to be tried again.
    Retry,
    /// Answers that the parent is invalid.
    Invalid,
    /// Answers with a fatal fault.
    Fatal,
    /// Panics.
    Trap,
    /// Panics with a message of a megabyte.
    LongTrap,
    /// Never answers.
    Loop,
    /// Allocates memory without end.
    Allocate,
    /// Logs without end.
    Flood,
    /// States a child of a kind that the manifest does not declare.
    UndeclaredKind,
    /// States a child in another namespace.
    OtherNamespace,
    /// States a child with another owner.
    ForeignOwner,
    /// States ten thousand children.
    ManyChildren,
    /// States a child of two megabytes.
    HugeObject,
    /// States almost the maximum size of an answer, and as the last child one that is not allowed.
    Output,
    /// States a parent of the plugin `garbage`, which states one of this plugin.
    Ring,
    /// Answers `finalized` although the parent is not being deleted.
    Finalized,
}

impl Reconciler for Unrulies {
    type Parent = Unruly;
    type Children = ();
    type Config = NoConfig;

    fn describe() -> Manifest {
        Manifest::new("unruly", env!("CARGO_PKG_VERSION"))
            .parent::<Unruly>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .untyped_child(ChildKind::new("test.innkeeper.dev/v1", "Garbage").optional())
    }

    fn reconcile(parent: &Unruly, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let request = cx.request();
        let host = cx.host();
        match parent.spec.behaviour {
            Behaviour::MadeUpName => {
                let name = made_up_name(request, host);
                let child = with(config_map(request, "first"), "name", &name);
                let child = Child::untyped(MADE_UP, &child);
                Ok(Desired::new().child(child).into())
            }
            Behaviour::Keep => Ok(Answer::keep(Report::new())),
            Behaviour::Finalized => Ok(Answer::finalized(Report::new())),
            Behaviour::Retry => Err(Fault::retry("told to try again")),
            Behaviour::Invalid => Err(Fault::invalid("spec.behaviour: told to be wrong")),
            Behaviour::Fatal => Err(Fault::fatal("told to give up")),
            Behaviour::Trap => trap("told to trap"),
            Behaviour::LongTrap => trap(&"told to trap ".repeat(80_000)),
            Behaviour::Loop => spin(),
            Behaviour::Allocate => allocate(),
            Behaviour::Flood => flood(host),
            behaviour => {
                let mut children = children(behaviour, request, host);
                if let (Some(numbers), Some(first)) = (&parent.spec.numbers, children.first_mut()) {
                    first["data"] = json!({ "numbers": json!(numbers).to_string() });
                }
                let children = children
                    .into_iter()
                    .enumerate()
                    .map(|(index, child)| Child::untyped(format!("child-{index}"), &child));
                Ok(Desired::new()
                    .children(children)
                    .report(report(behaviour, host))
                    .into())
            }
        }
    }
}

/// The answer's children. An answer that the host must reject lacks one of the two usual children, so that a test would
/// notice if the host pruned after such an answer.
fn children(behaviour: Behaviour, request: &Request, host: &dyn Host) -> Vec<Value> {
    let first = config_map(request, "first");
    let second = config_map(request, "second");
    match behaviour {
        Behaviour::Restless => vec![with_data(first, host.now_ms().to_string()), second],
        Behaviour::Random | Behaviour::Chatter => vec![with_data(first, random(host)), second],
        Behaviour::Flip => vec![with_data(first, other(request)), second],
        Behaviour::Nothing => Vec::new(),
        Behaviour::Ring => vec![garbage(request)],
        Behaviour::UndeclaredKind => vec![first, secret(request)],
        Behaviour::OtherNamespace => vec![with(first, "namespace", "kube-system")],
        Behaviour::ForeignOwner => vec![with_owner(first)],
        Behaviour::ManyChildren => large(request, 10_000, 1),
        Behaviour::HugeObject => vec![with_data(first, "x".repeat(2_000_000))],
        Behaviour::Megabyte => large(request, 10, 100_000),
        Behaviour::Output => {
            let mut children = large(request, 250, 16_000);
            children.push(secret(request));
            children
        }
        _ => vec![first, second],
    }
}

/// The answer's report.
fn report(behaviour: Behaviour, host: &dyn Host) -> Report {
    match behaviour {
        Behaviour::Chatter => {
            let said = random(host);
            let event = |number| Event::normal("Told", format!("{number} {said}"));
            Report::new().events((0..60).map(event))
        }
        Behaviour::UnknownStatus => Report::new().status(&json!({ "nobody": "knows" })),
        _ => Report::new(),
    }
}

/// The name from an earlier pass if this pass sees the child, else a new one.
fn made_up_name(request: &Request, host: &dyn Host) -> String {
    if let Some(child) = request.children.by_key(MADE_UP) {
        return child.name().to_owned();
    }
    host.random(4)
        .into_iter()
        .fold(request.name().to_owned(), |name, byte| {
            format!("{name}-{byte}")
        })
}

/// A different text in every pass.
fn random(host: &dyn Host) -> String {
    host.random(8)
        .into_iter()
        .map(|byte| byte.to_string())
        .collect()
}

/// Whichever of two texts the first ConfigMap does not have.
fn other(request: &Request) -> String {
    let has_a = request
        .children
        .by_key("child-0")
        .is_some_and(|first| first.object()["data"]["large"] == "a");
    if has_a { "b" } else { "a" }.to_owned()
}

/// This many ConfigMaps with the same size.
fn large(request: &Request, count: usize, bytes: usize) -> Vec<Value> {
    let large = |index: usize| {
        let child = config_map(request, &index.to_string());
        with_data(child, "x".repeat(bytes))
    };
    (0..count).map(large).collect()
}

fn config_map(request: &Request, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("{}-{name}", request.name()) },
        "data": { "name": name },
    })
}

fn secret(request: &Request) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": request.name() },
        "stringData": { "name": "secret" },
    })
}

fn garbage(request: &Request) -> Value {
    json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Garbage",
        "metadata": { "name": format!("{}-g", request.name()) },
        "spec": { "behaviour": "ring" },
    })
}

fn with(mut object: Value, field: &str, value: &str) -> Value {
    object["metadata"][field] = value.into();
    object
}

fn with_owner(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1", "controller": true,
    }]);
    object
}

fn with_data(mut object: Value, value: String) -> Value {
    object["data"]["large"] = value.into();
    object
}

#[expect(clippy::panic, reason = "the purpose of the guest")]
fn trap(words: &str) -> ! {
    panic!("{words}")
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn allocate() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
}

fn flood(host: &dyn Host) -> ! {
    let line = "water ".repeat(100);
    loop {
        host.info(&line);
    }
}

innkeeper_sdk::export!(Unrulies);
