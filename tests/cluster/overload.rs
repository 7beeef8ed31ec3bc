//! A host against an API server that is overloaded because it accepts only two writes at a time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use innkeeper_tests::{Host, HostOptions, Write, admin, eventually, eventually_for};
use jiff::SignedDuration;
use serde_json::json;

use crate::stage::{Stage, is_applied};

const API: &str = "cache.example.com/v1";
/// Enough for more than two pending writes at any time.
const PARENTS: usize = 40;
/// `Retry-After` is one second; a little less tolerates differences between clocks.
const DEMANDED: SignedDuration = SignedDuration::from_millis(990);
/// The number of clients beside the host; each keeps writing one object.
const OTHER_CLIENTS: usize = 4;

/// Allows two writes at a time; the API server answers all others with `Retry-After: 1`.
const NARROW: [&str; 5] = [
    "--api-only",
    "--apiserver-arg",
    "--enable-priority-and-fairness=false",
    "--apiserver-arg",
    "--max-mutating-requests-inflight=2",
];

/// Stops the other clients on drop, so that a failed test does not hang.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts the host's requests with this status code.
fn answered(address: &str, code: &str) -> f64 {
    let label = format!("code=\"{code}\"");
    let metrics = admin::scrape(address).unwrap_or_default();
    admin::sum(&metrics, "rest_client_requests_total", &label)
}

/// Starts a host as a user with all permissions outside `system:masters`, because the API server
/// exempts that group from the limit.
fn start(stage: &Stage) -> Host {
    stage.allow_all("innkeeper", &json!({ "kind": "User", "name": "innkeeper" }));
    let kubeconfig = stage.plane.directory().join("kubeconfig-innkeeper");
    Host::start(&kubeconfig, &stage.options).unwrap()
}

/// Checks that the host created every child once, and that refused writes waited as demanded.
#[track_caller]
fn check(writes: &[Write], namespace: &str) {
    let own: Vec<_> = writes.iter().filter(|write| write.is_by_host()).collect();
    let created = own
        .iter()
        .filter(|write| write.code == 201 && write.namespace == namespace)
        .filter(|write| !write.resource.starts_with("events"));
    assert_eq!(created.count(), 2 * PARENTS);
    let refusals = own
        .iter()
        .filter(|write| write.code == 429 && write.namespace == namespace)
        .filter(|write| !write.resource.starts_with("events"));
    // Only the next write to the same object counts: the pass sends writes to other objects
    // together with the refused one.
    let shortest = refusals
        .filter_map(|refusal| {
            let next = own
                .iter()
                .filter(|write| write.name == refusal.name && write.resource == refusal.resource)
                .map(|write| write.received)
                .filter(|received| *received > refusal.answered)
                .min()?;
            Some((next.duration_since(refusal.answered), refusal))
        })
        .min_by_key(|(wait, _)| *wait);
    assert!(
        shortest.is_some_and(|(wait, _)| wait >= DEMANDED),
        "{shortest:?}"
    );
}

/// Immediate retries would keep an overloaded API server overloaded.
#[test]
fn refused_writes_to_an_overloaded_api_server_wait_before_the_retry() {
    let plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
    let mut stage = Stage::with(plugins, &NARROW);
    stage.options.arguments = admin::ARGUMENTS.map(str::to_owned).to_vec();
    let host = start(&stage);
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    let address = admin::address(&host);
    let namespace = stage.namespace("narrow");
    let mark = stage.mark();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = StopOnDrop(&is_over);
        for number in 0..OTHER_CLIENTS {
            let stage = &stage;
            let namespace = &namespace;
            let is_over = &is_over;
            scope.spawn(move || {
                for count in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let map = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": { "name": format!("other-{number}"), "namespace": namespace },
                        "data": { "count": count.to_string() },
                    });
                    // The API server refuses about half of these.
                    drop(stage.plane.user().apply(&map));
                }
            });
        }
        for number in 0..PARENTS {
            let parent = json!({
                "apiVersion": API, "kind": "Memcached",
                "metadata": { "name": format!("cache-{number}"), "namespace": namespace },
                "spec": { "size": 0 },
            });
            eventually("the API server accepts a user's write", || {
                stage.plane.user().apply(&parent).map(drop)
            });
        }
        wait_refused(&host, &address);
    });
    eventually_for(Duration::from_mins(2), "all parents are applied", || {
        let count = (0..PARENTS)
            .filter_map(|number| {
                stage.find(&namespace, (API, "Memcached", &format!("cache-{number}")))
            })
            .filter(is_applied)
            .count();
        if count == PARENTS {
            Ok(())
        } else {
            Err(format!("{count}\n{}", host.log().unwrap()))
        }
    });

    check(&stage.writes_since(mark), &namespace);
    Stage::stop(host);
}

#[track_caller]
fn wait_refused(host: &Host, address: &str) {
    eventually("the API server refuses a request of the host", || {
        let refused = answered(address, "429");
        if refused >= 1.0 {
            Ok(())
        } else {
            Err(host.log().unwrap())
        }
    });
}
