//! Observed children.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::child::Child;
use crate::fault::Fault;
use crate::hash::{Hashed, short_hash};
pub use crate::prediction::Reads;

/// An observed child; the JSON is parsed on first use.
///
/// # Reading little
///
/// After an answer that creates or changes children, the SDK predicts the next report, which saves a call: it runs the
/// reconciler once more with the children as just stated. The prediction holds if the API server answers with the same
/// values in the parts that this run has read. So read what the report needs: whether the child
/// [exists](Children::exists), its [`status`](Self::status), [`generation`](Self::generation),
/// [`is_stale`](Self::is_stale), an [`annotation`](Self::annotation) or another [`field`](Self::field), or several
/// [`parts`](Self::parts).
/// [`whole`](Self::whole), [`object`](Self::object) and [`raw`](Self::raw) read the whole object, which the API server
/// always completes: then there is no prediction. Reads of other children, which the answer leaves alone, do not matter.
///
/// ```
/// use innkeeper_sdk::testing::TestRequest;
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Default, Deserialize)]
/// #[serde(default, rename_all = "camelCase")]
/// struct Pods {
///     ready_replicas: i32,
/// }
///
/// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
/// let deployment = json!({
///     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "generation": 2},
///     "spec": {"replicas": 3}, "status": {"observedGeneration": 2, "readyReplicas": 1},
/// });
/// let request = TestRequest::new(&pond).child("web", &deployment).build();
/// let web = request.children.by_key("web").unwrap();
/// assert_eq!(web.status::<Pods>().unwrap().ready_replicas, 1);
/// assert_eq!((web.generation(), web.is_stale()), (2, false));
/// assert_eq!(web.field("/spec/replicas").unwrap(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Observed {
    /// The key under which an earlier answer stated it; none if no answer did.
    pub key: Option<String>,
    /// Whether the host keeps the child without an owner; a former parent with the same kind, namespace and name may
    /// have stated it.
    pub retained: bool,
    text: String,
    head: OnceCell<Head>,
    value: OnceCell<Value>,
    reads: Reads,
}

/// An object's identity, parsed without the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: HeadMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HeadMetadata {
    name: String,
    pub(crate) namespace: String,
    pub(crate) generation: i64,
    deletion_timestamp: Option<String>,
}

impl Observed {
    /// A child from JSON text.
    pub fn new(key: Option<String>, retained: bool, object: String) -> Self {
        Self {
            key,
            retained,
            text: object,
            head: OnceCell::new(),
            value: OnceCell::new(),
            reads: Reads::default(),
        }
    }

    /// The child with a record of the parts that are read.
    pub(crate) fn recorded(mut self) -> Self {
        self.reads = Reads::recorded();
        self
    }

    /// The child with a known identity, which is not parsed again.
    pub(crate) fn with_head(mut self, head: Head) -> Self {
        self.head = head.into();
        self
    }

    /// The object as JSON, `status` included; null if the text is not JSON, which the host rules
    /// out.
    pub fn object(&self) -> &Value {
        self.reads.whole();
        self.tree()
    }

    /// The object as JSON text.
    pub fn raw(&self) -> &str {
        self.reads.whole();
        &self.text
    }

