//! Apply: the plan, as far as the parent may write now, in the order of its operations.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_apply::{self as apply, Execution, Session};
use innkeeper_cluster as cluster;
use innkeeper_model::{
    ANNOTATION_GENERATED, Generated, GroupKind, Gvk, Manifest, Object, ObjectId, Operation,
    Outcome, Resources as _, error_chain,
};
use innkeeper_plan::{self as plan, Plan, RepeatableWrite, absence};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{plan::Planned, state::Pass};
use crate::{
    limits::quota::{Made, Quota},
    limits::throttled::HeldBack,
    pass::context::Context,
};

/// The reason why the operations of a plan were not tried to the end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The inventory cannot be written, so no child is created.
    #[error("failed to record the kinds of the plan before the first child is made")]
    Inventory(#[source] apply::Error),
    /// An object that the cache did not show exists, and cannot be read.
    #[error("failed to read {id} as it is now")]
    Read {
        id: ObjectId,
        #[source]
        source: cluster::Error,
    },
}

/// A pass that has applied its plan.
pub(crate) struct Applied {
    pub(super) planned: Planned,
    pub(super) result: Result<Execution, Error>,
    /// The writes that have to wait for the rate limit of the parent.
    pub(super) held_back: Option<HeldBack>,
}

impl<'a> Pass<'a, Planned> {
    /// Writes the operations, except contested ones whose wait is not over, and those that the rate limit holds back.
    pub(super) async fn apply(mut self) -> Pass<'a, Applied> {
        self.log();
        let mut plan = self.state.plan.clone();
        self.set_aside(&mut plan).await;
        let held_back = self.hold_back(&mut plan);
        let result = self.execute(&plan).await;
        self.advance(|planned| Applied {
            planned,
            result,
            held_back,
        })
    }

    /// Leaves those operations in a plan that the parent may write now.
    fn hold_back(&self, plan: &mut Plan) -> Option<HeldBack> {
        // A parent that may go writes nothing but the removal of its finalizer.
        let Outcome::Desired(_) = &*self.state.outcome else {
            return None;
        };
        let (context, observed) = (self.context, &self.state.observed);
        let epoch = context.active.current();
        let manifest = epoch.serving.plugin.manifest();
        let nested = self.nested_kinds(manifest);
        let quota = Quota {
            plugin: &context.plugin,
            limits: &epoch.serving.limits,
            observed,
            nested: &nested,
        };
        let over_quota = quota.hold_back(plan, |namespace| Made {
            all: context.registration.child_usage(namespace, |_| true),
            nested: (context.registration)
                .child_usage(namespace, |kind| nested.contains(kind))
                .objects,
        });
        let rest = HeldBack::of_long_plan(plan);
        let parent = &self.state.entered.observation.parent;
        let granted = context.take_operations(parent, &plan.operations);
        let over_rate = HeldBack::of_plan(granted, plan, observed);
        HeldBack::of_both(over_quota, over_rate.or(rest))
    }

    /// Returns the kinds of children that are parents and could multiply. Parents of other plugins do so only in a ring, in
    /// which a plugin has made this parent as well.
    fn nested_kinds(&self, manifest: &Manifest) -> BTreeSet<GroupKind> {
        let mut nested = manifest.parent_kinds();
        if self.state.entered.observation.parent.depth() > 0 {
            let children = manifest
                .children
                .iter()
                .map(|child| child.kind.group_kind());
            nested.extend(children.filter(|kind| self.context.shared.cluster.has_parents(kind)));
        }
        nested
    }

    async fn execute(&mut self, plan: &Plan) -> Result<Execution, Error> {
        let (context, id) = (self.context, self.id);
        let shared = &context.shared;
        shared
            .inventory
            .record(&context.plugin, &plan.kinds)
            .await
            .map_err(Error::Inventory)?;
        let secrets = live_secrets(context, plan).await?;
        let live = live_with_absences(context, plan).await?;
        let random = shared.random;
        let mut random = move |buffer: &mut [u8]| random(buffer);
        // The account of the present grants, also for a pass that began under earlier ones.
        let account = context.active.current().serving.account.clone();
        let Planned {
            entered, target, ..
        } = &mut self.state;
        let mut session = Session {
            plugin: &context.plugin,
            manager: &entered.manager,
            account: account.as_deref(),
            resources: &shared.cluster,
            secrets: &secrets,
            live: &live,
            random: &mut random,
        };
        let execution = shared.writer.execute(plan, target, &mut session).await;
        let version = target.resource_version();
        for (operation, result) in &execution.results {
            let observed = match operation.child() {
                Some(_) => operation.child_version(),
                None => Some(version),
            };
            match result {
                Ok(written) => {
                    let version = written.as_ref().map(|written| written.resource_version);
                    debug!(%operation, ?version, "done");
                    note_success(
                        context,
                        &entered.observation.parent,
                        operation,
                        written.as_ref(),
                    );
                }
                Err(error) => {
                    let child = operation.child().unwrap_or(id);
                    context.note_failure(id, child, observed, error);
                    if error.blocks_deletion_of(&entered.observation.parent) {
                        // The children of a parent of the cluster may be in several namespaces.
                        if id.namespace.is_some() {
                            context.ledger.lock().namespace_terminates(id);
                        }
                        warn!(%operation, error = error.failure().message, "the parent cannot be finalized");
                    // The next plan reads an object that exists; it reports the object if it belongs to another owner.
                    } else if error.is_conflict_only() || error.kind == apply::ErrorKind::Exists {
                        debug!(%operation, category = error.category(), "not confirmed, the next pass observes it");
                    } else {
                        warn!(%operation, error = %error_chain(error), "failed");
                    }
                }
            }
        }
        Ok(execution)
    }
}

