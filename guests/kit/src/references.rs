//! Secrets and ConfigMaps that a parent names: hashes, and missing objects and keys.
//!
//! The host shows hashes instead of values, so no value ever reaches the guest.
//!
//! ```
//! use innkeeper_kit::references::References;
//! use innkeeper_sdk::testing::{FakeHost, TestRequest};
//! use k8s_openapi::api::core::v1::EnvVar;
//! use serde_json::json;
//!
//! let env: Vec<EnvVar> = serde_json::from_value(json!([
//!     {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}},
//! ]))
//! .unwrap();
//! let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
//! let request = TestRequest::new(&parent).build();
//!
//! let found = References::new()
//!     .environment(&env, &[])
//!     .secret("tls", ["tls.crt", "tls.key"])
//!     .read(&request, &FakeHost::new())
//!     .unwrap();
//! assert_eq!(found.missing_secrets().collect::<Vec<_>>(), ["tls", "token"]);
//! ```

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use innkeeper_sdk::fault::Fault;
use innkeeper_sdk::hash::{Hashed, content_hash};
use innkeeper_sdk::host::Host;
use innkeeper_sdk::request::Request;

/// The Secrets and claims that a parent may name.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReferenceScope {
    /// Its own, those of no parent, and those of another parent with the annotation
    /// `innkeeper.dev/shared-with`.
    #[default]
    Shared,
    /// All of its namespace.
    Namespace,
}

/// The Secrets and ConfigMaps that a parent names, before they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    secrets: BTreeMap<String, Reference>,
    config_maps: BTreeMap<String, Reference>,
}

/// One named object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reference {
    /// False if every mention of the object is optional.
    is_required: bool,
    /// The keys that it must have; empty for a ConfigMap.
    keys: BTreeSet<String>,
}

impl References {
    /// No reference.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds references in a container's `env` and `envFrom`; optional ones need not exist.
    pub fn environment(mut self, env: &[EnvVar], env_from: &[EnvFromSource]) -> Self {
        for source in env
            .iter()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            if let Some(reference) = &source.secret_key_ref {
                add(
                    &mut self.secrets,
                    &reference.name,
                    reference.optional,
                    Some(reference.key.as_str()),
                );
            }
            if let Some(reference) = &source.config_map_key_ref {
                add(
                    &mut self.config_maps,
                    &reference.name,
                    reference.optional,
                    None,
                );
            }
        }
        for source in env_from {
            if let Some(reference) = &source.secret_ref {
                add(&mut self.secrets, &reference.name, reference.optional, None);
            }
            if let Some(reference) = &source.config_map_ref {
                add(
                    &mut self.config_maps,
                    &reference.name,
                    reference.optional,
                    None,
                );
            }
        }
        self
    }

    /// Adds a Secret that must exist and have these keys.
    pub fn secret<'a>(mut self, name: &str, keys: impl IntoIterator<Item = &'a str>) -> Self {
        add(&mut self.secrets, name, None, keys);
        self
    }

    /// Adds image pull Secrets; as in a Pod, they need not exist.
    pub fn pull_secrets(mut self, secrets: &[LocalObjectReference]) -> Self {
        for secret in secrets.iter().filter(|secret| !secret.name.is_empty()) {
            add(&mut self.secrets, &secret.name, Some(true), None);
        }
        self
    }

    /// Adds a ConfigMap that must exist.
    pub fn config_map(mut self, name: &str) -> Self {
        add(&mut self.config_maps, name, None, None);
        self
    }

    /// Reads each object in the parent's namespace once. The host reconciles the parent again when one is created,
    /// changed or deleted.
    ///
    /// # Errors
    ///
    /// `retry` where Secrets or ConfigMaps may not be read.
    pub fn read(self, request: &Request, host: &dyn Host) -> Result<Found, Fault> {
        let mut found = Found::default();
        for (name, reference) in self.secrets {
            let object = secret(request, host, &name)?;
            found.secrets.insert(name, Resolved { reference, object });
        }
        for (name, reference) in self.config_maps {
            let object = host.hashed_config_map(request.namespace(), &name)?;
            let resolved = Resolved { reference, object };
            found.config_maps.insert(name, resolved);
        }
        Ok(found)
    }
}

