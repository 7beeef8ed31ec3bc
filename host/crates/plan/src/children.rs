//! Each child's operation and progress.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{
    ANNOTATION_ADOPT, ANNOTATION_KEY, ANNOTATION_RETAINED_FOR, ApplyPolicy, Child, ChildKind,
    LABEL_PLUGIN, Object, ObjectId, Operation, RemovalPolicy,
};
use innkeeper_policy::check_adoption;
use serde_json::Value;

use super::{
    Context, ForeignOwner, Plan, PlannedChild, Progress, body::Body, order, ownership, readiness,
};

/// Finalizer that makes the garbage collector delete the children before the parent.
const FOREGROUND_DELETION: &str = "foregroundDeletion";

/// A child's progress, and the operation for it, if any.
type ChildStep = (Progress, Option<Operation>);

const fn none(progress: Progress) -> ChildStep {
    (progress, None)
}

/// Adds the children's operations and progress to a plan.
pub(super) fn plan(
    context: &Context<'_>,
    observed: &BTreeMap<ObjectId, &Object>,
    children: &[Child],
    plan: &mut Plan,
) {
    let mut transfers = Vec::new();
    let mut applies = Vec::new();
    let mut satisfied = BTreeSet::new();
    for child in order::sorted(children) {
        let id = child.id();
        let object = observed.get(&id).copied();
        let (progress, operation) = step(context, child, &id, object, &satisfied);
        let ready_condition =
            declaration(context, child).and_then(|kind| kind.ready_condition.clone());
        let ready = readiness::observed(child, object, &progress, ready_condition.as_deref());
        // An optional kind that the cluster does not serve or list must not block the children that come after it.
        if ready
            || matches!(
                progress,
                Progress::NotServed { required: false } | Progress::Unreadable { .. }
            )
        {
            satisfied.insert(child.key.as_str());
        }
        match operation {
            Some(operation @ Operation::Transfer { .. }) => transfers.push(operation),
            other => applies.extend(other),
        }
        plan.children.push(PlannedChild {
            key: child.key.clone(),
            id,
            kind: child.kind.clone(),
            progress,
            readiness: child.readiness,
            ready_condition,
            ready,
        });
    }
    plan.kinds = applies
        .iter()
        .filter(|operation| matches!(operation, Operation::Create { .. }))
        .filter_map(Operation::kind)
        .cloned()
        .collect();
    // An earlier revision deleted these kinds: without the transfer, the garbage collector would delete the objects.
    transfers.extend(spared(context, observed, &plan.children));
    // Prunes come last: until its replacement exists, an old child does the work.
    let prunes = prunes(context, observed, &plan.children);
    plan.operations.extend(transfers);
    plan.operations.extend(applies.into_iter().chain(prunes));
}

/// Returns the declaration for a child's kind.
fn declaration<'a>(context: &Context<'a>, child: &Child) -> Option<&'a ChildKind> {
    context
        .manifest
        .children
        .iter()
        .find(|declared| declared.kind == child.kind)
}

fn step(
    context: &Context<'_>,
    child: &Child,
    id: &ObjectId,
    object: Option<&Object>,
    satisfied: &BTreeSet<&str>,
) -> ChildStep {
    if context.resources.resource(&child.kind).is_none() {
        let required = declaration(context, child).is_some_and(|kind| kind.required);
        return none(Progress::NotServed { required });
    }
    if let Some(why) = context.unreadable.get(&id.kind) {
        return none(Progress::Unreadable { why: why.clone() });
    }
    let Some(object) = object else {
        return missing(context, child, id, satisfied);
    };
    if !ownership::belongs_to(object, context.parent) {
        return match child.apply {
            // `hold` would never write the object, so there is no conflict with the owner.
            ApplyPolicy::Hold => none(Progress::Missing),
            ApplyPolicy::Always | ApplyPolicy::Once => foreign(context, child, id, object),
        };
    }
    // An apply would succeed, and the object would still go.
    if object.is_deleting() {
        return none(Progress::Deleting);
    }
    existing(context, child, id, object)
}

fn missing(
    context: &Context<'_>,
    child: &Child,
    id: &ObjectId,
    satisfied: &BTreeSet<&str>,
) -> ChildStep {
    if child.apply == ApplyPolicy::Hold {
        return none(Progress::Missing);
    }
    // The garbage collector would delete the new child at once, and the parent would wait for it again.
    if context.parent.is_deleting() && context.parent.has_finalizer(FOREGROUND_DELETION) {
        return none(Progress::Withheld);
    }
    if context.namespace_terminating {
        return none(Progress::NamespaceTerminating);
    }
    let after: Vec<String> = child
        .after
        .iter()
        .filter(|key| !satisfied.contains(key.as_str()))
        .cloned()
        .collect();
    // Only creates wait: drift in an existing child is repaired whether or not these are ready.
    if !after.is_empty() {
        return none(Progress::Waiting { after });
    }
    let operation = Operation::Create {
        key: child.key.clone(),
        id: id.clone(),
        kind: child.kind.clone(),
        body: Arc::new(Body::new(context, child, None).into_object()),
        generate: child.generate.clone(),
    };
    (Progress::Created, Some(operation))
}

