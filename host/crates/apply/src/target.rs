//! The parent that a pass writes to, and the answers to writes.

use std::{error::Error as StdError, fmt, sync::Arc};

use bytes::Bytes;
use innkeeper_model::{Object, Resource, ResourceVersion, Uid};
use serde::Deserialize;

use super::{Error, ErrorKind, request::Address};

/// The parent that a pass writes to; the version advances with every write.
#[derive(Clone, Debug)]
pub struct Target {
    resource: Resource,
    namespace: Option<Arc<str>>,
    name: Arc<str>,
    uid: Uid,
    resource_version: ResourceVersion,
    finalizers: Vec<Arc<str>>,
}

impl Target {
    /// Creates a target from an observed parent.
    pub fn new(parent: &Object, resource: &Resource) -> Self {
        Self {
            resource: resource.clone(),
            namespace: parent.namespace.clone(),
            name: Arc::clone(&parent.name),
            uid: parent.uid.clone(),
            resource_version: parent.resource_version,
            finalizers: parent.finalizers.clone(),
        }
    }

    /// The version after this pass's last write, or the observed one.
    pub const fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The parent's UID.
    pub const fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Returns true if a finalizer is on the parent.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizer(name).is_some()
    }

    /// A finalizer's index in the parent's list.
    pub(super) fn finalizer(&self, name: &str) -> Option<usize> {
        self.finalizers.iter().position(|known| **known == *name)
    }

    pub(super) fn address(&self) -> Address<'_> {
        Address::new(&self.resource, self.namespace.as_deref(), &self.name)
    }

    /// Sets the version and the finalizers from the answer to a write.
    pub(super) fn advance(&mut self, written: &Written) {
        self.resource_version = written.resource_version;
        self.finalizers.clone_from(&written.finalizers);
    }
}

/// An object as the API server returned it after a write.
#[derive(Clone, PartialEq, Eq)]
pub struct Written {
    /// The UID.
    pub uid: Uid,
    /// The version after the write; for an object that is gone, the last version.
    pub resource_version: ResourceVersion,
    /// True if this write ended the object: it was being deleted, and the write removed the last finalizer.
    pub gone: bool,
    finalizers: Vec<Arc<str>>,
    /// The whole object, including managed fields and Secret values.
    pub json: Arc<str>,
}

/// Never shows the object, which may be a Secret.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written")
            .field("uid", &self.uid)
            .field("resource_version", &self.resource_version)
            .finish_non_exhaustive()
    }
}

impl Written {
    /// Reads the answer to a write.
    pub(super) fn parse(what: &str, address: Address<'_>, body: &Bytes) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WrittenObject {
            #[serde(default)]
            api_version: String,
            #[serde(default)]
            kind: String,
            metadata: WrittenMetadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WrittenMetadata {
            name: String,
            namespace: Option<String>,
            uid: String,
            resource_version: String,
            deletion_timestamp: Option<String>,
            #[serde(default)]
            finalizers: Vec<String>,
        }
        let unreadable = |source: Box<dyn StdError + Send + Sync>| {
            ErrorKind::Unreadable.because(what.to_owned(), source)
        };
        let text = std::str::from_utf8(body).map_err(|source| unreadable(source.into()))?;
        let WrittenObject {
            api_version,
            kind,
            metadata,
        } = serde_json::from_str(text).map_err(|source| unreadable(source.into()))?;
        let name = &metadata.name;
        let namespace = metadata.namespace.as_deref();
        // The parent's status is computed from the answers, so one about another object would be a wrong status.
        if !address.is_of(name, namespace, (&api_version, &kind)) {
            let namespace = namespace.unwrap_or_default();
            let about = format!("it is about {api_version} {kind} {namespace}/{name}");
            return Err(unreadable(about.into()));
        }
        let version = metadata
            .resource_version
            .parse()
            .map_err(|source: std::num::ParseIntError| unreadable(source.into()))?;
        Ok(Self {
            uid: Uid(metadata.uid.into()),
            resource_version: ResourceVersion(version),
            // The API server still answers the write that removes the last finalizer with the object.
            gone: metadata.deletion_timestamp.is_some() && metadata.finalizers.is_empty(),
            finalizers: metadata.finalizers.into_iter().map(Arc::from).collect(),
            json: text.into(),
        })
    }
}
