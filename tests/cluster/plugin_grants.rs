//! Grants from an older plugin version lack the kinds for new optional features. The Plugin still
//! serves, and only parents that use such a feature report the missing grant. Plugin files without any
//! grants serve only kinds that they define.

use std::{fs, time::Duration};

use innkeeper_tests::{
    Host, harmless,
    manifest::{self, condition, is_ready},
};
use serde_json::{Value, json};

use crate::{
    etcd::let_wait,
    plugins::{PluginSite, cache_grants},
    stage::Stage,
    suite::Target,
};

/// Starts a host with this guest's Plugin, and waits until the example parent is Ready.
fn serve(guest: &str, grants: &Value, definition: &str, article: Target<'_>) -> (PluginSite, Host) {
    let (site, host) = PluginSite::started();
    site.put(guest);
    site.apply(&json!({"grants": grants}));
    site.wait_conditions(&host, &["Serving=True/Serving"]);
    let PluginSite {
        stage, namespace, ..
    } = &site;
    stage.wait_served(&host, &[definition]);
    stage.apply_example(namespace, &format!("examples/{guest}/01-article.yaml"));
    stage.wait(&host, namespace, article, is_ready);
    (site, host)
}

/// Applies a parent that uses a feature, and waits until it reports the missing kind.
fn check_reports(site: &PluginSite, host: &Host, parent: &Value, kind: &str) {
    let text = |pointer: &str| parent.pointer(pointer).unwrap().as_str().unwrap();
    let target: Target<'_> = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    site.stage.apply_new(&site.namespace, parent);
    wait_forbidden(site, host, target, kind);
}

/// Waits until a parent reports the missing kind.
fn wait_forbidden(site: &PluginSite, host: &Host, target: Target<'_>, kind: &str) {
    site.stage.wait(host, &site.namespace, target, |parent| {
        let synced = condition(parent, "Synced").unwrap_or_default();
        synced.starts_with("False/ChildForbidden") && synced.contains(kind)
    });
}

#[test]
fn a_memcached_serves_without_the_grants_of_features_that_no_parent_uses() {
    const ARTICLE: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");

    let mut grants = cache_grants();
    grants["children"].as_array_mut().unwrap().pop();
    grants["reads"][0]["access"] = json!("metadata");
    let definition = "memcacheds.cache.example.com";
    let (site, host) = serve("memcached", &grants, definition, ARTICLE);
    let article = || site.stage.get(&site.namespace, ARTICLE);
    assert_eq!(article()["status"]["nodes"].as_array().unwrap().len(), 3);

    let budget = json!({"enabled": true, "maxUnavailable": 1});
    let parent = json!({
        "apiVersion": ARTICLE.0, "kind": ARTICLE.1, "metadata": {"name": "highly-available"},
        "spec": {"size": 3, "highAvailability": {"podDisruptionBudget": budget}},
    });
    check_reports(&site, &host, &parent, "PodDisruptionBudget");
    assert!(is_ready(&article()));
    Stage::stop(host);
}

#[test]
fn a_wordpress_serves_without_the_grants_of_features_that_no_parent_uses() {
    const ARTICLE: Target<'static> = ("example.com/v1", "Wordpress", "example-wordpress");

    let grants = json!({
        "parents": [{"group": "example.com", "kind": "Wordpress"}],
        "children": [
            {"kind": "PersistentVolumeClaim"},
            {"kind": "Secret"},
            {"kind": "Service"},
            {"group": "apps", "kind": "Deployment"},
            {"group": "apps", "kind": "StatefulSet"},
        ],
        "reads": [
            {"kind": "Secret", "access": "hash"},
            {"kind": "ConfigMap", "access": "hash"},
            {"kind": "PersistentVolumeClaim", "access": "full"},
        ],
    });
    let (site, host) = serve("wordpress", &grants, "wordpresses.example.com", ARTICLE);
    let many = json!({"persistentVolumeClaim": {"accessModes": ["ReadWriteMany"]}});
    let budget = json!({"enabled": true, "maxUnavailable": 1});
    let features = [
        (
            "texts",
            "ConfigMap",
            json!({"phpConfig": "memory_limit = 1G"}),
        ),
        (
            "routes",
            "Ingress",
            json!({"routes": [{"domain": "example.com"}]}),
        ),
        (
            "budget",
            "PodDisruptionBudget",
            json!({"replicas": 2, "code": many, "podDisruptionBudget": budget}),
        ),
    ];
    for (name, kind, spec) in features {
        let parent = json!({
            "apiVersion": ARTICLE.0, "kind": ARTICLE.1, "metadata": {"name": name}, "spec": spec,
        });
        check_reports(&site, &host, &parent, kind);
    }
    assert!(is_ready(&site.stage.get(&site.namespace, ARTICLE)));
    Stage::stop(host);
}

