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
/// permission, take no quota from others and redirect no traffic of others.
///
/// A custom kind is not among them, because its controller may do anything for it. An autoscaler starts Pods, and a
/// disruption budget stops the maintenance of nodes.
const HARMLESS_KINDS: [(&str, &str); 4] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "Service"),
];

/// The types of Secrets that are credentials of the cluster itself.
const CREDENTIAL_TYPES: [&str; 2] = [
    "bootstrap.kubernetes.io/token",
    "kubernetes.io/service-account-token",
];

/// Returns true if a grant of parents, definitions or children of this kind must set `privileged: true`.
pub fn is_privileged(kind: &GroupKind) -> bool {
    is_privileged_to_read(kind)
        || SETTING_GROUPS.contains(&&*kind.group)
        || SETTING_KINDS.contains(&(&*kind.group, &*kind.kind))
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
/// that it takes from others, a name of another server, a volume of the cluster.
pub(super) fn reach(kind: &GroupKind, object: &Map<String, Value>) -> Option<&'static str> {
    let spec = object.get("spec")?;
    let is_set = |field: &str| match &spec[field] {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match (&*kind.group, &*kind.kind) {
        ("", "Service") => {
            let service_type = spec["type"].as_str().unwrap_or("ClusterIP");
            let addresses = ["externalIPs", "loadBalancerIP", "externalName"];
            (service_type != "ClusterIP")
                .then_some("type")
                .or_else(|| addresses.into_iter().find(|field| is_set(field)))
        }
        ("", "PersistentVolumeClaim") => is_set("volumeName").then_some("volumeName"),
        _ => None,
    }
}

/// Returns true if a Secret of this type is a credential of the cluster: the controllers of Kubernetes fill it with the
/// token of a service account, or it admits nodes.
pub(super) fn is_credential(secret_type: &str) -> bool {
    CREDENTIAL_TYPES.contains(&secret_type)
}
