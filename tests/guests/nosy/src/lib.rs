//! A plugin that reads objects without a grant, reads Secrets, or reads endlessly; the parent selects what.

use innkeeper_sdk::{host::ListSelector, prelude::*};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Nosies;

/// The name of the Secrets that the guest tries to read, in the parent's namespace and elsewhere.
const VICTIM: &str = "victim";

/// A parent whose spec decides on the reads of the guest.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Nosy",
    plural = "nosies",
    namespaced
)]
pub(crate) struct NosySpec {
    /// Behaviour of the guest.
    behaviour: Behaviour,
}

/// Behaviour of the guest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behaviour {
    /// Answers with a ConfigMap.
    Good,
    /// Reads a kind that its manifest does not name.
    NotGranted,
    /// Reads one object again and again.
    Calls,
    /// Lists all ConfigMaps again and again.
    List,
    /// Reads Secrets in every way, and writes the results into a ConfigMap.
    Secrets,
    /// States the Secret of `Secrets` with a token for its generated value.
    Rotated,
    /// Writes offsets of time zones into a ConfigMap.
    Zones,
    /// States a Secret that is not its own.
    TakeSecret,
}

impl Reconciler for Nosies {
    type Parent = Nosy;
    type Children = ();
    type Config = NoConfig;

    /// Requests full access to Secrets; a plugin file is granted only their hashes.
    fn describe() -> Manifest {
        Manifest::new("nosy", env!("CARGO_PKG_VERSION"))
            .parent::<Nosy>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .untyped_child(ChildKind::new("v1", "Secret"))
            .read_kind("v1", "Secret", Access::Full, ReadScope::ParentNamespace)
            .read_kind("v1", "ConfigMap", Access::Full, ReadScope::Cluster)
    }

    fn reconcile(parent: &Nosy, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let request = cx.request();
        let host = cx.host();
        let first = Child::untyped("first", &config_map(request, "first", "nothing"));
        let children = match parent.spec.behaviour {
            Behaviour::Good => vec![first],
            Behaviour::NotGranted => {
                host.get_as::<Value>("v1", "Pod", None, VICTIM)?;
                vec![first]
            }
            Behaviour::Calls => loop {
                host.get_as::<Value>("v1", "ConfigMap", None, VICTIM)?;
            },
            Behaviour::List => loop {
                list_all(host)?;
            },
            Behaviour::Secrets => {
                let own = Child::untyped("own", &secret(&format!("{}-own", request.name())))
                    .generate("password", 32, ALPHANUMERIC);
                let seen = config_map(request, "seen", &seen(request, host));
                vec![first, own, Child::untyped("seen", &seen)]
            }
            Behaviour::Rotated => {
                let own = Child::untyped("own", &secret(&format!("{}-own", request.name())))
                    .generate("password", 32, ALPHANUMERIC)
                    .token("2");
                let seen = config_map(request, "seen", "nothing");
                vec![first, own, Child::untyped("seen", &seen)]
            }
            Behaviour::Zones => {
                let at = |zone, unix_ms| format!("{:?}", host.zone_offset(zone, unix_ms));
                let begin = 1_774_746_000_000;
                let said = [
                    at("Europe/Berlin", begin - 1),
                    at("Europe/Berlin", begin),
                    at("Europe/Nowhere", begin),
                ];
                let zones = config_map(request, "zones", &said.join(" "));
                vec![first, Child::untyped("zones", &zones)]
            }
            Behaviour::TakeSecret => {
                let victim = Child::untyped("victim", &secret(VICTIM)).generate("made", 8, "ab");
                vec![first, victim]
            }
        };
        Ok(Desired::new().children(children).into())
    }
}

fn list_all(host: &dyn Host) -> Result<usize, Fault> {
    let selector = ListSelector {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
        label_selector: None,
    };
    let found = host.list_json(&selector);
    found
        .map(|found| found.len())
        .map_err(|denied| Fault::invalid(format!("{denied:?}")))
}

/// The results from all Secret reads, as text.
fn seen(request: &Request, host: &dyn Host) -> String {
    let own = request.namespace();
    let mut seen = Vec::new();
    for namespace in [None, Some(own), Some("default"), Some("kube-system")] {
        for kind in ["Secret", "secret", "Secrets"] {
            seen.push(text_of(host.get_as::<Value>("v1", kind, namespace, VICTIM)));
            for selector in ["", "app=victim", "!app"] {
                seen.push(text_of(
                    host.list_as::<Value>("v1", kind, namespace, selector),
                ));
            }
        }
    }
    let child = request.children.by_key("own");
    seen.extend(child.map(|child| format!("own child: {}", child.raw())));
    seen.join("\n")
}

fn text_of<T: Serialize>(answer: Result<T, ReadError>) -> String {
    match answer {
        Ok(answer) => json!(answer).to_string(),
        Err(error) => error.to_string(),
    }
}

fn config_map(request: &Request, name: &str, said: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("{}-{name}", request.name()) },
        "data": { "said": said },
    })
}

fn secret(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } })
}

innkeeper_sdk::export!(Nosies);
