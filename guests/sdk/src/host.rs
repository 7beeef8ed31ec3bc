//! The host's functions for a reconciler: log, time, random bytes, and reads of related objects.
//!
//! The typed reads are methods of `dyn Host`, so that callers need no further import.

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::hash::Hashed;

/// A log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// A failure.
    Error,
    /// A problem that may need attention.
    Warn,
    /// Progress, for operators.
    Info,
    /// Progress, for the plugin's author.
    Debug,
}

/// An object's identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The namespace; none for a cluster-scoped kind. For a namespaced kind none means the parent's
    /// namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

/// Selects objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListSelector {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// One namespace; none means every namespace that the grant covers.
    pub namespace: Option<String>,
    /// A label selector in Kubernetes' text form; none selects all.
    pub label_selector: Option<String>,
}

/// Why the host refuses reads of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The plugin's manifest does not declare reads of this kind.
    NotDeclared,
    /// The plugin may not read this kind, whether or not the object exists.
    NotGranted,
    /// The cluster does not serve the kind (yet).
    NotServed,
}

/// The host's functions for a reconciler.
///
/// The host implements it in a plugin and [`FakeHost`](crate::testing::FakeHost) in tests.
/// The methods that end in `_json` cross the boundary; use the typed methods of `dyn Host`.
///
/// # Guarantees
///
/// Within a pass the same read gives the same answer. The host reconciles the parent again when the answer changes.
pub trait Host {
    /// Writes a line to the plugin's log; the host drops lines beyond the limit per pass (16 KiB by
    /// default).
    fn log(&self, level: LogLevel, message: &str);

    /// The time in milliseconds since the Unix epoch, the same throughout a pass.
    ///
    /// After a pass that reads the time, the host runs a pass at each trigger, even if nothing else changed.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use std::time::Duration;
    ///
    /// /// Requests a pass for the time when the pond needs cleaning.
    /// fn report(host: &dyn Host, cleaned_ms: u64) -> Report {
    ///     let age = Duration::from_millis(host.now_ms().saturating_sub(cleaned_ms));
    ///     Report::new().requeue(Duration::from_secs(3600).saturating_sub(age))
    /// }
    ///
    /// let host = FakeHost::new().now(1_800_000);
    /// assert_eq!(report(&host, 0).requeue, Some(Duration::from_secs(1800)));
    /// ```
    fn now_ms(&self) -> u64;

    /// A time zone's offset in seconds east of UTC, at a time in milliseconds since the Unix epoch; none for an unknown
    /// zone and after the year 9999.
    ///
    /// The zone is a name in the IANA time zone database, in upper or lower case. Each call counts toward the reads per
    /// pass (1000 by default), so do not call it for every minute.
    ///
    /// ```
    /// use innkeeper_sdk::host::Host;
    /// use innkeeper_sdk::testing::FakeHost;
    ///
    /// // Summer time begins on 29 March 2026 at 01:00 UTC.
    /// let begin = 1_774_746_000_000;
    /// let host = FakeHost::new().zone("Europe/Berlin", [(0, 3600), (begin, 7200)]);
    /// assert_eq!(host.zone_offset("Europe/Berlin", begin - 1), Some(3600));
    /// assert_eq!(host.zone_offset("Europe/Berlin", begin), Some(7200));
    /// assert_eq!(host.zone_offset("Europe/Nowhere", begin), None);
    /// ```
    fn zone_offset(&self, zone: &str, unix_ms: u64) -> Option<i32>;

    /// Random bytes; at most 4096 per call and 65536 per pass.
    ///
    /// For passwords use [`Child::generate`](crate::child::Child::generate), which keeps them from the plugin.
    ///
    /// ```
    /// use innkeeper_sdk::host::Host;
    /// use innkeeper_sdk::testing::FakeHost;
    ///
    /// let host = FakeHost::new();
    /// let suffix = host.random(4).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    /// assert_eq!(suffix.len(), 8);
    /// ```
    fn random(&self, length: u32) -> Vec<u8>;

    /// One object as JSON text; none if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails if the kind may not be read or is not served.
    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied>;

    /// The selected objects as JSON text, sorted by namespace and name.
    ///
    /// # Errors
    ///
    /// Fails if the kind may not be read or is not served.
    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied>;
}

