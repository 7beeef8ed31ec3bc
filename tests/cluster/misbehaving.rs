//! Guests that misbehave by repetition, or by reading forbidden objects. They share control plane
//! and host with `faults`.

use std::time::Instant;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use innkeeper_tests::{
    admin::{address, sum},
    eventually,
    manifest::condition,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    admin::scrape,
    faults::{Case, GARBAGE, NOSY, UNRULY, check, check_garbage, check_in, check_unruly, shared},
};

/// A plugin's default write limit.
const WRITES_PER_MINUTE_MAX: usize = 120;

#[test]
fn keeps_children_when_the_guest_traps_with_a_megabyte_of_text() {
    check_unruly("long-trap", "GuestTrapped", "told to trap told to trap");
}

#[test]
fn keeps_children_when_the_guest_answers_a_status_of_two_megabytes() {
    check_garbage(
        "huge-status",
        "status: it has 2000011 bytes, 1048576 are allowed",
    );
}

#[test]
fn keeps_children_when_the_guest_answers_a_status_with_unknown_fields() {
    check_unruly("unknown-status", "StatusRejected", ".status.nobody");
}

#[test]
fn keeps_children_when_the_guest_asks_for_a_pass_in_the_far_future() {
    check(GARBAGE, "requeue-never", ("True", "Applied"), "");
}

