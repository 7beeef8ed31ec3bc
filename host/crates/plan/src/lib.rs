//! The difference between the observed and the desired objects, as data: pure, printable and deterministic.
//!
//! [`enter()`] decides if a parent gets a pass, [`plan()`] turns an answer into operations in write order,
//! [`conclude()`] turns the write results into the host's conditions, and [`status()`] returns the status writes
//! that are needed.
//! This crate writes nothing, never waits, and reads no clock: callers pass the time in.
//!
//! ```text
//! finalizer -> ownership transfers -> creates and updates in `after` order -> prunes -> parent release
//! ```

pub mod absence;
mod body;
mod changes;
mod children;
mod conclude;
mod contention;
mod definition;
mod difference;
mod enter;
mod fields;
mod generate;
mod lost;
mod order;
mod ownership;
mod readiness;
mod repeats;
mod show;
mod status;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "helpers for tests"
)]
pub mod tests;
mod text;

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

pub use body::{encode_string_data, put, stated, time_to_live};
pub use changes::Changes;
pub use conclude::{
    Conclusion, Effects, WriteFailure, conclude, fault_condition, finalizer_refused,
    outranks_guest, synced, unfinalizable,
};
pub use contention::{Contention, Undone};
pub use definition::{DefinitionWrite, plan_definition};
pub use difference::{FieldPath, contested_field, first_difference, is_by_other_host, owned_part};
pub use enter::{PassEntry, enter};
pub use generate::{generate, is_rotated};
pub use lost::lost_metadata;
pub use readiness::is_ready;
pub use repeats::{RepeatableWrite, Repeats, Subject};
pub use status::{
    ParentProgress, StatusWrite, has_host_condition, has_reason, own_status, report_status, status,
};

use innkeeper_model::{
    GroupKind, Gvk, HashKey, Manifest, Object, ObjectId, Operation, Outcome, Phase, PluginName,
    Readiness, Resources,
};
use innkeeper_policy::Grants;

/// A plan's inputs besides the observed objects and the answer.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The plugin.
    pub plugin: &'a PluginName,
    /// The children's field manager.
    pub manager: &'a str,
    /// The manifest that the plugin returned from `describe`.
    pub manifest: &'a Manifest,
    /// The key for the applied annotation and for retained children's proofs.
    pub hash_key: &'a HashKey,
    /// The parent as observed when the pass started.
    pub parent: &'a Object,
    /// The pass's phase.
    pub phase: Phase,
    /// True if nothing can be created in the parent's namespace, because it is being deleted.
    pub namespace_terminating: bool,
    /// The kinds that the cluster serves.
    pub resources: &'a dyn Resources,
    /// The served kinds that cannot be read, with the reasons: their children are neither observed nor written.
    pub unreadable: &'a BTreeMap<GroupKind, String>,
    /// The plugin's grants, which decide about adoption.
    pub grants: &'a Grants,
}

impl Context<'_> {
    /// Returns the annotation for a child that is retained for the parent.
    fn mark(&self, child: &ObjectId) -> String {
        self.hash_key.retained_for(&self.parent.id(), child)
    }
}

/// The writes for one parent, and each child's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations in write order.
    pub operations: Vec<Operation>,
    /// All desired children, in the order in which they may be created.
    pub children: Vec<PlannedChild>,
    /// The kinds to create. The host records them before the writes, so that it still finds the children
    /// for pruning after a restart or a plugin upgrade.
    pub kinds: BTreeSet<Gvk>,
}

impl Plan {
    /// Returns true if the plan has no operations.
    pub fn is_settled(&self) -> bool {
        self.operations.is_empty()
    }

    /// Removes the prunes, which run only after everything else is as desired.
    pub fn remove_prunes(&mut self) {
        self.operations
            .retain(|operation| !matches!(operation, Operation::Prune { .. }));
    }
}

/// One desired child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChild {
    /// The key.
    pub key: String,
    /// The child.
    pub id: ObjectId,
    /// The kind in the stated version.
    pub kind: Gvk,
    /// The child's progress in this pass.
    pub progress: Progress,
    /// The source of the child's readiness.
    pub readiness: Readiness,
    /// The condition type that makes the child ready, if the plugin declares one for the kind.
    pub ready_condition: Option<String>,
    /// True if the observed child is ready, before any write.
    pub ready: bool,
}

