//! Desired children, and the policies for creating, writing and removing them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::stated::Stated;

/// When the host writes a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplyPolicy {
    /// Created when missing, and written again whenever a stated field differs.
    #[default]
    Always,
    /// Created when missing, never written again.
    Once,
    /// Never created, written or pruned: an existing child stays unchanged.
    Hold,
}

/// What happens to a child when the parent is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalPolicy {
    /// Owned by the parent: deleted with it, and pruned when an answer leaves it out.
    #[default]
    Delete,
    /// Never deleted by the host. A later parent with the same kind, namespace and name observes it again.
    Retain,
}

/// Where a child's readiness comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// The host derives it from the object's kind and status.
    #[default]
    Derive,
    /// The reconciler states that the child is ready.
    Ready,
    /// The reconciler states that the child is not ready.
    NotReady,
}

/// A random value that the host generates when it creates a Secret; no guest ever sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generated {
    /// The key below the Secret's `data`.
    pub key: String,
    /// The length: 1 to 1024 characters.
    pub length: u32,
    /// The characters to draw from: at least two, printable ASCII, without duplicates.
    pub alphabet: String,
    /// The rotation token: when it changes, the host draws a new value. None: the value never changes.
    pub token: Option<String>,
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
/// let child = Child::untyped("db-secret", &secret)
///     .once()
///     .retain()
///     .not_ready()
///     .generate("password", 32, ALPHANUMERIC);
/// assert_eq!(child.object["metadata"]["name"], "blog-mysql");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The child's name in this answer and later passes: unique, 1 to 253 characters.
    pub key: String,
    /// The fields that the plugin owns; other field managers own the rest.
    pub object: Stated,
    /// Data keys that the host fills when it creates the Secret.
    pub generate: Vec<Generated>,
    /// The policy for writing the child.
    pub apply: ApplyPolicy,
    /// The policy for the child when the parent is deleted.
    pub removal: RemovalPolicy,
    /// The source of the child's readiness.
    pub readiness: Readiness,
    /// Keys in this answer: the host creates the child when these children are ready, and keeps it afterwards in any
    /// case.
    pub after: Vec<String>,
}

impl Child {
    /// A child of any kind with the default policies: applied as stated, deleted with the parent, readiness derived by
    /// the host.
    ///
    /// For kinds without a Rust type, which [`Manifest::untyped_child`](crate::manifest::Manifest::untyped_child) declares.
    /// [`Context::child`](crate::context::Context::child) and [`ChildKinds::child`](crate::kinds::ChildKinds::child) take
    /// the others.
    /// Null members and an empty `status` are left out: [`absent`](Self::absent) states that a field is absent.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// let service = json!({
    ///     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "north"},
    ///     "spec": {"ports": [{"port": 80}]},
    /// });
    /// let child = Child::untyped("service", &service);
    /// assert_eq!(child.apply, ApplyPolicy::Always);
    /// assert_eq!(child.removal, RemovalPolicy::Delete);
    /// assert_eq!(child.readiness, Readiness::Derive);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn untyped(key: impl Into<String>, object: &impl Serialize) -> Self {
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

    /// States that the field at a JSON pointer is absent: the host removes it, whoever set it.
    ///
    /// The API server may have set a default that no longer fits a later answer; leaving the field out would keep it.
    /// A field whose default the API server sets again cannot be absent.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// let deployment = json!({
    ///     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "north"},
    ///     "spec": {"strategy": {"type": "Recreate"}},
    /// });
    /// // The default of an earlier answer without a strategy; the API server refuses it beside `Recreate`.
    /// let child = Child::untyped("web", &deployment).absent("/spec/strategy/rollingUpdate");
    /// assert!(child.object["spec"]["strategy"]["rollingUpdate"].is_null());
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the text is no pointer, or leads through something other than objects.
    pub fn absent(mut self, pointer: &str) -> Self {
        let steps = pointer.strip_prefix('/');
        assert!(steps.is_some(), "{pointer:?} is no JSON pointer");
        let mut field = &mut *self.object;
        for step in steps.into_iter().flat_map(|steps| steps.split('/')) {
            let name = step.replace("~1", "/").replace("~0", "~");
            if field.is_null() {
                *field = Value::Object(Map::new());
            }
            assert!(field.is_object(), "{pointer:?} leads through {field}");
            field = &mut field[name];
        }
        *field = Value::Null;
        self
    }

    /// Makes the host create the child when it is missing, and never write it again.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// // The users edit it afterwards.
    /// let page = json!({
    ///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "north-page"},
    ///     "data": {"index.html": "under construction"},
    /// });
    /// let child = Child::untyped("page", &page).once();
    /// assert_eq!(child.apply, ApplyPolicy::Once);
    /// ```
    pub const fn once(mut self) -> Self {
        self.apply = ApplyPolicy::Once;
        self
    }

