//! The host's conditions, from a plan and the operations' results.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{
    ANNOTATION_ADOPT, ANNOTATION_RETAINED_FOR, ANNOTATION_SKIP_FINALIZE, Condition,
    ConditionStatus, Fault, FaultKind, Gvk, ObjectId, Operation, Retry, join_first, reason,
};

use super::{ForeignOwner, Plan, PlannedChild, Progress, readiness};

/// The most children that a condition names: as many as fit on a screen with kinds and namespaces.
const NAMED_MAX: usize = 5;

/// The same for children to adopt. More, because the user should see every object whose owner is about to change; these
/// names still fit into one message.
const ADOPTIONS_NAMED_MAX: usize = 30;

/// The longest message in the host's conditions, in characters. The API server takes 32,768, but every write of the
/// status sends it, and tools show it on one line.
const MESSAGE_CHARS_MAX: usize = 2048;

/// A write that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The reason for the condition `Synced`.
    pub reason: &'static str,
    /// The failed write and the cause, for users.
    pub message: String,
    /// The next attempt.
    pub retry: Retry,
}

/// The results of a plan's operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// A failed write to the parent itself.
    pub parent: Option<WriteFailure>,
    /// For each written child: the object that the API server returned (none for a deleted one), or the failure.
    pub children: BTreeMap<ObjectId, Result<Option<Arc<str>>, WriteFailure>>,
}

/// A parent's conditions after the operations, and when to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// The condition `Synced`.
    pub synced: Condition,
    /// The condition `Ready` as the host derives it.
    pub ready: Condition,
    /// The next attempt; none if nothing failed.
    pub retry: Option<Retry>,
}

/// Returns the condition `Synced`.
pub fn synced(
    status: ConditionStatus,
    reason: &'static str,
    message: impl Into<String>,
) -> Condition {
    condition(reason::SYNCED, status, reason, message.into())
}

/// Names the way out for a parent in deletion whose guest wants a child that can never be created.
pub fn unfinalizable(cause: &str) -> String {
    format!(
        "annotate the parent with {ANNOTATION_SKIP_FINALIZE}: \"true\" to delete it without the cleanup of its plugin, which waits for a child: {cause}"
    )
}

/// Names the way out for a parent whose finalizer the API server refuses to add or to remove.
pub fn finalizer_refused(cause: &str) -> String {
    format!(
        "{cause}; correct this object, its definition or the policy, and the host tries again; an edit that also sets {ANNOTATION_SKIP_FINALIZE}: \"true\" skips the cleanup of the plugin"
    )
}

/// Returns the condition `Synced` for a guest that answered with a fault.
pub fn fault_condition(fault: &Fault) -> Condition {
    let reason = match fault.kind {
        FaultKind::Retry => reason::RETRYING,
        FaultKind::Invalid => reason::INVALID,
        FaultKind::Fatal => reason::FATAL,
    };
    synced(ConditionStatus::False, reason, fault.message.as_str())
}

/// Computes the host's conditions from a plan and the operations' results.
pub fn conclude(plan: &Plan, effects: &Effects) -> Conclusion {
    let failures: Vec<WriteFailure> = failures(plan, effects);
    Conclusion {
        synced: synced_after(plan, &failures),
        ready: ready_after(plan, effects),
        retry: failures
            .iter()
            .map(|failure| failure.retry)
            .reduce(Retry::after_both),
    }
}

/// Returns all failures. Those that only a user can fix come first, because the condition shows the first one whole.
fn failures(plan: &Plan, effects: &Effects) -> Vec<WriteFailure> {
    let refused = plan.children.iter().filter_map(refused);
    let adoptions = [true, false]
        .into_iter()
        .filter_map(|granted| adoption(plan, granted));
    let written = effects
        .children
        .values()
        .filter_map(|effect| effect.as_ref().err().cloned());
    let mut failures: Vec<WriteFailure> = effects
        .parent
        .clone()
        .into_iter()
        .chain(refused)
        .chain(adoptions)
        .chain(written)
        .collect();
    // A stable sort: among equals, the parent's own failure stays first.
    failures.sort_by_key(|failure| match failure.reason {
        reason::CHILD_NOT_OWNED | reason::CHILD_FORBIDDEN | reason::METADATA_LOST => 0,
        reason::ADOPTION_PENDING => 1,
        reason::CHILD_REJECTED => 2,
        _ => 3,
    });
    failures
}

