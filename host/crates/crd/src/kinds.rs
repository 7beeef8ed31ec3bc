//! Plurals and scopes without a request to a cluster.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{GroupKind, Gvk, Manifest, Resource, Resources, Scope, kind_of_crd};
use kube_core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value};

/// Cluster-scoped kinds in Kubernetes and common extensions, as `group/kind`.
const CLUSTER_SCOPED: &str = include_str!("cluster-scoped.txt");

/// Plurals and scopes by kind, from plugin descriptions and Kubernetes' conventions.
///
/// Every kind counts as served. For a kind that is in neither, the English plural and the namespaced scope are guesses.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    known: BTreeMap<GroupKind, (Arc<str>, Scope)>,
}

impl Kinds {
    /// Collects the plugins' parent kinds and CustomResourceDefinitions.
    pub fn from_manifests<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Self {
        let mut known = BTreeMap::new();
        for manifest in manifests {
            for parent in &manifest.parents {
                let named = (Arc::from(parent.plural.as_str()), parent.scope);
                known.insert(parent.kind.group_kind(), named);
            }
            known.extend(manifest.crds.iter().filter_map(parse_crd));
        }
        Self { known }
    }

    /// Returns a kind's plural and scope.
    pub fn resource_of(&self, kind: &Gvk) -> Resource {
        let declared = self.known.get(&kind.group_kind()).cloned();
        let (plural, scope) = declared.unwrap_or_else(|| {
            let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
            let name = format!("{}/{}", kind.group, kind.kind);
            let is_cluster = CLUSTER_SCOPED.lines().any(|listed| listed == name);
            (ApiResource::from_gvk(&gvk).plural.into(), scope(is_cluster))
        });
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

fn parse_crd(crd: &Map<String, Value>) -> Option<(GroupKind, (Arc<str>, Scope))> {
    let spec = crd.get("spec")?;
    let scope = scope(spec.get("scope")?.as_str()? == "Cluster");
    let plural = spec.pointer("/names/plural")?.as_str()?;
    Some((kind_of_crd(crd)?, (Arc::from(plural), scope)))
}

pub(super) const fn scope(is_cluster: bool) -> Scope {
    use Scope::{Cluster, Namespaced};
    if is_cluster { Cluster } else { Namespaced }
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
            let resource = Kinds::default().resource(&kind).unwrap();
            assert_eq!(
                (&*resource.plural, resource.scope),
                (plural, scope),
                "{kind}"
            );
        }
    }
}
