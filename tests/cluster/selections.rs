//! Parent selection (`spec.parents`) on the real API server: the host releases parents that leave the
//! selection, and does not touch parents that were never in it.

use std::{fs, process::Command, time::Duration};

use innkeeper_tests::{Host, eventually, manifest::condition, process::path_from_env, user::Kind};
use serde_json::{Value, json};

use crate::{
    moody::{self, config_map},
    plugins::{HEALTHY, PLUGIN, PluginSite},
    stage::{Stage, finalizers, is_synced, lines},
    suite::Target,
};

const NAME: &str = "farewell";
const CRD: &str = "farewells.test.innkeeper.dev";
const API: &str = "test.innkeeper.dev/v1";
const FINALIZER: &str = "innkeeper.dev/farewell";

/// Well above the time for a pass and the watch events after it.
const QUIET: Duration = Duration::from_millis(800);

/// A host with a plugin that finalizes parents and selects some of them, and two namespaces.
struct SelectionFixture {
    host: Host,
    site: PluginSite,
    /// Labelled `team=a`.
    ours: String,
    /// Labelled `team=b`.
    theirs: String,
}

/// Selects parents with a tier in team a's namespaces.
fn selective() -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    })
}

impl SelectionFixture {
    /// Starts a host that serves the parents selected by `parents`.
    fn new(parents: &Value) -> Self {
        let mut site = PluginSite::new();
        // The tests count passes by their lines in the log.
        let log = ["--log", "info,innkeeper=debug"].map(str::to_owned);
        site.stage.options.arguments.extend(log);
        site.define();
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        site.put_bytes(&fs::read(guests.join("farewell.wasm")).unwrap());
        let ours = site.stage.namespace("ours");
        let theirs = site.stage.namespace("theirs");
        let host = site.stage.host_serving(&["plugins.innkeeper.dev"]);
        let fixture = Self {
            host,
            site,
            ours,
            theirs,
        };
        fixture.label_namespace(&fixture.ours, &json!({"team": "a"}));
        fixture.label_namespace(&fixture.theirs, &json!({"team": "b"}));
        fixture.select(parents);
        fixture.site.stage.wait_served(&fixture.host, &[CRD]);
        fixture.site.stage.restart_collector();
        fixture
    }

    /// Changes the Plugin's selection.
    fn select(&self, parents: &Value) {
        let mut spec = json!({
            "source": {"file": {"path": "plugin.wasm"}},
            "grants": {
                "parents": [{"group": "test.innkeeper.dev", "kind": "Farewell"}],
                "children": [{"kind": "ConfigMap"}],
                "crds": [{"group": "test.innkeeper.dev", "kind": "Farewell"}],
            },
        });
        if !parents.is_null() {
            spec["parents"] = parents.clone();
        }
        let plugin = json!({
            "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
            "metadata": {"name": NAME}, "spec": spec,
        });
        self.site.stage.apply_new("", &plugin);
        self.site.wait_conditions_of(NAME, &self.host, &HEALTHY);
    }

    fn label_namespace(&self, name: &str, labels: &Value) {
        let labels = json!({"metadata": {"labels": labels}});
        self.site
            .stage
            .merge("", ("v1", "Namespace", name), &labels);
    }

    fn label(&self, namespace: &str, name: &str, labels: &Value) {
        let labels = json!({"metadata": {"labels": labels}});
        self.site.stage.merge(namespace, parent(name), &labels);
    }

    /// Creates a parent whose guest traps in phase finalize.
    fn put(&self, namespace: &str, name: &str, labels: &Value) {
        let parent = json!({
            "apiVersion": API, "kind": "Farewell", "spec": {"end": "trap"},
            "metadata": {"name": name, "labels": labels},
        });
        self.site.stage.apply_new(namespace, &parent);
    }

    fn get(&self, namespace: &str, name: &str) -> Value {
        self.site.stage.get(namespace, parent(name))
    }

    fn child(&self, namespace: &str, name: &str) -> Value {
        let name = format!("{name}-hello");
        self.site.stage.get(namespace, config_map(&name))
    }

    #[track_caller]
    fn wait(&self, namespace: &str, name: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.site
            .stage
            .wait(&self.host, namespace, parent(name), check)
    }

    /// Waits until a parent is applied and has its finalizer.
    #[track_caller]
    fn wait_served(&self, namespace: &str, name: &str) {
        self.wait(namespace, name, |parent| {
            is_synced(parent, "True", "Applied") && finalizers(parent) == [FINALIZER]
        });
    }

