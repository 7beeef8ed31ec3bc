//! Kinds and object identities.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A kind without a version.
///
/// It identifies objects, because the API server serves one object in several versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The kind in CamelCase.
    pub kind: Arc<str>,
}

impl GroupKind {
    /// Creates a kind from group and kind.
    pub fn new(group: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// Returns true for Secret, which is never a parent and which guests see as hashes by default.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && &*self.kind == "Secret"
    }
}

/// `Deployment.apps`, or `Secret` alone for the core group: the form that kubectl uses.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => write!(f, "{}", self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

/// Returns the kind that a CustomResourceDefinition defines.
pub fn kind_of_crd(crd: &Map<String, Value>) -> Option<GroupKind> {
    let spec = crd.get("spec")?;
    let kind = spec.pointer("/names/kind")?.as_str()?;
    Some(GroupKind::new(spec.get("group")?.as_str()?, kind))
}

/// A kind in one version. The JSON form has the fields `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "TypeMeta", try_from = "TypeMeta")]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version: `v1`.
    pub version: Arc<str>,
    /// The kind in CamelCase.
    pub kind: Arc<str>,
}

/// A [`Gvk`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    api_version: String,
    kind: String,
}

impl From<Gvk> for TypeMeta {
    fn from(kind: Gvk) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: (*kind.kind).to_owned(),
        }
    }
}

impl TryFrom<TypeMeta> for Gvk {
    type Error = InvalidApiVersion;

    fn try_from(TypeMeta { api_version, kind }: TypeMeta) -> Result<Self, InvalidApiVersion> {
        Self::parse(&api_version, &kind)
    }
}

/// An `apiVersion` that is neither `version` nor `group/version`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an apiVersion: use group/version, or version alone for the core group")]
pub struct InvalidApiVersion(
    /// The text as given.
    pub String,
);

impl Gvk {
    /// Creates a kind from group, version and kind.
    pub fn new(
        group: impl Into<Arc<str>>,
        version: impl Into<Arc<str>>,
        kind: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Parses `apiVersion` and `kind` as a manifest states them.
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, InvalidApiVersion> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        // `/v1` is no other form of `v1`.
        let grouped = api_version.contains('/');
        if version.is_empty() || version.contains('/') || (grouped && group.is_empty()) {
            return Err(InvalidApiVersion(api_version.to_owned()));
        }
        Ok(Self::new(group, version, kind))
    }

    /// Returns `group/version`, or `version` alone for the core group.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the kind without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: Arc::clone(&self.group),
            kind: Arc::clone(&self.kind),
        }
    }
}

/// `apps/v1 Deployment`.
impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

/// A kind's scope.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::Display,
)]
pub enum Scope {
    /// Every object is in a namespace.
    Namespaced,
    /// Objects are in no namespace.
    Cluster,
}

/// An object's identity for users: a later object with the same name has the same identity, but another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The kind.
    pub kind: GroupKind,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectId {
    /// Creates an identity.
    pub fn new(kind: GroupKind, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.map(Arc::from),
            name: Arc::from(name),
        }
    }

    /// Returns `<group>/<kind>/<namespace>/<name>`; the core group is empty, and so is a cluster-scoped object's
    /// namespace.
    pub fn identity(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let GroupKind { group, kind } = &self.kind;
        format!("{group}/{kind}/{namespace}/{}", self.name)
    }

    /// Parses what [`identity`](Self::identity) returns; `None` for any other text.
    pub fn parse_identity(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let group = parts.next()?;
        let kind = parts.next()?;
        let namespace = parts.next()?;
        let name = parts.next()?;
        if parts.next().is_some() || kind.is_empty() || name.is_empty() {
            return None;
        }
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        Some(Self::new(GroupKind::new(group, kind), namespace, name))
    }
}

/// Compares two children in the order in which the guest receives them: kind, group, namespace, name.
pub fn child_order(left: &ObjectId, right: &ObjectId) -> Ordering {
    fn rank(id: &ObjectId) -> (&str, &str, Option<&str>, &str) {
        let ObjectId {
            kind,
            namespace,
            name,
        } = id;
        (&kind.kind, &kind.group, namespace.as_deref(), name)
    }
    rank(left).cmp(&rank(right))
}

/// `Deployment.apps demo/web`, without `demo/` for cluster-scoped objects.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_round_trip() {
        for text in ["v1", "apps/v1", "gateway.networking.k8s.io/v1beta1"] {
            assert_eq!(Gvk::parse(text, "X").unwrap().api_version(), text);
        }
    }

    #[test]
    fn identities_round_trip() {
        for text in ["apps/Deployment/demo/web", "/Secret/demo/a", "g/K//a"] {
            assert_eq!(ObjectId::parse_identity(text).unwrap().identity(), text);
        }
        for text in ["", "a/b/c", "a/b/c/d/e", "a//c/d", "a/b/c/"] {
            assert_eq!(ObjectId::parse_identity(text), None, "{text}");
        }
    }

    #[test]
    fn children_are_ordered_by_kind_first() {
        let id = |group, kind, name| ObjectId::new(GroupKind::new(group, kind), Some("demo"), name);
        let mut ids = [
            id("", "Service", "a"),
            id("apps", "Deployment", "b"),
            id("", "Service", "0"),
        ];
        ids.sort_by(child_order);
        assert_eq!(ids.map(|id| id.name.to_string()), ["b", "0", "a"]);
    }

    #[test]
    fn rejects_invalid_api_versions() {
        for text in ["", "/v1", "apps/", "a/b/c"] {
            assert_eq!(
                Gvk::parse(text, "X"),
                Err(InvalidApiVersion(text.to_owned()))
            );
        }
    }
}
