//! Plurals and scopes of kinds without asking a cluster.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{GroupKind, Gvk, Manifest, Resource, Resources, Scope};
use kube_core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value};

/// Kinds of Kubernetes that live outside of namespaces.
const CLUSTER_SCOPED: [(&str, &str); 30] = [
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("gateway.networking.k8s.io", "GatewayClass"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("snapshot.storage.k8s.io", "VolumeSnapshotClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
];

/// What a plugin's own description and the rules of Kubernetes say of kinds.
///
/// Every kind counts as served. Of a kind that neither a plugin nor Kubernetes brings, the plural is the English one
/// and the scope is a namespace, which is a guess.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    known: BTreeMap<GroupKind, (Arc<str>, Scope)>,
}

impl Kinds {
    /// Takes the kinds that plugins bring.
    pub fn of<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Self {
        let mut known = BTreeMap::new();
        for manifest in manifests {
            for parent in &manifest.parents {
                let named = (Arc::from(parent.plural.as_str()), parent.scope);
                known.insert(parent.kind.group_kind(), named);
            }
            known.extend(manifest.crds.iter().filter_map(of_crd));
        }
        Self { known }
    }

    /// The plural and scope of a kind.
    pub fn resource_of(&self, kind: &Gvk) -> Resource {
        let (plural, scope) = match self.known.get(&kind.group_kind()) {
            Some((plural, scope)) => (Arc::clone(plural), *scope),
            None => (plural_of(kind), scope_of(kind)),
        };
        Resource {
            kind: kind.clone(),
            plural,
            scope,
        }
    }
}

impl Resources for Kinds {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        Some(self.resource_of(kind))
    }
}

/// The kind that a CustomResourceDefinition is of.
pub fn kind_of_crd(crd: &Map<String, Value>) -> Option<GroupKind> {
    let spec = crd.get("spec")?;
    let kind = spec.pointer("/names/kind")?.as_str()?;
    Some(GroupKind::new(spec.get("group")?.as_str()?, kind))
}

fn of_crd(crd: &Map<String, Value>) -> Option<(GroupKind, (Arc<str>, Scope))> {
    let spec = crd.get("spec")?;
    let scope = if spec.get("scope")? == "Cluster" {
        Scope::Cluster
    } else {
        Scope::Namespaced
    };
    let plural = spec.pointer("/names/plural")?.as_str()?;
    Some((kind_of_crd(crd)?, (Arc::from(plural), scope)))
}

fn plural_of(kind: &Gvk) -> Arc<str> {
    let kind = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    ApiResource::from_gvk(&kind).plural.into()
}

fn scope_of(kind: &Gvk) -> Scope {
    if CLUSTER_SCOPED.contains(&(&*kind.group, &*kind.kind)) {
        Scope::Cluster
    } else {
        Scope::Namespaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_and_scopes_follow_the_rules_of_kubernetes() {
        for (api_version, kind, plural, scope) in [
            ("v1", "Secret", "secrets", Scope::Namespaced),
            ("v1", "Endpoints", "endpoints", Scope::Namespaced),
            (
                "networking.k8s.io/v1",
                "NetworkPolicy",
                "networkpolicies",
                Scope::Namespaced,
            ),
            (
                "networking.k8s.io/v1",
                "Ingress",
                "ingresses",
                Scope::Namespaced,
            ),
            (
                "storage.k8s.io/v1",
                "StorageClass",
                "storageclasses",
                Scope::Cluster,
            ),
        ] {
            let kind = Gvk::parse(api_version, kind).unwrap();
            let found = Kinds::default().resource(&kind).unwrap();
            assert_eq!((&*found.plural, found.scope), (plural, scope), "{kind}");
        }
    }
}