    /// The object, typed.
    ///
    /// # Errors
    ///
    /// `retry` with kind, name and the field that does not parse.
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        self.reads.whole();
        self.typed()
    }

    /// The object, typed, for a type with few fields whose reads the caller [records](Reads::add) itself.
    ///
    /// # Errors
    ///
    /// As [`whole`](Self::whole).
    pub fn parse_recorded<T: DeserializeOwned>(&self) -> Result<(T, Reads), Fault> {
        Ok((self.typed()?, self.reads.clone()))
    }

    /// The object, typed, with its identity and the parts at these JSON pointers (RFC 6901); all else reads as absent.
    ///
    /// Use it for several parts. Pointers should lead to single members of labels, annotations and the spec, because the
    /// API server and the host add others. Of a list, items before the one in a pointer read as null.
    ///
    /// # Errors
    ///
    /// As [`whole`](Self::whole).
    pub fn parts<T: DeserializeOwned>(&self, pointers: &[&str]) -> Result<T, Fault> {
        for pointer in pointers {
            self.reads.add(pointer);
        }
        let identity = [
            "/apiVersion",
            "/kind",
            "/metadata/name",
            "/metadata/namespace",
        ];
        let mut parts = json!({});
        for pointer in identity.iter().chain(pointers) {
            // An absent part leaves no object on the way either: whether that exists is not recorded.
            if self.tree().pointer(pointer).is_some() {
                copy_part(self.tree(), &mut parts, pointer);
            }
        }
        T::deserialize(parts).map_err(|problem| self.unparsable(&problem))
    }

    /// The status, typed; the default if there is none.
    ///
    /// # Errors
    ///
    /// As [`whole`](Self::whole).
    pub fn status<T: DeserializeOwned + Default>(&self) -> Result<T, Fault> {
        #[derive(Deserialize)]
        struct WithStatus<T> {
            status: Option<T>,
        }
        self.reads.add("/status");
        let WithStatus { status } = self.typed()?;
        Ok(status.unwrap_or_default())
    }

    /// `metadata.generation`, which grows with each change of the spec; 0 if the kind has none.
    pub fn generation(&self) -> i64 {
        self.reads.add("/metadata/generation");
        self.head().metadata.generation
    }

    /// The value at a JSON pointer (RFC 6901), such as `/spec/replicas`; none if the object has no such part.
    pub fn field(&self, pointer: &str) -> Option<&Value> {
        self.reads.add(pointer);
        self.tree().pointer(pointer)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.field(&annotation_pointer(key))?.as_str()
    }

    fn typed<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_str(&self.text).map_err(|problem| self.unparsable(&problem))
    }

    fn unparsable(&self, problem: &serde_json::Error) -> Fault {
        let (kind, name) = (self.kind(), self.name());
        Fault::retry(format!(
            "failed to parse the child {kind}/{name}: {problem}"
        ))
    }

    pub(crate) fn tree(&self) -> &Value {
        self.value
            .get_or_init(|| serde_json::from_str(&self.text).unwrap_or_default())
    }

    pub(crate) const fn reads(&self) -> &Reads {
        &self.reads
    }

    /// `group/version` of the object.
    pub fn api_version(&self) -> &str {
        &self.head().api_version
    }

    /// The object's kind.
    pub fn kind(&self) -> &str {
        &self.head().kind
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.head().metadata.name
    }

    /// The object's namespace; empty for a cluster-scoped kind.
    pub fn namespace(&self) -> &str {
        &self.head().metadata.namespace
    }

    /// Returns whether the child is being deleted: it still exists, but the host neither writes it nor counts it as
    /// ready.
    pub fn is_deleting(&self) -> bool {
        self.head().metadata.deletion_timestamp.is_some()
    }

    /// Returns whether the object's status is older than the spec (`status.observedGeneration` below
    /// `metadata.generation`).
    ///
    /// Two absent numbers count as equal.
    pub fn is_stale(&self) -> bool {
        let observed = self.field("/status/observedGeneration");
        observed.and_then(Value::as_i64).unwrap_or(0) < self.generation()
    }

    /// Returns whether the object has this kind, in any version.
    pub fn is<T: Resource<DynamicType = ()>>(&self) -> bool {
        self.is_kind(&T::group(&()), &T::kind(&()))
    }

    fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.kind() == kind && group_of(self.api_version()) == group
    }

    fn head(&self) -> &Head {
        self.head
            .get_or_init(|| serde_json::from_str(&self.text).unwrap_or_default())
    }
}