    /// Waits until a parent reports that a field excludes it.
    #[track_caller]
    fn wait_unselected(&self, namespace: &str, name: &str, field: &str) {
        let parent = self.wait(namespace, name, |parent| {
            is_synced(parent, "Unknown", "NotSelected") && finalizers(parent).is_empty()
        });
        let message = condition(&parent, "Synced").unwrap();
        assert!(
            message.contains(field) && message.contains(NAME),
            "{message}"
        );
        let ready = condition(&parent, "Ready").unwrap();
        assert!(ready.starts_with("Unknown/NotSelected:"), "{ready}");
    }

    #[track_caller]
    fn wait_gone(&self, namespace: &str, target: Target<'_>) {
        eventually(&format!("{target:?} is deleted"), || {
            let log = self.host.log().unwrap_or_default();
            self.site
                .stage
                .find(namespace, target)
                .map_or(Ok(()), |object| Err(format!("{object:#}\n{log}")))
        });
    }

    /// The host's writes in both namespaces, without events.
    fn written(&self, mark: usize) -> Vec<String> {
        let writes: Vec<_> = self
            .site
            .stage
            .writes_since(mark)
            .into_iter()
            .filter(|write| [&self.ours, &self.theirs].contains(&&write.namespace))
            // The host reports the guest's trap as an event.
            .filter(|write| write.resource != "events.events.k8s.io")
            .collect();
        lines(&writes)
    }

    /// Counts the passes for parents in a namespace.
    fn passes(&self, namespace: &str) -> usize {
        let log = self.host.log().unwrap();
        let place = format!("{namespace}/");
        log.lines()
            .filter(|line| line.contains("\"pass ended\""))
            .filter(|line| line.contains(&place))
            .count()
    }

    /// Waits until the Plugin counts this many parents.
    #[track_caller]
    fn wait_total(&self, total: usize) {
        eventually("the parents are counted", || {
            let parents = self.site.plugin_of(NAME)["status"]["parents"].clone();
            if parents["total"] == total {
                Ok(())
            } else {
                Err(parents)
            }
        });
    }
}

fn parent(name: &str) -> Target<'_> {
    (API, "Farewell", name)
}

/// The host's writes for a parent that returns to the selection with an unchanged child.
fn writes_for_return(name: &str) -> Vec<String> {
    ["", "/status"]
        .map(|sub| format!("patch {CRD}{sub} {name} 200"))
        .to_vec()
}

#[test]
fn a_parent_that_leaves_the_selection_is_released_and_can_return() {
    let fixture = SelectionFixture::new(&selective());
    let ours = &fixture.ours;
    let stage = &fixture.site.stage;
    fixture.put(ours, "moves", &json!({"tier": "1"}));
    fixture.wait_served(ours, "moves");
    let uid = fixture.child(ours, "moves")["metadata"]["uid"].clone();

    // By the parent's label: the host ignores changes to the child until the parent returns.
    fixture.label(ours, "moves", &json!({"tier": null}));
    fixture.wait_unselected(ours, "moves", "spec.parents.labelSelector");
    let mark = stage.settle(QUIET);
    let changed = json!({"data": {"said": "something else"}});
    stage.merge(ours, config_map("moves-hello"), &changed);
    stage.settle(QUIET);
    assert_eq!(fixture.written(mark), [""; 0]);
    assert_eq!(fixture.child(ours, "moves")["data"], changed["data"]);
    fixture.label(ours, "moves", &json!({"tier": "2"}));
    fixture.wait_served(ours, "moves");
    assert_eq!(fixture.child(ours, "moves")["data"]["said"], "hello");

    // By the namespace's labels.
    fixture.label_namespace(ours, &json!({"team": "c"}));
    fixture.wait_unselected(ours, "moves", "spec.parents.namespaceSelector");
    let mark = stage.settle(QUIET);
    fixture.label_namespace(ours, &json!({"team": "a"}));
    fixture.wait_served(ours, "moves");
    stage.settle(QUIET);
    assert_eq!(fixture.written(mark), writes_for_return("moves"));

    // By an edit to the Plugin.
    fixture.select(&json!({"labelSelector": {"matchLabels": {"tier": "1"}}}));
    fixture.wait_unselected(ours, "moves", "spec.parents.labelSelector");
    fixture.wait_total(0);
    let mark = stage.settle(QUIET);
    fixture.select(&Value::Null);
    fixture.wait_served(ours, "moves");
    stage.settle(QUIET);
    assert_eq!(fixture.written(mark), writes_for_return("moves"));
    assert_eq!(fixture.child(ours, "moves")["metadata"]["uid"], uid);
    fixture.wait_total(1);
}

