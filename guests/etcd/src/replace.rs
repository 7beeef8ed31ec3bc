//! Replaces members that lost their data: computes the next step from the record and the observed Pods and Jobs.
//!
//! A member without data must not come back under the same identity, because it has forgotten all votes. So it is removed
//! from etcd and added again under a new identity, which one Pod may use. Each fact is written to the record before
//! the next step starts. Jobs talk to etcd; they do nothing twice and name the identity that they remove, so a late
//! or repeated Job cannot harm a later identity.
//!
//! Added members vote at once. The lost member counted as a voter too, so the number of votes that etcd needs never
//! grows, and a learner would only delay the recovery.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cluster::quorum,
    record::{Record, Replacement},
};

/// Minimum number of members after a removal, and of votes for it: nothing is removed without two votes.
const MEMBERS_AFTER_REMOVAL_MIN: usize = 2;

/// The facts that a replacement uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The members' Pods by ordinal.
    pub(crate) pods: BTreeMap<i32, SeenPod>,
    /// The Job with the record's sequence number.
    pub(crate) job: Option<SeenJob>,
    /// The last Job failed recently, so the next one must wait.
    pub(crate) is_pausing: bool,
    /// The last Job listed etcd's members recently, so the record has them all.
    pub(crate) is_surveyed: bool,
}

/// A member's Pod.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    pub(crate) uid: String,
    pub(crate) is_ready: bool,
    /// The Pod has waited so long that it surely has no data.
    pub(crate) is_empty: bool,
}

/// A Job that talks to etcd.
#[derive(Clone, Debug)]
pub(crate) struct SeenJob {
    pub(crate) operation: Operation,
    /// The end; `None` while the Job runs or the result is unknown.
    pub(crate) end: Option<End>,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Failed,
    /// The IDs of etcd's members by ordinal, if the Job asked for them.
    Succeeded(BTreeMap<i32, String>),
}

/// One change or query in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Lists all member IDs.
    Survey,
    /// Removes a member by ID.
    Remove { ordinal: i32, id: String },
    /// Adds a member.
    Add { ordinal: i32 },
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// No member needs a replacement.
    Idle,
    /// The record changes.
    Write(Record),
    /// This Job must run, or runs.
    Run(Operation),
    /// The replacement waits.
    Wait(Cause),
}

/// Why a replacement waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No quorum is ready, so etcd accepts no change.
    Quorum,
    /// Another member is not ready, so etcd accepts no new one.
    Members,
    /// The last Job failed.
    Failure,
    /// The new member's Pod does not exist yet.
    Pod,
    /// A Secret that the Job mounts does not exist.
    Secret,
}

/// A formed cluster's next step.
pub(crate) fn next(record: &Record, seen: &Seen) -> Next {
    // A started Job comes first: it may have changed etcd already.
    if let Some(job) = &seen.job {
        return match &job.end {
            None => Next::Run(job.operation.clone()),
            Some(end) => Next::Write(ended(record, seen, &job.operation, end)),
        };
    }
    let settled = settled(record, seen);
    if settled != *record {
        return Next::Write(settled);
    }
    let lost = lost(record, seen);
    if lost.is_empty() && record.replacing.is_empty() {
        return Next::Idle;
    }
    let registered = record.registered();
    let ready = registered
        .iter()
        .filter(|ordinal| seen.is_ready(**ordinal))
        .count();
    let has_quorum = ready >= quorum(registered.len());
    if !has_quorum && !may_be_behind(record, seen, ready) {
        return Next::Wait(Cause::Quorum);
    }
    if seen.is_pausing {
        return Next::Wait(Cause::Failure);
    }
    // Only etcd knows the members' IDs, and which members a Job without a recorded result has removed.
    if !lost.is_empty() || !has_quorum {
        return Next::Run(Operation::Survey);
    }
    // Remove all lost members before adding one: etcd adds none while another one is down.
    let removal = record
        .replacing
        .iter()
        .find_map(|(ordinal, progress)| match progress {
            Replacement::Lost(id) => Some((*ordinal, id.clone())),
            _ => None,
        });
    if let Some((ordinal, id)) = removal {
        return Next::Run(Operation::Remove { ordinal, id });
    }
    let mut replacing = record.replacing.iter();
    match replacing.find(|(_, progress)| **progress == Replacement::Removed) {
        None => Next::Wait(Cause::Pod),
        Some(_) if ready < registered.len() => Next::Wait(Cause::Members),
        Some((ordinal, _)) => Next::Run(Operation::Add { ordinal: *ordinal }),
    }
}

