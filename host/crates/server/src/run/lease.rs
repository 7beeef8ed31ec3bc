//! The Leases in the host's namespace: `cluster` reads them, and `apply` writes them.

use std::collections::BTreeMap;

use innkeeper_apply::{ErrorKind, Writer};
use innkeeper_cluster::LeaseReader;
use innkeeper_lease::{Lease, LeaseRecord, LeaseStore, ShardKeeper, Source, WriteError};
use innkeeper_model::{HostScope, ResourceVersion};

use super::shards::HeldShards;

/// The election of this host.
pub(super) type HostElection = ShardKeeper<StoredLeases, HeldShards>;

/// Access to the Leases, with a client that sends nothing else.
pub(super) struct StoredLeases {
    pub(super) reader: LeaseReader,
    /// The writer of the Leases needs no claim.
    pub(super) writer: Writer,
    pub(super) namespace: String,
    /// The part of the cluster that this host serves, which each Lease states.
    pub(super) scope: HostScope,
}

impl LeaseStore for StoredLeases {
    async fn read(&self, name: &str) -> Result<Option<Lease>, Source> {
        self.reader.read(name).await.map_err(Into::into)
    }

    async fn write(
        &self,
        name: &str,
        replaces: Option<ResourceVersion>,
        record: &LeaseRecord,
    ) -> Result<ResourceVersion, WriteError> {
        let Self {
            writer,
            namespace,
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

    async fn list(&self) -> Result<BTreeMap<String, Lease>, Source> {
        self.reader.list().await.map_err(Into::into)
    }
}
