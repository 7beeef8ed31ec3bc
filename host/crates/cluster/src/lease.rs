//! Reads the lease by which hosts elect the writer, with a separate client: renewals must not wait behind watches.

use std::time::Duration;

use innkeeper_lease::Lease;
use innkeeper_model::{Access, Gvk, Resource, Scope};

use super::{
    error::Error,
    present::object_of,
    stored::{Shape, keep},
    wire::Wire,
};

/// Reads one lease.
pub struct LeaseReader {
    wire: Wire,
    resource: Resource,
    namespace: String,
    name: String,
}

impl LeaseReader {
    /// Creates a reader with a client that is used for nothing else; `timeout` bounds each read.
    pub fn new(client: kube::Client, timeout: Duration, namespace: &str, name: &str) -> Self {
        Self {
            wire: Wire::with_timeout(client, timeout),
            resource: Resource {
                kind: Gvk::new("coordination.k8s.io", "v1", "Lease"),
                plural: "leases".into(),
                scope: Scope::Namespaced,
            },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the lease from a quorum; none if it does not exist.
    pub async fn read(&self) -> Result<Option<Lease>, Error> {
        let kind = &self.resource.kind;
        let parse = |text: &str| object_of(&keep(text, &Shape::whole(kind))?, kind, Access::Full);
        let object = self
            .wire
            .object(&self.resource, Some(&self.namespace), &self.name, parse)
            .await
            .map_err(|source| Error::for_read(kind, &self.name, source))?;
        Ok(object.as_ref().map(Lease::from))
    }
}
