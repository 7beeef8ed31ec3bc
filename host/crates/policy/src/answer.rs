//! Checks a whole answer against the contract and the grants.

use std::collections::BTreeMap;

use innkeeper_model::{
    Child, Desired, Fault, GroupKind, Outcome, Phase, PredictedChild, Prediction,
};

use super::{Checked, Rejection, Rules, child, interference, order, report};

/// Checks a whole answer, sets omitted namespaces, and retains children whose kinds are never deleted.
///
/// # Errors
///
/// Returns the first broken rule; the caller must then discard the whole answer.
pub fn check(outcome: Outcome, rules: &Rules<'_>) -> Result<Checked<Outcome>, Rejection> {
    let outcome = match outcome {
        Outcome::Desired(Desired {
            children,
            report,
            prediction,
        }) => {
            report::check(&report)?;
            let children = check_children(children, rules)?;
            Outcome::Desired(Desired {
                children,
                report,
                prediction,
            })
        }
        Outcome::Keep(report) => {
            report::check(&report)?;
            Outcome::Keep(report)
        }
        Outcome::Finalized(_) if rules.phase == Phase::Reconcile => {
            return Err(Rejection::output(
                "the parent is not being deleted: `finalized` is an answer of the phase finalize only",
            ));
        }
        Outcome::Finalized(report) => {
            report::check(&report)?;
            Outcome::Finalized(report)
        }
    };
    Ok(Checked::seal(outcome))
}

/// Returns the answer that a prediction announces, with the children that it assumes; none if the answer has no
/// prediction, or if the report breaks a rule, which a call then shows.
///
/// The children are checked already, under the same rules.
pub fn predicted(outcome: Checked<Outcome>) -> Option<(Checked<Outcome>, Vec<PredictedChild>)> {
    let Outcome::Desired(Desired {
        children,
        prediction: Some(prediction),
        ..
    }) = outcome.into_inner()
    else {
        return None;
    };
    let Prediction {
        report,
        children: assumed,
    } = prediction;
    report::check(&report).ok()?;
    let outcome = Outcome::Desired(Desired {
        children,
        report,
        prediction: None,
    });
    Some((Checked::seal(outcome), assumed))
}

/// Checks a fault's report.
///
/// # Errors
///
/// Returns the first rule that the report breaks.
pub fn check_fault(fault: Fault) -> Result<Checked<Fault>, Rejection> {
    if let Some(report) = &fault.report {
        report::check(report)?;
    }
    Ok(Checked::seal(fault))
}

fn check_children(children: Vec<Child>, rules: &Rules<'_>) -> Result<Vec<Child>, Rejection> {
    let mut keys = BTreeMap::new();
    for (index, child) in children.iter().enumerate() {
        child::check_key(&child.key, index)?;
        if let Some(other) = keys.insert(child.key.as_str(), index) {
            return Err(Rejection::output(format!(
                "the key \"{}\" is given to two children, number {other} and number {index} of the answer",
                child.key
            )));
        }
    }
    order::check(&children)?;
    let children = children
        .into_iter()
        .map(|child| {
            let key = child.key.clone();
            child::check(child, rules).map_err(|rejection| rejection.in_child(&key))
        })
        .collect::<Result<Vec<_>, _>>()?;
    // After the namespaces are filled in: a child may state the parent's namespace or leave it out.
    check_identities(&children)?;
    interference::check_targets(&children, rules.parent, rules.grants)?;
    Ok(children)
}

fn check_identities(children: &[Child]) -> Result<(), Rejection> {
    let mut keys: BTreeMap<(GroupKind, Option<&str>, &str), &str> = BTreeMap::new();
    for child in children {
        let identity = (
            child.kind.group_kind(),
            child.namespace.as_deref(),
            child.name.as_str(),
        );
        if let Some(other) = keys.insert(identity, &child.key) {
            return Err(Rejection::output(format!(
                "it is the same object as child \"{other}\": {} {}",
                child.kind, child.name
            ))
            .in_child(&child.key));
        }
    }
    Ok(())
}
