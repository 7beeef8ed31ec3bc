//! Plan and apply: from an accepted answer to what the API server has said about every operation.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_apply::{self as apply, Execution, Session, Target, Written};
use innkeeper_cluster::{self as cluster, Observation};
use innkeeper_model::{
    Access, ConditionStatus, Object, ObjectId, Operation, Outcome, Report, ResourceVersion, Retry,
    reason,
};
use innkeeper_plan::{self as plan, Plan, ReadyPart};
use serde_json::{Map, Value};
use tracing::{debug, info, warn};

use super::{
    Next, Reconciler, asked, not_synced,
    quarrel::Quarrel,
    report::{Ended, Verdict, after_failure},
    throttle::HeldBack,
};

/// How often a pass plans: once more after objects were found that the cache did not show.
const PLANS_MAX: u32 = 2;

/// A report that is left to the next pass waits so long for the watch to bring one; a timer brings it then.
const REPORT_LEFT_MAX: Duration = Duration::from_secs(1);

/// Why the operations of a plan were not tried.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to record the kinds of the plan before the first child is made")]
    Inventory(#[source] apply::Error),
    #[error("failed to read {id} as it is now")]
    Read {
        id: ObjectId,
        #[source]
        source: cluster::Error,
    },
}

/// What became of a plan.
struct Done {
    plan: Plan,
    execution: Execution,
    /// The part that was not tried.
    held_back: Option<HeldBack>,
    /// Somebody else keeps changing children.
    quarrel: Option<Quarrel>,
}

impl Reconciler {
    /// Brings the children to the answer, and reports.
    pub(super) async fn converge(
        &self,
        observation: &Observation,
        context: &plan::Context<'_>,
        outcome: &Outcome,
        report: &Report,
    ) -> Ended {
        let parent = &observation.parent;
        let mut target = self.target(parent);
        let written = self.write(&mut target, observation, context, outcome).await;
        let Done {
            plan,
            execution,
            held_back,
            quarrel,
        } = match written {
            Ok(done) => done,
            Err(error) => {
                let message = innkeeper_model::error_chain(&error).to_string();
                warn!(error = message, "failed to apply");
                let synced = not_synced(reason::APPLY_FAILED, message);
                let verdict = Verdict::of_report(report, synced, Next::Backoff);
                return self.report(&mut target, parent, verdict).await;
            }
        };
        if execution.is_silent() {
            // The world has moved on, and the next pass sees it. A parent that goes with its namespace has none; who
            // is to finalize first, or stays when another's namespace goes, asks again.
            let goes_along = parent.namespace.is_some() && !parent.is_deleting();
            let errors = execution
                .results
                .iter()
                .filter_map(|(_, result)| result.as_ref().err());
            let again = !goes_along
                || errors
                    .into_iter()
                    .any(|error| error.retry() != Retry::Never);
            return Ended::after_writes(if again {
                Next::Backoff
            } else {
                Next::UntilChanged
            });
        }
        let conclusion = plan::conclude(&plan, &execution.effects());
        let next = asked(report).unwrap_or(Next::Settled);
        let is_done = conclusion.retry.is_none() && held_back.is_none() && quarrel.is_none();
        if is_done && execution.comes_back() && self.leave_report(&parent.id(), report) {
            return Ended::after_writes(next.within(REPORT_LEFT_MAX));
        }
        let next = match conclusion.retry {
            Some(retry) => after_failure(retry, next),
            None => next,
        };
        let (synced, next) = match (&held_back, &quarrel) {
            (Some(held), _) if conclusion.retry == Some(Retry::OnChange) => {
                (conclusion.synced, next.again_after(held.wait))
            }
            _ if conclusion.retry.is_some() => (conclusion.synced, next),
            (Some(held), _) => (held.synced(), Next::RequeueAfter(held.wait)),
            (None, Some(quarrel)) => (quarrel.synced(), next.within(quarrel.wait)),
            (None, None) => (conclusion.synced, next),
        };
        let verdict = Verdict {
            ready: ReadyPart::Host(conclusion.ready),
            fresh: !execution.results.is_empty(),
            ..Verdict::of_report(report, synced, next)
        };
        let ended = self.report(&mut target, parent, verdict).await;
        Ended {
            wrote: ended.wrote || held_back.is_some() || quarrel.is_some(),
            ..ended
        }
    }

    /// Whether the report of a pass may be left to the next one, which comes as soon as what was written is seen.
    ///
    /// What a pass says about children that it has only just made is out of date a moment later, and would cost up to
    /// two writes. Two passes in a row never leave it, whatever the guest answers.
    fn leave_report(&self, parent: &ObjectId, report: &Report) -> bool {
        self.ledger.lock().leave(parent, &report.events)
    }