#[test]
fn an_etcd_serves_without_the_grants_of_features_that_no_parent_uses() {
    const ARTICLE: Target<'static> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo");

    let pods = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=etcd";
    let grants = json!({
        "parents": [{"group": "etcd.ydzs.io", "kind": "EtcdCluster"}],
        "children": [
            {"kind": "ConfigMap"},
            {"kind": "PersistentVolumeClaim"},
            {"kind": "Service"},
            {"group": "apps", "kind": "StatefulSet"},
            {"group": "policy", "kind": "PodDisruptionBudget"},
        ],
        "reads": [
            {"kind": "Pod", "access": "full", "labelSelector": pods},
            {"kind": "PersistentVolumeClaim", "access": "metadata"},
            {"kind": "Secret", "access": "metadata"},
            {"group": "storage.k8s.io", "kind": "StorageClass", "access": "full", "scope": "Cluster"},
        ],
    });
    let definition = "etcdclusters.etcd.ydzs.io";
    let (site, host) = serve("etcd", &grants, definition, ARTICLE);
    let features = [
        (
            "inspected",
            "CronJob",
            json!({"inspection": {"schedule": "@hourly"}}),
        ),
        ("isolated", "NetworkPolicy", json!({"networkPolicy": {}})),
        (
            "monitored",
            "ServiceMonitor",
            json!({"monitoring": {"serviceMonitor": {}}}),
        ),
        (
            "issued",
            "Certificate",
            json!({"tls": {"peer": {"certManager": {"issuerRef": {"name": "peers"}}}}}),
        ),
    ];
    for (name, kind, mut spec) in features {
        spec["size"] = json!(1);
        let parent = json!({
            "apiVersion": ARTICLE.0, "kind": ARTICLE.1, "metadata": {"name": name}, "spec": spec,
        });
        check_reports(&site, &host, &parent, kind);
    }
    assert!(is_ready(&site.stage.get(&site.namespace, ARTICLE)));
    // A Job is needed only to replace a member.
    let_wait(site.stage.plane.user(), &site.namespace, "demo-1");
    wait_forbidden(&site, &host, ARTICLE, "Job");
    Stage::stop(host);
}

/// The grants date from before Restores and Storage conditions.
#[test]
fn a_backup_serves_without_the_grants_of_parents_that_came_later() {
    const ARTICLE: Target<'static> = ("gobackup.io/v1", "Backup", "example-backup");
    const STORAGE: Target<'static> = ("gobackup.io/v1", "Storage", "ledger");

    let present = manifest::load("examples/plugins/backup.yaml")
        .unwrap()
        .into_iter()
        .find(|object| object["kind"] == "Plugin")
        .unwrap()["spec"]["grants"]
        .take();
    let mut earlier = present.clone();
    let later = ["Restore", "Storage"];
    let is_later = |grant: &Value| later.iter().any(|kind| grant["kind"] == *kind);
    let parents = earlier["parents"].as_array_mut().unwrap();
    parents.retain(|grant| !is_later(grant));
    assert_eq!(parents.len(), 2, "{parents:?}");
    // At that time, Backups only read Storages.
    let storage = json!({"group": "gobackup.io", "kind": "Storage"});
    earlier["crds"].as_array_mut().unwrap().push(storage);
    let (site, host) = serve("backup", &earlier, "backups.gobackup.io", ARTICLE);
    let plugin = site.wait_conditions(&host, &["Granted=True/Reduced", "Ready=True/Ready"]);
    let granted = condition(&plugin, "Granted").unwrap();
    for kind in later {
        assert!(granted.contains(&format!("kind: {kind}")), "{granted}");
    }
    let example = "examples/backup/08-verified.yaml";
    site.stage.apply_example(&site.namespace, example);
    let verified: Target<'static> = ("gobackup.io/v1", "Backup", "ledger");
    site.stage.wait(&host, &site.namespace, verified, is_ready);
    let storage = site.stage.get(&site.namespace, STORAGE);
    assert!(storage["status"].is_null(), "{storage:#}");

    // Granting or revoking one kind does not affect the others.
    for (grants, expected) in [(&present, "True/"), (&earlier, "Unknown/PluginNotServing")] {
        site.apply(&json!({"grants": grants}));
        site.stage.wait(&host, &site.namespace, STORAGE, |storage| {
            condition(storage, "Synced")
                .unwrap_or_default()
                .starts_with(expected)
        });
        site.wait_conditions(&host, &["Ready=True/Ready"]);
        let article = site.stage.get(&site.namespace, ARTICLE);
        assert!(is_ready(&article), "{article:#}");
    }
    Stage::stop(host);
}