/// Returns whether an object's status is older than the spec: `status.observedGeneration` below
/// `metadata.generation`.
///
/// Two absent numbers count as equal.
pub fn is_stale(object: &Value) -> bool {
    let number = |pointer| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    number("/status/observedGeneration") < number("/metadata/generation")
}

/// Returns the JSON pointer of an annotation, for [`Reads::add`].
pub fn annotation_pointer(key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/metadata/annotations/{key}")
}

/// Copies the part at a JSON pointer, if it exists, to the same place.
fn copy_part(from: &Value, to: &mut Value, pointer: &str) {
    let Some(path) = pointer.strip_prefix('/') else {
        to.clone_from(from);
        return;
    };
    let (token, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    match from {
        Value::Object(members) => {
            let name = token.replace("~1", "/").replace("~0", "~");
            if let Some(member) = members.get(&name) {
                copy_part(member, &mut to[name], rest);
            }
        }
        Value::Array(items) => {
            let index = token.parse().unwrap_or(usize::MAX);
            if let Some(item) = items.get(index) {
                if to.is_null() {
                    *to = json!([]);
                }
                if let Some(copies) = to.as_array_mut() {
                    copies.resize(copies.len().max(index + 1), Value::Null);
                }
                copy_part(item, &mut to[index], rest);
            }
        }
        _ => {}
    }
}

pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// All children of the parent, sorted by kind, namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Children(Vec<Observed>);

impl Children {
    /// A list of these children, in this order.
    pub fn new(children: Vec<Observed>) -> Self {
        Self(children)
    }

    /// The child that an earlier answer stated under this key; the first one of several.
    pub fn by_key(&self, key: &str) -> Option<&Observed> {
        self.iter().find(|child| child.key.as_deref() == Some(key))
    }

    /// Returns whether a child that an earlier answer stated under this key exists and is not being deleted.
    pub fn exists(&self, key: &str) -> bool {
        self.by_key(key).is_some_and(|child| !child.is_deleting())
    }

    /// Holds all existing children except those that `edit` changes; none if it changes none.
    ///
    /// `edit` gets each observed child with the held replacement. Children that are being deleted stay unchanged.
    pub fn hold_except(
        &self,
        edit: impl Fn(&Observed, &Child) -> Option<Child>,
    ) -> Option<Vec<Child>> {
        let mut taken = BTreeSet::new();
        let mut is_changed = false;
        let hold = |observed: &Observed| {
            let mut metadata = json!({ "name": observed.name() });
            // A cluster-scoped parent's child must set a namespace.
            if !observed.namespace().is_empty() {
                metadata["namespace"] = observed.namespace().into();
            }
            let object = json!({
                "apiVersion": observed.api_version(), "kind": observed.kind(), "metadata": metadata,
            });
            // The old and the new object of a renamed child have one key, and an answer's keys are unique.
            let own = observed.key.clone().filter(|key| taken.insert(key.clone()));
            let place = (
                observed.api_version(),
                observed.kind(),
                observed.namespace(),
                observed.name(),
            );
            let identity = format!("{}/{}/{}/{}", place.0, place.1, place.2, place.3);
            let key = own.unwrap_or_else(|| format!("held-{}", short_hash(&identity)));
            let child = Child::untyped(key, &object).hold();
            let child = if observed.retained {
                child.retain()
            } else {
                child
            };
            let changed = (!observed.is_deleting())
                .then(|| edit(observed, &child))
                .flatten();
            is_changed |= changed.is_some();
            changed.unwrap_or(child)
        };
        let children = self.iter().map(hold).collect();
        is_changed.then_some(children)
    }

    /// The child of this kind and name.
    pub fn find<T: Resource<DynamicType = ()>>(&self, name: &str) -> Option<&Observed> {
        self.iter()
            .find(|child| child.is::<T>() && child.name() == name)
    }

    /// The child of this kind and name, for kinds without a Rust type.
    pub fn find_as(&self, api_version: &str, kind: &str, name: &str) -> Option<&Observed> {
        let group = group_of(api_version);
        self.iter()
            .find(|child| child.is_kind(group, kind) && child.name() == name)
    }

    /// The child of this kind and name, typed.
    ///
    /// # Errors
    ///
    /// `retry` with the field that does not parse.
    pub fn get<T>(&self, name: &str) -> Result<Option<T>, Fault>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.find::<T>(name).map(Observed::whole).transpose()
    }

    /// The observed Secret of this name, with hashes instead of values.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn hashed_secret(&self, name: &str) -> Result<Option<Hashed>, Fault> {
        self.find::<Secret>(name).map(Observed::whole).transpose()
    }

    /// The observed ConfigMap of this name, with hashes instead of values if only hashes are granted.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn hashed_config_map(&self, name: &str) -> Result<Option<Hashed>, Fault> {
        self.find::<ConfigMap>(name)
            .map(Observed::whole)
            .transpose()
    }

    /// The children of this kind, by namespace and name.
    pub fn of_kind<T: Resource<DynamicType = ()>>(&self) -> impl Iterator<Item = &Observed> {
        self.iter().filter(|child| child.is::<T>())
    }

    /// The children of this kind, typed, by namespace and name.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn all<T>(&self) -> Result<Vec<T>, Fault>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.of_kind::<T>().map(Observed::whole).collect()
    }

    /// Returns whether the parent has an object with this child's kind and name that is not being deleted.
    pub fn has(&self, child: &Child) -> bool {
        let api_version = child.object.get("apiVersion").and_then(Value::as_str);
        self.find_as(api_version.unwrap_or_default(), child.kind(), child.name())
            .is_some_and(|observed| !observed.is_deleting())
    }

    /// Protects a child that refers to others by name, such as a Certificate or an Ingress for a Service.
    ///
    /// An object with that name can belong to another owner. The host therefore creates the child only when the others
    /// belong to the parent, and holds an existing child while one of them does not.
    ///
    /// ```
    /// use innkeeper_sdk::child::ApplyPolicy;
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::TestRequest;
    /// use serde_json::json;
    ///
    /// let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "north"}});
    /// let service = Child::untyped("service", &object("Service"));
    /// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
    /// let certificate = Child::untyped("certificate", &object("Certificate"));
    ///
    /// let request = TestRequest::new(&pond).child("certificate", &object("Certificate")).build();
    /// let vouching = request.children.vouch(certificate.clone(), [&service]);
    /// assert_eq!((vouching.apply, &*vouching.after), (ApplyPolicy::Hold, &["service".to_owned()][..]));
    ///
    /// let request = TestRequest::new(&pond).child("service", &object("Service")).build();
    /// assert_eq!(request.children.vouch(certificate, [&service]).apply, ApplyPolicy::Always);
    /// ```
    pub fn vouch<'a>(&self, child: Child, named: impl IntoIterator<Item = &'a Child>) -> Child {
        let exists = self.has(&child);
        named.into_iter().fold(child, |child, named| {
            let child = child.after([named.key.as_str()]);
            if exists && !self.has(named) {
                child.hold()
            } else {
                child
            }
        })
    }

    /// Iterates over all children.
    pub fn iter(&self) -> std::slice::Iter<'_, Observed> {
        self.0.iter()
    }

    /// All children as a slice.
    pub fn raw(&self) -> &[Observed] {
        &self.0
    }

    /// The number of children.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no child.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Children {
    type Item = &'a Observed;
    type IntoIter = std::slice::Iter<'a, Observed>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Secret, Service};
    use serde_json::{Value, json};

    use super::{Children, is_stale};
    use crate::fault::FaultKind;
    use crate::testing::TestRequest;

    fn children() -> Children {
        let object = |api_version: &str, kind: &str, name: &str| {
            let metadata = json!({"name": name});
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        };
        let mut broken = object("apps/v1", "Deployment", "broken");
        broken["spec"]["replicas"] = json!("three");
        let mut going = object("v1", "Service", "going");
        going["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        TestRequest::new(&object("example.com/v1", "Pond", "pond"))
            .child("service", &object("v1", "Service", "web"))
            .child("going", &going)
            .child(
                "knative",
                &object("serving.knative.dev/v1", "Service", "web"),
            )
            .child("web", &object("apps/v1", "Deployment", "web"))
            .observed(None, false, &broken)
            .retained("secret", &{
                let mut secret = object("v1", "Secret", "password");
                secret["stringData"]["password"] = json!("hunter2");
                secret
            })
            .build()
            .children
    }

    #[test]
    fn finds_children_by_kind_and_name_in_any_version() {
        let children = children();
        assert_eq!(
            children.find::<Service>("web").unwrap().key.as_deref(),
            Some("service")
        );
        let knative = children
            .find_as("serving.knative.dev/v1beta1", "Service", "web")
            .unwrap();
        assert_eq!(knative.key.as_deref(), Some("knative"));
        assert_eq!(children.of_kind::<Service>().count(), 2);
        assert_eq!(children.by_key("web").unwrap().kind(), "Deployment");
        assert!(children.get::<Deployment>("web").unwrap().is_some());
        assert!(children.get::<Deployment>("none").unwrap().is_none());
        assert!(children.find::<Service>("going").unwrap().is_deleting());
        let exist = ["web", "going", "none"].map(|key| children.exists(key));
        assert_eq!(exist, [true, false, false]);
    }

    #[test]
    fn names_the_child_that_does_not_parse() {
        let fault = children().all::<Deployment>().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Retry);
        assert!(
            fault
                .message
                .starts_with("failed to parse the child Deployment/broken: invalid type: string"),
            "{}",
            fault.message,
        );
    }

    #[test]
    fn shows_a_secret_as_hashes() {
        let children = children();
        let secret = children.hashed_secret("password").unwrap().unwrap();
        assert!(
            secret
                .hash_of("password")
                .unwrap()
                .starts_with("hmac-sha256:")
        );
        assert!(children.find::<Secret>("password").unwrap().retained);
        assert!(
            !children
                .raw()
                .iter()
                .any(|child| child.raw().contains("hunter2"))
        );
    }

    #[test]
    fn parses_the_named_parts_alone() {
        let metadata =
            json!({"name": "a", "uid": "7f", "annotations": {"example.com/a~b": "1", "c": "2"}});
        let ports = json!([{"port": 80, "name": "web"}, {"port": 81}]);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports},
            "status": {"loadBalancer": {}},
        });
        let request = TestRequest::new(&service).child("a", &service).build();
        let service = request.children.by_key("a").unwrap();
        let pointers = [
            "/metadata/annotations/example.com~1a~0b",
            "/spec/ports/0/port",
            "/spec/ports/0/absent",
            "/spec/ports/2",
            "/status/ready",
            "/status/loadBalancer/ingress",
        ];
        let shown: Value = service.parts(&pointers).unwrap();
        let metadata =
            json!({"name": "a", "namespace": "default", "annotations": {"example.com/a~b": "1"}});
        let expected = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]},
        });
        assert_eq!(shown, expected);
        let second: Value = service.parts(&["/spec/ports/1/port"]).unwrap();
        assert_eq!(second["spec"]["ports"], json!([null, {"port": 81}]));
        let absent: Value = service.parts(&["/spec/ports/2/port"]).unwrap();
        assert_eq!(absent["spec"], Value::Null);
    }

    #[test]
    fn knows_a_status_that_is_older_than_its_spec() {
        let object = |generation: i64, observed: i64| {
            let status = json!({"observedGeneration": observed});
            json!({"metadata": {"generation": generation}, "status": status})
        };
        assert!(is_stale(&object(2, 1)));
        assert!(!is_stale(&object(2, 2)));
        assert!(!is_stale(&json!({})));
        assert!(is_stale(&json!({"metadata": {"generation": 1}})));
    }
}