    /// Says the last word, and lets the parent go.
    pub(super) async fn finalize(
        &self,
        observation: &Observation,
        context: &plan::Context<'_>,
        outcome: &Outcome,
        report: &Report,
    ) -> Ended {
        let parent = &observation.parent;
        let mut target = self.target(parent);
        let applied = plan::synced(ConditionStatus::True, reason::APPLIED, "");
        let verdict = Verdict::of_report(report, applied, Next::Settled);
        // The status goes first: once the finalizer is off, there is no parent.
        let reported = self.report(&mut target, parent, verdict).await;
        // What the API server will not have of it, or what has to wait, holds nobody who is done.
        let may_go = matches!(
            reported.next,
            Next::Settled | Next::UntilChanged | Next::RequeueAfter(_)
        );
        if !may_go {
            return reported;
        }
        Ended::after_writes(
            match self.write(&mut target, observation, context, outcome).await {
                Ok(Done { execution, .. }) => match execution
                    .results
                    .into_iter()
                    .find_map(|(_, result)| result.err())
                {
                    None => Next::Settled,
                    Some(error) => after_failure(error.retry(), Next::Backoff),
                },
                Err(error) => {
                    warn!(error = %innkeeper_model::error_chain(&error), "failed to finalize");
                    Next::Backoff
                }
            },
        )
    }

    /// Takes the finalizer off without the guest.
    pub(super) async fn release(&self, parent: &Object) -> Next {
        let mut target = self.target(parent);
        let id = parent.id();
        match self.shared.writer.release(&mut target, &self.name).await {
            Ok(written) => {
                info!("released the parent without its guest");
                if let Some(written) = written {
                    self.wrote(&id, Operation::RemoveFinalizer.verb());
                    self.note_written(&id, &id, &written);
                }
                Next::Settled
            }
            Err(error) => {
                self.note_failure(&id, &id, Some(target.resource_version()), &error);
                warn!(error = %innkeeper_model::error_chain(&error), "failed to release the parent");
                after_failure(error.retry(), Next::Backoff)
            }
        }
    }

    /// Plans and applies; plans again when a child that was to be created turned out to exist.
    async fn write(
        &self,
        target: &mut Target,
        observation: &Observation,
        context: &plan::Context<'_>,
        outcome: &Outcome,
    ) -> Result<Done, Error> {
        let mut observed = observation.children.clone();
        let mut round = 1;
        loop {
            let plan = plan::plan(context, &observed, outcome);
            if !plan.is_settled() {
                let plan = plan.to_string().trim_end().replace('\n', "; ");
                info!(plan, round, "applying");
            }
            let mut affordable = plan.clone();
            let parent = context.parent.id();
            self.set_aside(context, &mut affordable).await;
            // A parent that may go has nothing more to write than that.
            let held_back = match outcome {
                Outcome::Desired(_) => self.hold_back(&parent, &mut affordable, &observed),
                Outcome::Keep(_) | Outcome::Finalized(_) => None,
            };
            let execution = self.execute(target, context, &affordable).await?;
            let conflicts: Vec<ObjectId> = execution.conflicts().cloned().collect();
            if conflicts.is_empty() || round == PLANS_MAX {
                return Ok(Done {
                    plan,
                    execution,
                    held_back,
                    quarrel: self.quarrel(&parent),
                });
            }
            fold(&mut observed, &execution, context);
            for id in conflicts {
                self.find(&mut observed, &plan, id).await?;
            }
            round += 1;
        }
    }

    async fn execute(
        &self,
        target: &mut Target,
        context: &plan::Context<'_>,
        plan: &Plan,
    ) -> Result<Execution, Error> {
        self.shared
            .inventory
            .record(context.plugin, &plan.kinds)
            .await
            .map_err(Error::Inventory)?;
        let secrets = self.live_secrets(plan).await?;
        let random = self.shared.random;
        let mut random = move |buffer: &mut [u8]| random(buffer);
        // As the present grants have it, also for a pass that began under others.
        let stint = self.slot.current();
        let mut session = Session {
            plugin: context.plugin,
            manager: context.manager,
            account: stint.serving.account.as_deref(),
            resources: context.resources,
            secrets: &secrets,
            random: &mut random,
        };
        let execution = self.shared.writer.execute(plan, target, &mut session).await;
        self.note(target, &context.parent.id(), &execution);
        Ok(execution)
    }

