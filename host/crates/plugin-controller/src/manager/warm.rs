//! Plugins of a host that waits for the lease: their components are fetched, compiled and described, and the kinds they
//! will watch is watched. Nothing is served, and nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::FutureExt;
use innkeeper_cluster::{Observed, Registration};
use innkeeper_model::{Gvk, ObjectId, PluginName};
use innkeeper_reconcile::{
    Next, Turn,
    controller::{self, Work, queue::Class},
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Failed, Loader, WAITING_RECHECK, declared, interest, load::configure, report::status_of,
    serve::under,
};
use crate::resource::Declared;

/// The number of triggers that one read takes.
const TRIGGERS_MAX: usize = 1024;

/// The watches of each plugin, until its controller holds them.
pub type Warm = BTreeMap<PluginName, Vec<Registration>>;

/// Says which kinds a plugin once made.
pub type OnceMade = Box<dyn Fn(&PluginName) -> BTreeSet<Gvk> + Send + Sync>;

/// Keeps the components of Plugins ready.
pub struct Warmer {
    loader: Arc<Loader>,
    registration: Registration,
    /// The kinds that plugins once made.
    once_made: OnceMade,
    ready: Mutex<BTreeMap<PluginName, Ready>>,
}

/// A plugin that could serve.
struct Ready {
    of: Declared,
    /// The digest of the component that was active then: a tag may move.
    served: Option<String>,
    watches: Vec<Registration>,
}

impl Warmer {
    /// Starts to watch Plugins for a host of this name; `once_made` returns the undeclared
    /// kinds that plugins watch.
    pub fn new(
        loader: Arc<Loader>,
        name: PluginName,
        selector: Option<String>,
        once_made: OnceMade,
    ) -> Self {
        Self {
            registration: loader.cluster.register(interest(name, selector)),
            loader,
            once_made,
            ready: Mutex::default(),
        }
    }

    /// Returns the running watches, for the manager that serves the plugins from now on.
    pub fn take(&self) -> Warm {
        let ready = std::mem::take(&mut *self.ready.lock());
        let watches = ready.into_iter().map(|(name, ready)| (name, ready.watches));
        watches.collect()
    }

    async fn tend(&self, of: Declared, served: Option<String>) -> Next {
        // To ignore triggers.
        let next = Next::RequeueAfter(WAITING_RECHECK);
        let name = of.name.clone();
        self.ignore_triggers();
        let is_same = |ready: &Ready| ready.of == of && ready.served == served;
        if self.ready.lock().get(&name).is_some_and(is_same) {
            return next;
        }
        match self.watch(&of).await {
            Ok(watches) => {
                info!(plugin = %name, "loaded, and what it watches is watched, in case that this host takes over");
                let ready = Ready {
                    of,
                    served,
                    watches,
                };
                self.ready.lock().insert(name, ready);
                next
            }
            Err(Failed { problem, .. }) => {
                let error = &problem.message;
                warn!(plugin = %name, error, "failed to load what a Plugin declares, in case that this host takes over");
                Next::Backoff
            }
        }
    }

    async fn watch(&self, declared: &Declared) -> Result<Vec<Registration>, Failed> {
        let Declared { name, charter, .. } = declared;
        let component = self.loader.component(declared).await?;
        let plugin = configure(&component, &declared.config)?;
        let serving = under(charter, plugin);
        let once_made = (self.once_made)(name);
        let interests = serving.interests(name, &once_made);
        Ok(interests
            .into_iter()
            .map(|interest| self.loader.cluster.register(interest))
            .collect())
    }

    /// Drops triggers, so that they do not pile up while no pass follows them.
    fn ignore_triggers(&self) {
        for ready in self.ready.lock().values() {
            for watch in &ready.watches {
                while watch.triggers(TRIGGERS_MAX).now_or_never().is_some() {}
            }
        }
    }
}

impl Work for Warmer {
    async fn triggers(&self) -> Vec<(ObjectId, Class)> {
        controller::triggers(&self.registration).await
    }

    async fn pass(&self, id: ObjectId, _: Turn) -> Next {
        let plugin = match self.registration.observe(&id).await {
            Observed::Ready(observation) => observation.parent,
            Observed::Gone => {
                let name = PluginName::new(&id.name);
                name.map(|name| self.ready.lock().remove(&name)).ok();
                return Next::Forget;
            }
            Observed::Behind { until } => {
                return Next::Again(until.saturating_duration_since(Instant::now()));
            }
            Observed::NotReady { .. } => return Next::Parked(WAITING_RECHECK),
        };
        match declared(&plugin) {
            Ok((declared, _)) => self.tend(declared, status_of(&plugin).digest).await,
            // The host that serves it reports a problem.
            Err(_) => Next::UntilChanged,
        }
    }
}
