//! Whether a parent is one of the plugin's, and what becomes of one that is not any more.
//!
//! Looked at in every pass before anything else is asked for, so that nothing about it has to be remembered; what is
//! read for it is subscribed to like the reads of a guest.

use innkeeper_cluster::{Answer, ParentConditions, Recording, Registration, labels};
use innkeeper_model::{
    Access, Condition, ConditionStatus, Gvk, Object, ObjectRef, ReadFailure, ReadKey, ReadKind,
    ReadScope, reason,
};
use innkeeper_plan::{self as plan, ReadyPart};
use innkeeper_policy::NotSelected;

use super::{Next, Reconciler, Serving, Turn, report::Verdict, serving::Stint};

/// What a look at a parent came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is the plugin's.
    Selected,
    /// It is not.
    NotSelected(NotSelected),
    /// Its namespace has not been seen yet; there is a trigger when it is.
    NotSeen,
    /// This kind is not cached; there is a trigger when it is.
    Parked(Gvk),
}

fn namespace_kind() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

/// What is read of namespaces.
pub(super) fn namespace_read() -> ReadKind {
    ReadKind {
        kind: namespace_kind(),
        access: Access::Metadata,
        scope: ReadScope::Cluster,
        label_selector: None,
    }
}

impl Reconciler {
    /// Whether a parent is one of the plugin's, as far as that is known; nobody is subscribed to anything.
    pub fn selects(&self, parent: &Object) -> Option<bool> {
        let stint = self.slot.current();
        let selection = &stint.serving.selection;
        if selection.is_all() {
            return Some(true);
        }
        let own = labels(&parent.json);
        if selection.select(&own, None).is_err() {
            return Some(false);
        }
        let Some(name) = parent
            .namespace
            .as_deref()
            .filter(|_| selection.asks_for_namespaces())
        else {
            return Some(true);
        };
        let namespace = self.registration.related(&namespace_kind(), name)?;
        Some(selection.select(&own, Some(&labels(&namespace))).is_ok())
    }

    /// Looks whether a parent is one of the plugin's, and subscribes it to what that depends on.
    pub(super) fn choose(
        serving: &Serving,
        registration: &Registration,
        parent: &Object,
    ) -> (Choice, Recording) {
        let selection = &serving.selection;
        if selection.is_all() {
            return (Choice::Selected, Recording::default());
        }
        let own = labels(&parent.json);
        if let Err(why) = selection.select(&own, None) {
            return (Choice::NotSelected(why), Recording::default());
        }
        let namespace = parent.namespace.as_ref();
        let Some(name) = namespace.filter(|_| selection.asks_for_namespaces()) else {
            return (Choice::Selected, Recording::default());
        };
        let reference = ObjectRef {
            kind: namespace_kind(),
            namespace: None,
            name: name.clone(),
        };
        let mut reads = registration.reads(parent, &serving.own_reads);
        let choice = match reads.ask(&ReadKey::Get(reference)) {
            Answer::Object(Some(namespace)) => {
                match selection.select(&own, Some(&labels(&namespace))) {
                    Ok(()) => Choice::Selected,
                    Err(why) => Choice::NotSelected(why),
                }
            }
            Answer::Failed(ReadFailure::NotSynced(kind) | ReadFailure::NotServed(kind)) => {
                Choice::Parked(kind)
            }
            // Its events may come after those of what is in it.
            Answer::Object(None) | Answer::List(_) | Answer::Failed(_) => Choice::NotSeen,
        };
        (choice, reads.into_recording())
    }

    /// Whether a parent may be told what its passes wait for.
    ///
    /// It may be another host's, which has plugins and selections of its own.
    pub(super) fn may_be_told(&self, serving: &Serving, parent: &Object) -> bool {
        match Self::choose(serving, &self.registration, parent).0 {
            Choice::Selected => true,
            Choice::NotSelected(_) | Choice::NotSeen => false,
            Choice::Parked(_) => self.is_nobody_elses(parent),
        }
    }

    fn is_nobody_elses(&self, parent: &Object) -> bool {
        plan::has_spoken(&self.name, parent) || ParentConditions::of(parent).synced.is_none()
    }

    /// Ends a pass for a parent that is not known to be the plugin's.
    pub(super) async fn pass_over(
        &self,
        stint: &Stint,
        parent: &Object,
        (choice, reads): (Choice, Recording),
        turn: Turn,
    ) -> Next {
        match choice {
            Choice::NotSelected(why) => {
                let id = parent.id();
                self.excuse(stint, &id);
                stint.memory.forget(&id);
                // What its guest read does not matter any more.
                self.registration.commit(&id, &reads);
                self.leave_out(parent, why).await
            }
            Choice::Parked(kind) => {
                let what = format!(
                    "{kind}, by whose labels spec.parents.namespaceSelector selects; the host needs get, list and watch of namespaces (innkeeper manifests prints the role)"
                );
                let parent = Some(parent).filter(|parent| self.is_nobody_elses(parent));
                self.park(parent, &what, turn).await
            }
            Choice::NotSeen | Choice::Selected => Next::UntilChanged,
        }
    }

    /// Lets go of a parent that is not the plugin's any more: no guest is asked, and its children stay.
    ///
    /// One that never was is not touched: whoever it belongs to may say something else about it.
    async fn leave_out(&self, parent: &Object, why: NotSelected) -> Next {
        // Nobody would ever take it off; what it says is written once this is seen.
        if parent.has_finalizer(&self.name.finalizer()) {
            return self.release(parent).await;
        }
        if !plan::has_spoken(&self.name, parent) {
            return Next::UntilChanged;
        }
        let verdict = Verdict {
            // Paused parents keep what was said last, because somebody means to go on with them. Nobody looks any more
            // how this one's children are, so that what was found once would be taken for what is now. What the guest
            // itself has stated, Ready included, stays as its status does, which is the last that is known.
            ready: ReadyPart::Host(not_ready()),
            ..Verdict::of_host(self.not_selected(parent, why), Next::UntilChanged)
        };
        let mut target = self.target(parent);
        self.report(&mut target, parent, verdict).await.next
    }

    fn not_selected(&self, parent: &Object, why: NotSelected) -> Condition {
        let (field, plugin) = (why.field(), &self.name);
        let (whose, label) = match (why, parent.namespace.as_deref()) {
            (NotSelected::ByItsNamespace, Some(name)) => {
                (format!("of its namespace {name}"), "the namespace")
            }
            _ => ("of this object".to_owned(), "it"),
        };
        let message = format!(
            "{field} of Plugin {plugin} does not choose the labels {whose}: nothing is done for it any more, and its children stay as they are; label {label} or change the selector to go on"
        );
        plan::synced(ConditionStatus::Unknown, reason::NOT_SELECTED, message)
    }
}

fn not_ready() -> Condition {
    Condition {
        kind: reason::READY.to_owned(),
        status: ConditionStatus::Unknown,
        reason: reason::NOT_SELECTED.to_owned(),
        message: "nobody looks how its children are".to_owned(),
    }
}
