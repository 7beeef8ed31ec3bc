//! Slow downloads delay neither other Plugins nor changes to the Plugin itself.

use std::time::{Duration, Instant};

use innkeeper_tests::eventually;
use serde_json::{Value, json};

use crate::{
    moody::{MoodyFixture, NAME, good, guest},
    plugins::{HEALTHY, PLUGIN, cache_grants},
    stage::{Stage, lines},
    web::Web,
};

/// Below 30 s, after which the host gives up on a silent server: a Plugin that waits for a slow download
/// takes longer.
const AT_ONCE: Duration = Duration::from_secs(25);

const FETCHING: [&str; 2] = ["Fetched=Unknown/Fetching", "Degraded=Unknown/Fetching"];

fn plugin(name: &str, url: &str, grants: &Value) -> Value {
    json!({
        "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
        "metadata": {"name": name},
        "spec": {"source": {"http": {"url": url}}, "grants": grants},
    })
}

/// The limits per server and without grants prevent a single slow server, or a user who may not grant,
/// from blocking all other loads.
#[test]
fn slow_downloads_do_not_delay_the_plugins_of_others() {
    let fixture = MoodyFixture::new(1);
    let site = &fixture.site;
    let host = site.stage.host_serving(&["plugins.innkeeper.dev"]);
    let servers = [(); 3].map(|()| Web::start_held(Vec::new()));
    let begin = Instant::now();
    // Far more than the host loads concurrently, both from one server and without grants.
    let mut names = Vec::new();
    for number in 0..6 {
        let kind = json!([{"group": "slow.example.com", "kind": format!("Slow{number}")}]);
        let granted = json!({"parents": kind});
        let other = &servers[1 + number % 2];
        for (name, url, grants) in [
            (format!("slow-{number}"), servers[0].url(), granted),
            (format!("poor-{number}"), other.url(), json!({})),
        ] {
            site.stage.apply_new("", &plugin(&name, &url, &grants));
            names.push(name);
        }
    }
    for name in &names {
        site.wait_conditions_of(name, &host, &FETCHING);
    }

    // An administrator's Plugins load from a file and from a server.
    site.put("memcached");
    site.apply_as("cache", &json!({"grants": cache_grants()}));
    site.wait_conditions_of("cache", &host, &HEALTHY);
    fixture.apply(&good("one"));
    fixture.wait_healthy(&host);
    // A slow Plugin whose source changes does not wait for the old download.
    let other = json!({"source": {"file": {"path": "plugin.wasm"}}});
    let patch = json!({"spec": {"source": {"http": null, "file": other["source"]["file"]}}});
    site.stage
        .plane
        .user()
        .merge(PLUGIN, "slow-0", &patch)
        .unwrap();
    site.wait_conditions_of("slow-0", &host, &["Granted=False/NotGranted"]);
    let elapsed = begin.elapsed();
    assert!(elapsed < AT_ONCE, "{elapsed:?}");
    // Stopping the host does not wait for downloads.
    Stage::stop(host);
}

/// Revoked grants and lower limits must apply while the next revision is still downloading.
#[test]
fn grants_limits_suspension_and_deletion_do_not_wait_for_a_download() {
    let fixture = MoodyFixture::new(2);
    let site = &fixture.site;
    let host = fixture.start();
    fixture.wait_verdicts(&host, &["Good"]);
    let first = fixture.status()["revision"].clone();
    let uids = fixture.uids();
    fixture.web.set_held(true);
    let begin = Instant::now();
    // A different URL each time, so that the host does not give up a download meanwhile.
    let mut version = 1;
    let mut apply = |more: Value| {
        version += 1;
        let mut spec = good("two");
        let url = format!("{}?version={version}", fixture.web.url());
        spec["source"] = json!({"http": {"url": url}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        fixture.apply(&spec);
    };
    let wait = |serving: &str| {
        let status = fixture.wait(&host, &[&FETCHING[..], &[serving]].concat());
        assert_eq!(status["revision"], first);
        status
    };

    apply(json!({"limits": {"children": 3}}));
    let status = wait("Serving=True/Serving");
    assert_eq!(status["limits"]["children"], 3, "{status:#}");
    fixture.check_reconciles(&host, "fetching");
    let kind = json!([{"group": "test.innkeeper.dev", "kind": "Moody"}]);
    apply(json!({"grants": {"parents": kind, "crds": kind}}));
    wait("Serving=False/NotGranted");
    let mark = site.stage.settle(Duration::from_secs(1));
    fixture.put(1, &json!({"note": "not granted"}));
    site.stage.settle(Duration::from_secs(2));
    let written: Vec<String> = lines(&site.stage.writes_since(mark))
        .into_iter()
        .filter(|line| !line.contains("plugins.innkeeper.dev/status"))
        .collect();
    assert_eq!(written, Vec::<String>::new());
    apply(json!({}));
    wait("Serving=True/Serving");
    fixture.check_reconciles(&host, "granted");
    apply(json!({"suspend": true}));
    wait("Serving=False/Suspended");

    // The previous revision needs no download.
    fixture.apply(&good("one"));
    let status = fixture.wait_healthy(&host);
    assert_eq!(status["revision"], first);
    fixture.check_reconciles(&host, "back");
    apply(json!({}));
    wait("Serving=True/Serving");
    site.stage.plane.user().delete(PLUGIN, NAME).unwrap();
    eventually("the host ends the passes of the Plugin", || {
        let log = host.log().unwrap();
        if log.contains("the Plugin is gone") {
            Ok(())
        } else {
            Err(log)
        }
    });
    let elapsed = begin.elapsed();
    assert!(elapsed < 2 * AT_ONCE, "{elapsed:?}");
    assert_eq!(fixture.uids(), uids);
    Stage::stop(host);
}

/// A late download for an earlier spec must not become active.
#[test]
fn the_answer_to_an_outdated_download_is_ignored() {
    let (fixture, host) = MoodyFixture::started(1);
    fixture.wait_verdicts(&host, &["Good"]);
    let late = Web::start_held(guest("generous"));
    let from = |url: &str, says: &str| {
        let mut spec = good(says);
        spec["source"] = json!({"http": {"url": url}});
        spec
    };
    fixture.apply(&from(&late.url(), "late"));
    fixture.wait(&host, &FETCHING);
    eventually("the host asks the server", || match late.asked() {
        0 => Err("it does not ask"),
        _ => Ok(()),
    });
    fixture.apply(&good("two"));
    let status = fixture.wait_healthy(&host);
    late.set_held(false);
    fixture.wait_text(&host, "two");
    fixture.site.stage.settle(Duration::from_secs(2));
    let digest = fixture.status()["digest"].clone();
    assert_eq!(digest, status["digest"]);
    assert_eq!(fixture.verdicts().len(), 2);
    Stage::stop(host);
}
