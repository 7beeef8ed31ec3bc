//! The clusters in which plans run: a control plane with a relay before it, and the reference
//! states of parents without faults.
//!
//! A suite has as many clusters as plans run at the same time; a plan never shares its cluster.

use std::{
    collections::BTreeMap,
    ops::Deref,
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::{Result, bail};
use innkeeper_tests::{
    Audit, Host, HostOptions, User, eventually,
    process::{Running, path_from_env},
    user::Kind,
};
use rustix::process::Signal;
use serde_json::json;

use super::{
    naive::Naive,
    normal::{self, State, named, part},
    plan::{KINDS, Parent, Sort, Wish},
};
use crate::{relay::Relay, stage::Stage};

/// The CRDs of the parents.
const CRDS: [&str; 3] = [
    "memcacheds.cache.example.com",
    "unrulies.test.innkeeper.dev",
    "farewells.test.innkeeper.dev",
];

/// The controller under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Host,
    /// The known-bad controller, which must fail where the harness can detect a fault.
    Naive,
}

/// A running controller.
pub(crate) enum Actor {
    Host(Box<Host>),
    Naive(Naive),
}

impl Actor {
    pub(crate) fn start(who: Who, kubeconfig: PathBuf, options: &HostOptions) -> Result<Self> {
        Ok(match who {
            Who::Host => Self::Host(Box::new(Host::start(&kubeconfig, options)?)),
            Who::Naive => Self::Naive(Naive::start(kubeconfig)?),
        })
    }

    pub(crate) fn process(&mut self) -> Option<&mut Running> {
        match self {
            Self::Host(host) => Some(host.process()),
            Self::Naive(_) => None,
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        match self.process() {
            Some(process) => process.signal(signal),
            None => bail!("the naive controller is no process"),
        }
    }

    pub(crate) fn log(&self) -> String {
        match self {
            Self::Host(host) => host.log().unwrap_or_default(),
            Self::Naive(naive) => naive.log(),
        }
    }
}

/// A cluster for plans.
pub(crate) struct World {
    pub(crate) stage: Stage,
    pub(crate) relay: Relay,
    references: Mutex<BTreeMap<Who, References>>,
}

/// The objects of a converged parent, by desired state.
type References = BTreeMap<(Sort, Wish), State>;

impl World {
    fn new() -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let mut plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
        plugins.extend(["unruly", "farewell"].map(|name| guests.join(format!("{name}.wasm"))));
        let stage = Stage::full(plugins);
        let relay = Relay::start_for(&stage.plane.directory().join("kubeconfig-front")).unwrap();
        let host = stage.host();
        stage.wait_served(&host, &CRDS);
        stage.restart_collector();
        Self::end(host);
        Self {
            stage,
            relay,
            references: Mutex::default(),
        }
    }

    fn end(mut host: Host) {
        host.process().kill().unwrap();
    }

    pub(crate) fn user(&self) -> &User {
        self.stage.plane.user()
    }

    /// The audit logs of both API servers.
    pub(crate) fn audits(&self) -> [Audit; 2] {
        let second = self.stage.plane.directory().join("log/apiserver-2.audit");
        [self.stage.plane.audit(), Audit::open(second)]
    }

    /// The state of the cluster once all parents are in their desired state.
    pub(crate) fn wanted(&self, who: Who, wishes: &BTreeMap<Parent, Wish>) -> State {
        let mut references = self.references.lock().unwrap();
        let references = references.entry(who).or_insert_with(|| self.learn(who));
        let wanted = wishes.iter().flat_map(|(parent, wish)| {
            let key = (parent.sort, plain(parent.sort, *wish));
            named(&references[&key], *parent)
        });
        wanted.collect()
    }

    /// Deletes the parents of a finished plan; the controller of the next plan removes their
    /// finalizers.
    pub(crate) fn leave(&self, namespace: &str, parents: impl Iterator<Item = Parent>) {
        for parent in parents {
            let (api_version, kind) = parent.kind();
            let kind = Kind::new(api_version, kind, namespace);
            self.user().delete(kind, &parent.name()).unwrap();
        }
    }

