//! Prepares plugins on a standby host: fetches, compiles and describes their components, and opens their watches. No
//! pass runs, and nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::FutureExt;
use innkeeper_cluster::Registration;
use innkeeper_model::{Gvk, Object, ObjectId, PluginName, Retry, Selector};
use innkeeper_reconcile::{
    Attempt, Next,
    controller::{self, Triggered, Work},
};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::{
    context::{WAITING_RECHECK, declared, interest, observe},
    load::{LoadId, Loader, Loading, VerifiedComponent},
    resource::Declared,
    stage::StageFailure,
    state::stored_needs,
    status::status_of,
};

/// Maximum number of triggers that one read drops. Only bounds memory per read; all triggers are read.
const TRIGGERS_MAX: usize = 1024;

/// Each plugin's watches, until its own controllers hold them.
pub type Warm = BTreeMap<PluginName, Vec<Registration>>;

/// Returns the child kinds that a plugin has created so far.
pub type OnceMade = Box<dyn Fn(&PluginName) -> BTreeSet<Gvk> + Send + Sync>;

/// Keeps Plugin components ready.
pub struct Warmer {
    loader: Arc<Loader>,
    registration: Registration,
    once_made: OnceMade,
    ready: Mutex<BTreeMap<PluginName, Ready>>,
    /// The components that are being loaded.
    loading: Mutex<BTreeMap<PluginName, Option<Loading>>>,
}

/// A plugin that could become active.
struct Ready {
    declared: Declared,
    /// The digest that another host served then. If it changes, a tag may have moved.
    digest: Option<String>,
    watches: Vec<Registration>,
}

impl Warmer {
    /// Starts the Plugin watch for a host.
    pub fn new(
        loader: Arc<Loader>,
        name: PluginName,
        selector: Option<Selector>,
        once_made: OnceMade,
    ) -> Self {
        Self {
            registration: loader.cluster.register(interest(name, selector)),
            loader,
            once_made,
            ready: Mutex::default(),
            loading: Mutex::default(),
        }
    }

    /// Returns the running watches, for the manager that serves the plugins from now on.
    pub fn take(&self) -> Warm {
        let ready = std::mem::take(&mut *self.ready.lock());
        ready
            .into_iter()
            .map(|(name, ready)| (name, ready.watches))
            .collect()
    }

    async fn prepare(&self, plugin: &Object, declared: Declared, digest: Option<String>) {
        let name = declared.name.clone();
        let is_same = |ready: &Ready| ready.declared == declared && ready.digest == digest;
        if self.ready.lock().get(&name).is_some_and(is_same) {
            return;
        }
        let component = {
            let mut loading = self.loading.lock();
            let slot = loading.entry(name.clone()).or_default();
            let load = LoadId {
                uid: plugin.uid.clone(),
                generation: plugin.generation,
                kept: None,
            };
            Loading::poll(slot, &self.loader, &self.registration, &declared, load)
        };
        let Some(component) = component else {
            return;
        };
        let watches = match component {
            Ok(component) => self.watch(&declared, &component).await,
            Err(failure) => Err(failure),
        };
        match &watches {
            Ok(_) => {
                info!(plugin = %name, "loaded the plugin and started its watches, in case that this host takes over");
            }
            Err(failure) => {
                let error = &failure.message;
                warn!(plugin = %name, error, "failed to load the component of a Plugin on standby");
            }
        }
        let mut all = self.ready.lock();
        let before = all.remove(&name);
        if let Some(ready) = prepared(declared, digest, watches, before) {
            all.insert(name, ready);
        }
    }

    async fn watch(
        &self,
        declared: &Declared,
        component: &VerifiedComponent,
    ) -> Result<Vec<Registration>, StageFailure> {
        let Declared { name, terms, .. } = declared;
        let plugin = self.loader.configure(component, &declared.config).await?;
        let interests = terms
            .serving(plugin)
            .interests(name, &(self.once_made)(name))
            .into_iter();
        let register = |interest| self.loader.cluster.register(interest);
        Ok(interests.map(register).collect())
    }

    /// Drops all watches' triggers, which would otherwise accumulate because no pass reads them.
    fn drop_triggers(&self) {
        for ready in self.ready.lock().values() {
            for watch in &ready.watches {
                while watch.triggers(TRIGGERS_MAX).now_or_never().is_some() {}
            }
        }
    }
}

/// Returns the plugin after a load attempt.
///
/// After a failure the watches are those for the last loaded revision: it is still active on the other host.
fn prepared(
    declared: Declared,
    digest: Option<String>,
    watches: Result<Vec<Registration>, StageFailure>,
    before: Option<Ready>,
) -> Option<Ready> {
    let watches = match watches {
        Ok(watches) => watches,
        Err(failure) if needs_change(failure.retry) => {
            before.map_or_else(Vec::new, |before| before.watches)
        }
        Err(_) => return before,
    };
    Some(Ready {
        declared,
        digest,
        watches,
    })
}

/// Returns true if a failed load is not tried again before the Plugin changes, or the component that the active host serves.
/// A host on standby would otherwise fetch a broken component every half minute, for ever.
const fn needs_change(retry: Retry) -> bool {
    match retry {
        Retry::Never | Retry::OnChange => true,
        Retry::Backoff | Retry::At(_) => false,
    }
}

impl Work for Warmer {
    async fn triggers(&self) -> Vec<Triggered> {
        controller::triggers(&self.registration).await
    }

    async fn pass(&self, id: ObjectId, _: Attempt) -> Next {
        let plugin = match observe(&self.registration, &id).await {
            Ok(plugin) => plugin,
            Err(Next::Forget) => {
                if let Ok(name) = PluginName::new(&id.name) {
                    let loading = self.loading.lock().remove(&name).flatten();
                    // First, because a running load states needs.
                    if let Some(loading) = loading {
                        loading.cancel().await;
                    }
                    self.ready.lock().remove(&name);
                }
                self.loader.forget(&id, None);
                return Next::Forget;
            }
            Err(next) => return next,
        };
        self.drop_triggers();
        // A takeover resumes the active revision from this host's cache.
        self.loader.need(&id, stored_needs(&plugin));
        // The active host reports an invalid spec in the status.
        if let Ok(declared) = declared(&plugin) {
            self.prepare(&plugin, declared, status_of(&plugin).digest)
                .await;
        }
        // Also for a ready plugin, whose triggers have to be dropped. A failed load is retried.
        Next::RequeueAfter(WAITING_RECHECK)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failed_load_is_tried_again_on_standby_only_if_time_may_help() {
        for (retry, waits_for_change) in [
            (Retry::Never, true),
            (Retry::OnChange, true),
            (Retry::Backoff, false),
            (Retry::At(Duration::ZERO), false),
        ] {
            assert_eq!(needs_change(retry), waits_for_change, "{retry:?}");
        }
    }
}
