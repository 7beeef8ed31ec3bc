//! One desired child and what is to happen with it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use crate::stated::Stated;

/// When a child is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyPolicy {
    /// Created when missing and kept as stated.
    #[default]
    Always,
    /// Created when missing, never written again.
    Once,
    /// Never created, written or pruned: an existing child stays in the set as it is.
    Hold,
}

/// What becomes of a child when the parent goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemovalPolicy {
    /// Owned by the parent and collected with it; pruned when it leaves the answer.
    #[default]
    Delete,
    /// Never deleted by the host, and observed again by a later parent of the same identity.
    Retain,
}

/// Who decides whether a child is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The host, from the object's status and kind.
    #[default]
    Derive,
    /// The reconciler says that it is.
    Ready,
    /// The reconciler says that it is not.
    NotReady,
}

/// A value of a Secret that the host makes when it creates the Secret; no guest ever sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The key below the Secret's `data`.
    pub key: String,
    /// How many characters; 1 to 1024.
    pub length: u32,
    /// The characters to draw from: printable ASCII, each at most once, at least two.
    pub alphabet: String,
}

/// Letters and digits, for [`Child::generate`].
pub const ALPHANUMERIC: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// One desired child.
///
/// ```
/// use innkeeper_sdk::child::{ALPHANUMERIC, Child};
/// use k8s_openapi::api::core::v1::Secret;
/// use kube::core::ObjectMeta;
///
/// let secret = Secret {
///     metadata: ObjectMeta { name: Some("blog-mysql".to_owned()), ..Default::default() },
///     ..Default::default()
/// };
/// let child = Child::new("db-secret", &secret)
///     .once()
///     .retain()
///     .not_ready()
///     .generate("password", 32, ALPHANUMERIC);
/// assert_eq!(child.object["metadata"]["name"], "blog-mysql");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Names the child within the answer and in later passes.
    pub key: String,
    /// The fields that the plugin cares about; everything else is left to others.
    pub object: Stated,
    /// Data keys of a Secret that the host fills when it creates the Secret.
    pub generate: Vec<Generated>,
    /// When the child is written.
    pub apply: ApplyPolicy,
    /// What becomes of it when the parent goes.
    pub removal: RemovalPolicy,
    /// Who decides whether it is ready.
    pub readiness: Readiness,
    /// Keys of this answer that must be ready before it is created for the first time.
    pub after: Vec<String>,
}

impl Child {
    /// A child that is kept as stated, goes with the parent, and whose readiness the host derives.
    ///
    /// The object is any Kubernetes object: of a typed crate, of a derive, or `serde_json::Value`.
    /// Null members and an empty `status` are left out, because a server-side apply would own them.
    ///
    /// # Panics
    ///
    /// Where the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn new(key: impl Into<String>, object: &impl Serialize) -> Self {
        Self {
            key: key.into(),
            object: Stated::new(object),
            generate: Vec::new(),
            apply: ApplyPolicy::Always,
            removal: RemovalPolicy::Delete,
            readiness: Readiness::Derive,
            after: Vec::new(),
        }
    }

    /// Created when missing, never written again.
    pub const fn once(mut self) -> Self {
        self.apply = ApplyPolicy::Once;
        self
    }

    /// Never created, written or pruned: an existing child stays as it is.
    pub const fn hold(mut self) -> Self {
        self.apply = ApplyPolicy::Hold;
        self
    }

    /// Sets when the child is written, where that is computed.
    pub const fn apply(mut self, policy: ApplyPolicy) -> Self {
        self.apply = policy;
        self
    }

    /// Stays when the parent goes.
    pub const fn retain(mut self) -> Self {
        self.removal = RemovalPolicy::Retain;
        self
    }

    /// Sets what becomes of the child, where that is computed.
    pub const fn removal(mut self, policy: RemovalPolicy) -> Self {
        self.removal = policy;
        self
    }

    /// The reconciler says that the child is ready.
    pub const fn ready(mut self) -> Self {
        self.readiness = Readiness::Ready;
        self
    }

    /// The reconciler says that the child is not ready.
    pub const fn not_ready(mut self) -> Self {
        self.readiness = Readiness::NotReady;
        self
    }

    /// Sets who decides about readiness, where that is computed.
    pub const fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Created for the first time only after the children of these keys are ready.
    pub fn after<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.after.extend(keys.into_iter().map(Into::into));
        self
    }

    /// The host fills this data key of the Secret with random characters when it creates the
    /// Secret.
    pub fn generate(
        mut self,
        key: impl Into<String>,
        length: u32,
        alphabet: impl Into<String>,
    ) -> Self {
        self.generate.push(Generated {
            key: key.into(),
            length,
            alphabet: alphabet.into(),
        });
        self
    }

    /// The object's kind; empty if it has none.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The object's name; empty if it has none.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// A kind and name as the conditions of the shared rules write them: `Secret/blog-mysql`.
    pub fn kind_and_name(&self) -> String {
        format!("{}/{}", self.kind(), self.name())
    }

    fn text(&self, pointer: &str) -> &str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// The metadata of a child: a name and labels.
///
/// The namespace is left out: a namespaced parent's children live in its own.
pub fn metadata(
    name: impl Into<String>,
    labels: &std::collections::BTreeMap<String, String>,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        labels: (!labels.is_empty()).then(|| labels.clone()),
        ..ObjectMeta::default()
    }
}