/// True if etcd may have removed members that the record still has, and so may need fewer votes: the record or the
/// Job was deleted in between.
fn may_be_behind(record: &Record, seen: &Seen, ready: usize) -> bool {
    let may_be_removed = record
        .replacing
        .values()
        .any(|progress| matches!(progress, Replacement::Lost(_)));
    let is_open = may_be_removed || !lost(record, seen).is_empty();
    is_open && ready >= MEMBERS_AFTER_REMOVAL_MIN && !seen.is_surveyed
}

impl Seen {
    fn is_ready(&self, ordinal: i32) -> bool {
        self.pods.get(&ordinal).is_some_and(|pod| pod.is_ready)
    }
}

/// Members that lost their data and whose replacement has not started.
pub(crate) fn lost(record: &Record, seen: &Seen) -> BTreeSet<i32> {
    let is_lost = |ordinal: &&i32| {
        let is_empty = |pod: &SeenPod| {
            pod.is_empty && !pod.is_ready && record.admitted.get(ordinal) != Some(&pod.uid)
        };
        seen.pods.get(ordinal).is_some_and(is_empty) && !record.replacing.contains_key(ordinal)
    };
    record.members.iter().filter(is_lost).copied().collect()
}

/// The record without used or useless admissions: those whose Pod is ready, or gone. `pod` returns a member Pod's UID
/// and whether it is ready.
pub(crate) fn without_used_admissions<'a>(
    mut record: Record,
    pod: impl Fn(i32) -> Option<(&'a str, bool)>,
) -> Record {
    record.admitted.retain(|ordinal, admitted| {
        pod(*ordinal).is_none_or(|(uid, is_ready)| uid == admitted && !is_ready)
    });
    record
}

/// The record after a Job has ended.
fn ended(record: &Record, seen: &Seen, operation: &Operation, end: &End) -> Record {
    let mut after = record.clone();
    // Also after a failure: a Job is immutable, so another attempt needs another name.
    after.sequence += 1;
    match (operation, end) {
        (Operation::Survey, End::Succeeded(ids)) => {
            let lost = lost(record, seen);
            for ordinal in &record.members {
                let progress = match ids.get(ordinal) {
                    Some(id) if lost.contains(ordinal) => Replacement::Lost(id.clone()),
                    // An earlier Job removed it, but the result was lost.
                    None if !seen.is_ready(*ordinal) => Replacement::Removed,
                    _ => continue,
                };
                after.replacing.insert(*ordinal, progress);
            }
        }
        (Operation::Remove { ordinal, id }, End::Succeeded(_)) => {
            after.advance(
                *ordinal,
                &Replacement::Lost(id.clone()),
                Some(Replacement::Removed),
            );
        }
        (Operation::Add { ordinal }, End::Succeeded(_)) => {
            after.advance(*ordinal, &Replacement::Removed, Some(Replacement::Added));
        }
        // etcd may have the member under a used identity: a survey will show it.
        (Operation::Add { ordinal }, End::Failed) => {
            after.advance(*ordinal, &Replacement::Removed, None);
        }
        // The same step runs again after the pause; both scripts are safe to repeat.
        (Operation::Survey | Operation::Remove { .. }, End::Failed) => {}
    }
    after
}