fn add<'a>(
    objects: &mut BTreeMap<String, Reference>,
    name: &str,
    optional: Option<bool>,
    keys: impl IntoIterator<Item = &'a str>,
) {
    let reference = objects.entry(name.to_owned()).or_default();
    // One mention that is not optional makes the object required.
    if optional != Some(true) {
        reference.is_required = true;
        reference.keys.extend(keys.into_iter().map(str::to_owned));
    }
}

/// Returns a Secret in the parent's namespace with hashes instead of values: a child, or another owner's object.
///
/// # Errors
///
/// `retry` where Secrets may not be read.
pub fn secret(request: &Request, host: &dyn Host, name: &str) -> Result<Option<Hashed>, Fault> {
    match request.children.hashed_secret(name)? {
        Some(observed) => Ok(Some(observed)),
        None => Ok(host.hashed_secret(request.namespace(), name)?),
    }
}

/// The named Secrets and ConfigMaps after the read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    secrets: BTreeMap<String, Resolved>,
    config_maps: BTreeMap<String, Resolved>,
}

#[derive(Clone, Debug, PartialEq)]
struct Resolved {
    reference: Reference,
    object: Option<Hashed>,
}

impl Resolved {
    fn is_missing(&self) -> bool {
        self.reference.is_required && self.object.is_none()
    }
}

impl Found {
    /// The objects that exist, Secrets before ConfigMaps, each by name.
    pub fn objects(&self) -> impl Iterator<Item = &Hashed> {
        self.secrets
            .values()
            .chain(self.config_maps.values())
            .filter_map(|resolved| resolved.object.as_ref())
    }

    /// The missing Secrets that must exist before Pods are created, by name: the required ones, and in the scope `Shared`
    /// the optional ones too.
    ///
    /// A Pod uses a named Secret as soon as anyone creates it, before a pass can refuse it.
    pub fn awaited_secrets(&self, scope: ReferenceScope) -> impl Iterator<Item = &str> {
        let is_awaited = move |resolved: &Resolved| {
            resolved.is_missing() || scope == ReferenceScope::Shared && resolved.object.is_none()
        };
        self.secrets
            .iter()
            .filter(move |(_, it)| is_awaited(it))
            .map(|(name, _)| name.as_str())
    }

    /// The required Secrets that do not exist, by name.
    pub fn missing_secrets(&self) -> impl Iterator<Item = &str> {
        missing(&self.secrets)
    }

    /// The required ConfigMaps that do not exist, by name.
    pub fn missing_config_maps(&self) -> impl Iterator<Item = &str> {
        missing(&self.config_maps)
    }

    /// The required keys that existing Secrets lack, as sorted pairs of Secret and key.
    pub fn missing_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.secrets.iter().flat_map(|(name, resolved)| {
            let object = resolved.object.iter();
            object.flat_map(move |object| {
                resolved
                    .reference
                    .keys
                    .iter()
                    .filter(|key| !object.has(key))
                    .map(move |key| (name.as_str(), key.as_str()))
            })
        })
    }

    /// Returns whether every required Secret and ConfigMap exists.
    pub fn is_complete(&self) -> bool {
        let mut all = self.secrets.values().chain(self.config_maps.values());
        !all.any(Resolved::is_missing)
    }

    /// Returns a Pod annotation that changes with the contents: the hash over all existing objects and `also`, or the
    /// observed value while a required object is missing.
    ///
    /// A missing object must not change the value, because the rollout would stop old Pods while new ones cannot start.
    pub fn hash<'a>(
        &'a self,
        also: impl IntoIterator<Item = &'a Hashed>,
        observed: Option<&str>,
    ) -> String {
        match observed {
            Some(observed) if !self.is_complete() => observed.to_owned(),
            _ => content_hash(self.objects().chain(also)),
        }
    }
}

