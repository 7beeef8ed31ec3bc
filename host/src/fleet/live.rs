//! Plans against a cluster's live objects, with a host's cache and dry run.

use std::{
    collections::BTreeMap, future::pending, num::NonZeroUsize, path::Path, sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use innkeeper_authoring::{plugin_file, render};
use innkeeper_cluster::Cluster;
use innkeeper_command::{Exit, Failure, OrFail as _, ParentName};
use innkeeper_model::{Access, Gvk, Limits, ObjectId, PluginName};
use innkeeper_plugin_controller::{
    FleetPlan, ParentPlan, plugin_kind,
    resource::{Declared, Plugin as PluginObject},
};
use innkeeper_policy::Grants;
use innkeeper_reconcile::{Candidate, Differences, Reconciler, Revision, Shared, until_read};
use innkeeper_sandbox::Described;
use innkeeper_server::run;
use serde_json::{Map, Value};
use tokio::{task::JoinSet, time::Instant};
use tracing::debug;

use super::{
    differences,
    dump::{Dump, Recorder},
};
use crate::config::FleetArgs;

/// The time limit for the first lists of all kinds and the reads of all passes. Listing 10,000 parents takes a few seconds.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The number of parents in memory at a time: each dry run keeps all objects of its parent.
const BATCH_SIZE: usize = 256;

/// A plan's inputs besides the cluster.
pub(super) struct Inputs {
    pub(super) candidate: Described,
    pub(super) against: Option<Described>,
    pub(super) config: Option<Map<String, Value>>,
    pub(super) grants: Option<Grants>,
    pub(super) threads: NonZeroUsize,
}

/// A plan with notes for the user.
type Noted = (FleetPlan, Vec<String>);

/// Plans a candidate for all parents in a cluster or a dump.
pub(super) async fn plan(
    args: &FleetArgs,
    requested: &[ParentName],
    dump: Option<Dump>,
    inputs: Inputs,
) -> Result<Noted, Failure> {
    let threads = inputs.threads;
    let is_dump = dump.is_some();
    let work = |shared| plan_with(args, requested, inputs, shared, is_dump);
    let Some(mut dump) = dump else {
        let client = run::client(&args.connection).await?;
        let namespaces = args.namespaces.as_ref();
        return run::read_only(client, namespaces, &args.host_namespace, threads, work).await;
    };
    let namespaces = dump.namespaces.take();
    let own = dump.host_namespace.clone();
    let (client, mut unanswered) = dump.client();
    let planning = run::read_only(client, namespaces.as_ref(), &own, threads, work);
    let missing = async {
        match unanswered.wait_for(Option::is_some).await {
            Ok(first) => first.clone().unwrap_or_default(),
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        // First, because the plan would wait for ever.
        biased;
        missing = missing => {
            let message = format!(
                "the dump has no answer to {missing}: make one with innkeeper dump for this plugin, with the same --name, --config and --grants"
            );
            Err(Failure::new(Exit::Usage, message))
        }
        plan = planning => plan,
    }
}

/// Dumps everything that a plan reads; returns the number of parents.
pub(super) async fn dump(args: &FleetArgs, inputs: Inputs, to: &Path) -> Result<usize, Failure> {
    let recorder = Recorder::default();
    let client = recorder.client(run::client(&args.connection).await?);
    let namespaces = args.namespaces.as_ref();
    let threads = inputs.threads;
    let work = |shared: Arc<Shared>| async move {
        // Only the plan itself shows what it reads, because plugins read too.
        let planning = plan_with(args, &[], inputs, Arc::clone(&shared), true);
        let (FleetPlan { forecast, .. }, _) = Box::pin(planning).await?;
        Ok((forecast, shared))
    };
    let planning = run::read_only(client, namespaces, &args.host_namespace, threads, work);
    let (forecast, shared) = planning.await?;
    let key = shared
        .hash_key
        .get()
        .ok_or_else(|| Failure::new(Exit::Failure, "the host has no hash key"))?;
    let namespaces = args.namespaces.clone();
    recorder.write(to, args.host_namespace.clone(), namespaces, key)?;
    Ok(forecast.parents + forecast.faults_known + forecast.skipped)
}

/// Returns notes about parent kinds without grants.
fn denied(serving: &Revision) -> impl Iterator<Item = String> {
    serving
        .plugin
        .manifest()
        .parent_kinds()
        .into_iter()
        .filter(|kind| !serving.grants.allows_parent(kind))
        .map(|kind| format!("the grants lack parents of {kind}, so they have no passes"))
}

/// Fails if the plugin may read Secret values, which a dump does not contain.
fn check_no_secret_values(serving: &Revision) -> Result<(), Failure> {
    let manifest = serving.plugin.manifest();
    let grants = &serving.grants;
    let reads = grants
        .reads_for(manifest)
        .iter()
        .any(|read| read.kind.group_kind().is_secret() && read.access == Access::Full);
    let sees = manifest.children.iter().any(|child| {
        let kind = child.kind.group_kind();
        let mut parents = manifest.parents.iter();
        kind.is_secret()
            && parents.any(|parent| grants.child_access(&kind, parent.scope) == Access::Full)
    });
    if reads || sees {
        let message = format!(
            "plugin {} may read Secret values, which a dump never contains: plan it against the cluster, or give --grants without them",
            manifest.name
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(())
}

/// Plans a candidate; Secrets in a dump have no values.
async fn plan_with(
    args: &FleetArgs,
    requested: &[ParentName],
    inputs: Inputs,
    shared: Arc<Shared>,
    is_dump: bool,
) -> Result<Noted, Failure> {
    let manifest = inputs.candidate.manifest();
    let name = args.name.clone().unwrap_or_else(|| manifest.name.clone());
    let declared = declared(&shared.cluster, &name).await?;
    let declared = declared.as_ref();
    let config = inputs.config.as_ref();
    let serving = serving(&inputs.candidate, config, inputs.grants.as_ref(), declared)?;
    let against = inputs.against.as_ref().map(|against| {
        // A Plugin's grants apply to every revision; --config is for the candidate alone.
        let grants = inputs.grants.as_ref();
        self::serving(against, None, grants, declared)
    });
    let against = against.transpose()?;
    if is_dump {
        [Some(&serving), against.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(check_no_secret_values)?;
    }
    let (served, missing): (Vec<Gvk>, Vec<Gvk>) = serving
        .parents()
        .map(|parent| parent.kind.clone())
        .partition(|kind| shared.cluster.served(kind).is_some());
    if served.is_empty() {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let message = format!(
            "the cluster does not serve {}, the parents of plugin {name}: install their CustomResourceDefinitions (innkeeper manifests prints them)",
            missing.join(" and ")
        );
        return Err(Failure::new(Exit::Failure, message));
    }
    let revision = serving.plugin.revision().to_string();
    let against_revision = against
        .as_ref()
        .map(|against| against.plugin.revision().to_string());
    // Without a bound: only a host keeps plans in memory.
    let mut plan = FleetPlan::new(name.to_string(), revision, against_revision, usize::MAX);
    for kind in served {
        let fleet = Fleet {
            reconciler: Reconciler::new(
                name.clone(),
                kind.clone(),
                serving.clone(),
                Arc::clone(&shared),
            ),
            serving: serving.clone(),
            against: against.clone(),
            requested: requested.to_vec(),
            // Per kind, because its watches start now.
            until: Instant::now() + READ_TIMEOUT,
        };
        fleet.plan(inputs.threads, &mut plan).await?;
    }
    let notes = missing
        .iter()
        .map(|kind| format!("the cluster does not serve {kind} yet, so it has no parents"));
    Ok((plan, notes.chain(denied(&serving)).collect()))
}

/// Reads the Plugin with this name, if there is one.
async fn declared(cluster: &Cluster, name: &PluginName) -> Result<Option<Declared>, Failure> {
    let kind = plugin_kind();
    if cluster.served(&kind).is_none() {
        return Ok(None);
    }
    cluster
        .live_get(&kind, None, name.as_str())
        .await
        .or_fail(Exit::Failure, format!("failed to read the Plugin {name}"))?
        .map(|object| PluginObject::read(&object.json)?.declared())
        .transpose()
        .or_fail(Exit::Failure, format!("failed to parse the Plugin {name}"))
}

/// Returns a revision with its Plugin's terms; `config` and `grants` override them.
fn serving(
    described: &Described,
    config: Option<&Map<String, Value>>,
    grants: Option<&Grants>,
    declared: Option<&Declared>,
) -> Result<Revision, Failure> {
    let none = Map::new();
    let config = config.or_else(|| declared.map(|declared| &declared.config));
    let plugin = described
        .configure(config.unwrap_or(&none), plugin_file::checker())
        .or_fail_by(plugin_file::exit_for, "failed to configure the plugin")?;
    let plugin = Arc::new(plugin);
    let grants = grants.or_else(|| declared.map(|declared| &declared.terms.grants));
    let grants = render::granted(grants, plugin.manifest())?;
    Ok(match declared {
        Some(Declared { terms, .. }) => {
            let mut terms = terms.clone();
            terms.grants = grants;
            terms.serving(plugin)
        }
        None => Revision::new(plugin, Arc::new(grants), Arc::<Limits>::default()),
    })
}

/// All parents of one kind.
struct Fleet {
    reconciler: Reconciler,
    serving: Revision,
    against: Option<Revision>,
    requested: Vec<ParentName>,
    until: Instant,
}

impl Fleet {
    /// Plans all parents on all threads.
    async fn plan(self, threads: NonZeroUsize, plan: &mut FleetPlan) -> Result<(), Failure> {
        let registration = self.reconciler.registration().clone();
        let waiting = until_read(&registration, self.until)
            .await
            .err()
            .or_else(|| registration.waiting().pop());
        if let Some(waiting) = waiting {
            let message = format!("failed to plan: {} {}", waiting.kind, waiting.why);
            return Err(Failure::new(Exit::Failure, message));
        }
        let mut parents = registration.parents();
        parents.sort();
        // At least one, because `chunks` panics on zero.
        let share = parents.len().div_ceil(threads.get()).max(1);
        let candidate = self.reconciler.candidate(self.serving.clone());
        let against = self
            .against
            .clone()
            .map(|against| self.reconciler.candidate(against));
        let fleet = Arc::new((self, candidate, against));
        let count = parents.len();
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for parents in parents.chunks(share) {
            let fleet = Arc::clone(&fleet);
            let parents = parents.to_vec();
            tasks.spawn(async move {
                let (fleet, candidate, against) = &*fleet;
                fleet.share(candidate, against.as_ref(), parents).await
            });
        }
        while let Some(result) = tasks.join_next().await {
            for (parent, planned) in result.or_fail(Exit::Failure, "a task of the plan ended")?? {
                plan.add(parent, planned);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        debug!(parents = count, seconds, "planned all parents of a kind");
        Ok(())
    }

    /// Plans some of the parents.
    async fn share(
        &self,
        candidate: &Candidate,
        against: Option<&Candidate>,
        parents: Vec<ObjectId>,
    ) -> Result<Vec<(ObjectId, ParentPlan)>, Failure> {
        let mut plans = Vec::with_capacity(parents.len());
        let plugin = self.reconciler.plugin();
        let now = jiff::Timestamp::now();
        for parents in parents.chunks(BATCH_SIZE) {
            let dry_run = |revision, parents| {
                self.reconciler
                    .dry_run(revision, parents, self.until)
                    .collect::<Vec<_>>()
            };
            let results = dry_run(candidate, parents.to_vec()).await;
            let mut baseline = BTreeMap::new();
            if let Some(against) = against {
                // The other plugin is called only for parents that the candidate changes.
                let comparable = results
                    .iter()
                    .filter(|(_, result)| result.is_comparable(plugin, now))
                    .map(|(parent, _)| parent.clone())
                    .collect();
                baseline.extend(dry_run(against, comparable).await);
            }
            for (parent, result) in results {
                let is_asked = self.requested.iter().any(|name| name.matches(&parent));
                let differences = is_asked.then_some::<Differences>(differences::lines);
                let outcome = result
                    .plan(plugin, now, baseline.remove(&parent), differences)
                    .map_err(|waiting| {
                        let message = format!("failed to plan {parent}: it waits for {waiting}");
                        Failure::new(Exit::Failure, message)
                    })?;
                plans.push((parent, ParentPlan { is_asked, outcome }));
            }
        }
        Ok(plans)
    }
}
