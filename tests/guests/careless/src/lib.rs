//! A plugin whose configuration gives it one bad habit, for the tests of `innkeeper test`.

use std::hint::black_box;

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Carelesses;

/// Configuration of the plugin.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Habit of the guest.
    habit: Habit,
}

/// Habit of the guest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Habit {
    /// None: answers with two ConfigMaps.
    Good,
    /// Names a ConfigMap by random bytes.
    RandomName,
    /// States a longer ConfigMap in each pass.
    Grows,
    /// States the name of the first child that it sees.
    FirstChild,
    /// States one of two ConfigMaps in turns.
    Oscillates,
    /// Panics for one value of a field.
    RareField,
    /// States a ConfigMap with a field that no ConfigMap has.
    UnknownField,
    /// States a child of a kind that the manifest does not declare.
    Undeclared,
    /// Never answers.
    Spins,
    /// Omits a child while the ConfigMap that it reads is missing.
    Prunes,
    /// States no deleted child again.
    Forgets,
}

/// A parent with ConfigMaps.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Careless",
    plural = "carelesses",
    namespaced
)]
pub(crate) struct CarelessSpec {
    /// Text for a ConfigMap.
    note: Option<String>,
    /// Weather of the parent.
    weather: Option<Weather>,
    /// Further texts.
    more: Option<Vec<String>>,
}

/// Weather of a parent, of which the guest fears one.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub(crate) enum Weather {
    /// No cloud.
    Sun,
    /// Clouds.
    Clouds,
    /// Water.
    Rain,
    /// Ice.
    Hail,
}

impl Reconciler for Carelesses {
    type Parent = Careless;
    type Children = ();
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("careless", env!("CARGO_PKG_VERSION"))
            .parent::<Careless>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .read_kind("v1", "ConfigMap", Access::Full, ReadScope::ParentNamespace)
    }

    fn reconcile(parent: &Careless, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let config = cx.config();
        let request = cx.request();
        let host = cx.host();
        let note = parent.spec.note.clone().unwrap_or_default();
        let a = |text: &str| config_map("a", text);
        let b = config_map("b", &parent.spec.more.clone().unwrap_or_default().concat());
        let has = |name: &str| request.children.by_key(name).is_some();
        let children = match config.habit {
            Habit::RandomName => vec![config_map(&format!("a-{}", random(host)), &note)],
            Habit::Grows => vec![a(&longer(request)), b],
            Habit::FirstChild => vec![a(&first(request)), b],
            Habit::Oscillates if has("a") => vec![b],
            Habit::Oscillates => vec![a(&note)],
            Habit::RareField if parent.spec.weather == Some(Weather::Hail) => trap(),
            Habit::UnknownField => vec![with_unknown_field(a(&note)), b],
            Habit::Undeclared => vec![service()],
            Habit::Spins => spin(),
            Habit::Prunes if !is_switched_on(host)? => vec![a(&note)],
            Habit::Forgets if has("a") && !has("b") => vec![a(&note)],
            Habit::Good | Habit::RareField | Habit::Prunes | Habit::Forgets => vec![a(&note), b],
        };
        let keyed = |object: &Value| {
            Child::untyped(
                object["metadata"]["name"].as_str().unwrap_or_default(),
                object,
            )
        };
        Ok(Desired::new().children(children.iter().map(keyed)).into())
    }
}

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name },
        "data": { "text": text },
    })
}

fn is_switched_on(host: &dyn Host) -> Result<bool, ReadError> {
    let switch: Option<Value> = host.get_as("v1", "ConfigMap", None, "switch")?;
    Ok(switch.is_some())
}

fn random(host: &dyn Host) -> String {
    host.random(2)
        .into_iter()
        .map(|byte| byte.to_string())
        .collect()
}

/// The first ConfigMap's text, one letter longer.
fn longer(request: &Request) -> String {
    request
        .children
        .by_key("a")
        .and_then(|child| child.object()["data"]["text"].as_str().map(str::to_owned))
        .unwrap_or_default()
        + "x"
}

fn first(request: &Request) -> String {
    request
        .children
        .iter()
        .next()
        .map_or_else(|| "a".to_owned(), |child| child.name().to_owned())
}

fn with_unknown_field(mut object: Value) -> Value {
    object["dta"] = json!({ "text": "typo" });
    object
}

fn service() -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" } })
}

#[expect(clippy::panic, reason = "the purpose of the guest")]
fn trap() -> ! {
    panic!("afraid of hail")
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

innkeeper_sdk::export!(Carelesses);