fn missing(objects: &BTreeMap<String, Resolved>) -> impl Iterator<Item = &str> {
    objects
        .iter()
        .filter(|(_, resolved)| resolved.is_missing())
        .map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
    use serde_json::{Value, json};

    use super::{Found, ReferenceScope, References};
    use innkeeper_sdk::testing::{FakeHost, TestRequest};

    fn object(kind: &str, name: &str, data: Value) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})
    }

    fn environment() -> References {
        let key =
            |name: &str, optional: bool| json!({"name": name, "key": "k", "optional": optional});
        let env: Vec<EnvVar> = serde_json::from_value(json!([
            {"name": "A", "valueFrom": {"secretKeyRef": key("needed", false)}},
            {"name": "B", "valueFrom": {"secretKeyRef": key("optional", true)}},
            {"name": "C", "valueFrom": {"configMapKeyRef": key("map", false)}},
            {"name": "D", "value": "plain"},
        ]))
        .unwrap();
        let env_from: Vec<EnvFromSource> = serde_json::from_value(json!([
            {"secretRef": {"name": "all"}},
            {"configMapRef": {"name": "extra", "optional": true}},
        ]))
        .unwrap();
        References::new().environment(&env, &env_from)
    }

    fn read(references: References, objects: &[Value]) -> Found {
        let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {}});
        let host = FakeHost::new().objects(objects);
        references
            .read(&TestRequest::new(&parent).build(), &host)
            .unwrap()
    }

    #[test]
    fn names_missing_objects_and_keys() {
        let references = read(environment(), &[]);
        assert_eq!(
            references.missing_secrets().collect::<Vec<_>>(),
            ["all", "needed"]
        );
        for (scope, awaited) in [
            (ReferenceScope::Shared, &["all", "needed", "optional"][..]),
            (ReferenceScope::Namespace, &["all", "needed"]),
        ] {
            assert_eq!(
                references.awaited_secrets(scope).collect::<Vec<_>>(),
                awaited
            );
        }
        assert_eq!(
            references.missing_config_maps().collect::<Vec<_>>(),
            ["map"]
        );
        assert_eq!(references.missing_keys().count(), 0);
        assert!(!references.is_complete());

        let secrets = ["all", "needed"].map(|name| object("Secret", name, json!({"x": "MQ=="})));
        let map = object("ConfigMap", "map", json!({"k": "1"}));
        let references = read(
            environment(),
            &[secrets[0].clone(), secrets[1].clone(), map],
        );
        assert!(references.is_complete());
        assert_eq!(
            references.missing_keys().collect::<Vec<_>>(),
            [("needed", "k")]
        );
        assert_eq!(references.objects().count(), 3);
    }

    #[test]
    fn keeps_the_hash_while_an_object_is_missing() {
        let one = || References::new().secret("a", ["k"]);
        let references = read(one(), &[object("Secret", "a", json!({"k": "MQ=="}))]);
        let hash = references.hash(None, None);
        assert_eq!(references.hash(None, Some("old")), hash);
        assert_eq!(read(one(), &[]).hash(None, Some(&hash)), hash);
        let changed = read(one(), &[object("Secret", "a", json!({"k": "Mg=="}))]);
        assert_ne!(changed.hash(None, Some(&hash)), hash);
        assert_ne!(references.hash(changed.objects(), None), hash);
    }

    #[test]
    fn prefers_a_child_of_the_parent() {
        let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {}});
        let child = object("Secret", "a", json!({"k": "MQ=="}));
        let request = TestRequest::new(&parent).child("a", &child).build();
        let host = FakeHost::new();
        let references = References::new()
            .secret("a", ["k"])
            .read(&request, &host)
            .unwrap();
        assert!(references.is_complete());
        assert_eq!(host.reads(), []);
    }
}