    /// What generated Secrets hold now, where they are about to be written.
    async fn live_secrets(
        &self,
        plan: &Plan,
    ) -> Result<BTreeMap<ObjectId, Map<String, Value>>, Error> {
        let mut secrets = BTreeMap::new();
        for operation in &plan.operations {
            let Operation::Update {
                id, kind, generate, ..
            } = operation
            else {
                continue;
            };
            if generate.is_empty() {
                continue;
            }
            let live = self.live(kind, id).await?;
            let data = live
                .and_then(|live| serde_json::from_str::<Map<String, Value>>(&live.json).ok())
                .and_then(|mut live| live.remove("data"));
            if let Some(Value::Object(data)) = data {
                secrets.insert(id.clone(), data);
            }
        }
        Ok(secrets)
    }

    /// Remembers every write until the cache has seen it.
    fn note(&self, target: &Target, parent: &ObjectId, execution: &Execution) {
        for (operation, result) in &execution.results {
            let id = operation.child().unwrap_or(parent);
            let observed = match operation.child() {
                Some(_) => operation.child_version(),
                None => Some(target.resource_version()),
            };
            if result.is_ok() {
                self.wrote(parent, operation.verb());
                if operation.is_restoration() {
                    self.restored(parent, id);
                }
            }
            match (operation, result) {
                (_, Ok(Some(written))) => {
                    debug!(%operation, version = %written.resource_version, "done");
                    self.note_written(parent, id, written);
                }
                (Operation::Prune { uid, .. }, Ok(None)) => {
                    debug!(%operation, "done");
                    self.registration.note_delete(parent, id, uid);
                }
                (_, Ok(None)) => debug!(%operation, "done"),
                (_, Err(error)) => {
                    self.note_failure(parent, id, observed, error);
                    // What exists is looked at next; whose it is decides whether it is worth a word.
                    if error.is_silent() || error.kind == apply::ErrorKind::Exists {
                        debug!(%operation, category = error.category(), "not done, the world is another");
                    } else {
                        warn!(%operation, error = %innkeeper_model::error_chain(error), "failed");
                    }
                }
            }
        }
    }

    /// Remembers a write until the cache has seen it.
    fn note_written(&self, parent: &ObjectId, id: &ObjectId, written: &Written) {
        let version = written.resource_version;
        if written.gone {
            // The answer shows the object as it was last seen, so that only its end tells that the cache is current.
            self.registration.note_stale(parent, id, version);
        } else {
            self.registration.note_write(parent, id, version);
        }
    }

    /// Remembers what a write that failed says about the cache, until the cache has seen it, too.
    pub(super) fn note_failure(
        &self,
        parent: &ObjectId,
        id: &ObjectId,
        observed: Option<ResourceVersion>,
        error: &apply::Error,
    ) {
        if error.is_ambiguous() {
            self.registration.note_unknown(parent, id);
        } else if error.is_stale()
            && let Some(observed) = observed
        {
            self.registration.note_stale(parent, id, observed);
        }
    }

    /// Adds an object of a child's name that the cache did not show; the plan decides whose it is.
    async fn find(
        &self,
        observed: &mut Vec<Object>,
        plan: &Plan,
        id: ObjectId,
    ) -> Result<(), Error> {
        let kind = plan
            .operations
            .iter()
            .find(|operation| operation.child() == Some(&id))
            .and_then(Operation::kind);
        if let Some(kind) = kind
            && let Some(object) = self.live(kind, &id).await?
        {
            replace(observed, &id, object);
        }
        Ok(())
    }

    async fn live(
        &self,
        kind: &innkeeper_model::Gvk,
        id: &ObjectId,
    ) -> Result<Option<Object>, Error> {
        self.shared
            .cluster
            .live_get(kind, id.namespace.as_deref(), &id.name)
            .await
            .map_err(|source| Error::Read {
                id: id.clone(),
                source,
            })
    }
}

/// Adds to what was observed what this pass itself has made since.
fn fold(observed: &mut Vec<Object>, execution: &Execution, context: &plan::Context<'_>) {
    for (operation, result) in &execution.results {
        let (Some(id), Ok(Some(written))) = (operation.child(), result) else {
            continue;
        };
        let kind = operation.kind();
        let shown = serde_json::from_str(&written.json).ok().and_then(|object| {
            let kind = kind?;
            cluster::present(&object, kind, Access::Full, context.hash_key).ok()
        });
        if let Some(object) = shown {
            replace(observed, id, object);
        }
    }
}

fn replace(observed: &mut Vec<Object>, id: &ObjectId, object: Object) {
    observed.retain(|other| other.id() != *id);
    observed.push(object);
}
