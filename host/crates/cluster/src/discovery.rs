//! The kinds that the cluster serves, with versions and names, from the aggregated discovery documents: two requests
//! for any number of groups.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{GroupKind, Gvk, Resource, Scope};
use kube::client::APIGroupDiscoveryList;
use serde::Deserialize;

use super::wire::{Wire, WireFailure};

/// The paths to the two documents: the core group, and all others.
const PATHS: [&str; 2] = ["/api", "/apis"];

/// The kinds that can be listed and watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServedKinds {
    /// Versions by kind, the preferred one first.
    by_kind: BTreeMap<GroupKind, Vec<Resource>>,
}

impl ServedKinds {
    /// A kind in one version.
    pub(super) fn get(&self, kind: &Gvk) -> Option<&Resource> {
        self.by_kind
            .get(&kind.group_kind())?
            .iter()
            .find(|served| served.kind == *kind)
    }

    /// A kind in the preferred version.
    pub(super) fn preferred(&self, kind: &GroupKind) -> Option<&Resource> {
        self.by_kind.get(kind)?.first()
    }

    /// The number of kinds.
    pub(super) fn len(&self) -> usize {
        self.by_kind.len()
    }

    pub(super) fn add(&mut self, served: Resource) {
        let versions = self.by_kind.entry(served.kind.group_kind()).or_default();
        // A stale group may list kinds that were already taken over from the previous document.
        if !versions.iter().any(|known| known.kind == served.kind) {
            versions.push(served);
        }
    }

    /// Adds a document's kinds.
    fn add_document(&mut self, text: &str, former: &Self) -> Result<(), DiscoveryError> {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
        }

