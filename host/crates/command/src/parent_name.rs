//! A parent's name in flags and recording orders.

use std::{fmt, str::FromStr};

use innkeeper_model::ObjectId;
use serde::{Deserialize, Serialize};

/// The namespace and name of a parent of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentName {
    /// The namespace; none for a cluster-scoped parent.
    namespace: Option<String>,
    name: String,
}

impl ParentName {
    /// Returns true if it names this object.
    pub fn matches(&self, id: &ObjectId) -> bool {
        id.namespace.as_deref() == self.namespace.as_deref() && *id.name == *self.name
    }
}

impl FromStr for ParentName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        if namespace == Some("") || name.is_empty() || name.contains('/') {
            return Err("write it as NAMESPACE/NAME, or as NAME for a cluster-scoped parent");
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for ParentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
