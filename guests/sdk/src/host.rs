//! What a reconciler may ask of the host: a log line, the time, randomness, and reads of related
//! objects.
//!
//! The typed reads are methods of `dyn Host`, so that a reconciler that takes `&dyn Host` needs no
//! further import.

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::hash::Hashed;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something looks wrong.
    Warn,
    /// What happened, for operators.
    Info,
    /// What happened, for the plugin's author.
    Debug,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The namespace; none for a cluster-scoped kind, and for a namespaced one the parent's
    /// namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

/// Chooses the objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListSelector {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// One namespace; none means every namespace that the grant covers.
    pub namespace: Option<String>,
    /// A label selector in Kubernetes' text form; none chooses all.
    pub label_selector: Option<String>,
}

/// Why the host answers no read of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The plugin may not read this; answered whether or not the object exists.
    NotGranted,
    /// The cluster does not serve the kind (yet).
    NotServed,
}

/// What a reconciler may ask of the host.
///
/// The host implements it in a plugin and [`FakeHost`](crate::testing::FakeHost) in tests.
/// The methods that end in `_json` are what crosses the boundary; use the typed ones of `dyn Host`.
///
/// # Guarantees
///
/// Within a pass the same read gives the same answer, and the parent is reconciled again when it
/// changes.
pub trait Host {
    /// Writes a line to the plugin's log.
    fn log(&self, level: LogLevel, message: &str);

    /// The time in milliseconds since the Unix epoch, the same throughout a pass.
    ///
    /// A pass that asks cannot be skipped when nothing else changed.
    fn now_ms(&self) -> u64;

    /// Random bytes; at most 4096 per call and 65536 per pass.
    fn random(&self, length: u32) -> Vec<u8>;

    /// One object as JSON text, none if it does not exist.
    ///
    /// # Errors
    ///
    /// Where the kind may not be read or is not served.
    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied>;

    /// The chosen objects as JSON text, sorted by namespace and name.
    ///
    /// # Errors
    ///
    /// Where the kind may not be read or is not served.
    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied>;
}

impl dyn Host + '_ {
    /// One object of a namespace, none if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; with `?` it becomes a `retry` that names the kind.
    pub fn get<T>(&self, namespace: &str, name: &str) -> Result<Option<T>, ReadError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.get_as(&T::api_version(&()), &T::kind(&()), Some(namespace), name)
    }

    /// One object of a cluster-scoped kind, none if it does not exist.
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

    /// The objects of a namespace whose labels match; an empty selector chooses all.
    ///
    /// Where only metadata is granted, the other fields are absent; `PartialObjectMeta<Pod>` of
    /// kube reads no more than that, and takes some 300 KiB less of the component than `Pod`.
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

    /// A Secret of which the host shows hashes instead of values.
    ///
    /// # Errors
    ///
    /// As for `get`.
    pub fn hashed_secret(&self, namespace: &str, name: &str) -> Result<Option<Hashed>, ReadError> {
        self.hashed::<Secret>(namespace, name)
    }

    /// A ConfigMap of which the host shows hashes instead of values.
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

    /// One object of a kind that has no Rust type or whose type is the caller's own,
    /// `serde_json::Value` for example.
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

    /// The objects of a kind that has no Rust type or whose type is the caller's own.
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

    /// Logs what failed.
    pub fn error(&self, message: &str) {
        self.log(LogLevel::Error, message);
    }

    /// Logs what looks wrong.
    pub fn warn(&self, message: &str) {
        self.log(LogLevel::Warn, message);
    }

    /// Logs what happened, for operators.
    pub fn info(&self, message: &str) {
        self.log(LogLevel::Info, message);
    }

    /// Logs what happened, for the plugin's author.
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

/// Why a typed read has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The plugin may not read this kind.
    NotGranted {
        /// `group/version` of the kind.
        api_version: String,
        /// The kind in CamelCase.
        kind: String,
    },
    /// The cluster does not serve the kind (yet); the parent is reconciled again when it does.
    NotServed {
        /// `group/version` of the kind.
        api_version: String,
        /// The kind in CamelCase.
        kind: String,
    },
    /// The object does not have the form that the Rust type expects.
    Unreadable {
        /// The kind in CamelCase.
        kind: String,
        /// What does not fit.
        problem: String,
    },
}

impl ReadError {
    /// Whether the cluster does not serve the kind.
    pub const fn is_not_served(&self) -> bool {
        matches!(self, Self::NotServed { .. })
    }

    fn denied(denied: Denied, api_version: &str, kind: &str) -> Self {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        match denied {
            Denied::NotGranted => Self::NotGranted { api_version, kind },
            Denied::NotServed => Self::NotServed { api_version, kind },
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted { api_version, kind } => {
                write!(
                    f,
                    "the plugin is not granted to read {kind} of {api_version}"
                )
            }
            Self::NotServed { api_version, kind } => {
                write!(f, "the cluster does not serve {kind} of {api_version}")
            }
            Self::Unreadable { kind, problem } => write!(f, "{kind} cannot be read: {problem}"),
        }
    }
}

impl std::error::Error for ReadError {}
