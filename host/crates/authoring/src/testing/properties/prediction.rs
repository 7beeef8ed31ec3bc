//! A predicted report must be the one that the next call gives, wherever the host would use it.

use innkeeper_model::{Child, PredictedChild, Prediction};
use innkeeper_plan::put;
use innkeeper_sandbox::{CallOutput, ObservedChild};
use serde_json::{Map, Value};

use super::{Checker, Cluster, Property, Stop, apply, same, under};
use crate::render::{Simulation, Variation};

impl Checker<'_> {
    /// Asks for a prediction, and calls the plugin with the children as the prediction assumes them.
    ///
    /// These calls do not count for the cost: a host asks only once for a new parent.
    pub(super) fn prediction(&self, cluster: &Cluster, simulation: Simulation) -> Result<(), Stop> {
        let call = |cluster: &Cluster, variation| {
            let others = cluster.children.values().cloned().collect();
            self.plugin.pass(cluster.parent.clone(), others, variation)
        };
        let predicting = Variation {
            predict: true,
            ..under(simulation)
        };
        let mut first = call(cluster, predicting)?;
        let Some(prediction) = first.prediction.take() else {
            return Ok(());
        };
        // The host reports only after the last round.
        let mut written = Cluster {
            parent: cluster.parent.clone(),
            ..apply(cluster, &first.answer)
        };
        for predicted in &prediction.children {
            assume(&mut written, &first.answer, predicted);
        }
        let mut second = call(&written, under(simulation))?;
        let stated = &first.answer.children;
        let is_used = is_as_assumed(&prediction, stated, first.children(), second.children())
            && first.reads.agree(&mut second.reads);
        if !is_used {
            return Ok(());
        }
        let predicted = CallOutput {
            report: prediction.report,
            ..first.answer
        };
        let when = "than the prediction";
        same(
            Property::Predicts,
            when,
            &predicted,
            &second.answer,
            &written,
        )
    }
}

/// Adds the assumed parts that a child lacks, such as a first status.
fn assume(cluster: &mut Cluster, answer: &CallOutput, predicted: &PredictedChild) {
    let stated = answer
        .children
        .iter()
        .find(|child| child.key == predicted.key);
    let written = stated.and_then(|child| cluster.children.get_mut(&child.id()));
    let Some(written) = written else { return };
    for (pointer, value) in &predicted.parts {
        if let Some(value) = value {
            add(&mut written.object, pointer, value);
        }
    }
}

fn add(object: &mut Map<String, Value>, pointer: &str, value: &Value) {
    let is_absent = Value::Object(object.clone()).pointer(pointer).is_none();
    let mut path: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect();
    if let Some(name) = path.pop().filter(|_| is_absent) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        put(object, &path, &name, value.clone());
    }
}

/// Returns true if the children are as the prediction assumes.
fn is_as_assumed(
    prediction: &Prediction,
    stated: &[Child],
    before: &[ObservedChild],
    after: &[ObservedChild],
) -> bool {
    let predicted = |child: &ObservedChild| {
        let key = child.key.as_deref();
        let mut children = prediction.children.iter();
        children.find(|predicted| Some(&*predicted.key) == key)
    };
    let has_parts = |child: &ObservedChild, predicted: &PredictedChild| {
        let object: Value = serde_json::from_str(&child.object).unwrap_or_default();
        let stated = stated.iter().find(|stated| stated.key == predicted.key);
        stated.is_some_and(|stated| predicted.has_parts(&object, stated))
    };
    let is_gone = |child: &ObservedChild| predicted(child).is_none() && !after.contains(child);
    let count = after
        .iter()
        .filter(|child| predicted(child).is_some())
        .count();
    count == prediction.children.len()
        && !before.iter().any(is_gone)
        && after.iter().all(|child| match predicted(child) {
            Some(predicted) => has_parts(child, predicted),
            None => before.contains(child),
        })
}
