//! Limits concurrent component loads, overall and for each server.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::resource::{Declared, Origin};

/// Maximum number of components that are fetched from servers and compiled concurrently.
///
/// Each may use 32 MiB, the largest component size.
const REMOTE_MAX: usize = 8;
/// Maximum number of these permits for one source, so a slow server cannot block all others.
const SHARE_MAX: usize = 2;
/// Maximum number of components that are read from the cache directory, ConfigMaps and files concurrently. Separate
/// permits, so no server delays a host's start.
const LOCAL_MAX: usize = 4;

/// Limits on concurrent loads.
pub(crate) struct LoadPermits {
    remote: Arc<Semaphore>,
    local: Arc<Semaphore>,
    /// The shares with loads that run or wait.
    shares: Mutex<BTreeMap<Share, Arc<Semaphore>>>,
}

/// One load's permits.
pub(crate) type Permit = Vec<OwnedSemaphorePermit>;

/// A share of permits.
///
/// Plugins without granted parents cannot be active, and an author without the right to grant can create any number for
/// any number of servers. So together they have one share of remote permits, and one of local permits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    /// Plugins with granted parents whose source is this server.
    Server(String),
    /// Plugins without granted parents whose source is a server.
    UngrantedRemote,
    /// Plugins without granted parents, from sources that are on this machine or in the cluster.
    UngrantedLocal,
}

impl Default for LoadPermits {
    fn default() -> Self {
        Self {
            remote: Arc::new(Semaphore::new(REMOTE_MAX)),
            local: Arc::new(Semaphore::new(LOCAL_MAX)),
            shares: Mutex::default(),
        }
    }
}

impl LoadPermits {
    /// Waits for a permit to read local bytes, from this machine or the cluster.
    pub(crate) async fn local(&self, declared: &Declared) -> Permit {
        let share = (!is_granted(declared)).then_some(Share::UngrantedLocal);
        self.permit(share, &self.local).await
    }

    /// Waits for a permit to load a declared component from the source.
    pub(crate) async fn remote(&self, declared: &Declared) -> Permit {
        match server_of(declared) {
            None => self.local(declared).await,
            Some(server) => {
                let share = if is_granted(declared) {
                    Share::Server(server)
                } else {
                    Share::UngrantedRemote
                };
                self.permit(Some(share), &self.remote).await
            }
        }
    }

    async fn permit(&self, share: Option<Share>, all: &Arc<Semaphore>) -> Permit {
        let share = share.map(|share| {
            let mut shares = self.shares.lock();
            // Permits and waiting loads hold clones. Unused shares would accumulate, one for each server ever named.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
            let new = || Arc::new(Semaphore::new(SHARE_MAX));
            Arc::clone(shares.entry(share).or_insert_with(new))
        });
        // Take the share first: a load that waits for a share must not hold a permit.
        let share = match share {
            Some(share) => share.acquire_owned().await.ok(),
            None => None,
        };
        // The semaphores are never closed.
        let permit = Arc::clone(all).acquire_owned().await;
        share.into_iter().chain(permit).collect()
    }
}

fn is_granted(declared: &Declared) -> bool {
    !declared.terms.grants.parents.is_empty()
}

/// Returns the source's server, if it has one.
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
    use crate::testing::declared;

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

    /// Takes permits for Plugins at these servers; returns true for each that has one at once.
    fn take(permits: &LoadPermits, urls: &[(&str, bool)]) -> Vec<Option<Permit>> {
        let take =
            |(url, granted): &(&str, bool)| permits.remote(&at(url, *granted)).now_or_never();
        urls.iter().map(take).collect()
    }

    #[tokio::test]
    async fn a_slow_server_and_plugins_without_granted_parents_leave_places_to_others() {
        let permits = LoadPermits::default();
        let slow = [
            ("https://slow/1", true),
            ("https://slow/2", true),
            ("https://slow/3", true),
        ];
        let first = take(&permits, &slow);
        let has_permit = |results: &[Option<Permit>]| -> Vec<bool> {
            results.iter().map(Option::is_some).collect()
        };
        assert_eq!(has_permit(&first), [true, true, false]);
        let poor = [
            ("https://a/", false),
            ("https://b/", false),
            ("https://c/", false),
        ];
        let poor = take(&permits, &poor);
        assert_eq!(has_permit(&poor), [true, true, false]);
        let other = take(&permits, &[("https://other/", true)]);
        assert_eq!(has_permit(&other), [true]);
        drop(first);
        let again = take(&permits, &slow);
        assert_eq!(has_permit(&again), [true, true, false]);

        // All servers together are bounded, and sources without a server have separate permits.
        let more = ["d", "e", "f", "g"].map(|host| format!("https://{host}/"));
        let more: Vec<_> = more.iter().map(|url| (&**url, true)).collect();
        let more = take(&permits, &more);
        assert_eq!(has_permit(&more), [true, true, true, false]);
        let file = declared(json!({}));
        assert!(permits.remote(&file).now_or_never().is_some());
        assert!(permits.local(&file).now_or_never().is_some());
        drop((again, poor, other, more));
        assert_eq!(permits.remote.available_permits(), REMOTE_MAX);
    }

    /// Any number of ungranted Plugins with files or ConfigMaps as sources leave half the local permits free.
    #[tokio::test]
    async fn local_sources_without_granted_parents_leave_places_to_others() {
        let permits = LoadPermits::default();
        let granted = declared(json!({}));
        let poor = declared(json!({"grants": {}}));
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(permits.remote(&poor))).collect();
        let admitted: Vec<Permit> = waiting
            .iter_mut()
            .filter_map(FutureExt::now_or_never)
            .collect();
        assert_eq!(admitted.len(), SHARE_MAX);
        for _ in 0..2 {
            assert!(permits.remote(&granted).now_or_never().is_some());
            assert!(permits.local(&granted).now_or_never().is_some());
        }
        // They have a separate remote share.
        let remote = at("https://a/", false);
        assert!(permits.remote(&remote).now_or_never().is_some());
    }
}