#[test]
fn a_parent_that_was_never_selected_is_not_touched() {
    let mut fixture = SelectionFixture::new(&selective());
    let stage = &fixture.site.stage;
    fixture.put(&fixture.theirs, "outside", &json!({"tier": "1"}));
    fixture.put(&fixture.ours, "bare", &json!({}));
    fixture.put(&fixture.ours, "chosen", &json!({"tier": "1"}));
    fixture.wait_served(&fixture.ours, "chosen");
    let mark = stage.settle(QUIET);
    fixture.wait_total(1);

    // Changed namespace labels trigger passes for all parents in the namespace, selected or not, and
    // for no others.
    let ours = &fixture.ours;
    let theirs = &fixture.theirs;
    for (relabelled, other) in [(theirs, ours), (ours, theirs), (theirs, ours)] {
        let before = fixture.passes(relabelled);
        let others = fixture.passes(other);
        let count = json!({"count": before.to_string()});
        fixture.label_namespace(relabelled, &count);
        eventually(
            "the parents in the namespace have a pass",
            || match fixture.passes(relabelled) {
                passes if passes > before => Ok(()),
                passes => Err(passes),
            },
        );
        stage.settle(QUIET);
        assert_eq!(fixture.passes(other), others);
    }
    assert_eq!(fixture.written(mark), [""; 0]);

    // The host does not touch them after a restart or at their deletion either.
    let mark = stage.mark();
    let host = stage.host();
    let old = std::mem::replace(&mut fixture.host, host);
    Stage::stop(old);
    let stage = &fixture.site.stage;
    fixture
        .site
        .wait_conditions_of(NAME, &fixture.host, &HEALTHY);
    fixture.label(&fixture.ours, "chosen", &json!({"tier": "2"}));
    eventually("all parents have a pass", || {
        match (
            fixture.passes(&fixture.theirs),
            fixture.passes(&fixture.ours),
        ) {
            (1.., 2..) => Ok(()),
            passes => Err(format!("{passes:?}")),
        }
    });
    stage.delete(&fixture.theirs, parent("outside"));
    fixture.wait_gone(&fixture.theirs, parent("outside"));
    stage.settle(QUIET);
    assert_eq!(fixture.written(mark), [""; 0]);
    let audit = stage.plane.audit().by_host_since(0).unwrap();
    let untouched = |name: &str| name.starts_with("outside") || name.starts_with("bare");
    let touched: Vec<String> = audit
        .iter()
        .filter(|write| untouched(&write.name))
        .map(innkeeper_tests::Write::line)
        .collect();
    assert_eq!(touched, [""; 0]);
    assert_eq!(fixture.get(&fixture.ours, "bare")["status"], Value::Null);

    // The host serves a parent as soon as it is selected.
    fixture.label(&fixture.ours, "bare", &json!({"tier": "1"}));
    fixture.wait_served(&fixture.ours, "bare");
    fixture.wait_total(2);
}

#[test]
fn a_parent_outside_of_the_selection_can_be_deleted() {
    let fixture = SelectionFixture::new(&selective());
    let ours = &fixture.ours;
    let stage = &fixture.site.stage;
    for name in ["before", "after"] {
        fixture.put(ours, name, &json!({"tier": "1"}));
        fixture.wait_served(ours, name);
    }
    // The first parent leaves before its deletion, so the host does not call the guest, which would
    // block the deletion.
    fixture.label(ours, "before", &json!({"tier": null}));
    fixture.wait_unselected(ours, "before", "spec.parents.labelSelector");
    stage.delete(ours, parent("before"));
    // The second parent leaves while the guest blocks the deletion.
    stage.delete(ours, parent("after"));
    fixture.wait(ours, "after", |parent| {
        is_synced(parent, "False", "GuestTrapped") && finalizers(parent) == [FINALIZER]
    });
    fixture.label(ours, "after", &json!({"tier": null}));
    for name in ["before", "after"] {
        fixture.wait_gone(ours, parent(name));
        fixture.wait_gone(ours, config_map(&format!("{name}-hello")));
    }
}

