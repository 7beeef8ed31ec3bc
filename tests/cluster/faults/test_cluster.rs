//! Clusters for plans: a control plane behind a relay, and the reference states for parents without
//! faults.
//!
//! A suite starts as many clusters as there are concurrent plans; plans never share a cluster.

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
    plan::{Desired, KINDS, Parent, Sort},
};
use crate::{relay::Relay, stage::Stage};

/// The parents' CRDs.
const CRDS: [&str; 3] = [
    "memcacheds.cache.example.com",
    "unrulies.test.innkeeper.dev",
    "farewells.test.innkeeper.dev",
];

/// The controller under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Host,
    /// The known-bad controller, which must fail where the harness can detect a fault.
    Naive,
}

/// A running controller.
pub(crate) enum RunningController {
    Host(Box<Host>),
    Naive(Naive),
}

impl RunningController {
    pub(crate) fn start(
        subject: Subject,
        kubeconfig: PathBuf,
        options: &HostOptions,
    ) -> Result<Self> {
        Ok(match subject {
            Subject::Host => Self::Host(Box::new(Host::start(&kubeconfig, options)?)),
            Subject::Naive => Self::Naive(Naive::start(kubeconfig)?),
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

pub(crate) struct TestCluster {
    pub(crate) relay: Relay,
    pub(crate) stage: Stage,
    references: Mutex<BTreeMap<Subject, References>>,
}

/// The objects for a converged parent, by desired state.
type References = BTreeMap<(Sort, Desired), State>;

impl TestCluster {
    fn new() -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let plugins = HostOptions::with_guests(&["memcached"])
            .unwrap()
            .plugins
            .into_iter()
            .chain(["unruly", "farewell"].map(|name| guests.join(format!("{name}.wasm"))))
            .collect();
        let stage = Stage::full(plugins);
        let relay = Relay::start_for(&stage.plane.directory().join("kubeconfig-front")).unwrap();
        let host = stage.host_serving(&CRDS);
        stage.restart_collector();
        Self::end(host);
        Self {
            relay,
            stage,
            references: Mutex::default(),
        }
    }

    fn end(mut host: Host) {
        host.process().kill().unwrap();
    }

    pub(crate) fn user(&self) -> &User {
        self.stage.plane.user()
    }

    /// Both API servers' audit logs.
    pub(crate) fn audits(&self) -> [Audit; 2] {
        let second = self.stage.plane.directory().join("log/apiserver-2.audit");
        [self.stage.plane.audit(), Audit::open(second)]
    }

    /// The cluster state once all parents are in the desired state.
    pub(crate) fn desired_state(
        &self,
        subject: Subject,
        desired_parents: &BTreeMap<Parent, Desired>,
    ) -> State {
        let mut references = self.references.lock().unwrap();
        let references = references
            .entry(subject)
            .or_insert_with(|| self.record_references(subject));
        desired_parents
            .iter()
            .flat_map(|(parent, desired)| {
                let key = (parent.sort, without_ignored_fields(parent.sort, *desired));
                named(&references[&key], *parent)
            })
            .collect()
    }

    /// Deletes a finished plan's parents; the next plan's controller removes the finalizers.
    pub(crate) fn delete_parents(&self, namespace: &str, parents: impl Iterator<Item = Parent>) {
        for parent in parents {
            let (api_version, kind) = parent.kind();
            let kind = Kind::new(api_version, kind, namespace);
            self.user().delete(kind, &parent.name()).unwrap();
        }
    }

    /// Records the reference states: one parent for every desired state, without faults.
    fn record_references(&self, subject: Subject) -> References {
        let namespace = self.stage.namespace("reference");
        let parents: Vec<(Parent, Desired)> = all_desired(subject).collect();
        for (parent, desired) in &parents {
            self.stage.apply(&namespace, &parent.object(*desired));
        }
        let kubeconfig = self.stage.plane.kubeconfig();
        let mut controller =
            RunningController::start(subject, kubeconfig, &self.stage.options).unwrap();
        let count: usize = parents
            .iter()
            .map(|(parent, desired)| 1 + parent.children(*desired).len())
            .sum();
        let state = eventually("the reference parents converge", || {
            let state =
                normal::state(self.user(), &namespace, KINDS).map_err(|error| error.to_string())?;
            let good = json!(["\"True\" \"Applied\"", true]);
            let ready = json!(["\"True\" \"Ready\"", true]);
            let is_bad = |form: &serde_json::Value| {
                let conditions = form.get("conditions");
                subject == Subject::Host
                    && conditions.is_some_and(|all| all["Synced"] != good || all["Ready"] != ready)
            };
            let bad: Vec<_> = state.iter().filter(|(_, form)| is_bad(form)).collect();
            if bad.is_empty() && state.len() == count {
                Ok(state)
            } else {
                let log = controller.log();
                Err(format!(
                    "{} of {count} objects, {bad:#?}\n{log}",
                    state.len()
                ))
            }
        });
        if let Some(process) = controller.process() {
            process.kill().unwrap();
        }
        self.delete_parents(&namespace, parents.iter().map(|(parent, _)| *parent));
        let learnt = parents.into_iter().map(|(parent, desired)| {
            let key = (parent.sort, without_ignored_fields(parent.sort, desired));
            (key, part(&state, parent))
        });
        learnt.collect()
    }
}

/// The desired state without the fields that this sort of parent ignores.
fn without_ignored_fields(sort: Sort, desired: Desired) -> Desired {
    match sort {
        Sort::Cache => desired,
        Sort::Plain => Desired { size: 1, ..desired },
        Sort::Farewell => Desired {
            size: 1,
            extra: true,
        },
    }
}

/// Every desired state, each with a separate parent.
fn all_desired(subject: Subject) -> impl Iterator<Item = (Parent, Desired)> {
    let sorts = match subject {
        Subject::Host => &[Sort::Cache, Sort::Plain, Sort::Farewell][..],
        // The naive controller handles only this sort.
        Subject::Naive => &[Sort::Cache][..],
    };
    let mut all: Vec<(Sort, Desired)> = Vec::new();
    for sort in sorts {
        for size in 1..=3 {
            for extra in [false, true] {
                let desired = without_ignored_fields(*sort, Desired { size, extra });
                if !all.contains(&(*sort, desired)) {
                    all.push((*sort, desired));
                }
            }
        }
    }
    (0..).zip(all).map(|(number, (sort, desired))| {
        let number = 1000 + number;
        (Parent { sort, number }, desired)
    })
}

/// Clusters that are not in use.
fn cluster_pool() -> &'static Mutex<Vec<TestCluster>> {
    static FREE: OnceLock<Mutex<Vec<TestCluster>>> = OnceLock::new();
    FREE.get_or_init(Mutex::default)
}

/// A cluster for one plan; returned to the pool on drop.
pub(crate) struct PooledCluster(Option<TestCluster>);

impl PooledCluster {
    /// Takes a free cluster, or starts a new one.
    pub(crate) fn take() -> Self {
        let cluster = cluster_pool()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        Self(Some(cluster.unwrap_or_else(TestCluster::new)))
    }
}

impl Deref for PooledCluster {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        self.0.as_ref().expect("the cluster is taken only on drop")
    }
}

impl Drop for PooledCluster {
    fn drop(&mut self) {
        // After a panic the cluster's state is unknown, so it is not reused.
        if let Some(cluster) = self.0.take()
            && !std::thread::panicking()
        {
            cluster_pool()
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(cluster);
        }
    }
}
