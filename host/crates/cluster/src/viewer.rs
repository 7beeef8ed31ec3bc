//! A one-time look at the cluster for commands: the served kinds and their objects.
//!
//! Nothing is cached or watched.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_model::{Access, GroupKind, Object, Resource, Selector};
use kube::core::{Request as Urls, params::ListParams};

use super::{
    discovery::{DiscoveryReader, ServedKinds},
    error::Error,
    fields::ObjectFields,
    options::Options,
    present::object_of,
    stored::{Shape, keep_fields},
    wire::{Page, Wire, WireFailure, path},
};

/// A client that reads without a cache.
pub struct Viewer {
    wire: Wire,
    kinds: ServedKinds,
    options: Options,
}

impl Viewer {
    /// Discovers the served kinds; `timeout` bounds each request.
    pub async fn open(client: kube::Client, timeout: Duration) -> Result<Self, Error> {
        let options = Options {
            request_timeout: timeout,
            ..Options::new(0)
        };
        let wire = Wire::new(client, options.clone());
        let kinds = DiscoveryReader::default()
            .refresh(&wire)
            .await
            .map_err(|problem| Error::Discover(Box::new(problem)))?;
        Ok(Self {
            wire,
            // None means "not modified", which the first answer cannot be.
            kinds: kinds.unwrap_or_default(),
            options,
        })
    }

    /// Returns a kind in the version that the API server prefers; none if it is not served.
    pub fn served(&self, kind: &GroupKind) -> Option<&Resource> {
        self.kinds.preferred(kind)
    }

    /// Lists the objects of a kind that match a label selector, in the order of the API server.
    pub async fn list(&self, served: &Resource, selector: &Selector) -> Result<Vec<Object>, Error> {
        let listed = async {
            let mut objects = Vec::new();
            let mut next = None;
            loop {
                let params = ListParams {
                    label_selector: Some(selector.to_string()).filter(|text| !text.is_empty()),
                    limit: Some(self.options.page_objects_max),
                    continue_token: next.take(),
                    ..ListParams::default()
                };
                let request = Urls::new(path(served, None))
                    .list(&params)
                    .map_err(WireFailure::Build)?;
                let text = self.wire.text(request, self.options.page_bytes_max).await?;
                let page = Page::parse(&text)?;
                for item in page.items.iter().flatten() {
                    objects.push(understand(item, served)?);
                }
                next = page.next();
                if next.is_none() {
                    return Ok(objects);
                }
            }
        };
        listed.await.map_err(|source| Error::List {
            kind: served.kind.clone(),
            source,
        })
    }
}

fn understand(object: &ObjectFields<'_>, served: &Resource) -> Result<Object, WireFailure> {
    let shape = Shape {
        kind: served.kind.clone(),
        form: Access::Full,
        managers: Some(BTreeSet::new()),
        hash_key: None,
    };
    keep_fields(object, &shape)
        .and_then(|stored| object_of(&stored, &served.kind, Access::Full))
        .map_err(WireFailure::Malformed)
}
