//! The guards of the host, which a build with the feature `mutants` can take out one at a time.
//!
//! Each stands at one place in the code, where one short expression names it.
//! `tests/mutants` says for each which test has to fail without it, and tries that.
//! In every other build a guard is the constant `true`, and nothing is read or compared.

use std::sync::LazyLock;

use clap::ValueEnum;

/// One guard; the letters are the promises that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Guard {
    /// W1: whoever wants what is watched already shares the watch.
    SharedWatch,
    /// W3: what a list does not show is gone.
    VanishedOnRelist,
    /// W3: an object of the same name with another UID is another object.
    SuccessorIsAnother,
    /// W6: an object in the cache is never replaced by an older state of it.
    NewerStays,
    /// W6: a list that is older than what was seen is refused.
    OldListRefused,
    /// W6: an event that is older than what was seen is refused.
    OldEventRefused,
    /// W8: no pass before all kinds that it needs have been read.
    KindsSynced,
    /// A cached object comes without what the API server notes of its field managers.
    ManagedFieldsStripped,
    /// A cached object comes without kubectl's copy of it, which holds the values of Secrets.
    LastAppliedStripped,
    /// Of a Secret's value guests see a keyed hash.
    ValuesHashed,
    /// A guest reads in the namespaces that its grant covers.
    ReadsInScope,

    /// Q1: a key that has a pass gets no second one beside it.
    SerialPerKey,
    /// Q1: what changed during a pass is seen by one more.
    DirtyRunsAgain,
    /// Q2: a key that failed waits.
    BackOff,
    /// Q2: a user's edit ends the wait.
    EditEndsBackOff,
    /// Q4: a plugin holds at most half of the guest threads.
    HalfOfThreads,
    /// Q5: no pass before the cache shows the host's own writes.
    OwnWritesSeen,
    /// L3: passes that run when the host is told to stop are finished.
    Drain,

    /// A1: a child that is as it was sent is not sent again.
    UnchangedSkipped,
    /// A2: what differs from what was sent last is sent.
    AppliedCompared,
    /// A2: a child of which another manager took a field is sent again.
    FieldsCovered,
    /// A5: a create never merges into an object that exists.
    CreateOnly,
    /// A5: nothing is created below a parent that is being deleted in the foreground.
    ForegroundCreatesNothing,
    /// A6: a child is what is controlled by the parent's UID, not by another's.
    ControllerUid,
    /// A6: only what carries the plugin's label is pruned.
    PluginLabel,
    /// A6: what is marked as retained is never pruned, whoever controls it.
    RetainedStays,
    /// A6: an update is bound to the UID and the version that were observed.
    UpdateBound,
    /// A6: a change of ownership is bound to the UID and the version that were observed.
    TransferBound,
    /// A6: a deletion is bound to the UID and the version that were observed.
    DeleteBound,
    /// A7: prunes come after all creates and updates.
    PruneLast,
    /// A7: after a write that failed nothing is pruned.
    PruneAfterSuccess,
    /// A7: nothing is pruned while a child of the answer cannot be made.
    PruneUnblocked,
    /// A7: a guest that broke down has not answered that it wants no children.
    FaultIsNoAnswer,
    /// A9: a status that is as wanted is not written.
    UnchangedStatusSkipped,
    /// A9: the time of a condition changes with its status only.
    TransitionTimeKept,
    /// A child that is being deleted is not applied.
    DeletingLeftAlone,

    /// L1: the finalizer is on the parent before its first child.
    FinalizerFirst,
    /// L1: without the finalizer nothing else is written.
    FinalizerRequired,
    /// L1: a status is bound to the UID and the version that were observed.
    StatusBound,
    /// L1: the finalizer is taken off the parent that was observed, and off no successor.
    ReleaseBound,
    /// L1: a parent that is being deleted without the finalizer gets no pass.
    DeletingIgnored,

    /// F16: an answer is bounded.
    OutputMax,
    /// F16: the children of an answer are bounded in number.
    ChildrenMax,
    /// F16: the object of a child is bounded.
    ObjectMax,
    /// F16: a call ends at its deadline.
    Deadline,
    /// F16: an instance's memory is bounded.
    MemoryMax,
    /// F16: the reads of a pass are bounded in number.
    ReadsMax,
    /// A plugin that imports anything outside of the contract is refused.
    ImportsRefused,
    /// A plugin makes the kinds that it declared.
    KindsDeclared,
    /// A plugin makes the kinds that it was granted.
    KindsGranted,
    /// Kinds with power over the cluster need a grant that says so.
    PrivilegeGranted,
    /// A child of a namespaced parent lives in the parent's namespace.
    OwnNamespace,
    /// A guest has no say in owners, finalizers and whatever else is the host's or the API server's.
    MetadataRefused,
    /// A parent that lives is not let go.
    FinalizedWhileDeleting,
    /// A plugin sees the Secrets that it makes as hashes, unless it was granted more.
    SecretsHashed,
}

impl Guard {
    /// Whether the guard stands: always, but in a build for mutants, where `INNKEEPER_MUTANT` names the one that is out.
    #[inline]
    pub fn holds(self) -> bool {
        Self::out() != Some(self)
    }

    /// The guard that is out; a name that is none takes none out, and the tests that should fail do not.
    #[inline]
    pub fn out() -> Option<Self> {
        if !cfg!(feature = "mutants") {
            return None;
        }
        static OUT: LazyLock<Option<Guard>> = LazyLock::new(|| {
            #[expect(
                clippy::disallowed_methods,
                reason = "config is the only reader of the environment"
            )]
            let name = std::env::var("INNKEEPER_MUTANT").unwrap_or_default();
            <Guard as ValueEnum>::from_str(&name, false).ok()
        });
        *OUT
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The script that takes guards out, with its table.
    const MUTANTS: &str = include_str!("../../../tests/mutants");

    #[test]
    fn every_guard_has_a_test_that_must_fail_without_it() {
        let rows = MUTANTS.lines().filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            match *columns.as_slice() {
                [guard, "unit" | "cluster", _test] => Some(guard.to_owned()),
                _ => None,
            }
        });
        let name = |guard: &Guard| {
            let value = guard.to_possible_value().expect("no guard is skipped");
            value.get_name().to_owned()
        };
        let guards: BTreeSet<String> = Guard::value_variants().iter().map(name).collect();
        assert_eq!(rows.collect::<BTreeSet<_>>(), guards);
    }
}
