//! The life of a Plugin on the real API server: load, swap, failure, approval, suspension and
//! deletion.

use std::{fs, path::Path, time::Duration};

use innkeeper_tests::{
    Host, astray, eventually, harmless,
    manifest::{condition, is_ready},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    stage::{Stage, is_synced, lines},
    suite::Target,
};

pub(crate) const PLUGIN: Kind<'static> = Kind {
    api_version: "innkeeper.dev/v1alpha1",
    kind: "Plugin",
    namespace: None,
};

/// The grants for a memcached Plugin.
pub(crate) fn cache_grants() -> Value {
    json!({
        "parents": [{"group": "cache.example.com", "kind": "Memcached"}],
        "children": [
            {"kind": "Service"},
            {"group": "apps", "kind": "Deployment"},
            {"group": "policy", "kind": "PodDisruptionBudget"},
        ],
        "reads": [{"kind": "Pod", "access": "full"}],
    })
}
pub(crate) const NAME: &str = "cache";
const API: &str = "cache.example.com/v1";
pub(crate) const PARENT: Target<'static> = (API, "Memcached", "example-memcached");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "example-memcached");
const SERVICE: Target<'static> = ("v1", "Service", "example-memcached");

/// A control plane for Plugins, and the options of a host without plugin files.
pub(crate) struct PluginSite {
    pub(crate) stage: Stage,
    sources: TempDir,
    pub(crate) namespace: String,
}

impl PluginSite {
    pub(crate) fn new() -> Self {
        let mut stage = Stage::full(Vec::new());
        let sources = tempfile::tempdir().unwrap();
        stage.options.arguments = ["--source-dir", sources.path().to_str().unwrap()]
            .map(str::to_owned)
            .into();
        let namespace = stage.namespace("plugins");
        Self {
            stage,
            sources,
            namespace,
        }
    }

    /// A site, and a host that serves Plugins.
    pub(crate) fn started() -> (Self, Host) {
        let site = Self::new();
        let host = site.start();
        (site, host)
    }

    /// Starts the host, and only then installs the Plugin CRD. The memcached component is in the
    /// source directory.
    pub(crate) fn start(&self) -> Host {
        let host = self.stage.host();
        self.define();
        self.put("memcached");
        let defined = ["plugins.innkeeper.dev"];
        self.stage.wait_served(&host, &defined);
        host
    }

    pub(crate) fn define(&self) {
        self.stage.install_plugin_crd();
    }

    /// Writes a guest to the source directory.
    pub(crate) fn put(&self, guest: &str) {
        let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
        self.put_bytes(&fs::read(guests.join(format!("{guest}.wasm"))).unwrap());
    }

    pub(crate) fn put_bytes(&self, bytes: &[u8]) {
        self.put_file("plugin.wasm", bytes);
    }

    pub(crate) fn put_file(&self, name: &str, bytes: &[u8]) {
        replace_file(&self.sources.path().join(name), bytes);
    }

    pub(crate) fn apply(&self, more: &Value) {
        self.apply_as(NAME, more);
    }

    pub(crate) fn apply_as(&self, name: &str, more: &Value) {
        let plugin = plugin_from_file(name, &cache_grants(), more);
        self.stage.apply_new("", &plugin);
    }

    fn plugin(&self) -> Value {
        self.plugin_of(NAME)
    }

    pub(crate) fn plugin_of(&self, name: &str) -> Value {
        self.stage
            .plane
            .user()
            .get(PLUGIN, name)
            .unwrap()
            .unwrap_or_default()
    }

    /// Waits until the Plugin has all these conditions (`Type=Status/Reason`) for the current
    /// generation.
    #[track_caller]
    pub(crate) fn wait_conditions(&self, host: &Host, expected: &[&str]) -> Value {
        self.wait_conditions_of(NAME, host, expected)
    }

    #[track_caller]
    pub(crate) fn wait_conditions_of(&self, name: &str, host: &Host, expected: &[&str]) -> Value {
        eventually(&format!("the Plugin {name} is {expected:?}"), || {
            let plugin = self.plugin_of(name);
            let generation = &plugin["metadata"]["generation"];
            let is_met = |expected: &&str| {
                let (kind, state) = expected.split_once('=').unwrap();
                condition(&plugin, kind)
                    .is_some_and(|condition| condition.starts_with(&format!("{state}:")))
            };
            if plugin["status"]["observedGeneration"] == *generation && expected.iter().all(is_met)
            {
                return Ok(plugin);
            }
            let log = host.log().unwrap_or_default();
            Err(format!(
                "it is {:#}\nthe host logged\n{log}",
                plugin["status"]
            ))
        })
    }