impl dyn Host + '_ {
    /// An object in a namespace; none if it does not exist.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::core::v1::Service;
    /// use serde_json::json;
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read::<Service>(Access::Full, ReadScope::ParentNamespace);
    /// let fake = FakeHost::granting(&manifest).object(&json!({
    ///     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "spring", "namespace": "demo"},
    ///     "spec": {"clusterIP": "10.0.0.1"},
    /// }));
    /// let host: &dyn Host = &fake;
    /// let service: Option<Service> = host.get("demo", "spring").unwrap();
    /// assert_eq!(service.unwrap().spec.unwrap().cluster_ip.as_deref(), Some("10.0.0.1"));
    /// assert!(host.get::<Service>("demo", "none").unwrap().is_none());
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with a [`ReadError`]; `?` turns it into a `retry` that names the kind.
    pub fn get<T>(&self, namespace: &str, name: &str) -> Result<Option<T>, ReadError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.get_as(&T::api_version(&()), &T::kind(&()), Some(namespace), name)
    }

    /// One object of a cluster-scoped kind; none if it does not exist.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::storage::v1::StorageClass;
    /// use serde_json::json;
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read::<StorageClass>(Access::Full, ReadScope::Cluster);
    /// let fake = FakeHost::granting(&manifest).object(&json!({
    ///     "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
    ///     "provisioner": "example.com/disk", "allowVolumeExpansion": true,
    /// }));
    /// let host: &dyn Host = &fake;
    /// let class: Option<StorageClass> = host.get_cluster("fast").unwrap();
    /// assert_eq!(class.unwrap().allow_volume_expansion, Some(true));
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn get_cluster<T>(&self, name: &str) -> Result<Option<T>, ReadError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.get_as(&T::api_version(&()), &T::kind(&()), None, name)
    }

    /// The objects in a namespace with matching labels; an empty selector matches all.
    ///
    /// If only metadata is granted, the other fields are absent. For metadata use kube's `PartialObjectMeta<Pod>`, which
    /// makes a component about 300 KiB smaller than `Pod` does.
    ///
    /// ```
    /// use innkeeper_sdk::kube::core::PartialObjectMeta;
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use serde_json::json;
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read::<Pod>(Access::Metadata, ReadScope::ParentNamespace)
    ///     .label_selector("app=web");
    /// let pod = |name: &str, app: &str| json!({
    ///     "apiVersion": "v1", "kind": "Pod",
    ///     "metadata": {"name": name, "namespace": "demo", "labels": {"app": app}},
    /// });
    /// let fake = FakeHost::granting(&manifest).objects([pod("web-0", "web"), pod("db-0", "db")]);
    /// let host: &dyn Host = &fake;
    /// let pods: Vec<PartialObjectMeta<Pod>> = host.list("demo", "app=web").unwrap();
    /// assert_eq!(pods.len(), 1);
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn list<T>(&self, namespace: &str, label_selector: &str) -> Result<Vec<T>, ReadError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.list_as(
            &T::api_version(&()),
            &T::kind(&()),
            Some(namespace),
            label_selector,
        )
    }

    /// A Secret with hashes instead of values.
    ///
    /// ```
    /// use innkeeper_sdk::hash::content_hash;
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::core::v1::Secret;
    /// use serde_json::json;
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read::<Secret>(Access::Hash, ReadScope::ParentNamespace);
    /// let fake = FakeHost::granting(&manifest).object(&json!({
    ///     "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "demo"},
    ///     "data": {"password": "c2VjcmV0"},
    /// }));
    /// let host: &dyn Host = &fake;
    /// let secret = host.hashed_secret("demo", "key").unwrap().unwrap();
    /// assert!(secret.has("password"));
    /// // In a Pod template's annotation it restarts the Pods when a value changes.
    /// let annotation = content_hash([&secret]);
    /// assert!(!annotation.contains("c2VjcmV0"));
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn hashed_secret(&self, namespace: &str, name: &str) -> Result<Option<Hashed>, ReadError> {
        self.hashed::<Secret>(namespace, name)
    }

    /// A ConfigMap with hashes instead of values.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read::<ConfigMap>(Access::Hash, ReadScope::ParentNamespace);
    /// let fake = FakeHost::granting(&manifest).object(&json!({
    ///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "demo"},
    ///     "data": {"depth": "2"},
    /// }));
    /// let host: &dyn Host = &fake;
    /// let settings = host.hashed_config_map("demo", "settings").unwrap().unwrap();
    /// assert!(settings.hash_of("depth").unwrap().starts_with("hmac-sha256:"));
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn hashed_config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Hashed>, ReadError> {
        self.hashed::<ConfigMap>(namespace, name)
    }

    /// An object without a Rust type, or as the caller's own type, such as `serde_json::Value`.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use serde_json::{Value, json};
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read_kind("example.com/v1", "River", Access::Full, ReadScope::ParentNamespace);
    /// let fake = FakeHost::granting(&manifest).object(&json!({
    ///     "apiVersion": "example.com/v1", "kind": "River",
    ///     "metadata": {"name": "north", "namespace": "demo"}, "status": {"depth": 3},
    /// }));
    /// let host: &dyn Host = &fake;
    /// let river: Option<Value> = host.get_as("example.com/v1", "River", Some("demo"), "north").unwrap();
    /// assert_eq!(river.unwrap()["status"]["depth"], 3);
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn get_as<T: DeserializeOwned>(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReadError> {
        let object = ObjectRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        };
        self.get_json(&object)
            .map_err(|denied| ReadError::denied(denied, api_version, kind))?
            .map(|text| parse(&text, kind))
            .transpose()
    }

    /// The objects of a kind without a Rust type, or as the caller's own type.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use serde_json::{Value, json};
    ///
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .read_kind("example.com/v1", "River", Access::Full, ReadScope::Cluster);
    /// let river = |name: &str| json!({
    ///     "apiVersion": "example.com/v1", "kind": "River", "metadata": {"name": name, "namespace": name},
    /// });
    /// let fake = FakeHost::granting(&manifest).objects([river("north"), river("south")]);
    /// let host: &dyn Host = &fake;
    /// // No namespace: every namespace that the grant covers.
    /// let rivers: Vec<Value> = host.list_as("example.com/v1", "River", None, "").unwrap();
    /// assert_eq!(rivers.len(), 2);
    /// ```
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn list_as<T: DeserializeOwned>(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Vec<T>, ReadError> {
        let selector = ListSelector {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            label_selector: (!label_selector.is_empty()).then(|| label_selector.to_owned()),
        };
        self.list_json(&selector)
            .map_err(|denied| ReadError::denied(denied, api_version, kind))?
            .iter()
            .map(|text| parse(text, kind))
            .collect()
    }

    /// Logs a failure.
    pub fn error(&self, message: &str) {
        self.log(LogLevel::Error, message);
    }

    /// Logs a problem that may need attention.
    pub fn warn(&self, message: &str) {
        self.log(LogLevel::Warn, message);
    }

    /// Logs progress, for operators.
    pub fn info(&self, message: &str) {
        self.log(LogLevel::Info, message);
    }

    /// Logs progress, for the plugin's author.
    pub fn debug(&self, message: &str) {
        self.log(LogLevel::Debug, message);
    }

    fn hashed<T>(&self, namespace: &str, name: &str) -> Result<Option<Hashed>, ReadError>
    where
        T: Resource<DynamicType = ()>,
    {
        self.get_as(&T::api_version(&()), &T::kind(&()), Some(namespace), name)
    }
}

