//! Predict: takes the guest's prediction in place of the next call, where the cluster agrees with it.
//!
//! A plugin that has written children is asked again, to report on them. Mostly it knows that report at the first call:
//! the children are as stated, and no controller has looked at them yet. The contract says when that counts
//! (`desired.prediction` in wit/plugin.wit).

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::{Observation, ParentConditions};
use innkeeper_model::{
    ANNOTATION_KEY, Answer, Child, Object, ObjectId, Outcome, Phase, PredictedChild, ReadKey,
    RemovalPolicy,
};
use innkeeper_policy::{self as policy, Checked};
use serde_json::Value;

use super::{
    call::{GuestAnswer, call},
    check::{check, record_outcome},
    context::{Pass, Step},
    enter::Entered,
};
use crate::revision::epoch::Epoch;

/// An accepted answer: the guest's, or the prediction that replaces it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) outcome: Checked<Outcome>,
    /// The reads with their answers, as in [`GuestAnswer`].
    pub(super) reads: Option<Vec<(ReadKey, Answer)>>,
}

/// A prediction, with all that it was made from.
pub(super) struct Predicted {
    epoch: Arc<Epoch>,
    before: Observation,
    outcome: Checked<Outcome>,
    children: Vec<PredictedChild>,
    reads: Vec<(ReadKey, Answer)>,
}

impl Predicted {
    /// Returns the prediction in an answer that was applied. A guest that has asked for the time or for random bytes may
    /// answer differently next time.
    pub(super) fn new(epoch: Arc<Epoch>, before: Observation, accepted: Accepted) -> Option<Self> {
        let reads = accepted.reads?;
        let (outcome, children) = policy::predicted(accepted.outcome)?;
        Some(Self {
            epoch,
            before,
            outcome,
            children,
            reads,
        })
    }

    /// Returns the answer that a call would give now; none if only a call can tell.
    fn resolve(
        self,
        pass: &Pass<'_>,
        observed: &Observation,
        entered: &Entered,
    ) -> Option<Accepted> {
        let Outcome::Desired(desired) = &*self.outcome else {
            return None;
        };
        let before = &self.before;
        let is_same = Arc::ptr_eq(&self.epoch, &pass.epoch)
            && before.parent.json == observed.parent.json
            && agree(before, observed, &desired.children, &self.children);
        if !is_same {
            return None;
        }
        let mut reads = pass
            .registration
            .reads(&observed.parent, &pass.epoch.revision.reads)
            .with_subscriptions(&entered.own_reads);
        let is_current = self
            .reads
            .iter()
            .all(|(key, answer)| reads.read(key) == *answer);
        is_current.then_some(Accepted {
            outcome: self.outcome,
            reads: Some(self.reads),
        })
    }
}

/// Returns the guest's accepted answer, from a call unless a prediction holds.
pub(super) async fn answer(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
    predicted: Option<Predicted>,
) -> Step<Accepted> {
    let context = pass.context;
    let recordings = &context.shared.recordings;
    let predicted = predicted
        // A client that records calls sees each pass.
        .filter(|_| !recordings.may_want(&context.plugin, pass.id))
        .and_then(|predicted| predicted.resolve(pass, observed, entered));
    let Some(predicted) = predicted else {
        let predict = wants_prediction(&observed.parent, entered.phase);
        return accept(
            pass,
            observed,
            entered,
            call(pass, observed, entered, predict).await?,
        );
    };
    if context.shared.check_predictions {
        let called = call(pass, observed, entered, false).await?;
        check_prediction(&predicted, accept(pass, observed, entered, called));
    }
    pass.epoch.predictions.used();
    context.metrics.predicted();
    record_outcome(pass, &observed.parent, &Step::Ok(()));
    Ok(predicted)
}

fn accept(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
    answer: GuestAnswer,
) -> Step<Accepted> {
    pass.trace.step("check");
    let parent = &observed.parent;
    let checked = check(pass, parent, entered, answer.end);
    record_outcome(pass, parent, &checked);
    Ok(Accepted {
        outcome: checked?,
        reads: answer.reads,
    })
}

/// Returns true if the pass will probably write children and run another round: the host has not reported on the
/// parent's generation yet. At other times, a prediction costs the guest more than it saves.
fn wants_prediction(parent: &Object, phase: Phase) -> bool {
    phase == Phase::Reconcile && ParentConditions::new(parent).synced.is_none()
}

/// Returns true if the children are as the prediction assumes.
fn agree(
    before: &Observation,
    observed: &Observation,
    stated: &[Child],
    predicted: &[PredictedChild],
) -> bool {
    let stated: BTreeMap<&str, &Child> = stated
        .iter()
        .map(|child| (child.key.as_str(), child))
        .collect();
    let predicted: Option<BTreeMap<ObjectId, (&Child, &PredictedChild)>> = predicted
        .iter()
        .map(|predicted| {
            let child = stated.get(predicted.key.as_str())?;
            Some((child.id(), (*child, predicted)))
        })
        .collect();
    let Some(mut predicted) = predicted else {
        return false;
    };
    let mut unchanged: BTreeMap<ObjectId, &Object> = before
        .children
        .iter()
        .map(|child| (child.id(), child))
        .collect();
    let is_expected = |child: &Object| {
        let id = child.id();
        let last = unchanged.remove(&id);
        match predicted.remove(&id) {
            Some((stated, predicted)) => is_predicted(child, &observed.parent, stated, predicted),
            None => last.is_some_and(|last| {
                last.json == child.json
                    && last.annotation(ANNOTATION_KEY) == child.annotation(ANNOTATION_KEY)
                    && last.is_retained(&observed.parent) == child.is_retained(&observed.parent)
            }),
        }
    };
    observed.children.iter().all(is_expected) && predicted.is_empty() && unchanged.is_empty()
}

fn is_predicted(
    child: &Object,
    parent: &Object,
    stated: &Child,
    predicted: &PredictedChild,
) -> bool {
    let is_as_stated = child.kind == stated.kind
        && child.annotation(ANNOTATION_KEY) == Some(&stated.key)
        && child.is_retained(parent) == (stated.removal == RemovalPolicy::Retain)
        && !child.is_deleting();
    if !is_as_stated {
        return false;
    }
    if predicted.parts.is_empty() {
        return true;
    }
    // Always JSON: the cache has parsed the object.
    let object: Value = serde_json::from_str(&child.json).unwrap_or_default();
    predicted.has_parts(&object, stated)
}

/// Compares a prediction with the call that it would have saved, for tests.
///
/// # Panics
///
/// Panics if they differ.
fn check_prediction(predicted: &Accepted, called: Step<Accepted>) {
    let before = predicted.reads.as_deref().unwrap_or_default();
    let differs = called.map_or(true, |called| {
        let reads = called.reads.as_deref().unwrap_or_default();
        // An object that has changed between the two is no fault of the prediction.
        reads.iter().all(|read| before.contains(read)) && called.outcome != predicted.outcome
    });
    assert!(
        !differs,
        "the guest predicted another answer than it gives: {predicted:?}"
    );
}

#[cfg(test)]
mod tests;
