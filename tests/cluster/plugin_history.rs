//! Revisions that become active again on the real API server: after a restart, while the source is
//! down, and in a rollback.

use std::time::Duration;

use innkeeper_tests::{eventually, manifest::condition, user::Kind};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    moody::{API, MoodyFixture, NAME, config_map, good, guest, mood, name},
    plugin_priority::next_second,
    plugins::{PLUGIN, marked},
    stage::{Stage, is_applied, is_synced, lines, wait_logged},
};

const HASH_KEY: &str = "innkeeper-hash-key";

pub(crate) const ROLLED_BACK: [&str; 4] = [
    "Described=True/Described",
    "Serving=True/Serving",
    "Degraded=True/RolledBack",
    "RolledBack=True/TooManyFaults",
];

/// The rollback must survive a restart: otherwise every restart would try the faulting revision
/// again.
#[test]
fn a_faulting_revision_is_rolled_back_until_the_plugin_changes() {
    let (fixture, host) = MoodyFixture::started(6);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status()["revision"].clone();
    let uids = fixture.uids();

    let approved = fixture.approved(&host, &mood("trap"));
    fixture.apply(&approved);
    let status = fixture.wait(&host, &ROLLED_BACK);
    assert_eq!(status["revision"], first);
    assert_eq!(fixture.verdicts(), ["Good", "RolledBack"]);
    let plugin = fixture.site.plugin_of(NAME);
    let message = condition(&plugin, "RolledBack").unwrap();
    for part in [
        "first passes ended in a fault",
        "GuestTrapped",
        "in a bad mood",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let last = &status["faults"]["last"];
    assert_eq!(last[0]["reason"], "GuestTrapped", "{status:#}");
    assert_eq!(last[0]["parent"]["kind"], "Moody", "{status:#}");
    assert_eq!(status["limits"]["children"], 256, "{status:#}");
    assert_eq!(status["limits"]["memory"], "64Mi", "{status:#}");
    // The faulting revision deleted nothing, and all parents recover.
    fixture.wait_text(&host, "one");
    fixture.check_reconciles(&host, "after");
    for number in 0..fixture.parents {
        let name = name(number);
        let parent = (API, "Moody", &*name);
        fixture
            .site
            .stage
            .wait(&host, &fixture.site.namespace, parent, is_applied);
    }
    assert_eq!(fixture.uids(), uids);

    // Longer than the ten seconds after which the host refreshes the parent counts.
    let mark = fixture.site.stage.settle(Duration::from_secs(12));
    // A restarted host learns of the rollback from the status, and does not report it again.
    let host = fixture.crash(host);
    fixture.wait(&host, &ROLLED_BACK);
    wait_logged(&host, "the revision is active again", "serving plugin");
    fixture.site.stage.settle(Duration::from_secs(2));
    let log = host.log().unwrap();
    assert!(!log.contains("rolled back to"), "{log}");
    let written: Vec<String> = lines(&fixture.site.stage.writes_since(mark))
        .into_iter()
        .filter(|line| line.contains("plugins.innkeeper.dev"))
        .collect();
    assert_eq!(written, Vec::<String>::new());
    // Not earlier, because an edited parent is unsynced for a moment, which changes the counts.
    fixture.check_reconciles(&host, "restarted");

    // The host tries the revision again after any change to the Plugin, even to a limit.
    let mut again = approved;
    again["limits"] = json!({"children": 3});
    fixture.apply(&again);
    let status = fixture.wait(&host, &ROLLED_BACK);
    assert_eq!(status["limits"]["children"], 3, "{status:#}");
    let log = host.log().unwrap();
    assert!(log.contains("rolled back to"), "{log}");
    fixture.apply(&good("two"));
    fixture.wait_healthy(&host);
    fixture.wait_text(&host, "two");
    fixture.wait_verdicts(&host, &["Good", "Good", "RolledBack"]);
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}

/// A rollback for one parent's fault would take a good revision from all others.
#[test]
fn a_rollback_requires_many_faults_and_can_be_disabled() {
    let (fixture, host) = MoodyFixture::started(6);
    fixture.wait_verdicts(&host, &["Good"]);
    // One parent in six with a fault does not cause a rollback.
    fixture.apply(&mood("touchy"));
    let second = fixture.wait_healthy(&host)["revision"].clone();
    fixture.wait_verdicts(&host, &["Good", "Good"]);
    assert_eq!(fixture.status()["revision"], second);

    let mut trap = mood("trap");
    trap["rollout"] = json!({"autoRollback": false});
    let mut trap = fixture.approved(&host, &trap);
    fixture.apply(&trap);
    let faulting = ["Serving=True/Serving", "RolledBack=False/TooManyFaults"];
    let status = fixture.wait(&host, &faulting);
    assert_ne!(status["revision"], second);
    // The state survives a restart, and a user can enable the rollback later.
    let host = fixture.crash(host);
    fixture.wait(&host, &faulting);
    assert_eq!(fixture.verdicts()[0], "Trial");
    trap["rollout"]["autoRollback"] = true.into();
    fixture.apply(&trap);
    let status = fixture.wait(&host, &ROLLED_BACK);
    assert_eq!(status["revision"], second);
    fixture.check_reconciles(&host, "again");
    Stage::stop(host);
}

/// A host starts from the cache. Otherwise a registry outage would stop all plugins at the next
/// restart.
#[test]
fn an_unreachable_source_does_not_affect_the_active_revision_even_after_a_restart() {
    let (fixture, host) = MoodyFixture::started(2);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status();
    fixture.web.set_down(true);
    let host = fixture.crash(host);
    let status = fixture.wait(
        &host,
        &[
            "Fetched=False/Unreachable",
            "Serving=True/Serving",
            "Degraded=True/Unreachable",
        ],
    );
    assert_eq!(status["revision"], first["revision"]);
    fixture.check_reconciles(&host, "down");
    // A swap waits for the source, even if only the configuration changes.
    fixture.apply(&good("two"));
    let status = fixture.wait(
        &host,
        &["Serving=True/Serving", "Degraded=True/Unreachable"],
    );
    assert_eq!(status["revision"], first["revision"]);
    fixture.check_reconciles(&host, "still down");

    fixture.web.put(marked(&guest("moody")));
    fixture.web.set_down(false);
    let status = fixture.wait_healthy(&host);
    assert_ne!(status["digest"], first["digest"]);
    fixture.wait_text(&host, "two");
    fixture.wait_verdicts(&host, &["Good", "Good"]);

    // The return needs no network: digest and configuration identify a cached revision.
    fixture.web.set_down(true);
    let requests = fixture.web.asked();
    let mut back = good("one");
    back["digest"] = first["digest"].clone();
    fixture.apply(&back);
    let status = fixture.wait_healthy(&host);
    assert_eq!(status["revision"], first["revision"]);
    fixture.wait_text(&host, "one");
    let host = fixture.crash(host);
    fixture.wait_healthy(&host);
    fixture.check_reconciles(&host, "back");
    assert_eq!(fixture.web.asked(), requests);
    Stage::stop(host);
}

/// A revision that would delete more than the limit waits for an approval, also after a restart.
#[test]
fn a_revision_without_children_waits_even_after_a_restart() {
    let (fixture, host) = MoodyFixture::started(12);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status()["revision"].clone();
    let uids = fixture.uids();
    fixture.apply(&mood("nothing"));
    let waits = ["Serving=True/Serving", "Degraded=True/TooManyPrunes"];
    let status = fixture.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    let candidate = &status["candidate"];
    assert_eq!(candidate["counts"]["deletes"], 12, "{candidate:#}");
    assert_eq!(candidate["deletes"].as_array().unwrap().len(), 12);

    let host = fixture.crash(host);
    let status = fixture.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "after");
    assert_eq!(fixture.uids(), uids);

    let mut approved = mood("nothing");
    approved["rollout"] = json!({"approve": candidate["revision"]});
    fixture.apply(&approved);
    fixture.wait_healthy(&host);
    for number in 0..fixture.parents {
        let name = name(number);
        eventually("the child is deleted", || {
            fixture
                .site
                .stage
                .find(&fixture.site.namespace, config_map(&name))
                .map_or(Ok(()), |child| Err(format!("{child:#}")))
        });
    }
    Stage::stop(host);
}