/// A plugin must not create parents without a grant. Each copy would create two more: before this
/// rule, a host created 8,448 objects in 24 s.
#[test]
fn keeps_children_when_the_guest_makes_copies_of_its_parent() {
    let case = Case::start(GARBAGE);
    check_in(
        &case,
        GARBAGE,
        "fork-bomb",
        ("False", "ChildForbidden"),
        "is not granted children of kind test.innkeeper.dev/v1 Garbage",
    );
    let kind = Kind::new("test.innkeeper.dev/v1", "Garbage", &case.namespace);
    let all = shared().plane.user().list(kind, "").unwrap();
    let names: Vec<&str> = all
        .iter()
        .filter_map(|parent| parent["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["parent"]);
}

/// Without a limit on requested passes, one guest could keep a worker thread busy for ever.
#[test]
fn a_guest_that_always_asks_for_an_immediate_pass_gets_ten_passes_a_second() {
    /// Enough to measure a rate: two seconds at ten passes a second.
    const PASSES: f64 = 20.0;

    let requeues = || {
        let metrics = scrape(&address(&shared().host));
        let labels = "controller=\"garbage/garbage\",result=\"requeue_after\"";
        sum(&metrics, "controller_runtime_reconcile_total", labels)
    };
    let case = Case::start(GARBAGE);
    let generation = case.set_behaviour(GARBAGE, "parent", "requeue-at-once");
    case.wait_synced(GARBAGE, "parent", &generation, ("True", "Applied"));
    let version = || case.parent(GARBAGE, "parent")["metadata"]["resourceVersion"].clone();
    let mark = shared().plane.audit().mark().unwrap();
    let before = version();

    let begin = Instant::now();
    let first = requeues();
    let last = eventually("the guest has had enough passes", || match requeues() {
        last if last - first >= PASSES => Ok(last),
        last => Err(last - first),
    });
    let rate = (last - first) / begin.elapsed().as_secs_f64();
    // Two more than ten, for passes that end while the first count is scraped, and for the last
    // pass.
    assert!(rate <= 12.0, "{rate} passes per second");
    case.check_neighbour(GARBAGE);
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(version(), before, "the parent is written in a steady state");
    case.apply_behaviour(GARBAGE, "parent", "good");
}

/// Checks that the host limits the writes for a parent, that the parent reports the reason, and
/// that a neighbour still converges.
#[track_caller]
fn check_throttled(behaviour: &str) -> Case {
    let case = Case::start(UNRULY);
    let mark = shared().plane.audit().mark().unwrap();
    let generation = case.set_behaviour(UNRULY, "parent", behaviour);
    let throttled = ("False", "Throttled");
    let parent = case.wait_synced(UNRULY, "parent", &generation, throttled);
    let synced = condition(&parent, "Synced").unwrap();
    for part in ["update v1 ConfigMap", "data.large differs"] {
        assert!(synced.contains(part), "{synced}");
    }
    case.check_neighbour(UNRULY);
    let writes = case.child_writes(mark).len();
    // 50 % more, because the limit refills during the first writes.
    let bound = WRITES_PER_MINUTE_MAX + WRITES_PER_MINUTE_MAX / 2;
    assert!(
        (WRITES_PER_MINUTE_MAX / 2..=bound).contains(&writes),
        "{writes}"
    );
    case
}

/// Stops the writes for a parent whose children never match their desired state.
fn rest(case: &Case) {
    let generation = case.set_behaviour(UNRULY, "parent", "keep");
    case.wait_synced(UNRULY, "parent", &generation, ("True", "Applied"));
}

/// Q6: the host writes the last desired state once the limit allows it.
#[test]
fn a_guest_whose_answer_changes_in_every_pass_is_throttled() {
    let case = check_throttled("restless");
    let mark = shared().plane.audit().mark().unwrap();
    case.apply_behaviour(UNRULY, "parent", "good");
    let written = case.child_writes(mark).len();
    assert!(written <= WRITES_PER_MINUTE_MAX / 2 + 2, "{written}");
}

/// Answers that never repeat cannot converge, so only the write limit protects the API server.
#[test]
fn a_guest_whose_answers_are_random_is_throttled() {
    rest(&check_throttled("random"));
}

#[test]
fn a_guest_whose_answer_flips_between_two_states_is_throttled() {
    rest(&check_throttled("flip"));
}

/// The number of events that the guest has published about the parent.
fn count_events(case: &Case) -> usize {
    let kind = Kind::new("events.k8s.io/v1", "Event", &case.namespace);
    shared()
        .plane
        .user()
        .list(kind, "")
        .unwrap()
        .iter()
        .filter(|event| event["reason"] == "Told")
        .count()
}

#[test]
fn keeps_children_when_the_guest_answers_ten_thousand_events() {
    check_garbage("many-events", "events: there are 10000, 64 are allowed");
}

/// O3: if every pass states new events, the host publishes a burst and then a trickle.
#[test]
fn a_guest_with_sixty_events_in_every_pass_publishes_few() {
    /// The host publishes this many events about a parent at once, and then one every five
    /// minutes, as client-go does.
    const BURST: usize = 25;

    let case = check_throttled("chatter");
    rest(&case);
    let published = count_events(&case);
    assert!((1..=BURST).contains(&published), "{published}");
}

/// Uses a separate parent, because the large children stay: this control plane has no garbage
/// collector.
#[test]
fn a_megabyte_of_children_is_no_fault() {
    let case = Case::start(UNRULY);
    case.apply_behaviour(UNRULY, "bulk", "megabyte");
    case.check_neighbour(UNRULY);
    let kind = Kind::new("v1", "ConfigMap", &case.namespace);
    let of_plugin = "innkeeper.dev/plugin=unruly";
    let children = shared().plane.user().list(kind, of_plugin).unwrap();
    let large = children
        .iter()
        .filter_map(|child| child["data"]["large"].as_str());
    assert_eq!(large.map(str::len).sum::<usize>(), 1_000_000);
}

#[test]
fn keeps_children_when_the_guest_reads_a_kind_that_it_does_not_declare() {
    let expected = ("False", "Retrying");
    check(
        NOSY,
        "not-granted",
        expected,
        "does not declare reads of Pod of v1",
    );
}

#[test]
fn keeps_children_when_the_guest_reads_without_end() {
    check(
        NOSY,
        "calls",
        ("False", "LimitExceeded"),
        "1000 reads per pass",
    );
}

#[test]
fn keeps_children_when_the_guest_lists_everything_without_end() {
    // The message has a number of bytes, which depends on the other objects in the cluster.
    check(NOSY, "list", ("False", "LimitExceeded"), "per pass");
}

/// Secret values that no guest, log or status may show.
const VALUES: [&str; 2] = ["correct horse battery", "staple in the annotation"];

/// Creates a Secret that guests try to read, with kubectl's last-applied annotation.
fn make_victim(namespace: &str) -> Value {
    let copy = json!({"stringData": {"password": VALUES[1]}});
    let victim = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "victim", "namespace": namespace, "labels": {"app": "victim"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": copy.to_string()},
        },
        "stringData": {"password": VALUES[0]},
    });
    shared().plane.user().apply(&victim).unwrap()
}

