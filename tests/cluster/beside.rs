//! A second host started for the same parents by mistake: it waits for the lease or refuses to
//! start.

use std::time::Duration;

use innkeeper_tests::{Host, HostOptions, Write};
use serde_json::json;

use crate::stage::{Stage, is_applied, lines, wait_logged};

const CRD: &str = "memcacheds.cache.example.com";

/// A lease that expires soon after its holder dies.
const FAST: [&str; 6] = [
    "--lease-duration",
    "4",
    "--lease-renew-deadline",
    "3",
    "--lease-retry",
    "1",
];

/// Time limit for a host to find out whether another one holds a lease.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

fn host(stage: &Stage, arguments: &[&str]) -> Host {
    let mut options = stage.options.clone();
    options
        .arguments
        .extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

fn holder(stage: &Stage, name: &str, namespaces: &[&str]) -> Host {
    let flags = ["--lease-identity", "holder", "--lease-name", name];
    let host = host(stage, &[&flags, &FAST[..], namespaces].concat());
    stage.wait_served(&host, &[CRD]);
    host
}

/// Returns the writes by hosts without an identity, which have no lease.
fn writes_without_lease(stage: &Stage, mark: usize) -> Vec<String> {
    let writes: Vec<Write> = stage
        .writes_since(mark)
        .into_iter()
        .filter(|write| !write.user_agent.contains('('))
        .collect();
    lines(&writes)
}

/// Outside a Pod and without flags, the second host waits for the first.
#[test]
fn hosts_outside_of_a_pod_take_turns_by_default() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let first = host(&stage, &["--lease-identity", "a"]);
    stage.wait_served(&first, &[CRD]);
    let second = host(&stage, &["--lease-identity", "b"]);
    wait_logged(&second, "the second host waits", "standing by");
    Stage::stop(first);
    wait_logged(&second, "the second host takes over", "acquired the lease");
    Stage::stop(second);
}

/// A host without a lease writes nothing beside any lease holder, unless their scopes are disjoint
/// or the holder is dead.
#[test]
fn a_host_without_a_lease_does_not_start_beside_a_holder() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let one = stage.namespace("one");
    let other = stage.namespace("other");
    let mut first = holder(&stage, "of-another-name", &["--namespaces", &one]);
    for scope in [&[][..], &["--namespaces", &one]] {
        let mark = stage.mark();
        let arguments = [&["--leader-elect=false"], scope].concat();
        let mut second = host(&stage, &arguments);
        let (status, log) = second.wait_exit(KNOWN_WITHIN).unwrap();
        assert!(!status.success(), "{scope:?}: {log}");
        for part in [
            "holder_",
            "holds the Lease innkeeper-system/of-another-name",
        ] {
            assert!(log.contains(part), "{scope:?}: {log}");
        }
        assert_eq!(writes_without_lease(&stage, mark), Vec::<String>::new());
    }
    let apart = host(&stage, &["--leader-elect=false", "--namespaces", &other]);
    let parent = |name: &str| {
        json!({
            "apiVersion": "cache.example.com/v1", "kind": "Memcached",
            "metadata": {"name": name}, "spec": {"size": 1},
        })
    };
    let target = |name| ("cache.example.com/v1", "Memcached", name);
    stage.apply(&other, &parent("apart"));
    stage.wait(&apart, &other, target("apart"), is_applied);
    Stage::stop(apart);

    first.process().kill().unwrap();
    let after = host(&stage, &["--leader-elect=false"]);
    stage.apply(&one, &parent("after"));
    stage.wait(&after, &one, target("after"), is_applied);
    Stage::stop(after);
}