/// A child's progress in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The child is as desired.
    Unchanged,
    /// The plan creates the child.
    Created,
    /// The plan applies the child.
    Updated,
    /// The plan transfers ownership; all other changes follow in the next pass.
    Transferred,
    /// The child exists and stays as it is (`hold`, or an existing `once`).
    Held,
    /// The child does not exist, and the answer does not allow to create it (`hold`).
    Missing,
    /// The host creates the child after these keys are ready.
    Waiting {
        /// The keys that are not ready.
        after: Vec<String>,
    },
    /// The child is being deleted; the host can create it again only after it is gone.
    Deleting,
    /// The host does not create the child, because the parent is being deleted in the foreground.
    Withheld,
    /// The host does not create the child, because the namespace is being deleted and refuses new objects.
    NamespaceTerminating,
    /// The cluster does not serve the kind.
    NotServed {
        /// True if the plugin requires the kind.
        required: bool,
    },
    /// The kind is served but cannot be read, so the child may exist.
    Unreadable {
        /// The second half of a sentence that starts with the kind.
        why: String,
    },
    /// An object with this name exists and does not belong to the parent.
    NotOwned(ForeignOwner),
    /// An object with this name exists without an owner; adoption needs both the parent's annotation and a grant, and only
    /// one exists.
    Adoptable {
        /// True if the grant exists; otherwise the parent's annotation exists.
        granted: bool,
    },
    /// An object with this name exists without an owner, and has fields that the plugin may not give to a child.
    NotAllowed {
        /// The rule that the object breaks.
        rule: String,
    },
}

/// The owner of an object that does not belong to the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignOwner {
    /// No controller owns the object.
    None,
    /// A controller, by kind and name.
    Controller(String),
    /// A former parent with the same kind and name, which no longer exists: the garbage collector deletes the object.
    FormerParent,
    /// The object is retained for this parent.
    Retained(String),
    /// The object is marked as retained without the host's proof.
    Unproven,
    /// The host has applied the object for this parent, and the owner reference is gone.
    Lost,
}

/// Plans an answer.
///
/// `observed` holds the parent's owned and retained children.
/// After a create that failed because the object exists, it also holds that object from a live read, which
/// may belong to another owner.
///
/// The plan never touches an object that the parent's UID does not control and that is not retained for the parent.
/// The only exception is adoption: the plan takes an object without an owner if the parent's annotation and the grants
/// both allow it.
pub fn plan<O: Borrow<Object>>(context: &Context<'_>, observed: &[O], answer: &Outcome) -> Plan {
    let finalizer = context.plugin.finalizer();
    let has_finalizer = context.parent.has_finalizer(&finalizer);
    let mut plan = Plan::default();
    if let Outcome::Desired(desired) = answer {
        // The API server refuses a new finalizer on an object that is being deleted.
        let adds = context.manifest.finalize && !has_finalizer && !context.parent.is_deleting();
        plan.operations
            .extend(adds.then_some(Operation::AddFinalizer));
        children::plan(context, &newest(observed), &desired.children, &mut plan);
    }
    let released = matches!(answer, Outcome::Finalized(_)) || !context.manifest.finalize;
    // Last, because the parent goes with it. A revision that does not finalize removes an earlier one's finalizer,
    // which nobody else would.
    if has_finalizer && released {
        plan.operations.push(Operation::RemoveFinalizer);
    }
    plan
}

/// Returns the observed objects by identity; if an object occurs in two versions, the newer one.
fn newest<O: Borrow<Object>>(observed: &[O]) -> BTreeMap<ObjectId, &Object> {
    let mut objects: BTreeMap<ObjectId, &Object> = BTreeMap::new();
    for object in observed.iter().map(Borrow::borrow) {
        let newest = objects.entry(object.id()).or_insert(object);
        if newest.resource_version < object.resource_version {
            *newest = object;
        }
    }
    objects
}