fn parse<T: DeserializeOwned>(text: &str, kind: &str) -> Result<T, ReadError> {
    serde_json::from_str(text).map_err(|error| ReadError::Unreadable {
        kind: kind.to_owned(),
        problem: error.to_string(),
    })
}

/// Why a typed read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The manifest does not declare reads of this kind: add them to `describe`.
    NotDeclared {
        /// `group/version` of the kind.
        api_version: String,
        /// The kind in CamelCase.
        kind: String,
    },
    /// The plugin may not read this kind.
    NotGranted {
        /// `group/version` of the kind.
        api_version: String,
        /// The kind in CamelCase.
        kind: String,
    },
    /// The cluster does not serve the kind (yet). The host reconciles the parent again when it does.
    NotServed {
        /// `group/version` of the kind.
        api_version: String,
        /// The kind in CamelCase.
        kind: String,
    },
    /// The object does not fit the Rust type.
    Unreadable {
        /// The kind in CamelCase.
        kind: String,
        /// The field that does not parse, and the position in the JSON text.
        problem: String,
    },
}

impl ReadError {
    /// Returns whether the cluster does not serve the kind.
    pub const fn is_not_served(&self) -> bool {
        matches!(self, Self::NotServed { .. })
    }

    fn denied(denied: Denied, api_version: &str, kind: &str) -> Self {
        let api_version = api_version.to_owned();
        let kind = kind.to_owned();
        match denied {
            Denied::NotDeclared => Self::NotDeclared { api_version, kind },
            Denied::NotGranted => Self::NotGranted { api_version, kind },
            Denied::NotServed => Self::NotServed { api_version, kind },
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDeclared { api_version, kind } => {
                write!(
                    f,
                    "describe() does not declare reads of {kind} of {api_version}"
                )
            }
            Self::NotGranted { api_version, kind } => {
                write!(
                    f,
                    "the plugin is not granted to read {kind} of {api_version}"
                )
            }
            Self::NotServed { api_version, kind } => {
                write!(f, "the cluster does not serve {kind} of {api_version}")
            }
            Self::Unreadable { kind, problem } => write!(f, "failed to parse {kind}: {problem}"),
        }
    }
}

impl std::error::Error for ReadError {}
