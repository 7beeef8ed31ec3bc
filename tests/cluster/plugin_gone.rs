//! Parents of deleted Plugins report that nothing reconciles them any more, also when the API server
//! refuses some of these writes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, eventually,
    manifest::{condition, root},
    pages::Page,
    process::path_from_env,
    user::{Kind, User},
};
use serde_json::{Value, json};

use crate::{
    pages::PROGRAMS,
    plugins::{HEALTHY, NAME, PARENT, PLUGIN, PluginSite},
    stage::{Stage, finalizers, is_applied, is_synced},
    status::{FINDING, run},
    suite::Target,
};

const CRD: &str = "memcacheds.cache.example.com";

fn delete_plugin(site: &PluginSite, name: &str) {
    let kind = Kind::cluster(PLUGIN.api_version, PLUGIN.kind);
    site.stage.plane.user().delete(kind, name).unwrap();
}

/// Starts a host that serves the memcached Plugin and one parent.
fn serve_article() -> (PluginSite, Host) {
    let (site, host) = PluginSite::started();
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    let stage = &site.stage;
    let namespace = &site.namespace;
    stage.wait_served(&host, &[CRD]);
    stage.apply_example(namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, namespace, PARENT, is_applied);
    (site, host)
}

/// Otherwise the last pass's condition would claim for ever that all children are up to date.
#[test]
fn parents_of_a_deleted_plugin_say_so_until_it_is_there_again() {
    let (site, host) = serve_article();
    let PluginSite {
        stage, namespace, ..
    } = &site;

    delete_plugin(&site, NAME);
    let is_gone = |parent: &Value| is_synced(parent, "Unknown", "PluginGone");
    let parent = stage.wait(&host, namespace, PARENT, is_gone);
    let ready = condition(&parent, "Ready").unwrap();
    assert!(ready.starts_with("Unknown/PluginGone"), "{ready}");
    let kubeconfig = stage.plane.kubeconfig();
    let status = run(&["status", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&status.stdout);
    assert_eq!(status.status.code(), Some(FINDING), "{text}");
    assert!(
        text.contains("PluginGone: Plugin cache was deleted"),
        "{text}"
    );

    // Another finalizer keeps a parent in deletion.
    let (api_version, kind, name) = PARENT;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/stays"]}});
    stage.merge(namespace, PARENT, &finalizer);
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    stage.wait(&host, namespace, PARENT, is_applied);
    let kind = Kind::new(api_version, kind, namespace);
    stage.plane.user().delete(kind, name).unwrap();
    delete_plugin(&site, NAME);
    let parent = stage.wait(&host, namespace, PARENT, is_gone);
    let synced = condition(&parent, "Synced").unwrap();
    assert!(
        synced.ends_with("is being deleted and waits for the finalizer example.com/stays"),
        "{synced}"
    );
    Stage::stop(host);
}

/// The host also finds these parents at the start.
#[test]
fn parents_of_a_plugin_that_is_deleted_without_a_host_say_so_after_the_next_start() {
    let (site, host) = serve_article();
    let PluginSite {
        stage, namespace, ..
    } = &site;
    Stage::stop(host);
    delete_plugin(&site, NAME);
    let host = stage.host();
    let is_gone = |parent: &Value| is_synced(parent, "Unknown", "PluginGone");
    stage.wait(&host, namespace, PARENT, is_gone);
    // Once all parents report it, no host looks for them again.
    eventually("the inventory forgets the Plugin", || {
        let name = "innkeeper-inventory";
        let inventory = stage.get("innkeeper-system", ("v1", "ConfigMap", name));
        let key = format!("{NAME}.served");
        inventory["data"].get(key).cloned().map_or(Ok(()), Err)
    });
    Stage::stop(host);
}

const FAREWELL: Target<'static> = ("test.innkeeper.dev/v1", "Farewell", "parent");

/// Runs the commands from the install page that remove finalizers, for this parent kind.
fn release_by_hand(kubeconfig: &Path, kind: &str) {
    let pages = Page::all().unwrap();
    let blocks = pages
        .iter()
        .find(|page| page.path == "deploy/README.md")
        .unwrap()
        .blocks();
    let block = blocks
        .iter()
        .find(|block| block.commands.contains("kubectl replace"));
    let commands = &block.unwrap().commands;
    let shown = "etcdclusters.etcd.ydzs.io";
    assert!(commands.contains(shown), "{commands}");
    let programs = tempfile::tempdir().unwrap();
    for (name, variable) in PROGRAMS {
        symlink(path_from_env(variable).unwrap(), programs.path().join(name)).unwrap();
    }
    let path = format!("export PATH=\"{}:$PATH\"\n", programs.path().display());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c"])
        .arg(path + &commands.replace(shown, kind))
        .current_dir(root())
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// After the host is uninstalled, deleted Plugins and parents keep the host's finalizers. The
/// documented commands remove them.
#[test]
fn finalizers_of_a_host_that_is_gone_are_removed_by_hand() {
    const NAME: &str = "farewell";
    let site = PluginSite::new();
    let PluginSite {
        stage, namespace, ..
    } = &site;
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let host = stage.host();
    site.define();
    site.put_bytes(&fs::read(guests.join("farewell.wasm")).unwrap());
    let group = "test.innkeeper.dev";
    let grants = json!({
        "parents": [{"group": group, "kind": "Farewell"}],
        "children": [{"kind": "ConfigMap"}],
        "crds": [{"group": group, "kind": "Farewell"}],
    });
    site.apply_as(NAME, &json!({"grants": grants}));
    site.wait_conditions_of(NAME, &host, &HEALTHY);
    stage.wait_served(&host, &["farewells.test.innkeeper.dev"]);
    let (api_version, kind, name) = FAREWELL;
    let parent = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "finalizers": ["example.com/stays"]},
        "spec": {"end": "trap"},
    });
    stage.apply_new(namespace, &parent);
    stage.wait(&host, namespace, FAREWELL, is_applied);
    Stage::stop(host);

    stage.delete(namespace, FAREWELL);
    delete_plugin(&site, NAME);
    let kubeconfig = stage.plane.kubeconfig();
    let status = run(&["status", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(
        text.contains("no host has observed this generation yet"),
        "{text}"
    );
    release_by_hand(&kubeconfig, "farewells.test.innkeeper.dev");
    eventually("the Plugin is deleted", || {
        let plugin = site.plugin_of(NAME);
        if plugin.is_null() {
            Ok(())
        } else {
            Err(plugin)
        }
    });
    // Other finalizers stay.
    let parent = stage.get(namespace, FAREWELL);
    assert_eq!(finalizers(&parent), ["example.com/stays"]);
}

/// How long the API server refuses the host's writes.
const REFUSED_FOR: Duration = Duration::from_secs(25);

/// The host's user name and role name.
const USER: &str = "innkeeper";

/// Applies a role with the host's permissions, with or without those for the parent status.
fn allow(stage: &Stage, with_status: bool) {
    let api = "rbac.authorization.k8s.io/v1";
    let groups = [
        "",
        "apiextensions.k8s.io",
        "apps",
        "events.k8s.io",
        "innkeeper.dev",
        "policy",
    ];
    let resources: &[&str] = if with_status {
        &["memcacheds", "memcacheds/finalizers", "memcacheds/status"]
    } else {
        &["memcacheds", "memcacheds/finalizers"]
    };
    let role = json!({
        "apiVersion": api, "kind": "ClusterRole", "metadata": {"name": USER},
        "rules": [
            {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": ["cache.example.com"], "resources": resources, "verbs": ["*"]},
        ],
    });
    let binding = json!({
        "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    for object in [role, binding] {
        stage.plane.user().apply(&object).unwrap();
    }
}

/// The host's role lacks permission for the parent status.
#[test]
fn forbidden_writes_to_parents_without_passes_come_ever_less_often() {
    check_refused_writes(allow);
}

/// A policy denies all writes to the parent status.
#[test]
fn denied_writes_to_parents_without_passes_come_ever_less_often() {
    check_refused_writes(|stage, is_allowed| {
        for object in denial() {
            if is_allowed {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let api_version = text(&object["apiVersion"]);
                let kind = text(&object["kind"]);
                let kind = Kind::cluster(&api_version, &kind);
                let name = text(&object["metadata"]["name"]);
                stage.plane.user().delete(kind, &name).unwrap();
            } else {
                stage.apply_new("", &object);
            }
        }
    });
}

/// While the API server refuses writes to the parents of a suspended Plugin, the host retries with
/// backoff, logs one warning for all parents, and does not claim success. `set` allows or denies the
/// writes.
fn check_refused_writes(set: impl Fn(&Stage, bool)) {
    const PARENTS: usize = 12;
    let site = PluginSite::new();
    let PluginSite {
        stage, namespace, ..
    } = &site;
    allow(stage, true);
    let kubeconfig = stage.plane.directory().join("kubeconfig-innkeeper");
    let host = Host::start(&kubeconfig, &stage.options).unwrap();
    site.define();
    site.put("memcached");
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    site.stage.wait_served(&host, &[CRD]);
    let (api_version, kind, _) = PARENT;
    let names: Vec<String> = (0..PARENTS)
        .map(|number| format!("cache-{number}"))
        .collect();
    for name in &names {
        let parent = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
            "spec": {"size": 1},
        });
        stage.apply_new(namespace, &parent);
    }
    for name in &names {
        stage.wait(&host, namespace, (api_version, kind, name), is_applied);
    }
    set(stage, false);
    let user = User::connect_as(&stage.plane.kubeconfig(), USER).unwrap();
    eventually("the API server refuses", || {
        let kind = Kind::new(api_version, kind, namespace);
        let status = json!({"status": {}});
        match user.merge_status(kind, &names[0], &status) {
            Ok(_) => Err("it does not"),
            Err(_) => Ok(()),
        }
    });
    site.apply(&json!({"suspend": true}));
    let warning = "failed to write the status of parents whose plugin does not serve";
    crate::stage::wait_logged(&host, "the refusal is logged", warning);
    let refused = Instant::now();
    let mark = stage.mark();
    eventually("the time is over", || {
        if refused.elapsed() < REFUSED_FOR {
            Err("wait")
        } else {
            Ok(())
        }
    });
    let attempts = stage
        .writes_since(mark)
        .iter()
        .filter(|write| write.resource == "memcacheds.cache.example.com/status")
        .count();
    // The backoff is 1, 2, 4, 8 and 16 s.
    assert!((1..=5 * PARENTS).contains(&attempts), "{attempts}");
    let log = host.log().unwrap();
    let warnings = log.matches(warning).count();
    assert!((1..=6).contains(&warnings), "{warnings}\n{log}");
    assert!(
        !log.contains("failed to write the status of a parent"),
        "{log}"
    );
    assert!(!log.contains("told parents"), "{log}");
    set(stage, true);
    for name in &names {
        stage.wait(&host, namespace, (api_version, kind, name), |parent| {
            is_synced(parent, "Unknown", "PluginNotServing")
        });
    }
    Stage::stop(host);
}

/// A policy that denies every status update for a Memcached.
fn denial() -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-status"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["cache.example.com"], "apiVersions": ["*"], "operations": ["UPDATE"],
                    "resources": ["memcacheds/status"],
                }]},
                "validations": [{"expression": "false", "message": "no status"}],
            },
        }),
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-status"},
            "spec": {"policyName": "no-status", "validationActions": ["Deny"]},
        }),
    ]
}
