//! Revisions that become active again, on the real API server: after a restart, while their source
//! is down, and in place of harmful revisions.

use std::time::Duration;

use innkeeper_tests::{eventually, manifest::condition};
use serde_json::json;

use crate::{
    moods::{API, NAME, Scene, config_map, good, guest, mood, name},
    plugins::marked,
    stage::{Stage, is_synced, lines},
};

pub(crate) const ROLLED_BACK: [&str; 4] = [
    "Described=True/Described",
    "Serving=True/Serving",
    "Degraded=True/RolledBack",
    "RolledBack=True/TooManyFaults",
];

/// A harmful revision is rolled back after its first passes, and the rollback survives a restart.
/// Otherwise every restart would try the revision again.
#[test]
fn l5_a_faulting_revision_is_rolled_back_until_the_plugin_changes() {
    let scene = Scene::new(6);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    let first = scene.status()["revision"].clone();
    let uids = scene.uids();

    scene.apply(&mood("trap"));
    let status = scene.wait(&host, &ROLLED_BACK);
    assert_eq!(status["revision"], first);
    assert_eq!(scene.verdicts(), ["Good", "RolledBack"]);
    let plugin = scene.site.plugin_of(NAME);
    let said = condition(&plugin, "RolledBack").unwrap();
    for part in [
        "first passes ended in a fault",
        "GuestTrapped",
        "in a bad mood",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let last = &status["faults"]["last"];
    assert_eq!(last[0]["reason"], "GuestTrapped", "{status:#}");
    assert_eq!(last[0]["parent"]["kind"], "Moody", "{status:#}");
    assert_eq!(status["limits"]["children"], 256, "{status:#}");
    assert_eq!(status["limits"]["memory"], "64Mi", "{status:#}");
    // The faulting revision has deleted nothing, and all parents recover.
    scene.all_say(&host, "one");
    scene.follows(&host, "after");
    for number in 0..scene.parents {
        let name = name(number);
        let parent = (API, "Moody", &*name);
        scene
            .site
            .stage
            .wait(&host, &scene.site.namespace, parent, |parent| {
                is_synced(parent, "True", "Applied")
            });
    }
    assert_eq!(scene.uids(), uids);

    // A restarted host knows of the rollback from the status, and does not report it again.
    let mark = scene.site.stage.settle(Duration::from_secs(12));
    let host = scene.crash(host);
    scene.wait(&host, &ROLLED_BACK);
    scene.follows(&host, "restarted");
    scene.site.stage.settle(Duration::from_secs(2));
    let log = host.log().unwrap();
    assert!(!log.contains("rolled back to"), "{log}");
    let mut written = lines(&scene.site.stage.writes_since(mark));
    written.retain(|line| line.contains("plugins.innkeeper.dev"));
    assert_eq!(written, Vec::<String>::new());

    // A changed Plugin is tried again, even if only a limit differs.
    let mut again = mood("trap");
    again["limits"] = json!({"children": 3});
    scene.apply(&again);
    let status = scene.wait(&host, &ROLLED_BACK);
    assert_eq!(status["limits"]["children"], 3, "{status:#}");
    let log = host.log().unwrap();
    assert!(log.contains("rolled back to"), "{log}");
    scene.apply(&good("two"));
    scene.well(&host);
    scene.all_say(&host, "two");
    scene.wait_verdicts(&host, &["Good", "Good", "RolledBack"]);
    assert_eq!(scene.uids(), uids);
    Stage::stop(host);
}

/// A fault of a single parent is that parent's problem; a rollback for it would take a good
/// revision from all others.
#[test]
fn l5_a_rollback_requires_many_faults_and_can_be_disabled() {
    let scene = Scene::new(6);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    // The fault of one parent in six is no reason for a rollback.
    scene.apply(&mood("touchy"));
    let second = scene.well(&host)["revision"].clone();
    scene.wait_verdicts(&host, &["Good", "Good"]);
    assert_eq!(scene.status()["revision"], second);

    let mut trap = mood("trap");
    trap["rollout"] = json!({"autoRollback": false});
    scene.apply(&trap);
    let faulting = ["Serving=True/Serving", "RolledBack=False/TooManyFaults"];
    let status = scene.wait(&host, &faulting);
    assert_ne!(status["revision"], second);
    // A restart does not lose this state, and the rollback can be enabled later.
    let host = scene.crash(host);
    scene.wait(&host, &faulting);
    assert_eq!(scene.verdicts()[0], "Trial");
    trap["rollout"] = json!({"autoRollback": true});
    scene.apply(&trap);
    let status = scene.wait(&host, &ROLLED_BACK);
    assert_eq!(status["revision"], second);
    scene.follows(&host, "again");
    Stage::stop(host);
}

/// A host starts from its cache. If it needed the source, an outage of a registry would stop all
/// plugins at the next restart.
#[test]
fn l4_an_unreachable_source_does_not_affect_the_active_revision_even_after_a_restart() {
    let scene = Scene::new(2);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    let first = scene.status();
    scene.web.set_down(true);
    let host = scene.crash(host);
    let status = scene.wait(
        &host,
        &[
            "Fetched=False/Unreachable",
            "Serving=True/Serving",
            "Degraded=True/Unreachable",
        ],
    );
    assert_eq!(status["revision"], first["revision"]);
    scene.follows(&host, "down");
    // A swap waits for the source, even if only the configuration changes.
    scene.apply(&good("two"));
    let status = scene.wait(
        &host,
        &["Serving=True/Serving", "Degraded=True/Unreachable"],
    );
    assert_eq!(status["revision"], first["revision"]);
    scene.follows(&host, "still down");

    scene.web.put(marked(&guest("moody")));
    scene.web.set_down(false);
    let status = scene.well(&host);
    assert_ne!(status["digest"], first["digest"]);
    scene.all_say(&host, "two");
    scene.wait_verdicts(&host, &["Good", "Good"]);

    // The return needs no network: the digest and the configuration identify a revision that the
    // host has kept.
    scene.web.set_down(true);
    let asked = scene.web.asked();
    let mut back = good("one");
    back["digest"] = first["digest"].clone();
    scene.apply(&back);
    let status = scene.well(&host);
    assert_eq!(status["revision"], first["revision"]);
    scene.all_say(&host, "one");
    let host = scene.crash(host);
    scene.well(&host);
    scene.follows(&host, "back");
    assert_eq!(scene.web.asked(), asked);
    Stage::stop(host);
}

/// A revision that would delete more than its limit waits for an approval. A restart must not count
/// as one.
#[test]
fn a6_a_revision_without_children_waits_even_after_a_restart() {
    let scene = Scene::new(12);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    let first = scene.status()["revision"].clone();
    let uids = scene.uids();
    scene.apply(&mood("nothing"));
    let waits = ["Serving=True/Serving", "Degraded=True/TooManyPrunes"];
    let status = scene.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    let candidate = &status["candidate"];
    assert_eq!(candidate["counts"]["deletes"], 12, "{candidate:#}");
    assert_eq!(candidate["deletes"].as_array().unwrap().len(), 12);

    let host = scene.crash(host);
    let status = scene.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    scene.follows(&host, "after");
    assert_eq!(scene.uids(), uids);

    let mut approved = mood("nothing");
    approved["rollout"] = json!({"approve": candidate["revision"]});
    scene.apply(&approved);
    scene.well(&host);
    for number in 0..scene.parents {
        let name = name(number);
        eventually("the child is deleted", || {
            let found = scene
                .site
                .stage
                .find(&scene.site.namespace, config_map(&name));
            found.map_or(Ok(()), |found| Err(format!("{found:#}")))
        });
    }
    Stage::stop(host);
}

/// A broken successor changes only conditions, and a restart does not try it in place of the active
/// revision.
#[test]
fn l5_a_revision_that_does_not_compile_changes_nothing() {
    let scene = Scene::new(1);
    let host = scene.begin();
    let first = scene.status()["revision"].clone();
    let mut bytes = guest("moody");
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    scene.web.put(bytes);
    let mut other = good("two");
    other["limits"] = json!({"children": 3});
    other["source"] = json!({"http": {"url": format!("{}?v=2", scene.web.url())}});
    scene.apply(&other);
    let failed = ["Compiled=False/CannotCompile", "Serving=True/Serving"];
    let status = scene.wait(&host, &failed);
    assert_eq!(status["revision"], first);
    scene.follows(&host, "after");
    let host = scene.crash(host);
    let status = scene.wait(&host, &failed);
    assert_eq!(status["revision"], first);
    scene.follows(&host, "restarted");
    Stage::stop(host);
}

/// The host records the kinds of the children that it has created. Without the record it would not
/// look for children of a kind that no plugin states any more.
#[test]
fn a8_a_kind_that_an_upgrade_drops_during_downtime_is_pruned() {
    let scene = Scene::new(2);
    scene.web.put(guest("generous"));
    let host = scene.begin_with(&json!({"config": {"says": "one"}}));
    let secret = |number| {
        scene
            .site
            .stage
            .find(&scene.site.namespace, ("v1", "Secret", &name(number)))
    };
    // The test has waited for the ConfigMap, and the host writes the Secret after it.
    for number in 0..scene.parents {
        eventually("the Secret is created", || {
            secret(number).ok_or("there is none")
        });
    }
    scene.wait_verdicts(&host, &["Good"]);
    let uids = scene.uids();

    Stage::stop(host);
    scene.web.put(guest("moody"));
    scene.apply(&good("two"));
    let host = scene.site.stage.host();
    scene.well(&host);
    scene.all_say(&host, "two");
    for number in 0..scene.parents {
        eventually("the Secret is deleted", || {
            secret(number).map_or(Ok(()), |found| Err(format!("{found:#}")))
        });
    }
    // The ConfigMaps, which both revisions state, were never deleted.
    assert_eq!(scene.uids(), uids);
    Stage::stop(host);
}

/// A successor that needs more grants waits for the administrator while the active revision
/// continues.
#[test]
fn l5_a_revision_that_requests_more_than_its_grants_waits() {
    let scene = Scene::new(1);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    let first = scene.status()["revision"].clone();
    scene.web.put(guest("generous"));
    let kind = json!([{"group": "test.innkeeper.dev", "kind": "Moody"}]);
    scene.apply(&json!({
        "source": {"http": {"url": format!("{}?v=2", scene.web.url())}},
        "grants": {"parents": kind, "crds": kind, "children": [{"kind": "ConfigMap"}]},
        "config": {"says": "two"},
    }));
    let waits = [
        "Described=True/Described",
        "Granted=False/NotGranted",
        "Serving=True/Serving",
        "Degraded=True/NotGranted",
    ];
    let status = scene.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    scene.follows(&host, "after");
    let host = scene.crash(host);
    let status = scene.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    scene.follows(&host, "restarted");
    Stage::stop(host);
}

/// The gate holds even if there is nothing else to serve: without an approval, an unreviewed
/// revision would start on a new node.
#[test]
fn l5_a_gated_revision_waits_even_if_its_predecessor_is_lost() {
    let mut scene = Scene::new(1);
    let host = scene.begin();
    scene.wait_verdicts(&host, &["Good"]);
    let uids = scene.uids();
    Stage::stop(host);
    // A new cache, as on another node, does not have the earlier revision.
    let cache = tempfile::tempdir().unwrap();
    scene.site.stage.options.cache = Some(cache.path().join("cache"));
    scene.web.put(marked(&guest("moody")));
    let mut gated = good("two");
    gated["rollout"] = json!({"mode": "Gated"});
    scene.apply(&gated);
    let host = scene.site.stage.host();
    let waits = [
        "Serving=False/AwaitingApproval",
        "Degraded=True/AwaitingApproval",
    ];
    let candidate = scene.wait(&host, &waits)["candidate"].clone();
    assert_eq!(candidate["counts"], json!(null), "{candidate:#}");
    assert!(scene.say("one"));
    gated["rollout"]["approve"] = candidate["revision"].clone();
    scene.apply(&gated);
    scene.well(&host);
    scene.all_say(&host, "two");
    assert_eq!(scene.uids(), uids);
    Stage::stop(host);
}