/// A Plugin that is deleted and recreated between two passes is a new one. With the first one's age and
/// history, it would take priority over older Plugins and could be rolled back to revisions that it
/// never had.
#[test]
fn a_plugin_that_is_created_again_during_a_pause_starts_anew() {
    let (fixture, mut host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    fixture.apply(&good("two"));
    fixture.wait_verdicts(&host, &["Good", "Good"]);
    let uids = fixture.uids();
    host.process().signal(Signal::STOP).unwrap();
    fixture
        .site
        .stage
        .plane
        .user()
        .delete(PLUGIN, NAME)
        .unwrap();
    next_second();
    fixture.apply(&good("two"));
    host.process().signal(Signal::CONT).unwrap();
    fixture.wait_healthy(&host);
    fixture.wait_verdicts(&host, &["Good"]);
    let plugin = fixture.site.plugin_of(NAME);
    let from = &plugin["status"]["history"][0]["servedFrom"];
    let created = &plugin["metadata"]["creationTimestamp"];
    assert!(from.as_str() >= created.as_str(), "{plugin:#}");
    fixture.check_reconciles(&host, "again");
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}

/// The history decides which component and configuration use the Plugin's grants, so a user who may
/// write only the status must not be able to forge it.
#[test]
fn a_history_that_the_host_did_not_write_for_the_plugin_brings_nothing_back() {
    let (fixture, host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status();
    let user = fixture.site.stage.plane.user();
    user.delete(PLUGIN, NAME).unwrap();
    fixture.apply(&good("two"));
    fixture.wait_text(&host, "two");
    fixture.wait_verdicts(&host, &["Good"]);
    Stage::stop(host);

    // The cache has both Plugins' component, and the source is down.
    let forged =
        json!({"status": {"history": first["history"], "historySeal": first["historySeal"]}});
    user.merge_status(PLUGIN, NAME, &forged).unwrap();
    fixture.web.set_down(true);
    let host = fixture.site.stage.host();
    let failed = ["Fetched=False/Unreachable", "Serving=False/NotLoaded"];
    let status = fixture.wait(&host, &failed);
    assert_eq!(status["revision"], json!(null), "{status:#}");
    assert!(fixture.has_text("two"));
    fixture.web.set_down(false);
    fixture.wait_healthy(&host);
    fixture.check_reconciles(&host, "after");
    fixture.wait_verdicts(&host, &["Good"]);
    Stage::stop(host);
}

/// Without the hash key no pass may write, and the parents must report it. The host cannot verify the
/// history then, but must keep it: it restores the last revision once the key is back.
#[test]
fn a_lost_hash_key_stops_no_plugin_and_its_history_counts_again_with_the_key() {
    let (fixture, host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status();
    let user = fixture.site.stage.plane.user();
    let secret = Kind::new("v1", "Secret", "innkeeper-system");
    let key = user.get(secret, HASH_KEY).unwrap().unwrap();
    user.delete(secret, HASH_KEY).unwrap();

    let host = fixture.crash(host);
    fixture.wait_healthy(&host);
    fixture.put(0, &json!({"note": "keyless"}));
    let namespace = &fixture.site.namespace;
    let parent = name(0);
    let parent = (API, "Moody", &*parent);
    fixture.site.stage.wait(&host, namespace, parent, |parent| {
        is_synced(parent, "False", "HashKeyMissing")
    });
    let unsealed = fixture.status();
    for field in ["revision", "history", "historySeal"] {
        assert_eq!(unsealed[field], first[field], "{field}");
    }

    // The host restores a revision only from a verified history.
    fixture.web.set_down(true);
    let host = fixture.crash(host);
    let failed = ["Fetched=False/Unreachable", "Serving=False/NotLoaded"];
    fixture.wait(&host, &failed);
    let restored = json!({
        "apiVersion": "v1", "kind": "Secret", "data": key["data"],
        "metadata": {"name": HASH_KEY, "namespace": "innkeeper-system"},
    });
    user.create(&restored).unwrap();
    let key_known = "found the hash key";
    wait_logged(&host, "the host has found the key", key_known);
    let served = ["Fetched=False/Unreachable", "Serving=True/Serving"];
    let status = fixture.wait(&host, &served);
    for field in ["revision", "history", "historySeal"] {
        assert_eq!(status[field], first[field], "{field}");
    }
    fixture.check_reconciles(&host, "restored");
    Stage::stop(host);
}

/// A broken successor changes only conditions, and the active revision also survives a restart.
#[test]
fn a_revision_that_does_not_compile_changes_nothing() {
    let (fixture, host) = MoodyFixture::started(1);
    let first = fixture.status()["revision"].clone();
    let bytes = guest("moody");
    fixture.web.put(bytes[..bytes.len() / 2].to_vec());
    let mut other = good("two");
    other["limits"] = json!({"children": 3});
    other["source"] = json!({"http": {"url": format!("{}?v=2", fixture.web.url())}});
    fixture.apply(&other);
    let failed = ["Compiled=False/CannotCompile", "Serving=True/Serving"];
    let status = fixture.wait(&host, &failed);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "after");
    let host = fixture.crash(host);
    let status = fixture.wait(&host, &failed);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "restarted");
    Stage::stop(host);
}

/// The host records the child kinds that it has created. Without the record, it would not look for
/// children of a kind that no plugin states any more.
#[test]
fn a_kind_that_an_upgrade_drops_during_downtime_is_pruned() {
    let fixture = MoodyFixture::new(2);
    fixture.web.put(guest("generous"));
    let host = fixture.start_with(&json!({"config": {"says": "one"}}));
    let secret = |number| {
        fixture
            .site
            .stage
            .find(&fixture.site.namespace, ("v1", "Secret", &name(number)))
    };
    // The test has only waited for the ConfigMap, and the host writes the Secret after it.
    for number in 0..fixture.parents {
        eventually("the Secret is created", || {
            secret(number).ok_or("there is none")
        });
    }
    fixture.wait_verdicts(&host, &["Good"]);
    let uids = fixture.uids();

    Stage::stop(host);
    fixture.web.put(guest("moody"));
    fixture.apply(&good("two"));
    let host = fixture.site.stage.host();
    fixture.wait_healthy(&host);
    fixture.wait_text(&host, "two");
    for number in 0..fixture.parents {
        eventually("the Secret is deleted", || {
            secret(number).map_or(Ok(()), |secret| Err(format!("{secret:#}")))
        });
    }
    // Both revisions state the ConfigMaps, so the host never deleted them.
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}

/// A successor that needs more grants waits for the administrator while the active revision
/// continues.
#[test]
fn a_revision_that_requests_more_than_its_grants_waits() {
    let (fixture, host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status()["revision"].clone();
    fixture.web.put(guest("generous"));
    let kind = json!([{"group": "test.innkeeper.dev", "kind": "Moody"}]);
    fixture.apply(&json!({
        "source": {"http": {"url": format!("{}?v=2", fixture.web.url())}},
        "grants": {"parents": kind, "crds": kind, "children": [{"kind": "ConfigMap"}]},
        "config": {"says": "two"},
    }));
    let waits = [
        "Described=True/Described",
        "Granted=False/NotGranted",
        "Serving=True/Serving",
        "Degraded=True/NotGranted",
    ];
    let status = fixture.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "after");
    let host = fixture.crash(host);
    let status = fixture.wait(&host, &waits);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "restarted");
    Stage::stop(host);
}

/// The gate also applies without an active revision: otherwise an unreviewed revision would start on
/// a new node.
#[test]
fn a_gated_revision_waits_even_if_its_predecessor_is_lost() {
    let (mut fixture, host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    let uids = fixture.uids();
    Stage::stop(host);
    // An empty cache, as on another node, does not have the earlier revision.
    let cache = tempfile::tempdir().unwrap();
    fixture.site.stage.options.cache = Some(cache.path().join("cache"));
    fixture.web.put(marked(&guest("moody")));
    let mut gated = good("two");
    gated["rollout"] = json!({"mode": "Gated"});
    fixture.apply(&gated);
    let host = fixture.site.stage.host();
    let waits = [
        "Serving=False/AwaitingApproval",
        "Degraded=True/AwaitingApproval",
    ];
    let candidate = fixture.wait(&host, &waits)["candidate"].clone();
    assert_eq!(candidate["counts"], json!(null), "{candidate:#}");
    assert!(fixture.has_text("one"));
    gated["rollout"]["approve"] = candidate["revision"].clone();
    fixture.apply(&gated);
    fixture.wait_healthy(&host);
    fixture.wait_text(&host, "two");
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}
