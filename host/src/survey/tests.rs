use expect_test::expect;
use innkeeper_cluster::present;
use innkeeper_lease::LeaseRecord;
use innkeeper_model::{Access, GroupKind, Gvk, HashKey, Object};
use innkeeper_server::{AdminClientArgs, admin::HostState};
use jiff::Timestamp;
use serde_json::json;

use super::*;

fn status(survey: &Survey) -> String {
    show::status(survey).as_str().to_owned()
}

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
    .assert_eq(&status(&survey));
}

#[test]
fn reports_that_all_parents_are_ready() {
    let mut state = state();
    state.plugins.remove(0);
    let survey = host::of_state("h:1", state.clone());
    assert!(survey.is_well());
    assert!(status(&survey).ends_with("\nAll 2 parents are Ready.\n"));
    state.progress.plugins_not_served = 1;
    let survey = host::of_state("h:1", state);
    assert!(!survey.is_well());
    let text = status(&survey);
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
    let text = status(&survey);
    assert!(text.contains("Unknown"), "{text}");
    assert!(
        text.contains("WaitingForCache: v1 Pod is being listed"),
        "{text}"
    );
}

/// Reads an object of the cluster.
fn object(json: &serde_json::Value, kind: &Gvk) -> Object {
    let json = json.as_object().unwrap();
    present(json, kind, Access::Full, &HashKey::new([0; 32])).unwrap()
}

/// A parent whose status the host cannot write has conditions of an earlier generation, or none.
#[test]
fn a_parent_without_a_report_on_its_generation_has_a_reason() {
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "web"},
        "spec": {
            "source": {"file": {"path": "web.wasm"}},
            "grants": {"parents": [{"group": "example.com", "kind": "Site"}]},
        },
    });
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Good", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2030-01-31T08:00:00Z",
        })
    };
    let parent = json!({
        "apiVersion": "example.com/v1", "kind": "Site",
        "metadata": {"name": "a", "namespace": "demo", "generation": 2},
        "status": {"conditions": [condition("Synced"), condition("Ready")]},
    });
    let mut found = cluster::ClusterSurvey::default();
    found.plugin(&object(
        &plugin,
        &Gvk::new("innkeeper.dev", "v1alpha1", "Plugin"),
    ));
    let parent = object(&parent, &Gvk::new("example.com", "v1", "Site"));
    found.parents(&GroupKind::new("example.com", "Site"), &[parent]);
    let text = status(&Survey {
        plugins: found.plugins.into_values().collect(),
        ..found.survey
    });
    assert!(text.contains("NotObserved: no pass has reported"), "{text}");
}

/// Returns the row of a Plugin of generation 2, and true if `status` ends with success.
fn row(observed: i64, conditions: &[(&str, &str, &str)]) -> (PluginRow, bool) {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status, reason)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "the cause",
                "lastTransitionTime": "2030-01-31T08:00:00Z",
            })
        })
        .collect();
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web", "generation": 2},
        "spec": {"source": {"file": {"path": "web.wasm"}}},
        "status": {"observedGeneration": observed, "conditions": conditions},
    });
    let plugin = object(&plugin, &Gvk::new("innkeeper.dev", "v1alpha1", "Plugin"));
    let mut found = cluster::ClusterSurvey::default();
    found.plugin(&plugin);
    let row = found.plugins.remove("web").unwrap();
    let survey = Survey {
        plugins: vec![row.clone()],
        ..Survey::default()
    };
    (row, survey.is_well())
}

#[test]
fn a_plugin_is_well_only_if_its_declared_revision_is_active() {
    let serving = ("Serving", "True", "Serving");
    let (well, is_well) = row(2, &[serving, ("Ready", "True", "Ready")]);
    assert_eq!((&*well.serving, &*well.reason, is_well), ("True", "", true));
    for (observed, conditions, expected) in [
        (2, vec![], ("Unknown", "")),
        (
            1,
            vec![serving, ("Ready", "True", "Ready")],
            ("True", "NotObserved"),
        ),
        (
            2,
            vec![serving, ("Ready", "False", "Unreachable")],
            ("True", "Unreachable"),
        ),
        // Not the reason NotLoaded, which only points at another condition.
        (
            2,
            vec![
                ("Serving", "False", "NotLoaded"),
                ("Ready", "False", "NotFound"),
            ],
            ("False", "NotFound"),
        ),
    ] {
        let (row, is_well) = row(observed, &conditions);
        assert_eq!((&*row.serving, &*row.reason), expected, "{conditions:?}");
        assert!(!is_well, "{conditions:?}");
    }
}

#[test]
fn a_lease_without_a_holder_or_a_renewal_is_a_problem() {
    let now: Timestamp = "2030-01-31T08:00:00Z".parse().unwrap();
    let lease = |holder: &str, renewed: Option<&str>| LeaseRecord {
        holder: holder.to_owned(),
        duration_s: 15,
        renewed: renewed.map(|time| time.parse().unwrap()),
        ..LeaseRecord::default()
    };
    let recent = Some("2030-01-31T07:59:45Z");
    let name = "hosts/innkeeper";
    assert_eq!(lapse(name, &lease("host-1", recent), now), None);
    for (lease, expected) in [
        (
            lease("", recent),
            "released the Lease hosts/innkeeper; check the Pods",
        ),
        (lease("host-1", None), "was never renewed"),
        (
            lease("host-1", Some("2030-01-31T07:59:44Z")),
            "host-1 renewed the Lease hosts/innkeeper last at 2030-01-31T07:59:44Z",
        ),
    ] {
        let problem = lapse(name, &lease, now).unwrap();
        assert!(problem.contains(expected), "{problem}");
        let survey = Survey {
            problems: vec![problem.clone()],
            ..Survey::default()
        };
        assert!(!survey.is_well());
        let text = status(&survey);
        assert!(text.contains(&format!("Problem: {problem}\n")), "{text}");
    }
}

#[tokio::test]
async fn reports_that_no_host_answers() {
    // No process listens on port 1.
    let address = "127.0.0.1:1".parse().unwrap();
    let args = AdminClientArgs::default();
    let client = Streams::of_process(|streams| AdminClient::new(&address, &args, streams));
    let error = host::survey(&client.unwrap(), PATIENCE).await.unwrap_err();
    assert_eq!(error.exit(), Exit::Failure);
    let text = error.to_string();
    assert!(
        text.starts_with("no host answers at 127.0.0.1:1: check that it is running"),
        "{text}"
    );
}
