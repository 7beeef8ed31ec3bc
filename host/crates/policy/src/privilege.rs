//! Which kinds need a word more in a grant: those that give power over the cluster, and those of Kubernetes itself.

use innkeeper_model::GroupKind;

/// Groups whose kinds give power over the cluster itself.
pub const PRIVILEGED_GROUPS: [&str; 6] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "innkeeper.dev",
    "rbac.authorization.k8s.io",
];

/// Kinds of the core group that do.
pub const PRIVILEGED_CORE_KINDS: [&str; 4] =
    ["Namespace", "Node", "PersistentVolume", "ServiceAccount"];

/// Groups with a dot that are part of Kubernetes; those without a dot all are.
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

/// Whether a grant of this kind has to say `privileged: true`.
pub fn is_privileged(kind: &GroupKind) -> bool {
    PRIVILEGED_GROUPS.contains(&&*kind.group)
        || (kind.group.is_empty() && PRIVILEGED_CORE_KINDS.contains(&&*kind.kind))
}

/// Whether a grant of parents of this kind has to say `builtin: true`.
pub fn is_built_in(kind: &GroupKind) -> bool {
    !kind.group.contains('.') || BUILT_IN_GROUPS.contains(&&*kind.group)
}

/// Whether the kind is the one whose values are secret: never a parent, and shown as hashes by default.
pub fn is_secret(kind: &GroupKind) -> bool {
    kind.group.is_empty() && &*kind.kind == "Secret"
}
