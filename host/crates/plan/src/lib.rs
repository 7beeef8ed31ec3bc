//! The difference between the observed and the desired objects, as data: pure, printable and deterministic.
//!
//! [`enter()`] decides if a parent gets a pass, [`plan()`] turns an answer into operations in the order of the writes,
//! [`conclude()`] turns the results of the writes into the host's conditions, and [`status()`] returns the status writes
//! that are needed.
//! This crate writes nothing, never waits, and reads no clock: callers pass the time in.
//!
//! ```text
//! finalizer -> transfers of ownership -> creates and updates in `after` order -> prunes -> release of the parent
//! ```

pub mod absence;
mod body;
mod children;
mod conclude;
mod contention;
mod definition;
mod difference;
mod enter;
mod fields;
mod fleet;
mod forecast;
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
pub use conclude::{
    Conclusion, Effects, WriteFailure, conclude, fault_condition, finalizer_refused,
    outranks_guest, synced, unfinalizable,
};
pub use contention::{Contention, Undone};
pub use definition::{DefinitionWrite, plan_definition};
pub use difference::{FieldPath, contested_field, first_difference, is_by_other_host, owned_part};
pub use enter::{PassEntry, enter};
pub use fleet::{FleetPlan, ParentPlan};
pub use forecast::{Changes, Forecast, ParentOutcome, Planned, Writes};
pub use generate::{generate, is_rotated};
pub use lost::lost_metadata;
pub use readiness::is_ready;
pub use repeats::{RepeatableWrite, Repeats, Subject};
pub use status::{Outlook, StatusWrite, gives, has_spoken, own_status, report_status, status};

use innkeeper_model::{
    GroupKind, Gvk, HashKey, Manifest, Object, ObjectId, Operation, Outcome, Phase, PluginName,
    Readiness, Resources,
};
use innkeeper_policy::Grants;

/// The inputs of a plan besides the observed objects and the answer.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The plugin.
    pub plugin: &'a PluginName,
    /// The field manager of its children.
    pub manager: &'a str,
    /// The manifest that the plugin returned from `describe`.
    pub manifest: &'a Manifest,
    /// The key of the applied annotation and of the proofs of retained children.
    pub hash_key: &'a HashKey,
    /// The parent as observed at the start of the pass.
    pub parent: &'a Object,
    /// The phase of the pass.
    pub phase: Phase,
    /// True if nothing can be created in the parent's namespace, because it is being deleted.
    pub namespace_terminating: bool,
    /// The kinds that the cluster serves.
    pub resources: &'a dyn Resources,
    /// The served kinds that cannot be read, with the reasons: their children are neither observed nor written.
    pub unreadable: &'a BTreeMap<GroupKind, String>,
    /// The grants of the plugin, which decide about adoption.
    pub grants: &'a Grants,
}

impl Context<'_> {
    /// Returns the annotation of a child that is retained for the parent.
    fn mark(&self, child: &ObjectId) -> String {
        self.hash_key.retained_for(&self.parent.id(), child)
    }
}

/// The writes for one parent, and the progress of each child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations in the order of the writes.
    pub operations: Vec<Operation>,
    /// All children of the answer, in the order in which they may be created.
    pub children: Vec<PlannedChild>,
    /// The kinds of the children to create. The host records them before the writes, so that it still finds the children
    /// for pruning after a restart or an upgrade of the plugin.
    pub kinds: BTreeSet<Gvk>,
}

impl Plan {
    /// Returns true if the plan has no operations.
    pub fn is_settled(&self) -> bool {
        self.operations.is_empty()
    }
}

/// One child of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChild {
    /// The key.
    pub key: String,
    /// The child.
    pub id: ObjectId,
    /// The kind in the stated version.
    pub kind: Gvk,
    /// The progress of the child in this pass.
    pub progress: Progress,
    /// The source of its readiness.
    pub readiness: Readiness,
    /// The type of the condition that makes it ready, if the plugin declares one for the kind.
    pub ready_condition: Option<String>,
    /// True if the observed child is ready, before any write.
    pub ready: bool,
}

/// The progress of a child in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The child is as desired.
    Unchanged,
    /// The plan creates the child.
    Created,
    /// The plan applies the child.
    Updated,
    /// The plan transfers its ownership; all other changes follow in the next pass.
    Transferred,
    /// The child exists and stays as it is (`hold`, or an existing `once`).
    Held,
    /// The child does not exist, and the answer does not allow its creation (`hold`).
    Missing,
    /// The host creates the child after these keys are ready.
    Waiting {
        /// The keys that are not ready.
        after: Vec<String>,
    },
    /// The child is being deleted; the host can create it again only after it is gone.
    Deleting,
    /// The host does not create the child, because its parent is being deleted in the foreground.
    Withheld,
    /// The host does not create the child, because its namespace is being deleted and refuses new objects.
    NamespaceTerminating,
    /// The cluster does not serve its kind.
    NotServed {
        /// True if the plugin requires the kind.
        required: bool,
    },
    /// Its kind is served and cannot be read, so that it may exist.
    Unreadable {
        /// The second half of a sentence that starts with the kind.
        why: String,
    },
    /// An object of its name exists and does not belong to the parent.
    NotOwned(ForeignOwner),
    /// An object of its name exists without an owner; adoption needs both the parent's annotation and a grant, and only
    /// one of them exists.
    Adoptable {
        /// True if the grant exists; otherwise the parent's annotation exists.
        granted: bool,
    },
    /// An object of its name exists without an owner, and has fields that the plugin may not give to a child.
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
    /// An earlier object of the parent's kind and name, which no longer exists: the garbage collector deletes the object.
    FormerParent,
    /// The object is retained for this parent.
    Retained(String),
    /// The object is marked as retained without the host's proof.
    Unproven,
    /// The host has applied the object for this parent, and its owner reference is gone.
    Lost,
}

/// Plans an answer.
///
/// `observed` holds the parent's owned and retained children.
/// After a create that failed because the object exists, it also holds the result of a live read of that object, which
/// may belong to another owner.
///
/// The plan never touches an object that the parent's UID does not control and that is not retained for the parent.
/// The only exception is adoption: the transfer of an object without an owner, if the parent's annotation and the grants
/// both allow it.
pub fn plan<O: Borrow<Object>>(context: &Context<'_>, observed: &[O], answer: &Outcome) -> Plan {
    let finalizer = context.plugin.finalizer();
    let held = context.parent.has_finalizer(&finalizer);
    let mut plan = Plan::default();
    if let Outcome::Desired(desired) = answer {
        let adds = context.manifest.finalize && !held && !context.parent.is_deleting();
        plan.operations
            .extend(adds.then_some(Operation::AddFinalizer));
        children::plan(context, &newest(observed), &desired.children, &mut plan);
    }
    let released = matches!(answer, Outcome::Finalized(_)) || !context.manifest.finalize;
    if held && released {
        plan.operations.push(Operation::RemoveFinalizer);
    }
    plan
}

/// Returns the observed objects by identity; of two versions of one object, the newer one.
fn newest<O: Borrow<Object>>(observed: &[O]) -> BTreeMap<ObjectId, &Object> {
    let mut objects: BTreeMap<ObjectId, &Object> = BTreeMap::new();
    for object in observed.iter().map(Borrow::borrow) {
        let known = objects.entry(object.id()).or_insert(object);
        if known.resource_version < object.resource_version {
            *known = object;
        }
    }
    objects
}