    /// Makes the host neither create, write nor prune the child: an existing one stays unchanged.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// /// Returns the water, or holds the existing one while the depth is unknown.
    /// fn water(name: &str, depth: Option<u32>) -> Child {
    ///     let object = json!({
    ///         "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
    ///         "data": {"depth": depth.unwrap_or_default().to_string()},
    ///     });
    ///     let child = Child::untyped("water", &object);
    ///     if depth.is_some() { child } else { child.hold() }
    /// }
    ///
    /// assert_eq!(water("north", None).apply, ApplyPolicy::Hold);
    /// assert_eq!(water("north", Some(2)).apply, ApplyPolicy::Always);
    /// ```
    pub const fn hold(mut self) -> Self {
        self.apply = ApplyPolicy::Hold;
        self
    }

    /// Sets the policy for writing the child.
    pub const fn apply(mut self, policy: ApplyPolicy) -> Self {
        self.apply = policy;
        self
    }

    /// Keeps the child when the parent is deleted.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// let data = json!({
    ///     "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "north-data"},
    ///     "spec": {
    ///         "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    ///     },
    /// });
    /// let child = Child::untyped("data", &data).retain();
    /// assert_eq!(child.removal, RemovalPolicy::Retain);
    /// ```
    pub const fn retain(mut self) -> Self {
        self.removal = RemovalPolicy::Retain;
        self
    }

    /// Sets the policy for the child when the parent is deleted.
    pub const fn removal(mut self, policy: RemovalPolicy) -> Self {
        self.removal = policy;
        self
    }

    /// States that the child is ready.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// // The host knows no status of this kind.
    /// let river = json!({
    ///     "apiVersion": "example.com/v1", "kind": "River", "metadata": {"name": "north"},
    /// });
    /// let flows = |observed: Option<&Observed>| {
    ///     observed.is_some_and(|river| river.object()["status"]["flows"] == true)
    /// };
    /// let child = Child::untyped("river", &river);
    /// let child = if flows(None) { child.ready() } else { child.not_ready() };
    /// assert_eq!(child.readiness, Readiness::NotReady);
    /// assert_eq!(child.ready().readiness, Readiness::Ready);
    /// ```
    pub const fn ready(mut self) -> Self {
        self.readiness = Readiness::Ready;
        self
    }

    /// States that the child is not ready.
    ///
    /// See [`ready`](Self::ready) for an example.
    pub const fn not_ready(mut self) -> Self {
        self.readiness = Readiness::NotReady;
        self
    }

    /// Sets the source of the child's readiness.
    pub const fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Delays the first creation of the child until the children of these keys are ready.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// let deployment = json!({
    ///     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "north"},
    /// });
    /// // `database` is the key of another child.
    /// let site = Child::untyped("site", &deployment).after(["database"]);
    /// assert_eq!(site.after, ["database"]);
    /// ```
    pub fn after<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.after.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Makes the host generate this data key when it creates the Secret.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// let secret = json!({
    ///     "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "north-key"},
    /// });
    /// let child = Child::untyped("key", &secret).generate("password", 32, ALPHANUMERIC);
    /// // The plugin never sees the value.
    /// assert!(child.object.get("data").is_none());
    /// assert_eq!((&*child.generate[0].key, child.generate[0].length), ("password", 32));
    /// ```
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
            token: None,
        });
        self
    }

    /// Sets the rotation token for the last generated value: when it changes, the host draws a new value.
    ///
    /// The first token of an existing value also rotates it, so set none until someone asks for a rotation.
    /// It is not secret, has 1 to 253 printable ASCII characters, and needs the policy `always`.
    ///
    /// ```
    /// use innkeeper_sdk::child::{ALPHANUMERIC, Child};
    /// use serde_json::json;
    ///
    /// let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "blog-mysql"}});
    /// // For example from an annotation of the parent.
    /// let asked = Some("2026-11-25");
    /// let child = Child::untyped("db-secret", &secret).generate("password", 32, ALPHANUMERIC);
    /// let child = match asked {
    ///     Some(token) => child.token(token),
    ///     None => child,
    /// };
    /// assert_eq!(child.generate[0].token.as_deref(), Some("2026-11-25"));
    /// ```
    pub fn token(mut self, token: impl Into<String>) -> Self {
        if let Some(generated) = self.generate.last_mut() {
            generated.token = Some(token.into());
        }
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

    /// Kind and name as conditions write them: `Secret/blog-mysql`.
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

/// Returns metadata with a name and labels.
///
/// It has no namespace, because a namespaced parent's children are in the parent's namespace.
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

/// Returns whether the text is a DNS subdomain (RFC 1123), which the names of most objects must be.
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(is_allowed)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
