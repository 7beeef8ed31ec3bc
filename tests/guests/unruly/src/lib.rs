//! A plugin that misbehaves as its parent says, for the tests of what the host does about it.
//!
//! It keeps to what the SDK lets a guest do; what the SDK makes impossible is `garbage`'s.

use std::hint::black_box;

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// The key of the child whose name is made up.
const MADE_UP: &str = "made-up";

/// Does what `behaviour` says.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Unruly",
    plural = "unrulies",
    namespaced
)]
pub(crate) struct UnrulySpec {
    /// What the guest does.
    behaviour: Behaviour,
}

/// What the guest does.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behaviour {
    /// Answers with two ConfigMaps.
    Good,
    /// Answers with one ConfigMap of a name that it makes up, unless it sees one already.
    MadeUpName,
    /// Desires a ConfigMap that says another thing in every pass: the time.
    Restless,
    /// Desires a ConfigMap that says another thing in every pass: random numbers.
    Random,
    /// Desires a ConfigMap that says the one of two things that it does not say yet.
    Flip,
    /// Desires a ConfigMap that says another thing in every pass, and says so in sixty events.
    Chatter,
    /// Desires ten ConfigMaps of a hundred kilobytes.
    Megabyte,
    /// Has a status of which its definition knows nothing.
    UnknownStatus,
    /// Answers that no child is desired: the one case in which all of them go.
    Nothing,
    /// Leaves the children as they are.
    Keep,
    /// Asks to be tried again.
    Retry,
    /// Says that the parent is wrong.
    Invalid,
    /// Says that it cannot work at all.
    Fatal,
    /// Panics.
    Trap,
    /// Panics with a message of a megabyte.
    LongTrap,
    /// Never answers.
    Loop,
    /// Asks for memory without end.
    Allocate,
    /// Logs without end.
    Flood,
    /// Desires a child of a kind that the manifest does not declare.
    UndeclaredKind,
    /// Desires a child in another namespace.
    OtherNamespace,
    /// Desires a child that is owned by something else.
    ForeignOwner,
    /// Desires ten thousand children.
    ManyChildren,
    /// Desires a child of two megabytes.
    HugeObject,
    /// Desires nearly as much as an answer may hold, and at its end a child that it may not have.
    Output,
    /// Says, without having been asked, that the parent may go.
    Finalized,
}

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("unruly", env!("CARGO_PKG_VERSION"))
            .parent::<Unruly>()
            .child_kind("v1", "ConfigMap", true)
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Unruly = request.parent()?;
        match parent.spec.behaviour {
            Behaviour::MadeUpName => {
                let name = made_up_name(request, host);
                let child = with(config_map(request, "first"), "name", &name);
                let child = Child::new(MADE_UP, &child);
                Ok(Outcome::desired([child], Report::new()))
            }
            Behaviour::Keep => Ok(Outcome::keep(Report::new())),
            Behaviour::Finalized => Ok(Outcome::finalized(Report::new())),
            Behaviour::Retry => Err(Fault::retry("told to try again")),
            Behaviour::Invalid => Err(Fault::invalid("spec.behaviour: told to be wrong")),
            Behaviour::Fatal => Err(Fault::fatal("told to give up")),
            Behaviour::Trap => trap("told to trap"),
            Behaviour::LongTrap => trap(&"told to trap ".repeat(80_000)),
            Behaviour::Loop => spin(),
            Behaviour::Allocate => allocate(),
            Behaviour::Flood => flood(host),
            behaviour => {
                let children = children(behaviour, request, host).into_iter().enumerate();
                let children =
                    children.map(|(index, child)| Child::new(format!("child-{index}"), &child));
                Ok(Outcome::desired(children, report(behaviour, host)))
            }
        }
    }
}

/// What is desired; of what is to be refused one child is left out, so that pruning by a refused answer would show.
fn children(behaviour: Behaviour, request: &Request, host: &dyn Host) -> Vec<Value> {
    let first = config_map(request, "first");
    let second = config_map(request, "second");
    match behaviour {
        Behaviour::Restless => vec![with_data(first, host.now_ms().to_string()), second],
        Behaviour::Random | Behaviour::Chatter => vec![with_data(first, random(host)), second],
        Behaviour::Flip => vec![with_data(first, other(request)), second],
        Behaviour::Nothing => Vec::new(),
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

/// What is said about the parent.
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

/// The name that an earlier pass made up, as far as this one sees it.
fn made_up_name(request: &Request, host: &dyn Host) -> String {
    if let Some(child) = request.children.by_key(MADE_UP) {
        return child.name().to_owned();
    }
    let random = host.random(4).into_iter();
    random.fold(request.name().to_owned(), |name, byte| {
        format!("{name}-{byte}")
    })
}

/// Another text in every pass.
fn random(host: &dyn Host) -> String {
    let bytes = host.random(8).into_iter();
    bytes.map(|byte| byte.to_string()).collect()
}

/// What the first ConfigMap does not say.
fn other(request: &Request) -> String {
    let first = request.children.by_key("child-0");
    let says_a = first.is_some_and(|first| first.object()["data"]["large"] == "a");
    if says_a { "b" } else { "a" }.to_owned()
}

/// So many ConfigMaps of so many bytes.
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

#[expect(clippy::panic, reason = "this is what the guest is for")]
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

innkeeper_sdk::export!(Plugin);
