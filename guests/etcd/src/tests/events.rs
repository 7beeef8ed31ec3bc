//! Events for transitions: one when a state begins, none while it lasts.

use innkeeper_guest_testing::stored_status;

use super::*;

/// An answer's events as `type reason: message`, and those of a repeated pass with the report stored.
fn events(
    parent: &EtcdCluster,
    children: &[(String, Value)],
    before: &Answer,
    host: &FakeHost,
) -> Vec<String> {
    let pass = |status: &Value| answer(observing(parent, children).status(status), host);
    let first = pass(&stored_status(before));
    let again = pass(&stored_status(&first)).report().events.clone();
    assert!(
        again
            .iter()
            .all(|again| again.reason.starts_with("Member") || again.reason == "UpgradeStarted"),
        "{again:?}"
    );
    let line = |event: &Event| format!("{:?} {}: {}", event.type_, event.reason, event.message);
    first.report().events.iter().map(line).collect()
}

fn pods(ready: [bool; 3], image: &str) -> FakeHost {
    (0..).zip(ready).fold(host(), |host, (ordinal, ready)| {
        host.object(&pod(ordinal, ready, image))
    })
}

#[test]
fn the_formation_and_a_lost_quorum_are_told() {
    let first = answer(TestRequest::new(&article()), &host());
    assert_eq!(first.report().events, []);
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let children = settled(&second, 3);
    assert_eq!(
        events(&article(), &children, &second, &pods([true; 3], IMAGE)),
        ["Normal ClusterFormed: 3 of 3 members are ready"]
    );
    let (outcome, _) = formed(&article());
    let children = settled(&outcome, 3);
    assert_eq!(
        events(
            &article(),
            &children,
            &outcome,
            &pods([true, true, false], IMAGE)
        ),
        [""; 0]
    );
    assert_eq!(
        events(
            &article(),
            &children,
            &outcome,
            &pods([true, false, false], IMAGE)
        ),
        ["Warning QuorumLost: 1 of 3 members are ready, quorum is 2"]
    );
}

#[test]
fn a_roll_out_that_is_held_is_told_and_a_normal_one_is_not() {
    let (outcome, _) = formed(&article());
    let children = settled(&outcome, 3);
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    assert_eq!(
        events(&other, &children, &outcome, &pods([true; 3], IMAGE)),
        [""; 0]
    );
    let during_hold = events(
        &other,
        &children,
        &outcome,
        &pods([false, true, true], IMAGE),
    );
    assert_eq!(during_hold.len(), 1, "{during_hold:?}");
    assert!(
        during_hold[0].starts_with("Warning RolloutHeld: no member is replaced"),
        "{during_hold:?}"
    );
}

#[test]
fn an_upgrade_is_told_when_it_begins_and_when_it_ends() {
    const NEXT: &str = "cnych/etcd:v3.5.26";
    let (outcome, _) = formed(&article());
    let next = parent(json!({ "size": 3, "image": NEXT }));
    let children = settled(&outcome, 3);
    let old = pods([true; 3], IMAGE);
    assert_eq!(
        events(&next, &children, &outcome, &old),
        ["Normal UpgradeStarted: upgrade from 3.4.13 to 3.5.26"]
    );
    let begun = answer(observing(&next, &children), &old);
    let children = settled(&begun, 3);
    assert_eq!(
        events(&next, &children, &begun, &pods([true; 3], NEXT)),
        ["Normal UpgradeFinished: upgraded from 3.4.13 to 3.5.26"]
    );
    // An upgrade that is rejected does not start.
    let (outcome, _) = formed(&article());
    let far = parent(json!({ "size": 3, "image": "cnych/etcd:v3.6.14" }));
    let request = observing(&far, &settled(&outcome, 3)).status(&stored_status(&outcome));
    let fault = Plugin::reconcile(&request.build(), &old).unwrap_err();
    assert_eq!(fault.report.unwrap().events, []);
}

#[test]
fn a_warning_is_told_once() {
    let (outcome, _) = formed(&article());
    let even = parent(json!({ "size": 2, "image": IMAGE }));
    let first = answer(TestRequest::new(&even), &host());
    let reasons = |outcome: &Answer| -> Vec<String> {
        outcome
            .report()
            .events
            .iter()
            .map(|event| event.reason.clone())
            .collect()
    };
    assert_eq!(reasons(&first), ["EvenSize"]);
    let again = answer(
        observing(&even, &settled(&first, 0)).status(&stored_status(&first)),
        &host(),
    );
    assert_eq!(reasons(&again), [""; 0]);
    assert_eq!(reasons(&outcome), [""; 0]);
}