impl Record {
    /// Replaces a member's progress, unless it has changed since the Job started.
    fn advance(&mut self, ordinal: i32, from: &Replacement, to: Option<Replacement>) {
        if self.replacing.get(&ordinal) == Some(from) {
            self.replacing.remove(&ordinal);
            self.replacing.extend(to.map(|to| (ordinal, to)));
        }
    }
}

/// The record after the observed Pods: a ready member needs no replacement, and an added member's Pod is admitted.
fn settled(record: &Record, seen: &Seen) -> Record {
    let mut after = record.clone();
    for (ordinal, progress) in &record.replacing {
        let Some(pod) = seen.pods.get(ordinal) else {
            continue;
        };
        if !pod.is_ready && *progress != Replacement::Added {
            continue;
        }
        after.replacing.remove(ordinal);
        if !pod.is_ready {
            after.admitted.insert(*ordinal, pod.uid.clone());
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods by ordinal: ready `R`, without data `E`, without data but admitted `A`, not ready `n`, none `-`.
    fn seen(pods: &str) -> Seen {
        let pod = |(ordinal, state): (i32, char)| {
            let pod = SeenPod {
                uid: format!("u{ordinal}"),
                is_ready: state == 'R',
                is_empty: "EA".contains(state),
            };
            (state != '-').then_some((ordinal, pod))
        };
        Seen {
            pods: (0..).zip(pods.chars()).filter_map(pod).collect(),
            ..Seen::default()
        }
    }

    /// A record with as many members, with the admissions `A`. Replacements by ordinal: `l` lost, `r` removed, `a`
    /// added.
    fn record(pods: &str, replacing: &[(i32, char)]) -> Record {
        let progress = |(ordinal, progress): &(i32, char)| {
            let progress = match progress {
                'l' => Replacement::Lost(format!("c{ordinal}")),
                'r' => Replacement::Removed,
                _ => Replacement::Added,
            };
            (*ordinal, progress)
        };
        let all = (0..).zip(pods.chars());
        let admitted = all.clone().filter(|(_, state)| *state == 'A');
        Record {
            members: all.map(|(ordinal, _)| ordinal).collect(),
            formed: true,
            token: String::new(),
            sequence: 7,
            admitted: admitted.map(|(it, _)| (it, format!("u{it}"))).collect(),
            replacing: replacing.iter().map(progress).collect(),
            version: None,
        }
    }

    fn line(next: &Next) -> String {
        match next {
            Next::Idle => "idle".to_owned(),
            Next::Write(record) => {
                let admitted: Vec<_> = record.admitted.values().cloned().collect();
                format!("write {:?} {}", record.replacing, admitted.join(","))
            }
            Next::Run(Operation::Survey) => "survey".to_owned(),
            Next::Run(Operation::Remove { ordinal, id }) => format!("remove {ordinal} {id}"),
            Next::Run(Operation::Add { ordinal }) => format!("add {ordinal}"),
            Next::Wait(cause) => format!("wait for {cause:?}"),
        }
    }

    #[test]
    fn each_state_of_a_replacement_has_a_next_step() {
        for (pods, replacing, expected) in [
            ("RRR", &[][..], "idle"),
            // Not ready says nothing about the data.
            ("RRn", &[], "idle"),
            ("RR-", &[], "idle"),
            ("RRA", &[], "idle"),
            ("RRE", &[], "survey"),
            ("RRE", &[(2, 'l')], "remove 2 c2"),
            ("RR-", &[(2, 'l')], "remove 2 c2"),
            ("RRE", &[(2, 'r')], "add 2"),
            ("RRE", &[(2, 'a')], "write {} u2"),
            ("RRn", &[(2, 'a')], "write {} u2"),
            ("RR-", &[(2, 'a')], "wait for Pod"),
            // A ready member stays.
            ("RRR", &[(2, 'l')], "write {} "),
            // Nothing happens without a quorum; the removed member no longer counts.
            ("REE", &[], "wait for Quorum"),
            ("RnE", &[(2, 'l')], "wait for Quorum"),
            ("RnE", &[(2, 'r')], "wait for Quorum"),
            ("E", &[], "wait for Quorum"),
            ("RE", &[], "wait for Quorum"),
            // With two votes, etcd may have a quorum without members that the record does not know to be removed.
            ("RREEE", &[], "survey"),
            ("RREEE", &[(2, 'l'), (3, 'l'), (4, 'l')], "survey"),
            ("RREEE", &[(2, 'r'), (3, 'r'), (4, 'r')], "add 2"),
            ("RRnnn", &[], "idle"),
            ("RRnnn", &[(4, 'r')], "wait for Quorum"),
            // Two at once: both are removed before one is added, and the second is added once the first is ready.
            ("RRREE", &[], "survey"),
            ("RRREE", &[(3, 'l')], "survey"),
            ("RRREE", &[(3, 'l'), (4, 'l')], "remove 3 c3"),
            ("RRREE", &[(3, 'r'), (4, 'l')], "remove 4 c4"),
            ("RRREE", &[(3, 'r'), (4, 'r')], "add 3"),
            ("RRRAE", &[(4, 'r')], "wait for Members"),
            ("RRRRE", &[(4, 'r')], "add 4"),
            ("RRRnE", &[(4, 'r')], "wait for Members"),
        ] {
            let next = next(&record(pods, replacing), &seen(pods));
            assert_eq!(line(&next), expected, "{pods} {replacing:?}");
        }
    }

    #[test]
    fn a_pause_after_a_failed_job_delays_the_next_one() {
        let paused = Seen {
            is_pausing: true,
            ..seen("RRE")
        };
        assert_eq!(
            next(&record("RRE", &[]), &paused),
            Next::Wait(Cause::Failure)
        );
    }

    #[test]
    fn the_end_of_a_job_is_written_before_the_next_one_begins() {
        let remove = |id: &str| Operation::Remove {
            ordinal: 2,
            id: id.to_owned(),
        };
        let add = || Operation::Add { ordinal: 2 };
        let done = || End::Succeeded(BTreeMap::new());
        let unlisted = End::Succeeded([(0, "c0".to_owned())].into());
        let listed = End::Succeeded([(2, "c2".to_owned())].into());
        for (operation, end, replacing, expected) in [
            (Operation::Survey, listed, None, r#"{2: Lost("c2")}"#),
            // The member was removed by hand, or by a Job that was deleted.
            (Operation::Survey, unlisted.clone(), None, "{2: Removed}"),
            (Operation::Survey, unlisted, Some('l'), "{2: Removed}"),
            (Operation::Survey, End::Failed, None, "{}"),
            (remove("c2"), done(), Some('l'), "{2: Removed}"),
            (remove("c2"), End::Failed, Some('l'), r#"{2: Lost("c2")}"#),
            (add(), done(), Some('r'), "{2: Added}"),
            // The place may be taken.
            (add(), End::Failed, Some('r'), "{}"),
            // Jobs from another record change nothing.
            (remove("d9"), done(), Some('l'), r#"{2: Lost("c2")}"#),
            (add(), done(), Some('l'), r#"{2: Lost("c2")}"#),
            (remove("c2"), done(), Some('a'), "{2: Added}"),
            (add(), done(), None, "{}"),
        ] {
            let replacing: Vec<(i32, char)> =
                replacing.into_iter().map(|state| (2, state)).collect();
            let job = |end| {
                let operation = operation.clone();
                let job = Some(SeenJob { operation, end });
                Seen { job, ..seen("RRE") }
            };
            let record = record("RRE", &replacing);
            assert_eq!(next(&record, &job(None)), Next::Run(operation.clone()));
            let Next::Write(after) = next(&record, &job(Some(end.clone()))) else {
                panic!("{operation:?} {end:?}");
            };
            assert_eq!(after.sequence, 8);
            assert_eq!(
                format!("{:?}", after.replacing),
                expected,
                "{operation:?} {end:?}"
            );
        }
    }
}