#[test]
fn two_hosts_do_not_overwrite_each_others_conditions() {
    let fixture = SelectionFixture::new(&selective());
    let ours = &fixture.ours;
    let stage = &fixture.site.stage;
    fixture.put(ours, "shared", &json!({"tier": "1"}));
    fixture.wait_served(ours, "shared");
    fixture.label(ours, "shared", &json!({"tier": null}));
    fixture.wait_unselected(ours, "shared", "spec.parents.labelSelector");
    // The test imitates another host that serves the parent now.
    let now = "2026-01-01T00:00:00Z";
    let status = json!({
        "apiVersion": API, "kind": "Farewell",
        "metadata": {"name": "shared", "namespace": ours},
        "status": {"conditions": [{
            "type": "Synced", "status": "True", "reason": "Applied", "message": "",
            "lastTransitionTime": now, "observedGeneration": 1,
        }]},
    });
    stage
        .plane
        .user()
        .apply_status_as("innkeeper:other:host", &status)
        .unwrap();
    let mark = stage.settle(QUIET);
    fixture.label(ours, "shared", &json!({"more": "1"}));
    stage.merge(ours, parent("shared"), &json!({"spec": {"end": "keep"}}));
    stage.settle(QUIET);
    assert_eq!(fixture.written(mark), [""; 0]);
    let shared = fixture.get(ours, "shared");
    assert_eq!(condition(&shared, "Synced").unwrap(), "True/Applied: ");
}

/// Runs `innkeeper status` against the stage's cluster, and returns the exit code and the JSON output.
fn status(stage: &Stage) -> (Option<i32>, Value) {
    let output = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["status", "--kubeconfig"])
        .arg(stage.plane.kubeconfig())
        .args(["-o", "json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let document = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), document)
}

#[test]
fn status_dry_run_and_rollback_consider_only_selected_parents() {
    let mut fixture = moody::MoodyFixture::new(3);
    let arguments = &mut fixture.site.stage.options.arguments;
    // A host without a lease would be a problem for `status`.
    arguments.push("--leader-elect".to_owned());
    let host = fixture.start();
    let stage = &fixture.site.stage;
    let namespace = &fixture.site.namespace;
    let label = json!({"metadata": {"labels": {"team": "x"}}});
    let name = moody::name(0);
    stage.merge(namespace, (API, "Moody", &name), &label);
    let mut selecting = moody::good("one");
    selecting["parents"] = json!({"labelSelector": {"matchLabels": {"team": "x"}}});
    fixture.apply(&selecting);
    fixture.wait_healthy(&host);
    for number in 1..3 {
        let name = moody::name(number);
        let is_released = |parent: &Value| is_synced(parent, "Unknown", "NotSelected");
        stage.wait(&host, namespace, (API, "Moody", &name), is_released);
    }
    // This parent was never selected.
    fixture.put(3, &json!({}));
    eventually("the only parent is counted", || {
        let parents = fixture.status()["parents"].clone();
        let expected = json!({"total": 1, "synced": 1, "ready": 1, "paused": 0});
        if parents == expected {
            Ok(())
        } else {
            Err(parents)
        }
    });
    let (code, survey) = status(stage);
    assert_eq!(code, Some(0), "{survey:#}");
    assert_eq!(survey["plugins"][0]["parents"], 1);
    assert_eq!(survey["plugins"][0]["ready"], 1);
    // Unselected parents count neither as Ready nor as not Ready.
    assert_eq!(survey["parents"], json!([]), "{survey:#}");

    // A candidate revision does not affect the other parents.
    let mut nothing = moody::mood("nothing");
    nothing["parents"] = selecting["parents"].clone();
    nothing["rollout"] = json!({"maxPrunes": 0});
    fixture.apply(&nothing);
    let waits = ["Serving=True/Serving", "Degraded=True/TooManyPrunes"];
    let candidate = &fixture.wait(&host, &waits)["candidate"];
    let expected = json!({"parents": 1, "creates": 0, "updates": 0, "deletes": 1, "faults": 0});
    assert_eq!(candidate["counts"], expected);

    // With one selected parent, its fault counts as 100 %.
    let mut trap = moody::mood("trap");
    trap["parents"] = selecting["parents"].clone();
    fixture.apply(&fixture.approved(&host, &trap));
    fixture.wait(
        &host,
        &["Serving=True/Serving", "RolledBack=True/TooManyFaults"],
    );
    let config_maps = Kind::new("v1", "ConfigMap", namespace);
    let children = stage.plane.user().list(config_maps, "innkeeper.dev/plugin");
    assert_eq!(children.unwrap().len(), 3);
    Stage::stop(host);
}
