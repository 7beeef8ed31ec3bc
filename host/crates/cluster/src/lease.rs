//! Reads the leases by which hosts elect the writers, with a separate client: renewals must not wait behind watches.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_lease::{LABEL_LEASE, Lease};
use innkeeper_model::{Access, Expression, Gvk, Resource, Scope};

use super::{
    error::Error,
    present::object_of,
    section::Section,
    stored::{Shape, keep},
    viewer::list_objects,
    wire::{WatchTarget, Wire},
};

/// Reads the leases in one namespace.
pub struct LeaseReader {
    wire: Wire,
    resource: Resource,
    namespace: String,
}

impl LeaseReader {
    /// Creates a reader with a client that is used for nothing else; `timeout` bounds each read.
    pub fn new(client: kube::Client, timeout: Duration, namespace: &str) -> Self {
        Self {
            wire: Wire::with_timeout(client, timeout),
            resource: Resource {
                kind: Gvk::new("coordination.k8s.io", "v1", "Lease"),
                plural: "leases".into(),
                scope: Scope::Namespaced,
            },
            namespace: namespace.to_owned(),
        }
    }

    /// Returns the leases of all hosts in the namespace from a quorum, by name.
    pub async fn list(&self) -> Result<BTreeMap<String, Lease>, Error> {
        let (key, value) = LABEL_LEASE;
        let labelled = Expression::Equal(key.to_owned(), value.to_owned());
        let target = WatchTarget {
            served: self.resource.clone(),
            section: Section::Namespace(self.namespace.as_str().into()),
            selector: labelled.into(),
            form: Access::Full,
        };
        let leases = list_objects(&self.wire, &target).await?;
        Ok(leases
            .iter()
            .map(|lease| (lease.name.to_string(), Lease::from(lease)))
            .collect())
    }

    /// Returns a lease from a quorum; none if it does not exist.
    pub async fn read(&self, name: &str) -> Result<Option<Lease>, Error> {
        let kind = &self.resource.kind;
        let parse = |text: &str| object_of(&keep(text, &Shape::whole(kind))?, kind, Access::Full);
        let object = self
            .wire
            .object(&self.resource, Some(&self.namespace), name, parse)
            .await
            .map_err(|source| Error::for_read(kind, name, source))?;
        Ok(object.as_ref().map(Lease::from))
    }
}