/// Returns the failure if an object that does not belong to the parent has the child's name.
fn refused(child: &PlannedChild) -> Option<WriteFailure> {
    let id = &child.id;
    let (reason, message) = match &child.progress {
        Progress::NotOwned(owner @ ForeignOwner::Lost) => {
            (reason::METADATA_LOST, not_owned(id, owner))
        }
        Progress::NotOwned(owner) => (reason::CHILD_NOT_OWNED, not_owned(id, owner)),
        Progress::NotAllowed { rule } => (
            reason::CHILD_FORBIDDEN,
            format!("{id} exists and cannot be adopted, change it or the grants: {rule}"),
        ),
        _ => return None,
    };
    Some(WriteFailure {
        reason,
        message,
        // Nothing triggers a pass when the object goes: watches show the parent's own children only.
        retry: Retry::Backoff,
    })
}

/// Names the owner of an object that has a child's name, and the remedy.
fn not_owned(id: &ObjectId, owner: &ForeignOwner) -> String {
    let adopt = format!(
        "adopt it with {ANNOTATION_ADOPT}: \"true\" on this parent and a grant of the kind with adopt: true"
    );
    match owner {
        ForeignOwner::None => format!(
            "{id} exists without an owner: delete it, give the child another name, or {adopt}"
        ),
        ForeignOwner::Controller(owner) => format!(
            "{id} exists and belongs to {owner}: delete it, give the child another name, or take it from its owner and {adopt}"
        ),
        ForeignOwner::Lost => format!(
            "{id} lost the owner reference that the host has written: exempt it from the admission policy, webhook or client that removes it, and delete it, or {adopt}"
        ),
        ForeignOwner::FormerParent => format!(
            "{id} belongs to a former object of this parent's kind and name, and waits for the garbage collector: the child is created when it is gone"
        ),
        ForeignOwner::Retained(parent) => format!(
            "{id} exists and is retained for {parent}: give the child another name, or remove its annotation {ANNOTATION_RETAINED_FOR} and {adopt}"
        ),
        ForeignOwner::Unproven => format!(
            "{id} exists, and its annotation {ANNOTATION_RETAINED_FOR} was not made by this host for this object: delete it, or, as it may be retained data from before a change of the hash key, remove the annotation and {adopt}"
        ),
    }
}

/// Returns one failure for all children to adopt: the user should see them all before agreeing.
fn adoption(plan: &Plan, granted: bool) -> Option<WriteFailure> {
    let adoptable = Progress::Adoptable { granted };
    let is_adoptable = |child: &PlannedChild| child.progress == adoptable;
    let objects = names(plan, ADOPTIONS_NAMED_MAX, is_adoptable)?;
    let agree = if granted {
        format!("annotate this parent with {ANNOTATION_ADOPT}: \"true\"")
    } else {
        "grant the plugin adopt: true for the kinds of these children".to_owned()
    };
    Some(WriteFailure {
        reason: reason::ADOPTION_PENDING,
        message: format!("exist without an owner; to adopt them, {agree}: {objects}"),
        retry: Retry::Backoff,
    })
}

/// Selects children by progress.
type IsBlocked = fn(&Progress) -> bool;