/// Records a write until the cache shows it, and in the ledger of repeated writes.
fn note_success(
    context: &Context,
    observed: &Object,
    operation: &Operation,
    written: Option<&apply::Written>,
) {
    let parent = &observed.id();
    let id = operation.child().unwrap_or(parent);
    // The API server answers a write that changes nothing with the observed version: then nobody has changed the child.
    let is_changed =
        written.is_none_or(|written| operation.child_version() != Some(written.resource_version));
    if let Some(write) = RepeatableWrite::for_operation(operation, observed.generation)
        && is_changed
    {
        let mut ledger = context.ledger.lock();
        if ledger
            .repeats(parent)
            .record(write, Instant::now().into_std())
        {
            context.metrics.contested();
        }
    }
    let Some(written) = written else {
        context.count_write(parent, operation.verb());
        if let Operation::Prune { uid, .. } = operation {
            context.registration.expect_deletion(parent, id, uid);
            context.ledger.lock().repeats(parent).forget(id);
        }
        return;
    };
    context.note_written(parent, id, operation.verb(), written);
}

/// Reads the present values of generated Secrets that are about to be written, without those whose token has changed.
async fn live_secrets(
    context: &Context,
    plan: &Plan,
) -> Result<BTreeMap<ObjectId, Map<String, Value>>, Error> {
    let mut secrets = BTreeMap::new();
    for operation in &plan.operations {
        let Operation::Update {
            id,
            kind,
            generate,
            restores,
            ..
        } = operation
        else {
            continue;
        };
        if generate.is_empty() {
            continue;
        }
        let Some(live) = live(context, kind, id).await? else {
            continue;
        };
        let data = serde_json::from_str::<Map<String, Value>>(&live.json)
            .ok()
            .and_then(|mut live| live.remove("data"));
        if let Some(Value::Object(mut data)) = data {
            // A restoration has the tokens of the last apply, also if another field manager took the annotation away.
            let annotation = live.annotation(ANNOTATION_GENERATED);
            let drawn_again = |entry: &&Generated| !restores && plan::is_rotated(entry, annotation);
            for entry in generate.iter().filter(drawn_again) {
                data.remove(&entry.key);
            }
            secrets.insert(id.clone(), data);
        }
    }
    Ok(secrets)
}

/// Reads the children from which an update takes fields away: the cache has the managed fields of the host alone.
async fn live_with_absences(
    context: &Context,
    plan: &Plan,
) -> Result<BTreeMap<ObjectId, Object>, Error> {
    let mut children = BTreeMap::new();
    for operation in &plan.operations {
        let Operation::Update { id, kind, body, .. } = operation else {
            continue;
        };
        if !absence::absences(body).is_empty()
            && let Some(child) = live(context, kind, id).await?
        {
            children.insert(id.clone(), child);
        }
    }
    Ok(children)
}

/// Reads an object from the API server.
pub(super) async fn live(
    context: &Context,
    kind: &Gvk,
    id: &ObjectId,
) -> Result<Option<Object>, Error> {
    let cluster = &context.shared.cluster;
    cluster
        .live_get(kind, id.namespace.as_deref(), &id.name)
        .await
        .map_err(|source| Error::Read {
            id: id.clone(),
            source,
        })
}