    /// Records the reference states: one parent for every desired state, without faults.
    fn learn(&self, who: Who) -> References {
        let namespace = self.stage.namespace("reference");
        let parents: Vec<(Parent, Wish)> = every(who).collect();
        for (parent, wish) in &parents {
            self.stage.apply(&namespace, &parent.object(*wish));
        }
        let kubeconfig = self.stage.plane.kubeconfig();
        let mut actor = Actor::start(who, kubeconfig, &self.stage.options).unwrap();
        let count = parents
            .iter()
            .map(|(parent, wish)| 1 + parent.children(*wish).len());
        let count: usize = count.sum();
        let state = eventually("the reference parents converge", || {
            let state =
                normal::state(self.user(), &namespace, KINDS).map_err(|error| error.to_string())?;
            let good = json!(["\"True\" \"Applied\"", true]);
            let ready = json!(["\"True\" \"Ready\"", true]);
            let is_bad = |form: &serde_json::Value| {
                let conditions = form.get("conditions");
                who == Who::Host
                    && conditions.is_some_and(|all| all["Synced"] != good || all["Ready"] != ready)
            };
            let bad: Vec<_> = state.iter().filter(|(_, form)| is_bad(form)).collect();
            if bad.is_empty() && state.len() == count {
                Ok(state)
            } else {
                let log = actor.log();
                Err(format!(
                    "{} of {count} objects, {bad:#?}\n{log}",
                    state.len()
                ))
            }
        });
        if let Some(process) = actor.process() {
            process.kill().unwrap();
        }
        self.leave(&namespace, parents.iter().map(|(parent, _)| *parent));
        let learnt = parents.into_iter().map(|(parent, wish)| {
            let key = (parent.sort, plain(parent.sort, wish));
            (key, part(&state, parent))
        });
        learnt.collect()
    }
}

/// A desired state without the fields that its sort ignores.
fn plain(sort: Sort, wish: Wish) -> Wish {
    match sort {
        Sort::Cache => wish,
        Sort::Plain => Wish { size: 1, ..wish },
        Sort::Farewell => Wish {
            size: 1,
            extra: true,
        },
    }
}

/// Every desired state, each with a parent of its own.
fn every(who: Who) -> impl Iterator<Item = (Parent, Wish)> {
    let sorts = match who {
        Who::Host => &[Sort::Cache, Sort::Plain, Sort::Farewell][..],
        // The only job of the naive controller.
        Who::Naive => &[Sort::Cache][..],
    };
    let mut all: Vec<(Sort, Wish)> = Vec::new();
    for sort in sorts {
        for size in 1..=3 {
            for extra in [false, true] {
                let wish = plain(*sort, Wish { size, extra });
                if !all.contains(&(*sort, wish)) {
                    all.push((*sort, wish));
                }
            }
        }
    }
    (0..).zip(all).map(|(number, (sort, wish))| {
        let number = 1000 + number;
        (Parent { sort, number }, wish)
    })
}

/// The clusters that no plan uses.
fn free() -> &'static Mutex<Vec<World>> {
    static FREE: OnceLock<Mutex<Vec<World>>> = OnceLock::new();
    FREE.get_or_init(Mutex::default)
}

/// A cluster for one plan; it returns to the pool when this value is dropped.
pub(crate) struct Lent(Option<World>);

impl Lent {
    /// Takes a free cluster, or starts a new one.
    pub(crate) fn take() -> Self {
        let found = free().lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(found.unwrap_or_else(World::new)))
    }
}

impl Deref for Lent {
    type Target = World;

    fn deref(&self) -> &World {
        self.0.as_ref().expect("the cluster is taken only on drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // After a panic the state of the cluster is unknown, so it is not reused.
        if let Some(world) = self.0.take()
            && !std::thread::panicking()
        {
            let mut free = free().lock().unwrap_or_else(PoisonError::into_inner);
            free.push(world);
        }
    }
}
