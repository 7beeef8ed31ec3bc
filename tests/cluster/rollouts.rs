//! `kubectl apply` and `kubectl wait --for=condition=Ready` together wait until an edit is rolled out.

use std::process::Command;

use innkeeper_tests::{manifest::is_ready, process::path_from_env};
use serde_json::{Value, json};

use crate::suite::{Site, Target};

/// Waits as users do; `kubectl` ignores conditions for older generations.
fn kubectl_wait(site: &Site, (api_version, kind, name): Target<'_>) {
    let (group, _) = api_version.split_once('/').unwrap();
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .arg("kubectl")
        .arg("--kubeconfig")
        .arg(site.plane.kubeconfig())
        .arg("--cache-dir")
        .arg(site.plane.directory().join("kubectl-cache"))
        .args(["--namespace", &site.namespace, "wait", "--timeout=60s"])
        .arg("--for=condition=Ready")
        .arg(format!("{}.{group}/{name}", kind.to_lowercase()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Edits an example's parent, waits for it, and returns the child.
fn edited(example: &str, parent: Target<'_>, edit: &Value, child: Target<'_>) -> Value {
    let site = Site::with_example("rollouts", example);
    site.wait("the example is ready", parent, is_ready);
    // Two edits, so that the host may still be reporting the first one.
    site.merge(
        parent,
        &json!({ "metadata": { "annotations": { "example.org/mine": "x" } } }),
    );
    site.merge(parent, edit);
    kubectl_wait(&site, parent);
    site.get(child)
}

/// Checks that a workload's template has the edit, and that all Pods use it.
fn check_rolled_out(workload: &Value, new: &str) {
    let template = &workload["spec"]["template"];
    assert!(template.to_string().contains(new), "{template:#}");
    let status = &workload["status"];
    let replicas = &workload["spec"]["replicas"];
    let expected = json!({
        "observedGeneration": workload["metadata"]["generation"], "replicas": replicas,
        "updatedReplicas": replicas, "readyReplicas": replicas,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(status[field], *value, "{field} of {status:#}");
    }
}

#[test]
fn a_pool_of_memcached_is_ready_when_its_edit_is_rolled_out() {
    let deployment = edited(
        "examples/memcached/01-article.yaml",
        ("cache.example.com/v1", "Memcached", "example-memcached"),
        &json!({ "spec": { "image": "memcached:1.6.39" } }),
        ("apps/v1", "Deployment", "example-memcached"),
    );
    check_rolled_out(&deployment, "memcached:1.6.39");
}

#[test]
fn a_site_of_wordpress_is_ready_when_its_edit_is_rolled_out() {
    let deployment = edited(
        "examples/wordpress/01-article.yaml",
        ("example.com/v1", "Wordpress", "example-wordpress"),
        &json!({ "spec": { "image": "wordpress:6.9" } }),
        ("apps/v1", "Deployment", "example-wordpress"),
    );
    check_rolled_out(&deployment, "wordpress:6.9");
}

#[test]
fn a_cluster_of_etcd_is_ready_when_its_edit_is_rolled_out() {
    let members = edited(
        "examples/etcd/01-article.yaml",
        ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo"),
        &json!({ "spec": { "snapshotCount": 5000 } }),
        ("apps/v1", "StatefulSet", "demo"),
    );
    check_rolled_out(&members, "--snapshot-count=5000");
}

#[test]
fn a_scheduled_backup_is_ready_when_its_cron_job_has_the_edit() {
    let cron_job = edited(
        "examples/backup/03-scheduled.yaml",
        ("gobackup.io/v1", "Backup", "shop"),
        &json!({ "spec": { "schedule": { "cron": "0 3 * * *" } } }),
        ("batch/v1", "CronJob", "shop"),
    );
    assert_eq!(cron_job["spec"]["schedule"], "0 3 * * *");
}
