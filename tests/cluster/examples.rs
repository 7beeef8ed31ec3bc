//! The shipped examples: each file applies unchanged, and the parents converge.

use std::{collections::BTreeSet, fs};

use innkeeper_tests::{
    eventually,
    manifest::{condition, condition_status, is_ready, root},
    user::Kind,
};
use serde_json::{Value, json};

use crate::suite::{GUESTS, Site, reason};

/// Reconciled kinds; they reference the examples' other objects.
const PARENTS: [&str; 7] = [
    "Memcached",
    "Wordpress",
    "EtcdCluster",
    "Backup",
    "CronBackup",
    "Restore",
    "Storage",
];

/// Parents that do not become Ready: kind, name and the reason that they report.
const NOT_READY: [(&str, &str, &str); 2] = [
    ("EtcdCluster", "paused", "Paused"),
    // The control plane has cert-manager's kinds, but nothing issues certificates.
    ("EtcdCluster", "issued", "SecretNotFound"),
];

/// Paths to a guest's examples from the repository root, in numeric order.
pub(crate) fn files(guest: &str) -> Vec<String> {
    let directory = root().join("examples").join(guest);
    let names: BTreeSet<String> = fs::read_dir(&directory)
        .expect("a guest has examples")
        .map(|entry| {
            entry
                .expect("an example can be listed")
                .file_name()
                .into_string()
                .expect("names of examples are UTF-8")
        })
        .collect();
    names
        .into_iter()
        .map(|name| format!("examples/{guest}/{name}"))
        .collect()
}

/// Makes the API server refuse Pods above the restricted level in a namespace.
pub(crate) fn restrict(site: &Site) {
    let user = site.plane.user();
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
    });
    let patch = json!({ "metadata": { "labels": labels } });
    let namespaces = Kind::cluster("v1", "Namespace");
    user.merge(namespaces, &site.namespace, &patch).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "plain", "namespace": site.namespace },
        "spec": { "containers": [{ "name": "plain", "image": "plain" }] },
    });
    // Admission sees the labels through a watch.
    eventually("Pods above the level restricted are refused", || {
        let trial = user.try_create(site.kind("v1", "Pod"), &pod).unwrap();
        let answer = format!("{trial:?}");
        if !trial.is_accepted() && answer.contains("violates PodSecurity") {
            Ok(())
        } else {
            Err(answer)
        }
    });
}

/// Applies all files to one namespace, because later files may reference objects from earlier ones.
fn check_examples(guest: &str) -> Site {
    let site = Site::new(&format!("examples-{guest}"));
    restrict(&site);
    let files = files(guest);
    assert!(
        files[0].ends_with("/01-article.yaml"),
        "the first example is the article's: {files:?}"
    );
    for file in &files {
        let objects = site.apply_example(file);
        let mut parents = objects.iter().filter(|object| is_parent(object)).peekable();
        assert!(parents.peek().is_some(), "{file} declares no parent");
        for parent in parents {
            check_converges(&site, file, parent);
        }
    }
    check_no_warnings(&site);
    site
}

/// Checks that the API server returns no warning for any workload.
fn check_no_warnings(site: &Site) {
    let user = site.plane.user();
    let selector = "app.kubernetes.io/managed-by=innkeeper";
    for (api_version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "CronJob"),
        ("batch/v1", "Job"),
    ] {
        for mut workload in user.list(site.kind(api_version, kind), selector).unwrap() {
            if kind == "Job" {
                // The API server adds these to each Job.
                workload["spec"]["selector"].take();
                workload["spec"]["template"]["metadata"].take();
            }
            let object = json!({
                "apiVersion": api_version, "kind": kind, "spec": workload["spec"],
                "metadata": { "name": "trial", "namespace": site.namespace },
            });
            let trial = user
                .try_create(site.kind(api_version, kind), &object)
                .unwrap();
            assert!(trial.is_accepted(), "{trial:?}: {object:#}");
            assert_eq!(trial.warnings, BTreeSet::new(), "{object:#}");
        }
    }
}

/// Checks that no Ready parent has a Warning event. Other guests' articles have warnings: they are
/// unsafe.
fn check_no_warning_events(site: &Site) {
    let user = site.plane.user();
    let events = user
        .list(site.kind("events.k8s.io/v1", "Event"), "")
        .unwrap();
    let is_resting = |name: &Value| NOT_READY.iter().any(|(_, its_name, _)| name == *its_name);
    let warnings = events.iter().filter(|event| {
        let regarding = &event["regarding"];
        event["type"] == "Warning" && is_parent(regarding) && !is_resting(&regarding["name"])
    });
    assert_eq!(warnings.collect::<Vec<_>>(), Vec::<&Value>::new());
}

pub(crate) fn is_parent(object: &Value) -> bool {
    PARENTS.iter().any(|kind| object["kind"] == *kind)
}

pub(crate) fn check_converges(site: &Site, file: &str, parent: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&parent["kind"]);
    let name = text(&parent["metadata"]["name"]);
    let api_version = text(&parent["apiVersion"]);
    let target = (api_version.as_str(), kind.as_str(), name.as_str());
    let resting = NOT_READY
        .iter()
        .find(|(its_kind, its_name, _)| (*its_kind, *its_name) == (kind.as_str(), name.as_str()));
    eventually(&format!("{kind} {name} of {file} converges"), || {
        let parent = site.get(target);
        let converged = match resting {
            None => is_ready(&parent),
            Some((_, _, expected)) => {
                condition_status(&parent, "Synced") == "True"
                    && reason(&parent, "Ready") == *expected
            }
        };
        if converged {
            return Ok(());
        }
        Err(format!(
            "Synced is {:?}, Ready is {:?}",
            condition(&parent, "Synced"),
            condition(&parent, "Ready")
        ))
    });
}

#[test]
fn the_examples_of_memcached_converge() {
    drop(check_examples("memcached"));
}

#[test]
fn the_examples_of_wordpress_converge() {
    drop(check_examples("wordpress"));
}

#[test]
fn the_examples_of_etcd_converge() {
    let site = check_examples("etcd");
    check_no_warning_events(&site);
}

#[test]
fn the_examples_of_backup_converge() {
    drop(check_examples("backup"));
}

#[test]
fn every_guest_has_a_directory_of_examples() {
    let directories: BTreeSet<String> = fs::read_dir(root().join("examples"))
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_dir() && entry.file_name() != "plugins")
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(directories, GUESTS.map(str::to_owned).into());
}