/// Checks that a text contains no value, neither plain nor in base64.
#[track_caller]
fn check_tells_nothing(text: &str, values: &[&str]) {
    for value in values {
        let encoded = BASE64_STANDARD.encode(value);
        assert!(!text.contains(value) && !text.contains(&encoded), "{text}");
    }
}

/// Guests see hashes instead of Secret values, however they read one: from an annotation that
/// has a copy, in another namespace, or in a child that they created.
#[test]
fn a_guest_sees_no_value_of_a_secret_in_any_way() {
    let case = Case::start(NOSY);
    make_victim(&case.namespace);
    make_victim("default");
    let user = shared().plane.user();
    let find = |kind, name| {
        user.get(Kind::new("v1", kind, &case.namespace), name)
            .unwrap()
    };
    case.set_behaviour(NOSY, "parent", "secrets");
    let output = eventually("the guest has looked at its own child", || {
        let child = find("ConfigMap", "parent-seen").unwrap_or_default();
        let output = child["data"]["said"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if output.contains("own child: ") {
            Ok(output)
        } else {
            Err(output)
        }
    });
    // Without a hash, the guest has not read any Secret.
    assert!(output.contains("hmac-sha256:"), "{output}");
    let secret = find("Secret", "parent-own").unwrap();
    let encoded = secret["data"]["password"].as_str().unwrap();
    let password = String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap();
    assert_eq!(password.len(), 32);
    let values = [VALUES[0], VALUES[1], &password];
    check_tells_nothing(&output, &values);
    check_tells_nothing(&case.parent(NOSY, "parent").to_string(), &values);
    check_tells_nothing(&shared().host.log().unwrap(), &values);
    case.check_neighbour(NOSY);
    case.apply_behaviour(NOSY, "parent", "good");
}

/// A generated value changes once for each new token, and stays when the token is removed.
#[test]
fn a_generated_value_is_rotated_by_its_token() {
    let case = Case::start(NOSY);
    let password_after = |behaviour| {
        case.apply_behaviour(NOSY, "parent", behaviour);
        let secrets = Kind::new("v1", "Secret", &case.namespace);
        shared()
            .plane
            .user()
            .get(secrets, "parent-own")
            .unwrap()
            .unwrap()["data"]["password"]
            .clone()
    };
    let first = password_after("secrets");
    let second = password_after("rotated");
    assert_eq!(second.as_str().map(str::len), first.as_str().map(str::len));
    assert_ne!(second, first);
    assert_eq!(password_after("secrets"), second);
}

/// Daylight saving time begins at the second instant.
#[test]
fn a_guest_is_told_the_offsets_of_time_zones() {
    let case = Case::start(NOSY);
    case.apply_behaviour(NOSY, "parent", "zones");
    let config_maps = Kind::new("v1", "ConfigMap", &case.namespace);
    let child = shared()
        .plane
        .user()
        .get(config_maps, "parent-zones")
        .unwrap();
    assert_eq!(child.unwrap()["data"]["said"], "Some(3600) Some(7200) None");
}

#[test]
fn keeps_children_when_the_guest_takes_a_foreign_secret() {
    let case = Case::start(NOSY);
    let before = make_victim(&case.namespace);
    check_in(
        &case,
        NOSY,
        "take-secret",
        ("False", "ChildNotOwned"),
        "victim",
    );
    let secrets = Kind::new("v1", "Secret", &case.namespace);
    let after = shared().plane.user().get(secrets, "victim");
    assert_eq!(after.unwrap(), Some(before));
    check_tells_nothing(&shared().host.log().unwrap(), &VALUES);
}