        let head: Head = serde_json::from_str(text).map_err(DiscoveryError::Parse)?;
        // A server without aggregated discovery ignores the `Accept` header and answers in the older format.
        if head.kind != "APIGroupDiscoveryList" {
            return Err(DiscoveryError::NotAggregated(head.kind));
        }
        let document: APIGroupDiscoveryList =
            serde_json::from_str(text).map_err(DiscoveryError::Parse)?;
        for group in document.items {
            let name = group
                .metadata
                .and_then(|metadata| metadata.name)
                .unwrap_or_default();
            for version in group.versions {
                let number = version.version.unwrap_or_default();
                // The aggregated API server does not answer, and its kinds may be missing here. The known ones stay: a
                // kind that disappears takes its objects out of the cache.
                if version.freshness.as_deref() == Some("Stale") {
                    let is_same = |kind: &Gvk| *kind.group == *name && *kind.version == *number;
                    former
                        .by_kind
                        .values()
                        .flatten()
                        .filter(|served| is_same(&served.kind))
                        .for_each(|served| self.add(served.clone()));
                }
                for resource in version.resources {
                    let has = |verb: &str| resource.verbs.iter().any(|known| known == verb);
                    // Others cannot be cached: a TokenReview, for example, can only be created.
                    let is_watched = has("list") && has("watch");
                    let kind = resource.response_kind.and_then(|kind| kind.kind);
                    if let (true, Some(kind), Some(plural)) = (is_watched, kind, resource.resource)
                    {
                        self.add(Resource {
                            kind: Gvk::new(&*name, &*number, kind),
                            plural: plural.into(),
                            scope: match resource.scope.as_deref() {
                                Some("Namespaced") => Scope::Namespaced,
                                _ => Scope::Cluster,
                            },
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// A failed discovery.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    /// The request failed.
    #[error("failed to request the API server's discovery document")]
    Request(#[from] WireFailure),
    /// The document could not be read.
    #[error("failed to read the API server's discovery document")]
    Parse(#[source] serde_json::Error),
    /// The server is too old.
    #[error(
        "the API server has no aggregated discovery (it answered with {0}): Kubernetes 1.30 or newer is required"
    )]
    NotAggregated(String),
}

impl DiscoveryError {
    /// Returns true if the API server does not accept the credentials.
    pub(super) const fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Request(failure) if failure.is_unauthorized())
    }

    /// The pause that the API server requests.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Request(WireFailure::Status { retry_after, .. }) => *retry_after,
            _ => None,
        }
    }
}

/// The last read documents.
#[derive(Debug, Default)]
pub(super) struct DiscoveryReader {
    documents: [Option<(String, Option<String>)>; 2],
    kinds: ServedKinds,
}

impl DiscoveryReader {
    /// Reads the documents again; none if nothing changed.
    pub(super) async fn refresh(
        &mut self,
        wire: &Wire,
    ) -> Result<Option<ServedKinds>, DiscoveryError> {
        let mut fetched = [None, None];
        for ((path, known), fetched) in PATHS.into_iter().zip(&self.documents).zip(&mut fetched) {
            let tag = known.as_ref().and_then(|(_, tag)| tag.as_deref());
            *fetched = wire.discovery(path, tag).await?;
        }
        // Stored only after both requests: if one failed, the next refresh would get "not modified" for the stored
        // document, and that change would be lost.
        let mut changed = false;
        for (known, document) in self.documents.iter_mut().zip(fetched) {
            if let Some(document) = document {
                changed = changed || known.as_ref().map(|(text, _)| text) != Some(&document.0);
                *known = Some(document);
            }
        }
        if !changed {
            return Ok(None);
        }
        let mut kinds = ServedKinds::default();
        for (text, _) in self.documents.iter().flatten() {
            if let Err(problem) = kinds.add_document(text, &self.kinds) {
                // With the same tag, the next answer would be "not modified", and the error would be lost.
                self.documents = [None, None];
                return Err(problem);
            }
        }
        self.kinds = kinds.clone();
        Ok(Some(kinds))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns these kinds as namespaced, with plurals formed by adding an `s`.
    pub(crate) fn kinds(served: &[Gvk]) -> ServedKinds {
        let mut kinds = ServedKinds::default();
        for kind in served {
            kinds.add(Resource {
                plural: format!("{}s", kind.kind.to_lowercase()).into(),
                kind: kind.clone(),
                scope: Scope::Namespaced,
            });
        }
        kinds
    }

    const DOCUMENT: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
      {"metadata":{"name":"apps"},"versions":[
        {"version":"v1","freshness":"Current","resources":[
          {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["get","list","watch"]},
          {"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Cluster","verbs":["create"]}]},
        {"version":"v1beta1","resources":[
          {"resource":"deployments","responseKind":{"kind":"Deployment"},"scope":"Namespaced","verbs":["list","watch"]}]}]},
      {"metadata":{"name":"metrics.example.com"},"versions":[{"version":"v1","freshness":"Stale","resources":[]}]}]}"#;

    #[test]
    fn lists_the_kinds_that_can_be_watched_preferred_version_first() {
        let mut kinds = ServedKinds::default();
        kinds
            .add_document(DOCUMENT, &ServedKinds::default())
            .unwrap();
        assert_eq!(kinds.len(), 1);
        let deployment = GroupKind::new("apps", "Deployment");
        assert_eq!(&*kinds.preferred(&deployment).unwrap().kind.version, "v1");
        let old = kinds
            .get(&Gvk::new("apps", "v1beta1", "Deployment"))
            .unwrap();
        assert_eq!(
            (&*old.plural, old.scope),
            ("deployments", Scope::Namespaced)
        );
        assert_eq!(kinds.get(&Gvk::new("apps", "v2", "Deployment")), None);
    }

    #[test]
    fn a_stale_group_keeps_its_kinds() {
        let kind = Gvk::new("metrics.example.com", "v1", "Sample");
        let mut former = ServedKinds::default();
        former.add(Resource {
            kind: kind.clone(),
            plural: "samples".into(),
            scope: Scope::Cluster,
        });
        let mut kinds = ServedKinds::default();
        kinds.add_document(DOCUMENT, &former).unwrap();
        assert!(kinds.get(&kind).is_some());
    }

    #[test]
    fn rejects_a_server_without_aggregated_discovery() {
        let problem = ServedKinds::default()
            .add_document(r#"{"kind":"APIGroupList"}"#, &ServedKinds::default());
        assert!(matches!(problem, Err(DiscoveryError::NotAggregated(_))));
        let problem = ServedKinds::default().add_document("[]", &ServedKinds::default());
        assert!(matches!(problem, Err(DiscoveryError::Parse(_))));
    }
}
