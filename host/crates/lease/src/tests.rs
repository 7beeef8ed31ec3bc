//! The rules: each one, several candidates for a Lease, and several hosts that share shards.

mod candidates;
mod keeper;
mod shards;

use std::time::Duration;

use innkeeper_model::{ResourceVersion, Shards};
use jiff::Timestamp;

use super::{
    Lease, LeaseRecord, Times,
    machine::{Decision, Machine, Write},
};

/// The host's defaults, which are client-go's.
const TIMES: Times = Times {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

fn machine(identity: &str) -> Machine {
    Machine::new(identity.to_owned(), TIMES)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The wall clock; nothing may depend on it.
fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn lease(version: u64, holder: &str, renewed: i64) -> Lease {
    Lease {
        shards: Shards::ONE,
        version: ResourceVersion(version),
        record: LeaseRecord {
            holder: holder.to_owned(),
            duration_s: 15,
            acquired: Some(wall(1)),
            renewed: Some(wall(renewed)),
            transitions: 4,
        },
    }
}

#[track_caller]
fn write(decision: Decision) -> Write {
    match decision {
        Decision::Write(write) => write,
        other => panic!("{other:?}"),
    }
}

/// Returns a machine that acquired a free lease at this time.
fn holder(at: Duration) -> Machine {
    let mut machine = machine("a");
    let Write { record, .. } = write(machine.decide(None, at, wall(1)));
    let lease = Lease {
        version: ResourceVersion(1),
        record,
        shards: Shards::ONE,
    };
    assert_eq!(machine.wrote(lease, at, at), Some(at));
    machine
}

#[test]
fn a_missing_lease_is_created() {
    let creation = write(machine("a").decide(None, s(0), wall(9)));
    let record = LeaseRecord {
        holder: "a".to_owned(),
        duration_s: 15,
        acquired: Some(wall(9)),
        renewed: Some(wall(9)),
        transitions: 0,
    };
    let replaces = None;
    assert_eq!(creation, Write { replaces, record });
}

#[test]
fn a_released_lease_is_acquired_at_once() {
    let mut released = lease(7, "", 1);
    released.record.duration_s = 1;
    let taken = write(machine("a").decide(Some(released), s(0), wall(9)));
    assert_eq!(taken.replaces, Some(ResourceVersion(7)));
    assert_eq!(taken.record.transitions, 5);
    assert_eq!(taken.record.acquired, Some(wall(9)));
}

#[test]
fn a_lease_expires_after_its_content_is_unchanged_for_its_duration_on_the_local_clock() {
    let mut machine = machine("a");
    // Times do not matter: the clock that wrote them may be an hour fast or slow.
    for renewed in [-3600, 3600] {
        let at = s(100 + u64::from(renewed > 0) * 100);
        let observed = lease(7, "b", renewed);
        assert_eq!(
            machine.decide(Some(observed.clone()), at, wall(1)),
            Decision::Wait
        );
        let later = machine.decide(Some(observed.clone()), at + s(14), wall(7200));
        assert_eq!(later, Decision::Wait);
        let free = machine.decide(Some(observed), at + s(15), wall(1));
        assert_eq!(write(free).record.transitions, 5);
    }
}

#[test]
fn a_renewal_restarts_the_duration_and_a_changed_label_does_not() {
    let mut machine = machine("a");
    let mut see =
        |version, renewed, at| machine.decide(Some(lease(version, "b", renewed)), s(at), wall(1));
    assert_eq!(see(1, 1, 0), Decision::Wait);
    assert_eq!(see(2, 2, 14), Decision::Wait);
    assert_eq!(see(3, 2, 28), Decision::Wait);
    assert!(matches!(see(3, 2, 29), Decision::Write(_)));
}

#[test]
fn a_longer_duration_in_the_lease_counts_and_a_shorter_one_does_not() {
    for (duration_s, free_at) in [(60, 60), (1, 15), (0, 15)] {
        let mut machine = machine("a");
        let mut observed = lease(7, "b", 1);
        observed.record.duration_s = duration_s;
        let mut at = |seconds| machine.decide(Some(observed.clone()), s(seconds), wall(1));
        assert_eq!(at(0), Decision::Wait);
        assert_eq!(at(free_at - 1), Decision::Wait);
        assert!(matches!(at(free_at), Decision::Write(_)));
    }
}

#[test]
fn a_claim_counts_from_before_its_request() {
    let mut machine = machine("a");
    let creation = write(machine.decide(None, s(1), wall(1)));
    let answered = |version| Lease {
        version: ResourceVersion(version),
        record: creation.record.clone(),
        shards: Shards::ONE,
    };
    assert_eq!(
        machine.wrote(answered(1), s(1), s(11)),
        None,
        "an answer after the renew deadline should give no claim"
    );
    assert!(!machine.is_holder());
    assert_eq!(machine.renewal(s(11), wall(1)), None);
    // This process holds the lease nevertheless, as the next read shows.
    let again = write(machine.decide(Some(answered(1)), s(12), wall(2)));
    assert_eq!(again.record.transitions, 0);
    assert_eq!(machine.wrote(answered(2), s(12), s(13)), Some(s(12)));
    assert!(machine.is_holder());
}

#[test]
fn a_renewal_keeps_the_acquire_time() {
    let renewal = holder(s(0)).renewal(s(2), wall(3)).unwrap();
    assert_eq!(renewal.replaces, Some(ResourceVersion(1)));
    assert_eq!(renewal.record.acquired, Some(wall(1)));
    assert_eq!(renewal.record.renewed, Some(wall(3)));
    assert_eq!(renewal.record.transitions, 0);
}

#[test]
fn a_claim_without_a_renewal_in_time_lapses() {
    let mut machine = holder(s(0));
    assert!(machine.renewal(s(9), wall(1)).is_some());
    assert_eq!(machine.renewal(s(10), wall(1)), None);
    assert_eq!(machine.decide(None, s(10), wall(1)), Decision::Lapse);
    // A later answer does not bring the claim back.
    assert_eq!(machine.wrote(lease(9, "a", 9), s(9), s(10)), None);
}

#[test]
fn only_the_holder_creates_a_deleted_lease_before_it_expires() {
    let mut holding = holder(s(0));
    assert_eq!(write(holding.decide(None, s(2), wall(1))).replaces, None);
    let mut waiting = machine("b");
    assert_eq!(
        waiting.decide(Some(lease(1, "a", 1)), s(0), wall(1)),
        Decision::Wait
    );
    assert_eq!(waiting.decide(None, s(2), wall(1)), Decision::Wait);
    assert_eq!(waiting.decide(None, s(16), wall(1)), Decision::Wait);
    assert_eq!(write(waiting.decide(None, s(17), wall(1))).replaces, None);
}

/// An edit must not make a waiting process write while the last holder, which has not seen the edit yet, still does.
#[test]
fn an_edited_lease_is_free_only_after_its_last_holder_has_given_up() {
    for (holder, duration_s) in [("", 15), ("", 0), ("", u32::MAX), ("b", 15)] {
        let mut waiting = machine("b");
        let lease_of_a = Some(lease(1, "a", 1));
        assert_eq!(waiting.decide(lease_of_a, s(0), wall(1)), Decision::Wait);
        let mut edited = lease(2, holder, 1);
        edited.record.duration_s = duration_s;
        assert_eq!(
            waiting.decide(Some(edited.clone()), s(20), wall(1)),
            Decision::Wait
        );
        assert_eq!(waiting.other_holder(), Some((holder, 15)), "{duration_s}");
        let mut at = |seconds| waiting.decide(Some(edited.clone()), s(seconds), wall(1));
        assert_eq!(at(20), Decision::Wait, "{holder:?} {duration_s}");
        assert_eq!(at(34), Decision::Wait, "{holder:?} {duration_s}");
        assert!(
            matches!(at(35), Decision::Write(_)),
            "{holder:?} {duration_s}"
        );
    }
}

/// The duration that a deleted lease stated must not keep a waiting process from a free lease for years.
#[test]
fn a_deleted_lease_with_a_huge_duration_is_free_after_the_own_duration() {
    let mut waiting = machine("b");
    let mut huge = lease(1, "x", 1);
    huge.record.duration_s = i32::MAX.unsigned_abs();
    let decision = waiting.decide(Some(huge), s(0), wall(1));
    assert_eq!(
        (decision, waiting.other_holder()),
        (Decision::Wait, Some(("x", 2_147_483_647)))
    );
    assert_eq!(waiting.decide(None, s(1000), wall(1)), Decision::Wait);
    assert_eq!(waiting.decide(None, s(1014), wall(1)), Decision::Wait);
    assert_eq!(write(waiting.decide(None, s(1015), wall(1))).replaces, None);
}

#[test]
fn the_transitions_stay_within_the_limit_of_the_api_server() {
    let mut released = lease(1, "", 1);
    released.record.duration_s = 1;
    released.record.transitions = i32::MAX.unsigned_abs();
    let taken = write(machine("a").decide(Some(released), s(0), wall(1)));
    assert_eq!(taken.record.transitions, i32::MAX.unsigned_abs());
}

#[test]
fn a_holder_yields_after_an_edit_names_another_holder() {
    let mut machine = holder(s(0));
    let edited = lease(2, "other", 1);
    let holder = "other".to_owned();
    let decision = machine.decide(Some(edited), s(2), wall(1));
    assert_eq!(decision, Decision::Yield { holder });
    assert!(!machine.is_holder());
}

#[test]
fn a_holder_takes_back_a_lease_after_an_edit_removes_the_holder() {
    let mut machine = holder(s(0));
    let taken = write(machine.decide(Some(lease(2, "", 1)), s(2), wall(5)));
    assert_eq!(taken.replaces, Some(ResourceVersion(2)));
    assert_eq!(taken.record.holder, "a");
}

#[test]
fn a_holder_renews_after_a_conflict_and_a_read() {
    let mut machine = holder(s(0));
    // As after a renewal whose answer was lost, or a changed label: another version, the same holder.
    let renewed = write(machine.decide(Some(lease(5, "a", 2)), s(2), wall(3)));
    assert_eq!(renewed.replaces, Some(ResourceVersion(5)));
    assert_eq!(renewed.record.acquired, Some(wall(1)));
    assert_eq!(renewed.record.transitions, 4);
}

#[test]
fn only_the_holder_releases_the_lease() {
    let holding = holder(s(0));
    assert_eq!(holding.release(&lease(3, "b", 1), wall(8)), None);
    let released = holding.release(&lease(3, "a", 1), wall(8)).unwrap();
    assert_eq!(released.replaces, Some(ResourceVersion(3)));
    let expected = LeaseRecord {
        holder: String::new(),
        duration_s: 1,
        acquired: Some(wall(8)),
        renewed: Some(wall(8)),
        transitions: 4,
    };
    assert_eq!(released.record, expected);
    let taken = machine("b").decide(
        Some(Lease {
            version: ResourceVersion(4),
            record: released.record,
            shards: Shards::ONE,
        }),
        s(0),
        wall(9),
    );
    assert_eq!(write(taken).record.transitions, 5);
}
