use innkeeper_cluster::{CacheSize, NamespaceFull};
use innkeeper_model::{Fault, Gvk};
use innkeeper_plan::{Effects, Plan, Subject, Undone};
use innkeeper_policy::check_fault;
use serde_json::json;

use super::*;
use crate::limits::throttled::Permit;

const MINUTE: Duration = Duration::from_mins(1);

fn plugin() -> PluginName {
    PluginName::new("web").unwrap()
}

/// A parent whose conditions the host `innkeeper:web:host` may have written.
fn parent(synced: Option<&str>) -> Object {
    let mut parent = json!({
        "apiVersion": "example.com/v1", "kind": "Web",
        "metadata": {"name": "a", "namespace": "demo", "uid": "u", "resourceVersion": "7", "generation": 1},
    });
    if let Some(reason) = synced {
        parent["status"]["conditions"] = json!([
            {"type": "Synced", "status": "False", "reason": reason, "observedGeneration": 1}
        ]);
        parent["metadata"]["managedFields"] = json!([{
            "manager": "innkeeper:web:host", "operation": "Apply", "subresource": "status",
            "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Synced\"}": {"f:status": {}}}}},
        }]);
    }
    let kind = Gvk::new("example.com", "v1", "Web");
    innkeeper_cluster::present(
        parent.as_object().unwrap(),
        &kind,
        innkeeper_model::Access::Full,
        &key(),
    )
    .unwrap()
}

fn key() -> innkeeper_model::HashKey {
    innkeeper_model::HashKey::new(*b"the key of this cluster")
}

fn report(requeue_after_ms: Option<u64>) -> Report {
    Report {
        requeue_after_ms,
        ..Report::default()
    }
}

/// The reason in `Synced` (empty if the status stays) and the next pass.
fn concluded(parent: Option<&Object>, end: PassEnd<'_>) -> (String, Next) {
    let plugin = plugin();
    reason_and_next(PassResult::new(&plugin, parent, end).conclude())
}

fn reason_and_next(conclusion: Conclusion<'_>) -> (String, Next) {
    let reason = conclusion.status.map(|status| status.synced.reason);
    (reason.unwrap_or_default(), conclusion.next)
}

fn skipped(reason: &Skip, parked: Duration) -> PassEnd<'_> {
    PassEnd::Skipped {
        reason,
        waited: parked,
        now: Instant::now(),
    }
}

fn full() -> NamespaceFull {
    NamespaceFull {
        namespace: "demo".into(),
        by_objects: false,
        max: CacheSize {
            objects: 10,
            bytes: 5000,
        },
        largest: Gvk::new("", "v1", "ConfigMap"),
    }
}

#[test]
fn a_full_namespace_is_named_with_its_bound_and_the_remedy() {
    let sentence = |full| LimitExceeded::cache(&plugin(), &full).sentence();
    assert_eq!(
        sentence(full()),
        "plugin web in namespace demo exceeds the cache limit of 5000 bytes of children, most of them v1 ConfigMap; delete unneeded ones with the label innkeeper.dev/plugin=web, or raise spec.limits.bytesPerNamespace of the Plugin"
    );
    let by_objects = NamespaceFull {
        namespace: "".into(),
        by_objects: true,
        ..full()
    };
    assert_eq!(
        sentence(by_objects),
        "plugin web, for cluster-scoped objects, exceeds the cache limit of 10 children, most of them v1 ConfigMap; delete unneeded ones with the label innkeeper.dev/plugin=web, or raise spec.limits.objectsPerNamespace of the Plugin"
    );
}

