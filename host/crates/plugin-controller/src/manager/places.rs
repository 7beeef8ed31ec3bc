//! The places for loads of components: so few at the same time, and so few of one server.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::resource::{Declared, Origin};

/// The number of components that are fetched from servers and then compiled at the same time.
///
/// Chosen, not measured: each may hold 32 MiB, the largest component.
const REMOTE_MAX: usize = 8;
/// The part of these places that one source may have: a server that answers slowly leaves the others to the rest. Chosen,
/// not measured.
const SHARE_MAX: usize = 2;
/// The number of components that are read from the cache directory, ConfigMaps and files at the same time. They have
/// places of their own, so that no server delays the start of a host. Chosen, not measured.
const LOCAL_MAX: usize = 4;

/// The places for work that takes long.
pub(super) struct Places {
    remote: Arc<Semaphore>,
    local: Arc<Semaphore>,
    /// The shares with loads that run or wait.
    shares: Mutex<BTreeMap<Share, Arc<Semaphore>>>,
}

/// The permits of one load.
pub(super) type Place = Vec<OwnedSemaphorePermit>;

/// A part of the places.
///
/// Plugins without granted parents cannot be active, and an author without the right to grant can make any number of
/// them for any number of servers. So all of them have one share of the remote places, and one of the local places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    /// Plugins with granted parents whose source is this server.
    Server(String),
    /// Plugins without granted parents whose source is a server.
    UngrantedRemote,
    /// Plugins without granted parents, from sources that are on this machine or in the cluster.
    UngrantedLocal,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            remote: Arc::new(Semaphore::new(REMOTE_MAX)),
            local: Arc::new(Semaphore::new(LOCAL_MAX)),
            shares: Mutex::default(),
        }
    }
}

impl Places {
    /// Waits for a place for the component of a declaration whose bytes are on this machine or in the cluster.
    pub(super) async fn local(&self, declared: &Declared) -> Place {
        let share = (!is_granted(declared)).then_some(Share::UngrantedLocal);
        self.place(share, &self.local).await
    }

    /// Waits for a place for the component of a declaration, which comes from its source.
    pub(super) async fn of(&self, declared: &Declared) -> Place {
        match server_of(declared) {
            None => self.local(declared).await,
            Some(server) => {
                let share = if is_granted(declared) {
                    Share::Server(server)
                } else {
                    Share::UngrantedRemote
                };
                self.place(Some(share), &self.remote).await
            }
        }
    }

    async fn place(&self, share: Option<Share>, all: &Arc<Semaphore>) -> Place {
        let share = share.map(|share| {
            let mut shares = self.shares.lock();
            shares.retain(|_, share| Arc::strong_count(share) > 1);
            let new = || Arc::new(Semaphore::new(SHARE_MAX));
            Arc::clone(shares.entry(share).or_insert_with(new))
        });
        // The share first: one that waits for its share holds no place of the others.
        let share = match share {
            Some(share) => share.acquire_owned().await.ok(),
            None => None,
        };
        // The semaphores are never closed.
        let place = Arc::clone(all).acquire_owned().await;
        share.into_iter().chain(place).collect()
    }
}

fn is_granted(declared: &Declared) -> bool {
    !declared.terms.grants.parents.is_empty()
}

/// Returns the server of the source; none for a source without one.
fn server_of(declared: &Declared) -> Option<String> {
    match &declared.origin {
        Origin::Oci(_, reference) => Some(reference.registry().to_owned()),
        Origin::Http(http) => {
            let (_, address) = http.url.split_once("://")?;
            let server = address.split(['/', '?']).next()?;
            Some(server.to_lowercase())
        }
        Origin::ConfigMap(_) | Origin::File(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::declared;

    fn at(url: &str, granted: bool) -> Declared {
        let mut spec = json!({"source": {"http": {"url": url}}});
        if !granted {
            spec["grants"] = json!({});
        }
        declared(spec)
    }

    #[test]
    fn a_share_belongs_to_the_server() {
        let share = |source: Value| server_of(&declared(json!({"source": source})));
        let server = |text: &str| Some(text.to_owned());
        let oci = json!({"oci": {"reference": "registry.example:5000/a/b:1"}});
        assert_eq!(share(oci), server("registry.example:5000"));
        for url in ["https://A.example/x.wasm", "http://a.example?x=/y"] {
            let http = json!({"http": {"url": url}});
            assert_eq!(share(http), server("a.example"), "{url}");
        }
        assert_eq!(share(json!({"file": {"path": "a"}})), None);
        assert_eq!(share(json!({"configMap": {"name": "a"}})), None);
    }

    /// Takes places for Plugins at these servers; returns true for each that has one at once.
    fn take(places: &Places, urls: &[(&str, bool)]) -> Vec<Option<Place>> {
        let take = |(url, granted): &(&str, bool)| places.of(&at(url, *granted)).now_or_never();
        urls.iter().map(take).collect()
    }

    #[tokio::test]
    async fn a_slow_server_and_plugins_without_granted_parents_leave_places_to_others() {
        let places = Places::default();
        let slow = [
            ("https://slow/1", true),
            ("https://slow/2", true),
            ("https://slow/3", true),
        ];
        let held = take(&places, &slow);
        let has_place =
            |held: &[Option<Place>]| -> Vec<bool> { held.iter().map(Option::is_some).collect() };
        assert_eq!(has_place(&held), [true, true, false]);
        let poor = [
            ("https://a/", false),
            ("https://b/", false),
            ("https://c/", false),
        ];
        let poor = take(&places, &poor);
        assert_eq!(has_place(&poor), [true, true, false]);
        let other = take(&places, &[("https://other/", true)]);
        assert_eq!(has_place(&other), [true]);
        drop(held);
        let held = take(&places, &slow);
        assert_eq!(has_place(&held), [true, true, false]);

        // All together are bounded as well, and those without a server have places of their own.
        let more = ["d", "e", "f", "g"].map(|host| format!("https://{host}/"));
        let more: Vec<_> = more.iter().map(|url| (&**url, true)).collect();
        let more = take(&places, &more);
        assert_eq!(has_place(&more), [true, true, true, false]);
        let file = declared(json!({}));
        assert!(places.of(&file).now_or_never().is_some());
        assert!(places.local(&file).now_or_never().is_some());
        drop((held, poor, other, more));
        assert_eq!(places.remote.available_permits(), REMOTE_MAX);
    }

    /// Any number of Plugins without grants with files or ConfigMaps as sources leave half of the local places.
    #[tokio::test]
    async fn local_sources_without_granted_parents_leave_places_to_others() {
        let places = Places::default();
        let (granted, poor) = (declared(json!({})), declared(json!({"grants": {}})));
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(places.of(&poor))).collect();
        let held: Vec<Place> = waiting
            .iter_mut()
            .filter_map(FutureExt::now_or_never)
            .collect();
        assert_eq!(held.len(), SHARE_MAX);
        for _ in 0..2 {
            assert!(places.of(&granted).now_or_never().is_some());
            assert!(places.local(&granted).now_or_never().is_some());
        }
        // They have the remote share of their own.
        let remote = at("https://a/", false);
        assert!(places.of(&remote).now_or_never().is_some());
    }
}
