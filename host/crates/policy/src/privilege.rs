//! The kinds that a grant must confirm with an extra field: privileged kinds, and kinds of Kubernetes itself.

use innkeeper_model::GroupKind;

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

/// Groups with a dot that are part of Kubernetes; all groups without a dot are part of it.
pub const BUILT_IN_GROUPS: [&str; 17] = [
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
];

/// Kinds of Kubernetes that a plugin may make in the namespaces of its parents without a grant. They run nothing, give no
/// permission, take no quota from others and redirect no traffic of others.
const HARMLESS_KINDS: [(&str, &str); 6] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "Service"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("policy", "PodDisruptionBudget"),
];

/// The types of Secrets that are credentials of the cluster itself.
const CREDENTIAL_TYPES: [&str; 2] = [
    "bootstrap.kubernetes.io/token",
    "kubernetes.io/service-account-token",
];

/// Returns true if a grant of this kind must set `privileged: true`.
pub fn is_privileged(kind: &GroupKind) -> bool {
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

/// Returns true if a plugin without grants may make children of this kind. The power of a custom kind is not known here.
pub(super) fn needs_no_grant(kind: &GroupKind) -> bool {
    !is_built_in(kind) || HARMLESS_KINDS.contains(&(&*kind.group, &*kind.kind))
}

/// Returns true if a Secret of this type is a credential of the cluster: the controllers of Kubernetes fill it with the
/// token of a service account, or it admits nodes.
pub(super) fn is_credential(secret_type: &str) -> bool {
    CREDENTIAL_TYPES.contains(&secret_type)
}