fn synced_after(plan: &Plan, failures: &[WriteFailure]) -> Condition {
    let not_synced = |reason, message| synced(ConditionStatus::False, reason, message);
    if let Some((first, others)) = failures.split_first() {
        let message = match others.len() {
            0 => first.message.clone(),
            more => format!("{} (and {more} more)", first.message),
        };
        return not_synced(first.reason, message);
    }
    let blocked: [(IsBlocked, _, _); 4] = [
        (
            |progress| *progress == Progress::NamespaceTerminating,
            reason::NAMESPACE_TERMINATING,
            "its namespace is being deleted, so these cannot be created",
        ),
        (
            |progress| *progress == Progress::Deleting,
            reason::CHILD_DELETING,
            "being deleted, created again when gone",
        ),
        (
            |progress| *progress == Progress::Withheld,
            reason::CHILD_DELETING,
            "the parent is being deleted in the foreground, so these cannot be created",
        ),
        (
            |progress| matches!(progress, Progress::NotServed { .. }),
            reason::KIND_NOT_SERVED,
            "the cluster does not serve the kind of",
        ),
    ];
    for (is_blocked, reason, why) in blocked {
        if let Some(children) = names(plan, NAMED_MAX, |child| is_blocked(&child.progress)) {
            let message = format!("{why}: {children}");
            return if reason == reason::NAMESPACE_TERMINATING {
                not_synced(reason, unfinalizable(&message))
            } else {
                not_synced(reason, message)
            };
        }
    }
    if let Some((kind, why)) = plan.children.iter().find_map(unreadable) {
        let is_unreadable = |child: &PlannedChild| unreadable(child).is_some();
        let children = names(plan, NAMED_MAX, is_unreadable).unwrap_or_default();
        let message = format!(
            "these may exist, and are not written until their kind can be read: {children}; {kind} {why}"
        );
        return not_synced(reason::KIND_UNREADABLE, message);
    }
    synced(
        ConditionStatus::True,
        reason::APPLIED,
        "all children are as desired",
    )
}

/// Returns an unreadable child's kind, with the reason.
fn unreadable(child: &PlannedChild) -> Option<(&Gvk, &str)> {
    match &child.progress {
        Progress::Unreadable { why } => Some((&child.kind, why)),
        _ => None,
    }
}

/// Returns true if the host's condition `Ready` overrides the guest's: another object has a child's name, which no guest
/// can see.
pub fn outranks_guest(ready: &Condition) -> bool {
    let reasons = [
        reason::CHILD_NOT_OWNED,
        reason::CHILD_FORBIDDEN,
        reason::ADOPTION_PENDING,
    ];
    ready.kind == reason::READY && reasons.contains(&&*ready.reason)
}

fn ready_after(plan: &Plan, effects: &Effects) -> Condition {
    if let Some(taken) = taken(plan) {
        return taken;
    }
    let is_ready = |child: &PlannedChild| match effects.children.get(&child.id) {
        // By the API server's answer, because defaults and admission may have changed the stated object.
        Some(Ok(Some(json))) => readiness::written(child, json),
        Some(Ok(None) | Err(_)) => false,
        // A planned write that was not tried: an earlier one failed, so the child is not as desired.
        None => child.ready && !is_pending(plan, child),
    };
    let not_ready = names(plan, NAMED_MAX, |child| !is_ready(child));
    let (status, reason, message) = match not_ready {
        None => (
            ConditionStatus::True,
            reason::READY,
            "all children are ready".to_owned(),
        ),
        Some(children) => (
            ConditionStatus::False,
            reason::CHILDREN_NOT_READY,
            format!("not ready: {children}"),
        ),
    };
    condition(reason::READY, status, reason, message)
}

/// Returns the condition `Ready` if other objects have the children's names; none otherwise.
fn taken(plan: &Plan) -> Option<Condition> {
    let reason_of = |child: &PlannedChild| match child.progress {
        Progress::NotOwned(_) => Some(reason::CHILD_NOT_OWNED),
        Progress::NotAllowed { .. } => Some(reason::CHILD_FORBIDDEN),
        Progress::Adoptable { .. } => Some(reason::ADOPTION_PENDING),
        _ => None,
    };
    let reason = plan.children.iter().find_map(reason_of)?;
    let children = names(plan, NAMED_MAX, |child| reason_of(child).is_some())?;
    let message = format!("not the parent's, see Synced: {children}");
    Some(condition(
        reason::READY,
        ConditionStatus::False,
        reason,
        message,
    ))
}

fn is_pending(plan: &Plan, child: &PlannedChild) -> bool {
    let writes = |operation: &Operation| operation.child() == Some(&child.id);
    plan.operations.iter().any(writes)
}

/// Names the first children that match; none if no child does.
fn names(plan: &Plan, named_max: usize, chosen: impl Fn(&PlannedChild) -> bool) -> Option<String> {
    let chosen = plan.children.iter().filter(|child| chosen(child));
    join_first(chosen.map(|child| &child.id), named_max)
}

fn condition(kind: &str, status: ConditionStatus, reason: &str, message: String) -> Condition {
    let message = match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => message.get(..end).unwrap_or_default().to_owned(),
        None => message,
    };
    Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
    }
}
