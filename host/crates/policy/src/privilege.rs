//! Kinds that a grant must confirm with an extra field: privileged kinds, and kinds that are part of Kubernetes.

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

/// Privileged core kinds.
pub const PRIVILEGED_CORE_KINDS: [&str; 4] =
    ["Namespace", "Node", "PersistentVolume", "ServiceAccount"];

/// Groups whose kinds affect all users of the cluster: the API server's request order and storage, Pod runtimes,
/// volumes and volume drivers. Reading them gives no power.
pub const SETTING_GROUPS: [&str; 5] = [
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "node.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Such kinds in other groups, by group and kind: they redirect traffic, evict Pods, or take devices from them.
pub const SETTING_KINDS: [(&str, &str); 7] = [
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
];

/// Kinds that affect others in the children's namespaces, whatever the objects contain: where Service traffic goes,
/// what may be created, and who leads. Kubernetes' own role `edit` includes only Leases. Reading them gives no power.
pub const INTERFERING_KINDS: [(&str, &str); 5] = [
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
];

/// Groups with a dot that are part of Kubernetes, as are all groups without a dot.
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

/// Built-in kinds that a plugin may create in the parents' namespaces without a grant. They run nothing, give no
/// permission, use no foreign quota and redirect no foreign traffic unless [`reach`] returns a field: metadata, type
/// and some other fields are instructions to other controllers.
///
/// No custom kind, because its controller may do anything. No autoscaler, which starts Pods, and no disruption budget,
/// which blocks node maintenance.
const HARMLESS_KINDS: [(&str, &str); 4] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "Service"),
];

/// Service fields that take foreign addresses or name a server elsewhere.
pub(super) const FOREIGN_ADDRESSES: [&str; 3] = ["externalIPs", "loadBalancerIP", "externalName"];

/// The label and annotation prefix that needs no grant, besides keys without a prefix: the recommended labels, which
/// only describe an object. Other prefixes belong to controllers that may act on the object with more rights than the
/// plugin has, for DNS names, deployments or cluster credentials.
const DESCRIBING_PREFIX: &str = "app.kubernetes.io";

/// Secret types that need no grant: no controller acts on them, and Pods and Ingresses reference them.
const HARMLESS_SECRET_TYPES: [&str; 7] = [
    "",
    "Opaque",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
];

/// Returns true if grants for parents, definitions or children must set `privileged: true` for this kind.
pub fn is_privileged(kind: &GroupKind) -> bool {
    is_privileged_to_read(kind)
        || SETTING_GROUPS.contains(&&*kind.group)
        || SETTING_KINDS.contains(&(&*kind.group, &*kind.kind))
        || is_interfering(kind)
}

/// Returns true if objects of this kind affect others in the namespace.
pub(super) fn is_interfering(kind: &GroupKind) -> bool {
    INTERFERING_KINDS.contains(&(&*kind.group, &*kind.kind))
}

/// Returns true if grants for reads must set `privileged: true` for this kind.
pub fn is_privileged_to_read(kind: &GroupKind) -> bool {
    PRIVILEGED_GROUPS.contains(&&*kind.group)
        || (kind.group.is_empty() && PRIVILEGED_CORE_KINDS.contains(&&*kind.kind))
}

/// Returns true if grants for parents must set `builtin: true` for this kind.
pub fn is_built_in(kind: &GroupKind) -> bool {
    !kind.group.contains('.') || BUILT_IN_GROUPS.contains(&&*kind.group)
}

/// Returns true if a plugin without grants may create such children.
pub(super) fn needs_no_grant(kind: &GroupKind) -> bool {
    HARMLESS_KINDS.contains(&(&*kind.group, &*kind.kind))
}

/// Returns the field with which an object reaches beyond the namespace although its kind needs no grant: foreign
/// addresses or ports, a foreign server, an existing volume, or instructions to another controller.
pub(super) fn reach(kind: &GroupKind, object: &Map<String, Value>) -> Option<String> {
    foreign_key(object).or_else(|| {
        let field = match (&*kind.group, &*kind.kind) {
            ("", "Secret") => {
                let secret_type = object.get("type").and_then(Value::as_str);
                let is_foreign =
                    secret_type.is_some_and(|text| !HARMLESS_SECRET_TYPES.contains(&text));
                return is_foreign.then(|| "type".to_owned());
            }
            ("", "Service") => service_reach(object.get("spec")?),
            ("", "PersistentVolumeClaim") => claim_reach(object.get("spec")?),
            _ => None,
        };
        field.map(|field| format!("spec.{field}"))
    })
}

/// Returns the first label or annotation whose prefix belongs to another controller.
fn foreign_key(object: &Map<String, Value>) -> Option<String> {
    let metadata = object.get("metadata")?;
    let is_foreign = |key: &str| {
        key.split_once('/')
            .is_some_and(|(prefix, _)| prefix != DESCRIBING_PREFIX)
    };
    ["labels", "annotations"].into_iter().find_map(|field| {
        let key = metadata[field]
            .as_object()?
            .keys()
            .find(|key| is_foreign(key))?;
        Some(format!("metadata.{field}.{key}"))
    })
}

fn service_reach(spec: &Value) -> Option<&'static str> {
    let service_type = spec["type"].as_str().unwrap_or("ClusterIP");
    let is_chosen = |address: &Value| {
        address
            .as_str()
            // `None` asks for a headless Service, which has no address.
            .is_some_and(|address| !matches!(address, "" | "None"))
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
    // Without a class, a claim binds an existing volume, such as a directory on a node.
    let has_no_class = spec["storageClassName"].as_str() == Some("");
    first_set(
        spec,
        &["volumeName", "selector", "dataSource", "dataSourceRef"],
    )
    .or_else(|| has_no_class.then_some("storageClassName"))
}

/// Returns the first field that has a value.
pub(super) fn first_set(spec: &Value, fields: &[&'static str]) -> Option<&'static str> {
    let is_set = |field: &&'static str| match &spec[*field] {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    fields.iter().copied().find(is_set)
}
