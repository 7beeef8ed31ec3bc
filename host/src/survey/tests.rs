use expect_test::expect;
use serde_json::json;

use super::*;
use crate::admin::HostState;

fn state() -> HostState {
    let state = json!({
        "started": true,
        "plugins": [
            {
                "name": "memcached",
                "kinds": [{
                    "kind": "cache.example.com/v1 Memcached",
                    "revision": "sha256:0123456789abcdef0123456789abcdef",
                    "faults": 2,
                    "parents": 3,
                    "ready": 1,
                    "notReady": [{
                        "kind": "Memcached.cache.example.com",
                        "namespace": "demo",
                        "name": "web",
                        "ready": "False",
                        "synced": "True",
                        "reason": "ChildrenNotReady",
                        "message": "Deployment web\u{1b}[31m\nis not ready",
                        "lastPass": {"outcome": "settled", "secondsAgo": 7},
                    }],
                    "notReadyOmitted": 1,
                }],
                "lastFaults": [{
                    "parent": "Memcached.cache.example.com demo/web",
                    "reason": "GuestTrapped",
                    "message": "unreachable",
                    "time": "2030-01-31T08:00:00Z",
                }],
            },
            {"name": "etcd", "kinds": [{"revision": "sha256:ff", "parents": 2, "ready": 2}]},
        ],
        "somethingNew": 1,
    });
    serde_json::from_value(state).unwrap()
}

#[test]
fn lists_parents_that_are_not_ready_with_the_reason() {
    let survey = host::of_state("127.0.0.1:8080", state());
    assert!(!survey.is_well());
    expect![[r"
        host 127.0.0.1:8080 is active

        PLUGIN     SERVING  PARENTS  READY  FAULTS  REVISION
        etcd       True     2        2      0       ff
        memcached  True     3        1      2       0123456789abcdef

        2 of 5 parents are not Ready:
        PARENT                                PLUGIN     READY  SYNCED  LAST PASS         WHY
        Memcached.cache.example.com demo/web  memcached  False  True    settled, 7 s ago  ChildrenNotReady: Deployment web [31m is not ready
        and 1 more

        Last faults:
        TIME                  PLUGIN     PARENT                                FAULT
        2030-01-31T08:00:00Z  memcached  Memcached.cache.example.com demo/web  GuestTrapped: unreachable
    "]]
    .assert_eq(&show::status(&survey));
}

#[test]
fn reports_that_all_parents_are_ready() {
    let mut state = state();
    state.plugins.remove(0);
    let survey = host::of_state("h:1", state.clone());
    assert!(survey.is_well());
    assert!(show::status(&survey).ends_with("\nAll 2 parents are Ready.\n"));
    state.progress.plugins_not_served = 1;
    let survey = host::of_state("h:1", state);
    assert!(!survey.is_well());
    let text = show::status(&survey);
    assert!(
        text.starts_with("host h:1 is active; 1 plugin is not active"),
        "{text}"
    );
}

#[test]
fn a_plugin_that_waits_for_the_cache_is_not_well() {
    let mut state = state();
    state.plugins.remove(0);
    state.plugins[0].kinds[0].waiting_for = vec!["v1 Pod is being listed".to_owned()];
    let survey = host::of_state("h:1", state);
    assert!(!survey.is_well());
    let text = show::status(&survey);
    assert!(text.contains("Unknown"), "{text}");
    assert!(
        text.contains("WaitingForCache: v1 Pod is being listed"),
        "{text}"
    );
}

#[tokio::test]
async fn reports_that_no_host_answers() {
    // No process listens on port 1.
    let error = host::survey("127.0.0.1:1", PATIENCE).await.unwrap_err();
    assert_eq!(error.exit(), Exit::Failure);
    let text = error.to_string();
    assert!(
        text.starts_with("no host answers at 127.0.0.1:1: check that it is running"),
        "{text}"
    );
}
