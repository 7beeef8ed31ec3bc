//! The Lease in the host's namespace: `cluster` reads it, and `apply` writes it.

use innkeeper_apply::{ErrorKind, Writer};
use innkeeper_cluster::LeaseReader;
use innkeeper_lease::{Election, Lease, LeaseRecord, LeaseStore, Source, WriteError};
use innkeeper_model::{HostScope, ResourceVersion};

/// The election of this host.
pub(super) type HostElection = Election<StoredLease>;

/// Access to one Lease, with a client that sends nothing else.
pub(super) struct StoredLease {
    pub(super) reader: LeaseReader,
    /// The writer of the Lease needs no claim.
    pub(super) writer: Writer,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The part of the cluster that this host serves, which the Lease states.
    pub(super) scope: HostScope,
}

impl LeaseStore for StoredLease {
    async fn read(&self) -> Result<Option<Lease>, Source> {
        self.reader.read().await.map_err(Into::into)
    }

    async fn write(
        &self,
        replaces: Option<ResourceVersion>,
        record: &LeaseRecord,
    ) -> Result<ResourceVersion, WriteError> {
        let Self {
            writer,
            namespace,
            name,
            scope,
            ..
        } = self;
        let result = match replaces {
            Some(version) => {
                writer
                    .update_lease(namespace, name, version, record, scope)
                    .await
            }
            None => writer.create_lease(namespace, name, record, scope).await,
        };
        result.map_err(|error| WriteError {
            // If the Lease exists already, another host was faster.
            is_outdated: error.is_stale() || error.kind == ErrorKind::Exists,
            source: error.into(),
        })
    }
}
