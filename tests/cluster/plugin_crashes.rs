//! Kills the host while one revision replaces another. The final state must be the same as without
//! kills.

use std::time::{Duration, Instant};

use innkeeper_tests::{Host, eventually, manifest::condition};
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

/// After this time without a write, no more follow: it is well above the time for a pass.
const QUIET: Duration = Duration::from_millis(1500);

/// Time limit for each host before it must write or finish.
const LIFE_MAX: Duration = Duration::from_secs(40);

/// Starts hosts and kills each at the next write, until one reaches the goal and writes nothing more.
/// Returns the number of kills.
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
        // Most writes happen during a load, and after two crashes within a load the host delays the
        // next one by a minute.
        forget_ends(options.cache.as_deref().unwrap());
        let mut host = Host::start(&relay.kubeconfig, options).unwrap();
        let start = Instant::now();
        let mut quiet_since = Instant::now();
        loop {
            // Long compared with the checks below, so that the kill follows this write and not a later
            // one.
            if let Ok(_stopped) = relay.stopped.recv_timeout(Duration::from_millis(400)) {
                kills += 1;
                assert!(kills < KILLS_MAX, "{:#}", fixture.status());
                host.process().kill().unwrap();
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

/// Limits a spec to one pass at a time, to serialize the writes.
fn one_by_one(mut spec: Value) -> Value {
    spec["limits"] = json!({"concurrency": 1});
    spec
}

/// The swap's state is in the Plugin status, so that the next host continues it. Without it, a host
/// could prune children or keep the wrong revision active.
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
    // The number of kills varies, because other passes continue until the host dies.
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
    let written: Vec<String> = lines(&fixture.site.stage.writes_since(mark))
        .into_iter()
        .filter(|line| line.starts_with("delete"))
        .collect();
    assert_eq!(written, Vec::<String>::new());
}

/// After a restart during a swap, the host loads the active revision from the cache and reconciles
/// parents with it while it fetches and compiles the successor again.
#[test]
fn the_active_revision_survives_a_kill_during_fetch_and_compilation() {
    let (fixture, host) = MoodyFixture::started(2);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status();
    let uids = fixture.uids();
    fixture.web.put(marked(&guest("moody")));
    fixture.web.set_held(true);
    let requests_before = fixture.web.asked();
    let mut other = good("two");
    other["source"] = json!({"http": {"url": format!("{}?version=2", fixture.web.url())}});
    fixture.apply(&other);
    eventually("the host fetches", || {
        if fixture.web.asked() > requests_before {
            Ok(())
        } else {
            Err("it does not fetch")
        }
    });
    let host = fixture.crash(host);
    // The active revision continues while the host cannot fetch the successor.
    fixture.check_reconciles(&host, "held");
    assert_eq!(fixture.status()["revision"], first["revision"]);
    fixture.web.set_held(false);
    eventually("the host compiles", || {
        let log = host.log().unwrap();
        if log.contains("fetched a plugin") {
            Ok(())
        } else {
            Err(log)
        }
    });
    let host = fixture.crash(host);
    let status = fixture.wait_healthy(&host);
    assert_ne!(status["digest"], first["digest"]);
    fixture.wait_text(&host, "two");
    fixture.wait_verdicts(&host, &["Good", "Good"]);
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}