/// The grants date from before archive verification.
#[test]
fn a_backup_serves_without_the_grants_of_features_that_no_parent_uses() {
    const ARTICLE: Target<'static> = ("gobackup.io/v1", "Backup", "example-backup");

    let own = |kind: &str| json!({"group": "gobackup.io", "kind": kind});
    let read = |mut kind: Value, access: &str| {
        kind["access"] = json!(access);
        kind
    };
    let runs = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=gobackup";
    let postgresql = json!({"group": "database.gobackup.io", "kind": "PostgreSQL"});
    let s3 = json!({"group": "storage.gobackup.io", "kind": "S3"});
    let grants = json!({
        "parents": [own("Backup"), own("CronBackup"), own("Restore"), own("Storage")],
        "crds": [own("BackupModel"), own("Database"), &postgresql, &s3],
        "children": [
            {"kind": "Secret"},
            {"group": "batch", "kind": "CronJob"},
            {"group": "batch", "kind": "Job"},
        ],
        "podSecurity": "restricted",
        "reads": [
            read(own("BackupModel"), "full"),
            read(own("Database"), "full"),
            read(own("Storage"), "full"),
            read(postgresql, "full"),
            read(s3, "full"),
            read(own("Backup"), "full"),
            read(own("CronBackup"), "full"),
            read(own("Restore"), "full"),
            {"kind": "Secret", "access": "hash"},
            {"kind": "ConfigMap", "access": "hash"},
            {"kind": "PersistentVolumeClaim", "access": "metadata"},
            {"group": "batch", "kind": "Job", "access": "full", "labelSelector": runs},
            {"kind": "Pod", "access": "full", "labelSelector": runs},
        ],
    });
    let (site, host) = serve("backup", &grants, "backups.gobackup.io", ARTICLE);
    // Verification needs no additional kind.
    let example = "examples/backup/08-verified.yaml";
    site.stage.apply_example(&site.namespace, example);
    let verified: Target<'static> = ("gobackup.io/v1", "Backup", "ledger");
    site.stage.wait(&host, &site.namespace, verified, is_ready);
    let parent = json!({
        "apiVersion": ARTICLE.0, "kind": ARTICLE.1, "metadata": {"name": "state"},
        "spec": {
            "databaseRefs": [{"name": "ledger"}],
            "storageRefs": [{"name": "ledger"}],
            "schedule": {"cron": "@daily"},
            "state": {"mode": "Volume"},
        },
    });
    check_reports(&site, &host, &parent, "PersistentVolumeClaim");
    assert!(is_ready(&site.stage.get(&site.namespace, ARTICLE)));
    Stage::stop(host);
}

/// A plugin that could serve another owner's kind would control those users' objects.
#[test]
fn a_plugin_file_without_grants_serves_no_kind_that_others_defined() {
    const GROUP: &str = "idle.example.com";

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("idle.wasm");
    fs::write(&file, harmless::idle(GROUP)).unwrap();
    let mut stage = Stage::api_only(vec![file]);
    stage.apply_new("", &harmless::definition(GROUP));
    let mut host = stage.host();
    let (status, log) = host.wait_exit(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(2), "{log}");
    for part in ["parents of Idle.idle.example.com", "--grants idle=FILE"] {
        assert!(log.contains(part), "{log}");
    }

    let grants = directory.path().join("grants.yaml");
    let content = json!({
    "parents": [{"group": GROUP, "kind": "Idle"}], "children": [{"kind": "ConfigMap"}],
    });
    fs::write(&grants, content.to_string()).unwrap();
    let argument = format!("idle={}", grants.display());
    stage.options.arguments = vec!["--grants".to_owned(), argument];
    let host = stage.host();
    let namespace = stage.namespace("foreign");
    let parent = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Idle", "metadata": {"name": "a"}, "spec": {},
    });
    stage.apply_new(&namespace, &parent);
    let target: Target<'_> = (&format!("{GROUP}/v1"), "Idle", "a");
    // A trap proves that the host runs passes for the parent.
    stage.wait(&host, &namespace, target, |parent| {
        condition(parent, "Synced")
            .unwrap_or_default()
            .starts_with("False/GuestTrapped")
    });
    Stage::stop(host);
}
