//! Reads served kinds and objects once, for commands. Nothing is cached or watched.

use std::{sync::Arc, time::Duration};

use innkeeper_lease::LABEL_LEASE;
use innkeeper_model::{Access, Expression, GroupKind, Object, Resource, Selector, Shard, Shards};

use super::{
    discovery::{DiscoveryReader, ServedKinds},
    error::Error,
    fields::ObjectFields,
    machine::Since,
    present::object_of,
    section::Section,
    stored::{Shape, keep_fields},
    wire::{WatchTarget, Wire, WireFailure},
};

/// A client that reads without a cache.
pub struct Viewer {
    wire: Wire,
    kinds: ServedKinds,
}

impl Viewer {
    /// Discovers the served kinds; `timeout` bounds each request.
    pub async fn open(client: kube::Client, timeout: Duration) -> Result<Self, Error> {
        let wire = Wire::with_timeout(client, timeout);
        let kinds = DiscoveryReader::default()
            .refresh(&wire)
            .await
            .map_err(|problem| Error::Discover(Box::new(problem)))?;
        Ok(Self {
            wire,
            // None means "not modified", which the first answer cannot be.
            kinds: kinds.unwrap_or_default(),
        })
    }

    /// Returns a kind in the version that the API server prefers; none if it is not served.
    pub fn served(&self, kind: &GroupKind) -> Option<&Resource> {
        self.kinds.preferred(kind)
    }

    /// Lists all hosts' Leases.
    pub async fn leases(&self) -> Result<Vec<Object>, Error> {
        let Some(served) = self.served(&lease_kind()) else {
            return Ok(Vec::new());
        };
        let (key, value) = LABEL_LEASE;
        let labelled = Expression::Equal(key.to_owned(), value.to_owned());
        self.list(served, &labelled.into()).await
    }

    /// Returns true if the API server selects objects by shard; none if it serves no Leases, for which this asks.
    pub async fn selects_shards(&self, shards: Shards) -> Result<Option<bool>, Error> {
        let Some(served) = self.served(&lease_kind()) else {
            return Ok(None);
        };
        let target = WatchTarget {
            served: served.clone(),
            section: Section::Shards(shards, [Shard::LEADER].into()),
            selector: Selector::default(),
            form: Access::Full,
        };
        let selects = self.wire.selects_shards(&target).await;
        selects.map(Some).map_err(|source| Error::List {
            kind: served.kind.clone(),
            source,
        })
    }

    /// Lists a kind's objects that match a label selector, in the API server's order.
    pub async fn list(&self, served: &Resource, selector: &Selector) -> Result<Vec<Object>, Error> {
        let target = WatchTarget {
            served: served.clone(),
            section: Section::Whole,
            selector: selector.clone(),
            form: Access::Full,
        };
        list_objects(&self.wire, &target).await
    }
}

/// Lists objects once from a quorum, in the API server's order.
pub(super) async fn list_objects(wire: &Wire, target: &WatchTarget) -> Result<Vec<Object>, Error> {
    let kind = &target.served.kind;
    let shape = Shape {
        managers: Some(Arc::default()),
        ..Shape::whole(kind)
    };
    let mut objects = Vec::new();
    let keep = |object: &ObjectFields<'_>, _: Option<&str>| {
        object_of(&keep_fields(object, &shape)?, kind, target.form)
    };
    let listed = wire.list(target, Since::Now, true, keep, |page| {
        objects.extend(page.items);
        Ok::<(), WireFailure>(())
    });
    listed.await.map_err(|source| Error::List {
        kind: kind.clone(),
        source,
    })?;
    Ok(objects)
}

fn lease_kind() -> GroupKind {
    GroupKind::new("coordination.k8s.io", "Lease")
}
