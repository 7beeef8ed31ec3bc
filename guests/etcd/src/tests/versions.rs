//! Versions in image tags, their order, and allowed upgrades.

use super::*;
use crate::{
    upgrade,
    version::{Version, check_upgrade},
};

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

#[test]
fn a_tag_names_a_version_and_perhaps_a_build_of_it() {
    for (image, expected) in [
        ("etcd:3.6.14", Some("3.6.14")),
        ("quay.io/coreos/etcd:v3.6.14", Some("3.6.14")),
        ("a/etcd:v3.5.1-debian@sha256:0", Some("3.5.1")),
        // Builds: a number, or the name of a distribution or a processor.
        ("registry.k8s.io/etcd:3.5.9-0", Some("3.5.9")),
        ("bitnami/etcd:3.5.21-debian-12-r3", Some("3.5.21")),
        ("etcd:v3.6.14-amd64", Some("3.6.14")),
        ("etcd:3.6.14-alpine3.20", Some("3.6.14")),
        ("etcd:3.6.14-rc", Some("3.6.14-rc")),
        ("etcd:3.6.14-r3", Some("3.6.14")),
        ("rancher/etcd:v3.5.9-k3s1", Some("3.5.9")),
        ("etcd:v3.5.21.1", Some("3.5.21")),
        // Pre-releases.
        ("etcd:v3.6.0-rc.0", Some("3.6.0-rc.0")),
        ("etcd:v3.6.0-rc1", Some("3.6.0-rc.1")),
        ("etcd:3.6.0rc1", Some("3.6.0-rc.1")),
        ("etcd:v3.6.0-RC.1", Some("3.6.0-rc.1")),
        ("etcd:3.6.0-alpha", Some("3.6.0-alpha")),
        ("etcd:3.6.0-beta.2-debian-12-r0", Some("3.6.0-beta.2")),
        ("etcd:3.5.0-pre", Some("3.5.0-pre")),
        // No version.
        ("registry:5000/etcd", None),
        ("etcd:v3.6", None),
        ("etcd:latest", None),
        ("etcd:debian-3.6.14", None),
        ("etcd:99999999999.0.0", None),
        ("etcd@sha256:0", None),
    ] {
        let parsed = Version::from_image(image).map(|version| version.to_string());
        assert_eq!(parsed.as_deref(), expected, "{image}");
        // The record and the status keep the text.
        let again = parsed.as_deref().and_then(Version::parse);
        assert_eq!(again, Version::from_image(image), "{image}");
    }
}

#[test]
fn releases_before_a_version_come_before_it() {
    let ascending = [
        "3.5.26",
        "3.6.0-alpha",
        "3.6.0-alpha.0",
        "3.6.0-alpha.2",
        "3.6.0-alpha.10",
        "3.6.0-beta.1",
        "3.6.0-pre",
        "3.6.0-rc.0",
        "3.6.0-rc.9",
        "3.6.0-rc.10",
        "3.6.0",
        "3.6.1-rc.0",
        "3.6.1",
        "3.7.0-alpha.0",
        "4.0.0-rc.0",
    ];
    for pair in ascending.windows(2) {
        assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
    }
    assert_eq!(version("3.5.9-0"), version("3.5.9-12"));
}

#[test]
fn versions_go_one_minor_at_a_time_and_never_back() {
    let least = |version: &str| format!(", go to {version} or later first");
    let step = || ", go one minor version at a time".to_owned();
    for (from, to, problem) in [
        ("3.4.13", "v3.5.0", None),
        ("3.5.1", "3.5.9", None),
        ("3.5.1", "3.5.1", None),
        ("3.5.9-0", "3.5.9-1", None),
        ("3.7.0", "3.8.0", None),
        ("3.4.0", "3.6.0", Some(step())),
        ("3.4.0", "4.0.0", Some(step())),
        ("3.4.13", "3.6.0-rc.0", Some(step())),
        // Upstream supports upgrades to the next minor version only from these patches on.
        ("3.5.25", "3.6.14", Some(least("3.5.26"))),
        ("3.5.25", "3.6.0-rc.0", Some(least("3.5.26"))),
        ("3.5.26-rc.0", "3.6.14", Some(least("3.5.26"))),
        ("3.5.26", "3.6.0", None),
        ("3.5.26", "3.6.0-rc.0", None),
        ("3.6.0-rc.0", "3.6.0-rc.1", None),
        ("3.6.0-rc.1", "3.6.0", None),
        ("3.6.10", "3.7.1", Some(least("3.6.11"))),
        ("3.6.11-rc.1", "3.7.0-rc.0", Some(least("3.6.11"))),
        ("3.6.11", "3.7.0", None),
    ] {
        let expected = problem.map(|problem| {
            format!("spec.version: upgrade from {from} to {to} is not allowed{problem}")
        });
        let result = check_upgrade("spec.version", version(from), version(to));
        assert_eq!(result.err(), expected, "{from} {to}");
    }
    for (from, to) in [
        ("3.5.1", "3.5.0"),
        ("3.6.0", "3.5.26"),
        ("3.6.0", "3.6.0-rc.1"),
        ("3.6.0-rc.1", "3.6.0-rc.0"),
        ("3.6.0-rc.10", "3.6.0-rc.9"),
        ("3.6.0-beta.1", "3.6.0-alpha.2"),
    ] {
        assert_eq!(
            check_upgrade("spec.image", version(from), version(to)).unwrap_err(),
            format!("spec.image: downgrade from {from} to {to} is not allowed")
        );
    }
}

#[test]
fn a_release_before_a_minor_version_has_what_that_brings() {
    for (text, has_health, snapshots_from_3_6) in [
        ("3.4.13", false, false),
        ("3.4.29", true, false),
        ("3.5.10", false, false),
        ("3.5.11", true, false),
        ("3.5.11-0", true, false),
        ("3.6.0-rc.0", true, false),
        ("3.6.0", true, false),
        ("3.7.0-rc.0", true, true),
        ("3.7.0", true, true),
    ] {
        let version = version(text);
        assert_eq!(version.has_health_endpoints(), has_health, "{text}");
        let current = Version::new(3, 6, 14);
        let needs = upgrade::needs_snapshots(current, version);
        assert_eq!(needs, snapshots_from_3_6, "{text}");
    }
    let flag = |version: &str| {
        let parent =
            parent(json!({ "version": version, "options": { "experimental-memory-mlock": "" } }));
        let request = TestRequest::new(&parent).build();
        Plugin::reconcile(&request, &host()).is_ok()
    };
    assert!(flag("3.6.14"));
    assert!(!flag("3.7.0-rc.0"));
}
