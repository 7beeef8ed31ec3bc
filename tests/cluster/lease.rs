//! Leader election: only one of two hosts writes, whatever happens to it, and the other one takes
//! over.

use std::{
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, HostOptions, Write, eventually_for};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    plugins::{HEALTHY, PluginSite},
    stage::{Stage, is_applied, lines, wait_logged},
};

const API: &str = "cache.example.com/v1";
const CRD: &str = "memcacheds.cache.example.com";
const LEASE: (&str, &str, &str) = ("coordination.k8s.io/v1", "Lease", "innkeeper");
const HOST_NAMESPACE: &str = "innkeeper-system";

/// A fast lease for most tests; a takeover takes a minute with the default lease.
const FAST: [&str; 6] = [
    "--lease-duration",
    "6",
    "--lease-renew-deadline",
    "4",
    "--lease-retry",
    "1",
];
/// The lease duration in [`FAST`].
const FAST_DURATION: Duration = Duration::from_secs(6);

/// Allowance for slow processes and an API server that share two cores.
const SLACK: Duration = Duration::from_secs(3);

fn stage() -> Stage {
    Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins)
}

/// Starts a host with this identity in the lease and in the audit log.
fn host(stage: &Stage, identity: &str, lease: &[&str]) -> Host {
    let mut options = stage.options.clone();
    options.arguments = ["--leader-elect", "--lease-identity", identity]
        .iter()
        .chain(lease)
        .map(|argument| (*argument).to_owned())
        .collect();
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

/// Starts two hosts: `a` has the lease and `b` is ready to take over.
fn pair(stage: &Stage, lease: &[&str]) -> (Host, Host) {
    let a = host(stage, "a", lease);
    wait_holder(stage, "a", Duration::from_secs(30));
    stage.wait_served(&a, &[CRD]);
    let b = host(stage, "b", lease);
    wait_logged(&b, "the second host waits", "standing by");
    (a, b)
}

fn lease(stage: &Stage) -> Value {
    stage.find(HOST_NAMESPACE, LEASE).unwrap_or_default()
}

fn is_held_by(lease: &Value, identity: &str) -> bool {
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .starts_with(&format!("{identity}_"))
}

/// Waits until a host has the lease.
#[track_caller]
fn wait_holder(stage: &Stage, identity: &str, deadline: Duration) -> Value {
    eventually_for(deadline, &format!("{identity} has the lease"), || {
        let lease = lease(stage);
        if is_held_by(&lease, identity) {
            Ok(lease)
        } else {
            Err(lease)
        }
    })
}

/// A host's writes after a mark, except those to the lease.
fn writes_by(stage: &Stage, identity: &str, mark: usize) -> Vec<Write> {
    let all = stage.writes_since(mark);
    let agent = format!("({identity}_");
    all.into_iter()
        .filter(|write| write.user_agent.contains(&agent))
        .collect()
}

fn apply(stage: &Stage, namespace: &str, name: &str) {
    let parent = json!({
        "apiVersion": API, "kind": "Memcached", "metadata": {"name": name}, "spec": {"size": 1},
    });
    stage.apply(namespace, &parent);
}

/// Waits until a host has applied a parent.
#[track_caller]
fn wait_applied(stage: &Stage, host: &Host, namespace: &str, name: &str) {
    stage.wait(host, namespace, (API, "Memcached", name), is_applied);
}

/// Waits until a host has exited because it lost the lease.
#[track_caller]
fn wait_lost(host: &mut Host, deadline: Duration) {
    let (status, log) = host.wait_exit(deadline).unwrap();
    assert!(!status.success(), "{status}:\n{log}");
    assert!(log.contains("lost the lease"), "{log}");
}

/// A standby writes nothing, and a host that stops releases the lease. A standby that waited for
/// the lease to expire would need 15 seconds.
#[test]
fn one_of_two_hosts_writes_and_a_clean_stop_hands_over_within_a_second() {
    let stage = stage();
    let start = stage.mark();
    let (mut a, b) = pair(&stage, &[]);
    let namespace = stage.namespace("turns");
    apply(&stage, &namespace, "first");
    wait_applied(&stage, &a, &namespace, "first");
    assert_eq!(lines(&writes_by(&stage, "b", start)), Vec::<String>::new());
    let before = lease(&stage);
    assert_eq!(before["spec"]["leaseDurationSeconds"], 15);

    let mark = stage.mark();
    let status = a.stop().unwrap();
    assert!(status.success(), "{status}:\n{}", a.log().unwrap());
    let stopped = Instant::now();
    let after = wait_holder(&stage, "b", SLACK);
    let handed_over = stopped.elapsed();
    assert!(handed_over < Duration::from_secs(1), "{handed_over:?}");
    let transitions = |lease: &Value| lease["spec"]["leaseTransitions"].as_u64().unwrap();
    assert_eq!(transitions(&after), transitions(&before) + 1);

    apply(&stage, &namespace, "second");
    wait_applied(&stage, &b, &namespace, "second");
    // The first host's children are already correct, so the second host writes only the new ones.
    let writes = writes_by(&stage, "b", mark);
    let names: Vec<_> = writes
        .iter()
        .filter(|write| !write.resource.starts_with("events"))
        .map(|write| &*write.name)
        .collect();
    assert!(
        !names.is_empty() && names.iter().all(|name| *name == "second"),
        "{names:?}"
    );
    Stage::stop(b);
    assert_eq!(lease(&stage)["spec"]["holderIdentity"], "");
}

/// A standby compiles the plugins in advance. Otherwise each takeover would wait for the compiler.
#[test]
fn a_standby_host_has_loaded_the_declared_plugins() {
    const NAME: &str = "cache";

    let site = PluginSite::new();
    site.define();
    site.put("memcached");
    let PluginSite {
        stage, namespace, ..
    } = &site;
    let caches = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |at: usize, identity: &str| {
        let mut options = stage.options.clone();
        // Separate caches, so neither host benefits from the other's compilations.
        options.cache = Some(caches[at].path().to_owned());
        options
            .arguments
            .extend(["--leader-elect", "--lease-identity", identity].map(str::to_owned));
        Host::start(&stage.plane.kubeconfig(), &options).unwrap()
    };
    let mut a = start(0, "a");
    wait_holder(stage, "a", Duration::from_secs(30));
    site.apply_as(NAME, &json!({}));
    site.wait_conditions_of(NAME, &a, &HEALTHY);
    stage.wait_served(&a, &[CRD]);
    apply(stage, namespace, "first");
    wait_applied(stage, &a, namespace, "first");

    let b = start(1, "b");
    wait_logged(
        &b,
        "the second host has loaded the plugin",
        "in case that this host takes over",
    );
    let mark = stage.settle(Duration::from_secs(1));
    assert!(a.stop().unwrap().success(), "{}", a.log().unwrap());
    let stopped = Instant::now();
    apply(stage, namespace, "second");
    wait_applied(stage, &b, namespace, "second");
    // A compilation alone would take longer than this.
    let taken_over = stopped.elapsed();
    assert!(taken_over < SLACK, "{taken_over:?}\n{}", b.log().unwrap());
    let writes = writes_by(stage, "b", mark);
    let of_first = |write: &&Write| write.name.contains("first");
    assert_eq!(writes.iter().find(of_first).map(|write| &write.name), None);
    Stage::stop(b);
}

/// The other host takes over only after the lease has expired.
#[test]
fn a_killed_host_is_replaced_after_its_lease_expires() {
    let stage = stage();
    let (mut a, b) = pair(&stage, &FAST);
    let namespace = stage.namespace("killed");
    a.process().kill().unwrap();
    let killed = Instant::now();
    apply(&stage, &namespace, "orphan");
    wait_holder(&stage, "b", FAST_DURATION + SLACK);
    // The lease counts from the last renewal, which may precede the kill by the renewal interval
    // and a little more.
    assert!(killed.elapsed() > FAST_DURATION / 2);
    wait_applied(&stage, &b, &namespace, "orphan");
}

/// A host checks the lease by the clock before each write. Otherwise, the writes that were pending
/// when it froze would follow after the takeover.
#[test]
fn a_host_frozen_for_longer_than_its_lease_writes_nothing_afterwards() {
    /// Enough for the host to freeze in the middle of the work.
    const PARENTS: usize = 60;
    let stage = stage();
    let (mut a, b) = pair(&stage, &FAST);
    let namespace = stage.namespace("frozen");
    let names: Vec<String> = (0..PARENTS)
        .map(|number| format!("cache-{number}"))
        .collect();
    let start = stage.mark();
    for name in &names {
        apply(&stage, &namespace, name);
        if writes_by(&stage, "a", start).len() > 4 {
            break;
        }
    }
    a.process().signal(Signal::STOP).unwrap();
    for name in &names {
        apply(&stage, &namespace, name);
    }
    wait_holder(&stage, "b", FAST_DURATION + SLACK);
    let mark = stage.mark();
    a.process().signal(Signal::CONT).unwrap();
    wait_lost(&mut a, SLACK);
    for name in &names {
        wait_applied(&stage, &b, &namespace, name);
    }
    assert_eq!(lines(&writes_by(&stage, "a", mark)), Vec::<String>::new());
    // Each child was created once, by either host.
    let mut creations: Vec<String> = stage
        .writes_since(start)
        .iter()
        .filter(|write| write.namespace == namespace && write.code == 201)
        .filter(|write| !write.resource.starts_with("events"))
        .map(Write::line)
        .collect();
    let count = creations.len();
    creations.sort();
    creations.dedup();
    assert_eq!((creations.len(), count), (2 * PARENTS, 2 * PARENTS));
}

/// The holder recreates a deleted lease, and exits if another holder is in it. Two hosts never
/// write at the same time.
#[test]
fn a_lease_that_is_deleted_or_edited_still_has_one_holder() {
    let stage = stage();
    let (mut a, b) = pair(&stage, &FAST);
    let namespace = stage.namespace("edited");
    let start = stage.mark();

    let before = lease(&stage)["metadata"]["uid"].clone();
    stage.delete(HOST_NAMESPACE, LEASE);
    let recreated = wait_holder(&stage, "a", SLACK);
    assert_ne!(recreated["metadata"]["uid"], before);
    apply(&stage, &namespace, "deleted");
    wait_applied(&stage, &a, &namespace, "deleted");
    assert_eq!(lines(&writes_by(&stage, "b", start)), Vec::<String>::new());

    stage.merge(
        HOST_NAMESPACE,
        LEASE,
        &json!({"spec": {"holderIdentity": "another-host"}}),
    );
    wait_lost(&mut a, SLACK);
    let mark = stage.mark();
    // The new holder does not renew the lease.
    wait_holder(&stage, "b", FAST_DURATION + SLACK);
    apply(&stage, &namespace, "edited");
    wait_applied(&stage, &b, &namespace, "edited");
    assert_eq!(lines(&writes_by(&stage, "a", mark)), Vec::<String>::new());
}

/// Merge patches that keep the Lease's holder or remove it. A time in the future, a huge duration
/// or an invalid value changes nothing.
fn harmless_edits() -> [(&'static str, Value); 8] {
    let spec = |spec: Value| json!({ "spec": spec });
    [
        ("no spec", spec(Value::Null)),
        ("no holder", spec(json!({"holderIdentity": null}))),
        ("an empty holder", spec(json!({"holderIdentity": ""}))),
        (
            "a renewal in the future",
            spec(json!({"renewTime": "9999-12-31T23:59:59.999999Z"})),
        ),
        (
            "a term of two thousand years",
            spec(json!({"acquireTime": "0002-01-01T00:00:00.000000Z"})),
        ),
        (
            "a huge duration",
            spec(json!({"leaseDurationSeconds": i32::MAX})),
        ),
        (
            "the most transitions and no holder",
            spec(json!({"leaseTransitions": i32::MAX, "holderIdentity": null})),
        ),
        (
            "a finalizer and other labels",
            json!({"metadata": {
                "finalizers": ["example.com/stays"], "labels": {"owner": "another"}, "annotations": {"a": "b"},
            }}),
        ),
    ]
}

/// The holder restores an edited lease, the standby does not acquire it, and no process exits. A
/// standby must not acquire a lease without a holder at once, because the holder still writes.
#[test]
fn an_edited_lease_goes_back_to_its_holder_and_the_standby_writes_nothing() {
    let stage = stage();
    let start = stage.mark();
    let (mut a, mut b) = pair(&stage, &FAST);
    let namespace = stage.namespace("rewritten");
    for (number, (edit, patch)) in harmless_edits().iter().enumerate() {
        let before = lease(&stage)["metadata"]["resourceVersion"].clone();
        stage.merge(HOST_NAMESPACE, LEASE, patch);
        eventually_for(FAST_DURATION, edit, || {
            let lease = lease(&stage);
            let is_renewed = lease["spec"]["leaseDurationSeconds"] == FAST_DURATION.as_secs()
                && lease["metadata"]["resourceVersion"] != before;
            if is_renewed && is_held_by(&lease, "a") {
                Ok(())
            } else {
                Err(lease)
            }
        });
        let name = format!("edit-{number}");
        apply(&stage, &namespace, &name);
        wait_applied(&stage, &a, &namespace, &name);
    }
    // The holder renews a lease that a finalizer keeps in deletion like any other.
    stage.delete(HOST_NAMESPACE, LEASE);
    let deleting = wait_holder(&stage, "a", SLACK);
    assert!(
        deleting["metadata"]["deletionTimestamp"].is_string(),
        "{deleting}"
    );
    thread::sleep(FAST_DURATION);
    for host in [&mut a, &mut b] {
        let exit = host.process().try_wait().unwrap();
        assert!(exit.is_none(), "{}", host.log().unwrap());
    }
    assert_eq!(lines(&writes_by(&stage, "b", start)), Vec::<String>::new());
    stage.merge(
        HOST_NAMESPACE,
        LEASE,
        &json!({"metadata": {"finalizers": null}}),
    );
    wait_holder(&stage, "a", SLACK);
}

/// A foreign holder with the longest duration blocks all hosts until an administrator deletes the
/// Lease, and the log names that holder. The standby must not wait for that duration after the
/// deletion. The number of transitions is the largest that the API server accepts.
#[test]
fn a_lease_that_a_foreign_holder_keeps_for_ever_is_free_after_its_deletion() {
    let stage = stage();
    let (mut a, b) = pair(&stage, &FAST);
    let namespace = stage.namespace("foreign");
    let foreign = json!({"spec": {
        "holderIdentity": "foreign", "leaseDurationSeconds": i32::MAX, "leaseTransitions": i32::MAX,
    }});
    stage.merge(HOST_NAMESPACE, LEASE, &foreign);
    wait_lost(&mut a, SLACK);
    wait_logged(
        &b,
        "the standby names the holder",
        r#""holder":"foreign","duration_s":2147483647"#,
    );
    let mark = stage.mark();
    apply(&stage, &namespace, "later");
    thread::sleep(2 * FAST_DURATION);
    assert_eq!(lines(&stage.writes_since(mark)), Vec::<String>::new());
    assert_eq!(lease(&stage)["spec"]["holderIdentity"], "foreign");

    let deleted = Instant::now();
    stage.delete(HOST_NAMESPACE, LEASE);
    wait_holder(&stage, "b", FAST_DURATION + SLACK);
    assert!(
        deleted.elapsed() >= FAST_DURATION,
        "{:?}",
        deleted.elapsed()
    );
    wait_applied(&stage, &b, &namespace, "later");

    // A release: the next holder counts one more transition, unless the API server would refuse it.
    let released = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": i32::MAX}});
    Stage::stop(b);
    stage.merge(HOST_NAMESPACE, LEASE, &released);
    let c = host(&stage, "c", &FAST);
    let taken = wait_holder(&stage, "c", Duration::from_secs(30));
    assert_eq!(taken["spec"]["leaseTransitions"], i32::MAX);
    Stage::stop(c);
}

/// A holder that cannot renew exits before the lease expires for others. The standby keeps waiting,
/// because it has nothing to lose.
#[test]
fn without_an_api_server_the_holder_ends_and_the_standby_waits() {
    let stage = stage();
    let (mut a, mut b) = pair(&stage, &FAST);
    let namespace = stage.namespace("paused");
    stage.plane.control(&["pause", "apiserver"]).unwrap();
    wait_lost(&mut a, FAST_DURATION);
    assert!(
        b.process().try_wait().unwrap().is_none(),
        "{}",
        b.log().unwrap()
    );
    stage.plane.control(&["resume", "apiserver"]).unwrap();
    let mark = stage.mark();
    wait_holder(&stage, "b", FAST_DURATION + SLACK);
    apply(&stage, &namespace, "after");
    wait_applied(&stage, &b, &namespace, "after");
    assert_eq!(lines(&writes_by(&stage, "a", mark)), Vec::<String>::new());
}
