//! Kills the host while one revision takes over from another. The final state must be that of a
//! host that is never killed.

use std::time::{Duration, Instant};

use innkeeper_tests::{Host, eventually, manifest::condition};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    moody::{MoodyFixture, NAME, good, guest, mood},
    plugin_crash_loops::forget_ends,
    plugin_history::ROLLED_BACK,
    plugins::marked,
    relay::{Moment, Relay},
    stage::{Stage, lines},
};

/// Far more than there are writes.
const KILLS_MAX: usize = 60;

/// After this long without a write, none follows: well above the time of a pass.
const QUIET: Duration = Duration::from_millis(1500);

/// Time limit for one life of a host.
const LIFE_MAX: Duration = Duration::from_secs(40);

/// Starts hosts and kills each at its next write, until one has reached the goal and has nothing
/// more to write; returns the number of kills.
#[track_caller]
fn kill_until(
    fixture: &MoodyFixture,
    relay: &Relay,
    moment: Moment,
    is_done: impl Fn() -> bool,
) -> usize {
    let mut kills = 0;
    'lives: loop {
        relay.arm(Some(moment));
        let options = &fixture.site.stage.options;
        // Most writes fall into a load, and after two ends within one the next load waits for a minute.
        forget_ends(options.cache.as_deref().unwrap());
        let mut host = Host::start(&relay.kubeconfig, options).unwrap();
        let start = Instant::now();
        let mut quiet_since = Instant::now();
        loop {
            // Long compared with the checks below, so that the kill follows its write and not some
            // later write.
            if let Ok(_stopped) = relay.stopped.recv_timeout(Duration::from_millis(400)) {
                kills += 1;
                assert!(kills < KILLS_MAX, "{:#}", fixture.status());
                host.process().signal(Signal::KILL).unwrap();
                host.process().wait_for(Duration::from_secs(5)).unwrap();
                continue 'lives;
            }
            if !is_done() || !host.log().unwrap().contains("serving plugin") {
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() > QUIET {
                relay.arm(None);
                Stage::stop(host);
                return kills;
            }
            let log = || host.log().unwrap();
            assert!(
                start.elapsed() < LIFE_MAX,
                "{:#}\n{}",
                fixture.status(),
                log()
            );
        }
    }
}

/// Limits a spec to one pass at a time, so that writes come one by one.
fn one_by_one(mut spec: Value) -> Value {
    spec["limits"] = json!({"concurrency": 1});
    spec
}

/// The state of a swap is in the status of the Plugin, so every next host continues it. A host that
/// lost it could prune children or leave the wrong revision active.
#[test]
fn a_swap_and_a_rollback_survive_a_kill_at_every_write() {
    let fixture = MoodyFixture::new(3);
    let relay = Relay::start(&fixture.site.stage.plane).unwrap();
    let host = fixture.start_with(&one_by_one(good("one")));
    fixture.wait_verdicts(&host, &["Good"]);
    let uids = fixture.uids();
    Stage::stop(host);
    let mark = fixture.site.stage.mark();
    let first = fixture.status()["revision"].clone();

    fixture.apply(&one_by_one(good("two")));
    let is_swapped = || {
        let status = fixture.status();
        status["revision"] != first
            && status["history"][0]["verdict"] == "Good"
            && status["history"][1]["revision"] == first
            && fixture.has_text("two")
    };
    // The number of kills varies: the other passes continue until the host dies.
    let kills = kill_until(&fixture, &relay, Moment::After, is_swapped);
    assert!(kills > 1, "{kills}");
    let second = fixture.status()["revision"].clone();

    let host = fixture.site.stage.host();
    let trap = fixture.approved(&host, &one_by_one(mood("trap")));
    Stage::stop(host);
    fixture.apply(&trap);
    let is_back = || {
        let plugin = fixture.site.plugin_of(NAME);
        let is = |expected: &&str| {
            let (kind, state) = expected.split_once('=').unwrap();
            condition(&plugin, kind)
                .unwrap_or_default()
                .starts_with(state)
        };
        ROLLED_BACK.iter().all(is)
            && plugin["status"]["revision"] == second
            && plugin["status"]["observedGeneration"] == plugin["metadata"]["generation"]
    };
    kill_until(&fixture, &relay, Moment::After, is_back);
    assert!(fixture.has_text("two"));
    assert_eq!(fixture.uids(), uids);
    let mut written = lines(&fixture.site.stage.writes_since(mark));
    written.retain(|line| line.starts_with("delete"));
    assert_eq!(written, Vec::<String>::new());
}

/// A restart during a swap loads the active revision from the cache, and parents are reconciled
/// while the successor is fetched and compiled again.
#[test]
fn the_active_revision_survives_a_kill_during_fetch_and_compilation() {
    let fixture = MoodyFixture::new(2);
    let host = fixture.start();
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status();
    let uids = fixture.uids();
    fixture.web.put(marked(&guest("moody")));
    fixture.web.set_held(true);
    let asked = fixture.web.asked();
    let mut other = good("two");
    other["source"] = json!({"http": {"url": format!("{}?version=2", fixture.web.url())}});
    fixture.apply(&other);
    eventually("the host fetches", || {
        let now = fixture.web.asked();
        if now > asked {
            Ok(())
        } else {
            Err("it does not fetch")
        }
    });
    let host = fixture.crash(host);
    // The active revision continues, although its successor cannot be fetched.
    fixture.check_reconciles(&host, "held");
    assert_eq!(fixture.status()["revision"], first["revision"]);
    fixture.web.set_held(false);
    eventually("the host compiles", || {
        let log = host.log().unwrap();
        let fetched = log.contains("fetched a plugin");
        if fetched { Ok(()) } else { Err(log) }
    });
    let host = fixture.crash(host);
    let status = fixture.wait_healthy(&host);
    assert_ne!(status["digest"], first["digest"]);
    fixture.wait_text(&host, "two");
    fixture.wait_verdicts(&host, &["Good", "Good"]);
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}
