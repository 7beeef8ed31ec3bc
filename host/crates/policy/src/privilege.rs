//! The kinds that a grant must confirm with an extra field: privileged kinds, and kinds of Kubernetes itself.

use innkeeper_model::GroupKind;
use serde_json::{Map, Value};

/// Groups whose kinds can change the cluster itself or the permissions in it.
pub const PRIVILEGED_GROUPS: [&str; 6] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "innkeeper.dev",
    "rbac.authorization.k8s.io",
];

/// Privileged kinds of the core group.
pub const PRIVILEGED_CORE_KINDS: [&str; 4] =
    ["Namespace", "Node", "PersistentVolume", "ServiceAccount"];

/// Groups whose kinds set something for the whole cluster, so that a plugin that makes them affects all users of it: the order
/// in which the API server answers, the storage of its objects, the runtime of Pods, and the volumes and their drivers. To read
/// them gives no power.
pub const SETTING_GROUPS: [&str; 5] = [
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "node.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Such kinds of other groups, by group and kind: they send traffic to others, evict Pods, or take devices from them.
pub const SETTING_KINDS: [(&str, &str); 7] = [
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
];

/// Kinds with which a plugin decides about others in the namespaces of its children, whatever the objects contain: where the
/// traffic of a Service goes, what may be created, and who leads. Of these, Kubernetes' own role `edit` has only Leases. To
/// read them gives no power.
pub const INTERFERING_KINDS: [(&str, &str); 5] = [
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
];

/// Groups with a dot that are part of Kubernetes; all groups without a dot are part of it.
pub const BUILT_IN_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Kinds of Kubernetes that a plugin may make in the namespaces of its parents without a grant. They run nothing, give no
/// permission, take no quota from others and redirect no traffic of others, as long as [`reach`] finds nothing in them: the
/// metadata, the type and some fields of such an object are instructions to other controllers.
///
/// A custom kind is not among them, because its controller may do anything for it. An autoscaler starts Pods, and a
/// disruption budget stops the maintenance of nodes.
const HARMLESS_KINDS: [(&str, &str); 4] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "Service"),
];

/// The fields of a Service with which it takes addresses that are not its own, or names a server elsewhere.
pub(super) const FOREIGN_ADDRESSES: [&str; 3] = ["externalIPs", "loadBalancerIP", "externalName"];

/// The prefix of labels and annotations that a plugin may set without a grant, besides keys without one: the recommended
/// labels, which describe an object. Other prefixes name a controller that may act on the object, with more rights than the
/// plugin has: DNS names, deployments, credentials of clusters.
const DESCRIBING_PREFIX: &str = "app.kubernetes.io";

/// The types of Secrets that a plugin may make without a grant: no controller acts on them, Pods and Ingresses name them.
const HARMLESS_SECRET_TYPES: [&str; 7] = [
    "",
    "Opaque",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
];

/// Returns true if a grant of parents, definitions or children of this kind must set `privileged: true`.
pub fn is_privileged(kind: &GroupKind) -> bool {
    is_privileged_to_read(kind)
        || SETTING_GROUPS.contains(&&*kind.group)
        || SETTING_KINDS.contains(&(&*kind.group, &*kind.kind))
        || is_interfering(kind)
}

/// Returns true if objects of this kind decide about others in their namespace.
pub(super) fn is_interfering(kind: &GroupKind) -> bool {
    INTERFERING_KINDS.contains(&(&*kind.group, &*kind.kind))
}

/// Returns true if a grant of reads of this kind must set `privileged: true`.
pub fn is_privileged_to_read(kind: &GroupKind) -> bool {
    PRIVILEGED_GROUPS.contains(&&*kind.group)
        || (kind.group.is_empty() && PRIVILEGED_CORE_KINDS.contains(&&*kind.kind))
}

/// Returns true if a grant of parents of this kind must set `builtin: true`.
pub fn is_built_in(kind: &GroupKind) -> bool {
    !kind.group.contains('.') || BUILT_IN_GROUPS.contains(&&*kind.group)
}

/// Returns true if the kind is Secret, which is never a parent and which guests see as hashes by default.
pub fn is_secret(kind: &GroupKind) -> bool {
    kind.group.is_empty() && &*kind.kind == "Secret"
}

/// Returns true if a plugin without grants may make children of this kind.
pub(super) fn needs_no_grant(kind: &GroupKind) -> bool {
    HARMLESS_KINDS.contains(&(&*kind.group, &*kind.kind))
}

/// Returns the field with which an object of a kind that needs no grant reaches beyond its namespace: addresses and ports
/// that it takes from others, a name of another server, a volume of the cluster, and everything that another controller
/// obeys.
pub(super) fn reach(kind: &GroupKind, object: &Map<String, Value>) -> Option<String> {
    foreign_key(object).or_else(|| {
        let field = match (&*kind.group, &*kind.kind) {
            ("", "Secret") => {
                let secret_type = object.get("type").and_then(Value::as_str);
                let is_foreign = secret_type.is_some_and(|it| !HARMLESS_SECRET_TYPES.contains(&it));
                return is_foreign.then(|| "type".to_owned());
            }
            ("", "Service") => service_reach(object.get("spec")?),
            ("", "PersistentVolumeClaim") => claim_reach(object.get("spec")?),
            _ => None,
        };
        field.map(|field| format!("spec.{field}"))
    })
}

/// Returns the first label or annotation with the prefix of another controller.
fn foreign_key(object: &Map<String, Value>) -> Option<String> {
    let metadata = object.get("metadata")?;
    let is_foreign = |key: &str| {
        let prefix = key.split_once('/').map(|(prefix, _)| prefix);
        prefix.is_some_and(|prefix| prefix != DESCRIBING_PREFIX)
    };
    ["labels", "annotations"].into_iter().find_map(|field| {
        let mut keys = metadata[field].as_object()?.keys();
        let key = keys.find(|key| is_foreign(key))?;
        Some(format!("metadata.{field}.{key}"))
    })
}

fn service_reach(spec: &Value) -> Option<&'static str> {
    let service_type = spec["type"].as_str().unwrap_or("ClusterIP");
    let is_chosen = |address: &Value| {
        address
            .as_str()
            .is_some_and(|it| !matches!(it, "" | "None"))
    };
    let cluster_addresses = spec["clusterIPs"].as_array().into_iter().flatten();
    (service_type != "ClusterIP")
        .then_some("type")
        .or_else(|| first_set(spec, &FOREIGN_ADDRESSES))
        .or_else(|| is_chosen(&spec["clusterIP"]).then_some("clusterIP"))
        .or_else(|| {
            cluster_addresses
                .into_iter()
                .any(is_chosen)
                .then_some("clusterIPs")
        })
}

fn claim_reach(spec: &Value) -> Option<&'static str> {
    // Without a class, a claim takes an existing volume of the cluster, such as a directory of a node.
    let has_no_class = spec["storageClassName"].as_str() == Some("");
    first_set(
        spec,
        &["volumeName", "selector", "dataSource", "dataSourceRef"],
    )
    .or_else(|| has_no_class.then_some("storageClassName"))
}

/// Returns the first of the fields that has a value.
pub(super) fn first_set(spec: &Value, fields: &[&'static str]) -> Option<&'static str> {
    let is_set = |field: &&'static str| match &spec[*field] {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    fields.iter().copied().find(is_set)
}
