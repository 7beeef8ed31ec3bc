//! The difference between observed and desired, as data: pure, printable, and the same for the same input.
//!
//! [`enter()`] says whether a parent gets a pass at all, [`plan()`] turns an answer into operations in the order in which
//! they are to be written, [`conclude()`] turns what became of them into the host's conditions, and [`status()`] says
//! which status writes are due.
//! Nothing here writes, waits, or knows the time but for what it is handed.
//!
//! ```text
//! finalizer -> exchanges of ownership -> creates and updates in `after` order -> prunes -> release of the parent
//! ```

mod body;
mod children;
mod conclude;
pub mod crd;
mod difference;
mod enter;
mod fields;
mod generate;
mod order;
mod ownership;
mod readiness;
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

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

pub use body::encode_string_data;
pub use body::stated;
pub use conclude::{Conclusion, Effects, Failure, conclude, fault_condition, synced};
pub use difference::{FieldPath, first_difference};
pub use enter::{Entry, enter};
pub use generate::generate;
pub use ownership::{Claim, claim};
pub use readiness::is_ready;
pub use status::{GuestPart, ReadyPart, StatusWrite, StatusWrites, gives, has_spoken, status};

use innkeeper_model::{
    GroupKind, Gvk, HashKey, Manifest, Object, ObjectId, Operation, Outcome, Phase, PluginName,
    Readiness, Resources,
};

/// What a plan is made for.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The plugin.
    pub plugin: &'a PluginName,
    /// The field manager of its children.
    pub manager: &'a str,
    /// What the plugin declares.
    pub manifest: &'a Manifest,
    /// The key of the applied annotation.
    pub hash_key: &'a HashKey,
    /// The parent as the pass began with it.
    pub parent: &'a Object,
    /// Why the pass runs.
    pub phase: Phase,
    /// What the cluster serves.
    pub resources: &'a dyn Resources,
    /// The kinds of which the plugin may adopt objects.
    pub adoptable: &'a BTreeSet<GroupKind>,
}

/// What is to be written for one parent, and why for each child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations in the order in which they are to be written.
    pub operations: Vec<Operation>,
    /// Every child of the answer, in the order in which they may be created.
    pub children: Vec<PlannedChild>,
    /// The kinds that are about to be created, to be put on record before.
    pub kinds: BTreeSet<Gvk>,
}

impl Plan {
    /// Whether nothing is to be written.
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
    /// The kind in the version stated.
    pub kind: Gvk,
    /// What becomes of it in this pass.
    pub progress: Progress,
    /// Who decides whether it is ready.
    pub readiness: Readiness,
    /// The condition that makes it ready, where the plugin declares one for the kind.
    pub ready_condition: Option<String>,
    /// Whether it is ready as observed.
    pub ready: bool,
}

/// What becomes of a child in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is as desired.
    Unchanged,
    /// It is created.
    Created,
    /// It is applied.
    Updated,
    /// Its ownership is exchanged; everything else follows in the next pass.
    Transferred,
    /// It exists and is left as it is (`hold`, or an existing `once`).
    Held,
    /// It does not exist and is not to be created (`hold`).
    Missing,
    /// It is created once these keys are ready.
    Waiting {
        /// The keys that are not.
        after: Vec<String>,
    },
    /// It is being deleted and has to go first.
    Deleting,
    /// It is not created because its parent is being deleted in the foreground.
    Withheld,
    /// The cluster does not serve its kind.
    NotServed {
        /// Whether the plugin cannot do without the kind.
        required: bool,
    },
    /// An object of its name exists and is not ours.
    NotOwned,
    /// An object of its name exists, belongs to nobody, and is not adopted as long as only one side agrees.
    Adoptable {
        /// Whether the plugin may adopt its kind; otherwise the parent asks for it.
        granted: bool,
    },
}

/// Plans an answer.
///
/// `observed` are the parent's children, owned and retained, and, after a create that met an existing object, that
/// object as a live read found it, whoever it belongs to.
/// What is neither controlled by the parent's UID nor retained for the parent is never touched, but for the exchange of
/// ownership that adopts what nobody owns, where the parent asks for it and the plugin may.
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

/// The observed objects by identity; of two states of one object the newer counts.
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