fn fault(kind: FaultKind, phase: Phase) -> Skip {
    let fault = Fault {
        kind,
        message: "no".to_owned(),
        report: None,
    };
    Skip::Fault {
        fault: check_fault(fault).unwrap(),
        phase,
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_reason_to_skip_has_one_condition_and_one_next_pass() {
    use FaultKind::{Fatal, Invalid, Retry};
    use Phase::{Finalize, Reconcile};
    let pod = || Gvk::new("", "v1", "Pod");
    let refused = Skip::Refused {
        reason: reason::GUEST_TRAPPED,
        message: "unreachable".to_owned(),
    };
    let not_selected = || Skip::NotSelected {
        why: NotSelected::ByItsLabels,
        reads: innkeeper_cluster::Recording::default(),
    };
    let mine = parent(Some("Applied"));
    let foreign = parent(None);
    let soon = Next::RequeueAfter(MINUTE);
    for (stop, parent, parked_s, expected, next) in [
        (Skip::Gone, None, 0, "", Next::Forget),
        (
            Skip::AwaitOwnWrites {
                until: Instant::now(),
            },
            None,
            0,
            "",
            Next::AwaitOwnWrites(Duration::ZERO),
        ),
        (
            Skip::NotCached(Vec::new()),
            Some(&mine),
            4,
            "",
            Next::AwaitCache(Duration::from_secs(6)),
        ),
        (
            Skip::NotCached(Vec::new()),
            Some(&mine),
            10,
            "WaitingForCache",
            Next::AwaitCache(WAIT_RECHECK),
        ),
        (
            Skip::NotCached(Vec::new()),
            None,
            10,
            "",
            Next::AwaitCache(WAIT_RECHECK),
        ),
        (
            Skip::ReadNotCached(pod()),
            Some(&mine),
            0,
            "",
            Next::AwaitCache(WAIT_REPORTED_AFTER),
        ),
        (
            Skip::ReadNotCached(pod()),
            Some(&mine),
            60,
            "WaitingForCache",
            Next::AwaitCache(WAIT_RECHECK),
        ),
        (
            Skip::CacheFull(full()),
            Some(&mine),
            0,
            "NamespaceCacheFull",
            Next::AwaitCache(WAIT_RECHECK),
        ),
        (Skip::Ignored, Some(&mine), 0, "", Next::UntilChanged),
        (Skip::Paused, Some(&mine), 0, "Paused", Next::UntilChanged),
        (
            Skip::NamespaceNotSeen,
            Some(&mine),
            0,
            "",
            Next::UntilChanged,
        ),
        (
            not_selected(),
            Some(&mine),
            0,
            "NotSelected",
            Next::UntilChanged,
        ),
        (not_selected(), Some(&foreign), 0, "", Next::UntilChanged),
        (
            Skip::HashKeyMissing,
            Some(&mine),
            0,
            "HashKeyMissing",
            Next::Backoff,
        ),
        (Skip::Unchanged(soon.clone()), Some(&mine), 0, "", soon),
        (Skip::NotReported(Next::Backoff), None, 0, "", Next::Backoff),
        (Skip::NotCalled, Some(&mine), 0, "", Next::Backoff),
        (refused, Some(&mine), 0, "GuestTrapped", Next::Backoff),
        (
            fault(Retry, Reconcile),
            Some(&mine),
            0,
            "Retrying",
            Next::Backoff,
        ),
        (
            fault(Invalid, Reconcile),
            Some(&mine),
            0,
            "Invalid",
            Next::UntilChanged,
        ),
        (
            fault(Fatal, Reconcile),
            Some(&mine),
            0,
            "Fatal",
            Next::UntilChanged,
        ),
        (
            fault(Fatal, Finalize),
            Some(&mine),
            0,
            "Fatal",
            Next::Backoff,
        ),
    ] {
        let end = skipped(&stop, Duration::from_secs(parked_s));
        assert_eq!(concluded(parent, end), (expected.to_owned(), next));
    }
}

#[test]
fn a_pass_that_changes_no_child_follows_the_guest_and_the_finalizer() {
    let requeued = report(Some(60_000));
    let silent = report(None);
    let at = || Next::RequeueAfter(MINUTE);
    let keep = |phase, report| PassEnd::Kept { phase, report };
    for (end, expected, next) in [
        (keep(Phase::Reconcile, &silent), "Applied", Next::Settled),
        (keep(Phase::Reconcile, &requeued), "Applied", at()),
        (keep(Phase::Finalize, &requeued), "Applied", at()),
        (keep(Phase::Finalize, &silent), "Applied", Next::Backoff),
        (
            PassEnd::Finalizing {
                report: &requeued,
                refused: None,
            },
            "Applied",
            Next::Settled,
        ),
        (
            PassEnd::Finalizing {
                report: &requeued,
                refused: Some(not_synced(reason::FINALIZER_REFUSED, "no")),
            },
            "FinalizerRefused",
            Next::Backoff,
        ),
        (
            PassEnd::Released(None, Err(failed(reason::FINALIZER_REFUSED, Retry::Backoff))),
            "FinalizerRefused",
            Next::Backoff,
        ),
        (PassEnd::Released(None, Ok(())), "", Next::Settled),
        (
            PassEnd::Released(None, Err(failed(reason::APPLY_FAILED, Retry::OnChange))),
            "",
            Next::Backoff,
        ),
        (
            PassEnd::Released(None, Err(failed(reason::APPLY_FAILED, Retry::At(MINUTE)))),
            "",
            Next::BackoffAtLeast(MINUTE),
        ),
        (
            PassEnd::NotApplied {
                report: &requeued,
                error: "no".to_owned(),
            },
            "ApplyFailed",
            Next::Backoff,
        ),
        (PassEnd::Superseded { again: true }, "", Next::Backoff),
        (PassEnd::Superseded { again: false }, "", Next::UntilChanged),
    ] {
        assert_eq!(
            concluded(Some(&parent(None)), end),
            (expected.to_owned(), next)
        );
    }
}

/// For applied plans: retry after a failure, rate limit, contested writes, requested requeue, deferred report.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn failures_limits_conflicts_and_requests_merge_in_this_order() {
    let hour = MINUTE * 60;
    let minute = Some(60_000);
    let throttled = throttled(Duration::from_secs(5));
    let contention = || Contention {
        undone: vec![Undone::unexplained(&Subject::Finalizer)],
        wait: Duration::from_secs(20),
    };
    let after = |seconds| Next::RequeueAfter(Duration::from_secs(seconds));
    for (retry, is_throttled, contested, asked, left, expected, next) in [
        (None, false, false, None, false, "Applied", Next::Settled),
        (None, false, false, minute, false, "Applied", after(60)),
        (
            None,
            false,
            false,
            Some(1),
            false,
            "Applied",
            Next::RequeueAfter(REQUEUE_MIN),
        ),
        (
            None,
            false,
            false,
            None,
            true,
            "",
            Next::RequeueAfter(REPORT_DEFERRED_MAX),
        ),
        (None, true, false, minute, false, "Throttled", after(5)),
        (None, true, true, minute, false, "Throttled", after(5)),
        (None, false, true, minute, false, "FieldConflict", after(20)),
        (
            None,
            false,
            true,
            Some(1000),
            false,
            "FieldConflict",
            after(1),
        ),
        (
            Some(Retry::Backoff),
            true,
            true,
            minute,
            false,
            "WriteFailed",
            Next::Backoff,
        ),
        (
            Some(Retry::At(hour)),
            false,
            false,
            None,
            false,
            "WriteFailed",
            Next::BackoffAtLeast(hour),
        ),
        (
            Some(Retry::OnChange),
            false,
            false,
            None,
            false,
            "WriteFailed",
            Next::UntilChanged,
        ),
        (
            Some(Retry::OnChange),
            false,
            false,
            minute,
            false,
            "WriteFailed",
            after(60),
        ),
        (
            Some(Retry::OnChange),
            true,
            false,
            minute,
            false,
            "WriteFailed",
            after(5),
        ),
        (
            Some(Retry::OnChange),
            false,
            true,
            None,
            false,
            "WriteFailed",
            after(20),
        ),
        (
            Some(Retry::Never),
            true,
            false,
            None,
            false,
            "WriteFailed",
            Next::UntilChanged,
        ),
    ] {
        let report = report(asked);
        let end = PassEnd::Applied(Box::new(AppliedPlan {
            report: &report,
            conclusion: conclusion(retry),
            throttled: is_throttled.then(|| throttled.clone()),
            contention: contested.then(contention),
            is_deferred: left,
        }));
        let case = format!("{retry:?} {is_throttled} {contested} {asked:?}");
        let concluded = concluded(Some(&parent(None)), end);
        assert_eq!(concluded, (expected.to_owned(), next), "{case}");
    }
}

fn failed(reason: &'static str, retry: Retry) -> WriteFailure {
    WriteFailure {
        reason,
        message: "no".to_owned(),
        retry,
    }
}

fn conclusion(retry: Option<Retry>) -> plan::Conclusion {
    let parent = retry.map(|retry| failed("WriteFailed", retry));
    let effects = Effects {
        parent,
        ..Effects::default()
    };
    plan::conclude(&Plan::default(), &effects)
}

fn throttled(wait: Duration) -> Throttled {
    let exceeded = LimitExceeded::parent_writes(&innkeeper_model::Limits::default());
    let permit = Permit {
        writes: 0,
        wait: Some((wait, exceeded)),
    };
    Throttled::by_status_permit(permit, &applied()).unwrap()
}

#[test]
fn a_status_that_fails_or_waits_changes_condition_and_next_pass() {
    let waits = || StatusWriteResult::Throttled(throttled(Duration::from_secs(5)));
    let rejected = |retry| StatusWriteResult::Rejected(failed("StatusRejected", retry));
    let after = |seconds| Next::RequeueAfter(Duration::from_secs(seconds));
    let first = parent(None);
    let again = parent(Some("Throttled"));
    for (parent, writes, expected, next) in [
        (&first, vec![waits()], "Throttled", after(5)),
        // A second condition would trigger the next pass by itself.
        (&again, vec![waits()], "", after(5)),
        (
            &first,
            vec![rejected(Retry::OnChange)],
            "StatusRejected",
            Next::UntilChanged,
        ),
        (
            &first,
            vec![rejected(Retry::Backoff)],
            "StatusRejected",
            Next::Backoff,
        ),
        (
            &first,
            vec![StatusWriteResult::Failed(Retry::Backoff)],
            "",
            Next::Backoff,
        ),
        (
            &first,
            vec![StatusWriteResult::Contested(MINUTE)],
            "",
            Next::RequeueAfter(MINUTE),
        ),
        (
            &first,
            vec![StatusWriteResult::Failed(Retry::At(MINUTE))],
            "",
            Next::BackoffAtLeast(MINUTE),
        ),
        (
            &first,
            vec![waits(), StatusWriteResult::Failed(Retry::OnChange)],
            "",
            after(5),
        ),
        (
            &first,
            vec![
                rejected(Retry::OnChange),
                StatusWriteResult::Failed(Retry::Backoff),
            ],
            "",
            Next::Backoff,
        ),
    ] {
        let plugin = plugin();
        let report = report(None);
        let phase = Phase::Reconcile;
        let end = PassEnd::Kept {
            phase,
            report: &report,
        };
        let mut result = PassResult::new(&plugin, Some(parent), end);
        for write in writes {
            result.add(write);
        }
        assert_eq!(
            reason_and_next(result.conclude()),
            (expected.to_owned(), next)
        );
    }
}

/// Only the host's conditions remain, so that the API server accepts them without the guest's part.
#[test]
fn the_guests_part_is_left_out_after_a_failed_status_write() {
    let plugin = plugin();
    let parent = parent(None);
    let report = report(None);
    let phase = Phase::Reconcile;
    let end = PassEnd::Kept {
        phase,
        report: &report,
    };
    let mut result = PassResult::new(&plugin, Some(&parent), end);
    let guest = |result: &PassResult<'_>| {
        let status = result.conclude().status.unwrap();
        status.report.is_some()
    };
    assert!(guest(&result));
    result.add(StatusWriteResult::Throttled(throttled(MINUTE)));
    assert!(!guest(&result));
}