/// Plans a child whose name is taken by an object that does not belong to the parent.
fn foreign(context: &Context<'_>, child: &Child, id: &ObjectId, object: &Object) -> ChildStep {
    let granted = context.grants.allows_adoption(&id.kind);
    let is_requested = context.parent.annotation(ANNOTATION_ADOPT) == Some("true");
    // An object that a parent in deletion adopts would be deleted with it.
    let is_free = ownership::has_no_owner(object) && !context.parent.is_deleting();
    if !is_free || !(granted || is_requested) {
        let owner = match ownership::foreign_owner(object, context.parent) {
            // The keyed hash proves that the host has made it for this parent.
            ForeignOwner::None if Body::new(context, child, None).was_applied_last(object) => {
                ForeignOwner::Lost
            }
            owner => owner,
        };
        return none(Progress::NotOwned(owner));
    }
    if !(granted && is_requested) {
        return none(Progress::Adoptable { granted });
    }
    if object.is_deleting() {
        return none(Progress::Deleting);
    }
    // An apply leaves other managers' fields as they are, so the whole object must meet the rules for children.
    if let Err(rejection) = check_adoption(object, context.grants) {
        return none(Progress::NotAllowed {
            rule: rejection.to_string(),
        });
    }
    let patch = ownership::adoption(context, object, child.removal);
    transferred(child, id, object, patch)
}

fn transferred(child: &Child, id: &ObjectId, object: &Object, patch: Value) -> ChildStep {
    let operation = Operation::Transfer {
        key: child.key.clone(),
        id: id.clone(),
        kind: child.kind.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version,
        patch,
        to: child.removal,
    };
    (Progress::Transferred, Some(operation))
}

/// Plans a child that exists, belongs to the parent and is not being deleted.
fn existing(context: &Context<'_>, child: &Child, id: &ObjectId, object: &Object) -> ChildStep {
    // An object has one controller: the parent cannot own what another one has taken over.
    let child = if ownership::has_other_controller(object, context.parent) {
        &Child {
            removal: RemovalPolicy::Retain,
            ..child.clone()
        }
    } else {
        child
    };
    // The transfer comes before any apply, because an apply does not drop an ownerReference that a patch has added.
    // It is the child's only operation in this pass, because it changes the resourceVersion to which an apply
    // would be bound.
    if let Some(patch) = ownership::transfer(context, object, child.removal) {
        return transferred(child, id, object, patch);
    }
    // The transfer above is the only write that `hold` and an existing `once` allow.
    if child.apply != ApplyPolicy::Always {
        return none(Progress::Held);
    }
    let body = Body::new(context, child, Some(object));
    if body.is_unchanged(object, context.manager, child) {
        return none(Progress::Unchanged);
    }
    let operation = Operation::Update {
        restores: body.may_be_applied_last(object),
        key: child.key.clone(),
        id: id.clone(),
        kind: child.kind.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version,
        body: Arc::new(body.into_object()),
        generate: child.generate.clone(),
    };
    (Progress::Updated, Some(operation))
}

/// Deletes children that are no longer desired.
///
/// Prunes nothing while another desired child is blocked: the old child may do the blocked one's work.
fn prunes(
    context: &Context<'_>,
    observed: &BTreeMap<ObjectId, &Object>,
    children: &[PlannedChild],
) -> Vec<Operation> {
    let blocks = |child: &PlannedChild| {
        // Optional kinds block nothing: the cluster may never serve them, and old children must not stay for ever.
        matches!(
            child.progress,
            Progress::NotOwned(_)
                | Progress::Adoptable { .. }
                | Progress::NotAllowed { .. }
                | Progress::NotServed { required: true }
        )
    };
    if children.iter().any(blocks) {
        return Vec::new();
    }
    left_out(context, observed, children)
        .filter(|(id, _)| !context.manifest.never_deletes(&id.kind))
        .map(|(id, object)| Operation::Prune {
            id: id.clone(),
            kind: object.kind.clone(),
            uid: object.uid.clone(),
            resource_version: object.resource_version,
        })
        .collect()
}

/// Returns the transfers of owned children of kinds that are never deleted and that no answer states any more.
fn spared(
    context: &Context<'_>,
    observed: &BTreeMap<ObjectId, &Object>,
    children: &[PlannedChild],
) -> Vec<Operation> {
    left_out(context, observed, children)
        .filter(|(id, _)| context.manifest.never_deletes(&id.kind))
        .filter_map(|(id, object)| {
            let patch = ownership::transfer(context, object, RemovalPolicy::Retain)?;
            Some(Operation::Transfer {
                key: object
                    .annotation(ANNOTATION_KEY)
                    .unwrap_or_default()
                    .to_owned(),
                id: id.clone(),
                kind: object.kind.clone(),
                uid: object.uid.clone(),
                resource_version: object.resource_version,
                patch,
                to: RemovalPolicy::Retain,
            })
        })
        .collect()
}

/// Returns the owned children that no answer states any more.
fn left_out<'a>(
    context: &Context<'_>,
    observed: &'a BTreeMap<ObjectId, &'a Object>,
    children: &[PlannedChild],
) -> impl Iterator<Item = (&'a ObjectId, &'a Object)> {
    let desired: BTreeSet<&ObjectId> = children.iter().map(|child| &child.id).collect();
    observed
        .iter()
        .map(|(id, object)| (id, *object))
        .filter(move |(id, object)| !desired.contains(id) && may_prune(context, object))
}

/// Returns true if the host created the object for this parent: the parent's UID controls it, it has the plugin's label
/// and no `retained-for` annotation. An object that is already being deleted needs no deletion.
fn may_prune(context: &Context<'_>, object: &Object) -> bool {
    // Others may make the parent the controller of objects that the plugin has not created.
    let label = object.labels.get(LABEL_PLUGIN).map(|name| &**name);
    let labelled = label == Some(context.plugin.as_str());
    let retained = object.annotation(ANNOTATION_RETAINED_FOR).is_some();
    ownership::is_controlled_by(object, context.parent)
        && labelled
        && !retained
        && !object.is_deleting()
}
