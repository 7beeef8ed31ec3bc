//! The lease by which hosts agree on who writes.
//!
//! The claim follows from these writes, so they use a separate writer that needs no claim.

use innkeeper_lease::{LABEL_LEASE, LeaseRecord};
use innkeeper_model::{HostScope, Resource, ResourceVersion};
use serde_json::{Value, json};

use super::{
    Error, ErrorKind, Writer,
    objects::MANAGER,
    request::{Address, built_in},
};

impl Writer {
    /// Creates a lease, and first the namespace if that is missing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exists`] if there is one; it stays unchanged.
    pub async fn create_lease(
        &self,
        namespace: &str,
        name: &str,
        record: &LeaseRecord,
        scope: &HostScope,
    ) -> Result<ResourceVersion, Error> {
        let resource = resource();
        let address = Address::new(&resource, Some(namespace), name);
        let create = || {
            let mut body = address.body();
            body["metadata"]["labels"] = labels();
            body["metadata"]["annotations"] = json!(scope.annotations());
            body.insert("spec".to_owned(), json!(record));
            self.exchange(address.create(MANAGER, &body))
        };
        let created = match create().await {
            // The lease is the first write of a host: nothing else has made the namespace yet.
            Err(error) if error.kind == ErrorKind::NamespaceMissing => {
                self.namespace(namespace).await?;
                create().await
            }
            created => created,
        };
        Ok(created?.resource_version)
    }

    /// Replaces exactly the observed version.
    pub async fn update_lease(
        &self,
        namespace: &str,
        name: &str,
        replaces: ResourceVersion,
        record: &LeaseRecord,
        scope: &HostScope,
    ) -> Result<ResourceVersion, Error> {
        let resource = resource();
        let patch = json!({
            "metadata": {
                "labels": labels(), "annotations": scope.annotations(),
                // The API server refuses the patch if the lease has another version: of two claimants, one wins.
                "resourceVersion": replaces.to_string(),
            },
            "spec": record,
        });
        let request = Address::new(&resource, Some(namespace), name).merge_patch(MANAGER, &patch);
        Ok(self.exchange(request).await?.resource_version)
    }
}

fn resource() -> Resource {
    built_in("coordination.k8s.io", "v1", "Lease", "leases")
}

/// The label by which `innkeeper status` finds all hosts' leases.
fn labels() -> Value {
    let (key, value) = LABEL_LEASE;
    json!({key: value})
}