#[test]
fn the_ready_of_a_guest_whose_report_is_left_out_stays() {
    let plugin = plugin();
    let parent = parent(None);
    let report_of = |conditions| Report {
        conditions,
        ..Report::default()
    };
    let own = Condition {
        kind: reason::READY.to_owned(),
        status: ConditionStatus::False,
        reason: "Mine".to_owned(),
        message: String::new(),
    };
    for (report, stays) in [(report_of(vec![own]), true), (report_of(Vec::new()), false)] {
        let end = PassEnd::Applied(Box::new(AppliedPlan {
            report: &report,
            conclusion: conclusion(None),
            throttled: None,
            contention: None,
            is_deferred: false,
        }));
        let mut result = PassResult::new(&plugin, Some(&parent), end);
        result.add(StatusWriteResult::Throttled(throttled(MINUTE)));
        let status = result.conclude().status.unwrap();
        assert_eq!(status.ready.is_none(), stays);
    }
}

#[test]
fn a_failed_pass_stalls_unless_the_host_tries_again() {
    let synced = |status| plan::synced(status, reason::INVALID, "");
    for (status, next, expected) in [
        (
            ConditionStatus::False,
            Next::UntilChanged,
            ParentProgress::Stalled,
        ),
        (
            ConditionStatus::False,
            Next::Backoff,
            ParentProgress::Reconciling,
        ),
        (
            ConditionStatus::False,
            Next::BackoffAtLeast(MINUTE),
            ParentProgress::Reconciling,
        ),
        (
            ConditionStatus::False,
            Next::RequeueAfter(MINUTE),
            ParentProgress::Ok,
        ),
        (
            ConditionStatus::Unknown,
            Next::UntilChanged,
            ParentProgress::Ok,
        ),
        (ConditionStatus::True, Next::Settled, ParentProgress::Ok),
    ] {
        let conclusion = Conclusion::for_host(synced(status), next.clone());
        assert_eq!(conclusion.outlook(), expected, "{next:?}");
    }
}