    fn image(&self) -> Value {
        let deployment = self.stage.get(&self.namespace, DEPLOYMENT);
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    }
}

/// Returns a Plugin from the file `plugin.wasm` with these grants, and further fields of its spec.
pub(crate) fn plugin_from_file(name: &str, grants: &Value, more: &Value) -> Value {
    let mut spec = json!({
        "source": {"file": {"path": "plugin.wasm"}},
        "grants": grants,
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Changes a component's bytes with a custom section that has no effect.
pub(crate) fn marked(bytes: &[u8]) -> Vec<u8> {
    harmless::marked(bytes, 1)
}

/// A configuration that changes a child.
fn another_image() -> Value {
    json!({"images": {"memcached": "memcached:another"}})
}

/// Replaces a file atomically, as an administrator should.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

pub(crate) const HEALTHY: [&str; 9] = [
    "Fetched=True/Fetched",
    "Verified=True/AsExpected",
    "Compiled=True/Compiled",
    "Described=True/Described",
    "Granted=True/Granted",
    "Serving=True/Serving",
    "Ready=True/Ready",
    "Degraded=False/AsDeclared",
    "RolledBack=False/NotNeeded",
];

#[test]
fn a_plugin_is_served_swapped_kept_suspended_and_deleted() {
    let site = PluginSite::new();
    let PluginSite {
        stage, namespace, ..
    } = &site;
    // The CRD may be installed after the host has started.
    let host = site.start();
    site.apply(&json!({}));
    let plugin = site.wait_conditions(&host, &HEALTHY);
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    stage.restart_collector();
    stage.apply_example(namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, namespace, PARENT, is_ready);
    let first = plugin["status"]["revision"].as_str().unwrap().to_owned();
    let service = stage.get(namespace, SERVICE);
    let labels = &service["metadata"]["labels"];
    assert_eq!(labels["innkeeper.dev/plugin"], NAME);
    let before = site.image();

    // A new configuration is a new revision, which the host activates without a restart or a prune.
    let mark = stage.mark();
    site.apply(&json!({"config": another_image()}));
    let plugin = site.wait_conditions(&host, &HEALTHY);
    let second = plugin["status"]["revision"].as_str().unwrap().to_owned();
    assert_ne!(second, first);
    stage.wait(&host, namespace, DEPLOYMENT, |deployment| {
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        container["image"] == "memcached:another"
    });
    assert_ne!(site.image(), before);
    stage.wait(&host, namespace, PARENT, is_ready);
    let written = lines(&stage.writes_since(mark));
    assert!(
        !written.iter().any(|line| line.starts_with("delete")),
        "{written:?}"
    );

    check_failures(&site, &host, &second);
    check_other_bytes(&site, &host, &second);
    check_parent_taken(&site, &host);
    check_approval(&site, &host);
    check_suspension(&site, &host);
    check_quiet(&site, &host);

    // Without the Plugin the children stay, and the host continues to run.
    let uid = stage.get(namespace, DEPLOYMENT)["metadata"]["uid"].clone();
    stage.plane.user().delete(PLUGIN, NAME).unwrap();
    eventually("the host logs that the Plugin is gone", || {
        let log = host.log().unwrap_or_default();
        let named = format!("\"plugin\":\"{NAME}\"");
        let is_it = |line: &str| line.contains("the Plugin is gone") && line.contains(&named);
        if log.lines().any(is_it) {
            Ok(())
        } else {
            Err(log)
        }
    });
    stage.settle(Duration::from_secs(2));
    assert_eq!(stage.get(namespace, DEPLOYMENT)["metadata"]["uid"], uid);

    // Another Plugin of that name takes over the existing children.
    let mark = stage.mark();
    site.apply(&json!({"config": another_image()}));
    site.wait_conditions(&host, &HEALTHY);
    stage.merge(namespace, PARENT, &json!({"spec": {"size": 2}}));
    stage.wait(&host, namespace, DEPLOYMENT, |deployment| {
        deployment["spec"]["replicas"] == 2
    });
    let written = lines(&stage.writes_since(mark));
    assert!(
        !written.iter().any(|line| line.starts_with("delete")),
        "{written:?}"
    );
    assert_eq!(stage.get(namespace, DEPLOYMENT)["metadata"]["uid"], uid);
    Stage::stop(host);
}

/// Checks that a faulty spec changes only the conditions.
fn check_failures(site: &PluginSite, host: &Host, serving: &str) {
    let good = json!({"config": another_image()});
    let wrong = json!({"config": another_image(), "digest": format!("sha256:{}", "0a".repeat(32))});
    let unfit = json!({"config": {"no-such-field": 1}});
    let missing = json!({"config": another_image(), "source": {"file": {"path": "none.wasm"}}});
    let file = site.sources.path().join("astray.wasm");
    fs::write(file, astray::wants_memory()).unwrap();
    let astray = json!({"source": {"file": {"path": "astray.wasm"}}});
    let cases: [(Value, &[&str]); 4] = [
        (
            wrong,
            &[
                "Fetched=True/Fetched",
                "Verified=False/WrongDigest",
                "Compiled=Unknown/NotReached",
                "Serving=True/Serving",
                "Degraded=True/WrongDigest",
            ],
        ),
        (
            unfit,
            &[
                "Compiled=True/Compiled",
                "Described=False/ConfigInvalid",
                "Serving=True/Serving",
                "Degraded=True/ConfigInvalid",
            ],
        ),
        (
            missing,
            &["Fetched=False/NotFound", "Degraded=True/NotFound"],
        ),
        (
            astray,
            &[
                "Verified=True/AsExpected",
                "Compiled=False/CompileLimitExceeded",
                "Described=Unknown/NotReached",
                "Serving=True/Serving",
                "Degraded=True/CompileLimitExceeded",
            ],
        ),
    ];
    for (index, (more, expected)) in cases.into_iter().enumerate() {
        site.apply(&more);
        let plugin = site.wait_conditions(host, expected);
        assert_eq!(plugin["status"]["revision"], serving);
        // The active revision still reconciles.
        let replicas = 4 + index;
        let namespace = &site.namespace;
        site.stage
            .merge(namespace, PARENT, &json!({"spec": {"size": replicas}}));
        site.stage.wait(host, namespace, DEPLOYMENT, |deployment| {
            deployment["spec"]["replicas"] == replicas
        });
    }
    site.apply(&good);
    site.wait_conditions(host, &HEALTHY);
}

/// Checks that the host fetches changed bytes from the same path with the pull policy `Always`.
fn check_other_bytes(site: &PluginSite, host: &Host, before: &str) {
    let source = json!({
        "file": {"path": "plugin.wasm"}, "pullPolicy": "Always", "pullInterval": "10s",
    });
    site.apply(&json!({"config": another_image(), "source": source}));
    site.wait_conditions(host, &HEALTHY);
    let mark = site.stage.settle(Duration::from_secs(1));
    let path = site.sources.path().join("plugin.wasm");
    let bytes = marked(&fs::read(&path).unwrap());
    replace_file(&path, &bytes);
    eventually("the revision with the other bytes is active", || {
        let status = &site.plugin()["status"];
        let is_other = status["revision"] != before && status["revision"].is_string();
        if is_other {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    site.wait_conditions(host, &HEALTHY);
    site.stage.settle(Duration::from_secs(1));
    // The component states the same children, so the host writes nothing.
    let written: Vec<String> = lines(&site.stage.writes_since(mark))
        .into_iter()
        .filter(|line| !line.contains("plugins.innkeeper.dev/status"))
        .collect();
    assert_eq!(written, Vec::<String>::new());
}

/// Checks that each parent kind has only one active plugin.
fn check_parent_taken(site: &PluginSite, host: &Host) {
    const SECOND: &str = "second";

    site.apply_as(SECOND, &json!({}));
    let refused = [
        "Granted=True/Granted",
        "Serving=False/ParentTaken",
        "Degraded=True/ParentTaken",
    ];
    site.wait_conditions_of(SECOND, host, &refused);
    site.stage.plane.user().delete(PLUGIN, SECOND).unwrap();
    site.wait_conditions(host, &HEALTHY);
}

/// Checks that a gated revision reports its changes, and waits for the approval.
fn check_approval(site: &PluginSite, host: &Host) {
    let before = site.plugin()["status"]["revision"].clone();
    let image = || json!({"images": {"memcached": "memcached:approved"}});
    site.apply(&json!({"config": image(), "rollout": {"mode": "Gated"}}));
    let waits = ["Serving=True/Serving", "Degraded=True/AwaitingApproval"];
    let status = &site.wait_conditions(host, &waits)["status"];
    assert_eq!(status["revision"], before);
    let candidate = &status["candidate"];
    assert_eq!(candidate["verdict"], "AwaitingApproval");
    let expected = json!({"parents": 1, "creates": 0, "updates": 1, "deletes": 0, "faults": 0});
    assert_eq!(candidate["counts"], expected);
    assert_ne!(site.image(), "memcached:approved");

    // Fields outside the revision affect the active revision at once.
    let suspended = json!({"config": image(), "rollout": {"mode": "Gated"}, "suspend": true});
    site.apply(&suspended);
    let waits = ["Serving=False/Suspended", "Degraded=True/AwaitingApproval"];
    let status = &site.wait_conditions(host, &waits)["status"];
    assert_eq!(status["revision"], before);
    let candidate = &status["candidate"];
    assert_eq!(candidate["verdict"], "AwaitingApproval");

    let approve = &candidate["revision"];
    site.apply(&json!({"config": image(), "rollout": {"mode": "Gated", "approve": approve}}));
    let status = &site.wait_conditions(host, &HEALTHY)["status"];
    assert_eq!(status["revision"], *approve);
    assert_eq!(status["candidate"], Value::Null);
    site.stage.wait(host, &site.namespace, DEPLOYMENT, |_| {
        site.image() == "memcached:approved"
    });
    site.apply(&json!({"config": another_image()}));
    site.wait_conditions(host, &HEALTHY);
}

/// Checks that the host only writes statuses for a suspended plugin, and applies edits after it
/// resumes.
fn check_suspension(site: &PluginSite, host: &Host) {
    let PluginSite {
        stage, namespace, ..
    } = site;
    site.apply(&json!({"config": another_image(), "suspend": true}));
    site.wait_conditions(
        host,
        &["Serving=False/Suspended", "Degraded=False/AsDeclared"],
    );
    let mark = stage.settle(Duration::from_secs(1));
    stage.merge(namespace, PARENT, &json!({"spec": {"size": 1}}));
    stage.settle(Duration::from_secs(2));
    // The host may still update the Plugin's parent counts and the parents' conditions.
    let written: Vec<String> = lines(&stage.writes_since(mark))
        .into_iter()
        .filter(|line| !line.contains("/status"))
        .collect();
    assert_eq!(written, Vec::<String>::new());
    let parent = stage.wait(host, namespace, PARENT, |parent| {
        is_synced(parent, "Unknown", "PluginNotServing")
    });
    let synced = condition(&parent, "Synced").unwrap();
    assert!(
        synced.contains(
            "Plugin cache does not serve: its condition Serving is False with the reason Suspended"
        ),
        "{synced}"
    );
    // Longer than the ten seconds after which the host checks the parents again.
    stage.settle(Duration::from_secs(12));
    site.apply(&json!({"config": another_image(), "suspend": false}));
    site.wait_conditions(host, &HEALTHY);
    stage.wait(host, namespace, PARENT, |parent| {
        is_synced(parent, "True", "Applied")
    });
    stage.wait(host, namespace, DEPLOYMENT, |deployment| {
        deployment["spec"]["replicas"] == 1
    });
}

/// Checks that the parent counts settle.
fn check_quiet(site: &PluginSite, host: &Host) {
    let PluginSite {
        stage, namespace, ..
    } = site;
    stage.wait(host, namespace, PARENT, is_ready);
    let expected = json!({"total": 1, "synced": 1, "ready": 1, "paused": 0});
    eventually("the parents are counted", || {
        let status = &site.plugin()["status"];
        match &status["parents"] {
            parents if *parents == expected && status["faults"]["count"] == 0 => Ok(()),
            _ => Err(format!("{status:#}")),
        }
    });
    // Longer than the ten seconds after which the host refreshes the counts.
    stage.settle(Duration::from_secs(12));
}
