//! The wordpress plugin on the shared host: start order, and passwords and data that outlive the parent.

use innkeeper_tests::manifest::{condition, condition_status};
use serde_json::{Value, json};

use crate::suite::{Site, Target, reason, retained_for};

const PARENT: Target<'static> = ("example.com/v1", "Wordpress", "example-wordpress");
const WEB: Target<'static> = ("apps/v1", "Deployment", "example-wordpress");
const WEB_SERVICE: Target<'static> = ("v1", "Service", "example-wordpress");
const DATABASE: Target<'static> = ("apps/v1", "StatefulSet", "example-wordpress-mysql");
const DATABASE_SERVICE: Target<'static> = ("v1", "Service", "example-wordpress-mysql");
const PASSWORDS: Target<'static> = ("v1", "Secret", "example-wordpress-mysql");
const SALTS: Target<'static> = ("v1", "Secret", "example-wordpress-wp");
const DATA: Target<'static> = ("v1", "PersistentVolumeClaim", "example-wordpress-mysql");
const FILES: Target<'static> = ("v1", "PersistentVolumeClaim", "example-wordpress-code");
const PHP: Target<'static> = ("v1", "ConfigMap", "example-wordpress-php");

/// The children that outlive the parent.
const RETAINED: [Target<'static>; 4] = [PASSWORDS, SALTS, DATA, FILES];

/// The children that are deleted with the parent.
const OWNED: [Target<'static>; 4] = [WEB, WEB_SERVICE, DATABASE, DATABASE_SERVICE];

fn article(prefix: &str) -> (Site, Value) {
    Site::with_ready_example(prefix, "examples/wordpress/01-article.yaml", PARENT)
}

#[test]
fn the_article_becomes_ready() {
    let (site, parent) = article("wordpress-article");
    let url = format!("http://example-wordpress.{}.svc", site.namespace);
    assert_eq!(parent["status"]["url"], url);
    assert_eq!(parent["status"]["database"]["mode"], "Managed");
    assert_eq!(
        parent["status"]["retained"],
        json!([
            "PersistentVolumeClaim/example-wordpress-code",
            "PersistentVolumeClaim/example-wordpress-mysql",
            "Secret/example-wordpress-mysql",
            "Secret/example-wordpress-wp",
        ])
    );
    for target in OWNED {
        let owner = &site.get(target)["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], parent["metadata"]["uid"], "{target:?}");
        assert_eq!(owner["controller"], true, "{target:?}");
    }
    let identity = format!("example.com/Wordpress/{}/example-wordpress", site.namespace);
    for target in RETAINED {
        let metadata = &site.get(target)["metadata"];
        assert_eq!(retained_for(metadata), identity, "{target:?}");
        assert!(metadata["ownerReferences"].is_null(), "{target:?}");
    }
    assert_eq!(site.get(WEB_SERVICE)["spec"]["type"], "NodePort");
    // A start is no problem.
    let events = site
        .plane
        .user()
        .list(site.kind("events.k8s.io/v1", "Event"), "")
        .unwrap();
    let reasons: Vec<&Value> = events
        .iter()
        .filter(|event| event["regarding"]["kind"] == "Wordpress" && event["type"] == "Warning")
        .map(|event| &event["reason"])
        .collect();
    assert!(
        !reasons.contains(&&json!("DatabaseUnavailable")),
        "{reasons:?}"
    );
}

// The host generates the passwords at creation; the root password is the one in the spec, "abc".
#[test]
fn the_passwords_are_made_once_and_stay_out_of_the_pods() {
    let (site, _) = article("wordpress-passwords");
    let secret = site.get(PASSWORDS);
    assert_eq!(secret["data"]["root-password"], "YWJj");
    assert_eq!(secret["data"]["password"].as_str().unwrap().len(), 44);
    assert_eq!(site.get(SALTS)["data"].as_object().unwrap().len(), 8);
    let environment =
        site.get(DATABASE)["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let root = environment.as_array().unwrap();
    let root = root
        .iter()
        .find(|variable| variable["name"] == "MYSQL_ROOT_PASSWORD")
        .expect("the database is given its root password");
    assert!(root["value"].is_null(), "{root}");
    assert_eq!(
        root["valueFrom"]["secretKeyRef"]["name"],
        "example-wordpress-mysql"
    );

    let mark = site.settle();
    site.merge(PARENT, &json!({ "spec": { "sqlrootpassword": "other" } }));
    site.wait_ready(PARENT);
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());
    assert_eq!(site.get(PASSWORDS)["data"], secret["data"]);
}

// `after`: the host creates the site's children only when the database is ready.
#[test]
fn the_site_waits_for_its_database() {
    let site = Site::new("wordpress-order");
    let mark = site.settle();
    site.apply_example("examples/wordpress/01-article.yaml");
    site.wait_ready(PARENT);
    site.settle();
    let writes = site.child_writes_since(mark);
    let position = |line: &str| {
        writes
            .iter()
            .position(|write| write == line)
            .unwrap_or_else(|| panic!("no {line:?} in {writes:#?}"))
    };
    let database = position("patch statefulsets.apps example-wordpress-mysql 201");
    for early in [
        "patch secrets example-wordpress-mysql 201",
        "patch persistentvolumeclaims example-wordpress-mysql 201",
    ] {
        assert!(position(early) < database, "{writes:#?}");
    }
    let web = position("patch deployments.apps example-wordpress 201");
    for late in [
        "patch secrets example-wordpress-wp 201",
        "patch persistentvolumeclaims example-wordpress-code 201",
        "patch services example-wordpress 201",
    ] {
        assert!(database < position(late), "{writes:#?}");
        assert!(position(late) < web, "{writes:#?}");
    }
    // Each child is written once: nothing is corrected after its creation. The database's claim records the image
    // once it has been ready.
    assert_eq!(writes.len(), 9, "{writes:#?}");
}

#[test]
fn an_image_of_the_database_that_never_became_ready_is_taken_back() {
    let (site, _) = article("wordpress-image-back");
    let pod = ("v1", "Pod", "example-wordpress-mysql-0");
    let image = |image: Option<&str>| {
        let managed = json!({ "image": image });
        site.merge(
            PARENT,
            &json!({ "spec": { "database": { "managed": managed } } }),
        );
    };
    image(Some("mysql:84"));
    site.wait("the Pod has the image", pod, |pod| {
        pod["spec"]["containers"][0]["image"] == "mysql:84"
    });
    let annotations = json!({ "controlplane.test/ready": "false" });
    site.merge(pod, &json!({ "metadata": { "annotations": annotations } }));
    site.wait("the parent is not Ready", PARENT, |parent| {
        condition_status(parent, "DatabaseReady") == "False"
    });
    image(None);
    site.wait("the broken Pod is replaced", pod, |pod| {
        pod["spec"]["containers"][0]["image"] == "mysql:8.4"
    });
    site.wait_ready(PARENT);
}

// The control plane's storage class lets no claim grow.
#[test]
fn a_size_that_a_claim_did_not_take_is_taken_back() {
    let (site, _) = article("wordpress-size-back");
    let grow = |size: &str| {
        let claim = json!({ "size": size });
        site.merge(
            PARENT,
            &json!({ "spec": { "code": { "persistentVolumeClaim": claim } } }),
        );
    };
    grow("20Gi");
    let parent = site.wait("the parent is Degraded", PARENT, |parent| {
        reason(parent, "Degraded") == "ClaimNotGrown"
    });
    assert_eq!(condition_status(&parent, "Ready"), "False");
    assert_eq!(reason(&parent, "Synced"), "ApplyFailed");
    grow("10Gi");
    site.wait_ready(PARENT);
}

#[test]
fn an_edit_is_one_patch_of_the_deployment() {
    let (site, _) = article("wordpress-edit");
    let mark = site.settle();
    let resources = json!({ "requests": { "cpu": "200m" } });
    site.merge(PARENT, &json!({ "spec": { "resources": resources } }));
    site.wait_ready(PARENT);
    site.check_child_writes(mark, &["patch deployments.apps example-wordpress 200"]);
    let container = &site.get(WEB)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "200m");
}

#[test]
fn deleted_children_come_back() {
    let (site, _) = article("wordpress-deleted");
    for target in [WEB, DATABASE_SERVICE] {
        let before = site.get(target);
        site.delete(target);
        site.wait("a child comes back", target, |child| {
            child["metadata"]["uid"] != before["metadata"]["uid"]
        });
    }
    site.wait_ready(PARENT);
}

// The host repairs an owned field and leaves a foreign one alone.
#[test]
fn an_edited_owned_field_is_repaired_and_a_foreign_field_stays() {
    let (site, _) = article("wordpress-drift");
    let mark = site.settle();
    site.merge(
        WEB,
        &json!({
            "spec": { "replicas": 0, "minReadySeconds": 1 },
            "metadata": { "annotations": { "example.org/mine": "x" } },
        }),
    );
    let web = site.wait("the replicas are repaired", WEB, |web| {
        web["spec"]["replicas"] == 1
    });
    assert_eq!(web["spec"]["minReadySeconds"], 1);
    assert_eq!(web["metadata"]["annotations"]["example.org/mine"], "x");
    site.wait_ready(PARENT);
    site.check_child_writes(mark, &["patch deployments.apps example-wordpress 200"]);
}

#[test]
fn code_of_tenants_is_refused_by_default() {
    let (site, _) = article("wordpress-code");
    let code = json!({ "spec": { "configExtra": "define('WP_DEBUG', false);" } });
    site.merge(PARENT, &code);
    let refused = site.wait("the parent is refused", PARENT, |parent| {
        reason(parent, "Synced") == "Invalid"
    });
    let message = condition(&refused, "Synced").unwrap();
    assert!(
        message.contains("spec.configExtra: it is PHP code"),
        "{message}"
    );
}

#[test]
fn switching_the_php_configuration_off_prunes_it_last() {
    let (site, _) = article("wordpress-prune");
    let mark = site.settle();
    site.merge(
        PARENT,
        &json!({ "spec": { "phpConfig": "memory_limit = 1G" } }),
    );
    let map = site.wait("the configuration appears", PHP, |_| true);
    assert_eq!(map["data"]["php.ini"], "memory_limit = 1G");
    site.wait_ready(PARENT);
    site.check_child_writes(
        mark,
        &[
            "patch configmaps example-wordpress-php 201",
            "patch deployments.apps example-wordpress 200",
        ],
    );
    let off = site.settle();
    site.merge(PARENT, &json!({ "spec": { "phpConfig": null } }));
    site.wait_gone(PHP);
    site.wait_ready(PARENT);
    site.check_child_writes(
        off,
        &[
            "patch deployments.apps example-wordpress 200",
            "delete configmaps example-wordpress-php 200",
        ],
    );
}

#[test]
fn data_and_passwords_outlive_the_parent_and_are_reused() {
    let (site, parent) = article("wordpress-delete");
    let before = RETAINED.map(|target| site.get(target));
    site.delete(PARENT);
    site.wait_gone(PARENT);
    for target in OWNED {
        site.wait_gone(target);
    }
    let mark = site.settle();
    site.apply_example("examples/wordpress/01-article.yaml");
    let again = site.wait_ready(PARENT);
    assert_ne!(again["metadata"]["uid"], parent["metadata"]["uid"]);
    site.settle();
    for (target, before) in RETAINED.into_iter().zip(before) {
        let now = site.get(target);
        assert_eq!(
            now["metadata"]["uid"], before["metadata"]["uid"],
            "{target:?}"
        );
        assert_eq!(now["data"], before["data"], "{target:?}");
    }
    let mut writes = site.child_writes_since(mark);
    writes.sort_unstable();
    assert_eq!(
        writes,
        [
            "patch deployments.apps example-wordpress 201",
            "patch services example-wordpress 201",
            "patch services example-wordpress-mysql 201",
            "patch statefulsets.apps example-wordpress-mysql 201",
        ]
    );
}

/// A StatefulSet whose claim template copies a retained child's labels and annotations.
fn forger(namespace: &str, copied: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "forger", "namespace": namespace},
        "spec": {
            "replicas": 1, "serviceName": "forger",
            "selector": {"matchLabels": {"app": "forger"}},
            "template": {
                "metadata": {"labels": {"app": "forger"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example.com/forger:1"}]},
            },
            "volumeClaimTemplates": [{
                "metadata": {
                    "name": "data",
                    "labels": copied["labels"],
                    "annotations": copied["annotations"],
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
        },
    })
}

// The host would own another user's claims, and delete them with the parent.
#[test]
fn a_claim_from_a_template_with_the_annotation_of_a_child_is_not_taken_up() {
    const FORGED: Target<'static> = ("v1", "PersistentVolumeClaim", "data-forger-0");

    let (site, _) = article("wordpress-forged");
    let copied = site.get(DATA)["metadata"].clone();
    let tenant = forger(&site.namespace, &copied);
    site.plane.user().apply(&tenant).unwrap();
    let forged = site.wait("the claim is made", FORGED, |claim| {
        retained_for(&claim["metadata"]) == retained_for(&copied)
    });
    let label = "innkeeper.dev/plugin";
    assert_eq!(forged["metadata"]["labels"][label], copied["labels"][label]);
    let delete = json!({ "spec": { "deletionPolicy": "Delete" } });
    site.merge(PARENT, &delete);
    for target in RETAINED {
        site.wait("a child is owned", target, |child| {
            child["metadata"]["ownerReferences"][0]["kind"] == "Wordpress"
        });
    }
    site.wait_ready(PARENT);
    site.settle();
    assert!(site.get(FORGED)["metadata"]["ownerReferences"].is_null());
    site.delete(PARENT);
    for target in RETAINED.into_iter().chain(OWNED) {
        site.wait_gone(target);
    }
    assert!(site.get(FORGED)["metadata"]["deletionTimestamp"].is_null());
}

// A changed deletion policy replaces the annotation with an owner reference; then everything is deleted with the
// parent.
#[test]
fn the_deletion_policy_can_delete_everything_with_the_parent() {
    let (site, parent) = article("wordpress-policy");
    let mark = site.settle();
    site.merge(PARENT, &json!({ "spec": { "deletionPolicy": "Delete" } }));
    for target in RETAINED {
        site.wait("a child is owned", target, |child| {
            child["metadata"]["ownerReferences"][0]["uid"] == parent["metadata"]["uid"]
                && child["metadata"]["annotations"]["innkeeper.dev/retained-for"].is_null()
        });
    }
    site.wait_ready(PARENT);
    site.settle();
    let mut writes = site.child_writes_since(mark);
    writes.sort_unstable();
    // One write per replacement; then the retained claims are applied once more, with their owner.
    assert_eq!(
        writes,
        [
            "patch persistentvolumeclaims example-wordpress-code 200",
            "patch persistentvolumeclaims example-wordpress-code 200",
            "patch persistentvolumeclaims example-wordpress-mysql 200",
            "patch persistentvolumeclaims example-wordpress-mysql 200",
            "patch secrets example-wordpress-mysql 200",
            "patch secrets example-wordpress-wp 200",
        ]
    );
    site.delete(PARENT);
    for target in RETAINED.into_iter().chain(OWNED) {
        site.wait_gone(target);
    }
}

// Otherwise the data would be deleted with a parent whose changes wait.
#[test]
fn a_waiting_change_does_not_delay_the_removal_policy() {
    let (site, _) = article("wordpress-held");
    site.merge(PARENT, &json!({ "spec": { "deletionPolicy": "Delete" } }));
    for target in RETAINED {
        site.wait("a child is owned", target, |child| {
            child["metadata"]["ownerReferences"].is_array()
        });
    }
    let secret = json!([{ "name": "none" }]);
    let edit = json!({ "spec": { "deletionPolicy": "Retain", "imagePullSecrets": secret } });
    site.merge(PARENT, &edit);
    for target in RETAINED {
        site.wait("a child outlives the parent", target, |child| {
            child["metadata"]["ownerReferences"].is_null()
        });
    }
    site.wait("the change waits", PARENT, |parent| {
        reason(parent, "Ready") == "SecretNotFound"
    });
    site.settle();
    site.delete(PARENT);
    site.wait_gone(PARENT);
    site.settle();
    for target in RETAINED {
        let metadata = &site.get(target)["metadata"];
        assert!(metadata["deletionTimestamp"].is_null(), "{target:?}");
    }
}

// A site that references a future site's passwords would start with them if its Pods waited for the Secret: the
// kubelet is faster than the pass that rejects it.
#[test]
fn a_site_cannot_wait_for_the_passwords_of_a_later_site() {
    let site = Site::new("wordpress-deputy");
    let external = json!({
        "host": "elsewhere", "credentialsSecretRef": { "name": "example-wordpress-mysql" },
    });
    let thief = json!({
        "apiVersion": "example.com/v1", "kind": "Wordpress",
        "metadata": { "name": "thief", "namespace": site.namespace },
        "spec": { "database": { "external": external } },
    });
    site.plane.user().apply(&thief).unwrap();
    let thief = ("example.com/v1", "Wordpress", "thief");
    site.wait("the missing Secret is reported", thief, |parent| {
        reason(parent, "Degraded") == "SecretNotFound"
    });
    site.apply_example("examples/wordpress/01-article.yaml");
    site.wait_ready(PARENT);
    let refused = |parent: &Value| {
        condition(parent, "Synced").is_some_and(|message| {
            message.contains(
                "Secret example-wordpress-mysql belongs to another parent: annotate it with \
                 innkeeper.dev/shared-with: Wordpress.example.com/thief",
            )
        })
    };
    site.wait("the Secret of the other site is refused", thief, refused);
    assert!(site.find(("apps/v1", "Deployment", "thief")).is_none());

    // A parent with the same kind and name in another group is another parent.
    let share = |with: &str| {
        let annotations = json!({ "innkeeper.dev/shared-with": with });
        site.merge(
            PASSWORDS,
            &json!({ "metadata": { "annotations": annotations } }),
        );
    };
    share("Wordpress.other.org/thief");
    site.settle();
    assert!(site.find(("apps/v1", "Deployment", "thief")).is_none());
    share("Wordpress.example.com/thief");
    site.wait_ready(thief);
}
