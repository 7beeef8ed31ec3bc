//! Children and Pods of the wordpress plugin that the cluster rejects.

use innkeeper_tests::{
    eventually,
    manifest::{condition, condition_status},
    user::Kind,
};
use serde_json::{Value, json};

use crate::suite::{Site, Target, reason};

const PARENT: Target<'static> = ("example.com/v1", "Wordpress", "example-wordpress");

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Lets the API server reject children of the kind in each parent's name, and the Ingress class `refused`.
fn refuse(site: &Site) {
    let rules = json!([{
        "apiGroups": ["", "apps", "networking.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps", "services", "deployments", "statefulsets", "ingresses"],
    }]);
    let names = "!object.metadata.name.startsWith('no-' + request.resource.resource)";
    let classes = "request.resource.resource != 'ingresses' || !has(object.spec.ingressClassName) \
                   || object.spec.ingressClassName != 'refused'";
    let validations: Vec<Value> = [names, classes]
        .map(|rule| json!({ "expression": rule, "message": "the administrator refuses it" }))
        .into();
    let name = &site.namespace;
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    let policy = json!({
        "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": { "resourceRules": rules }, "validations": validations,
        },
    });
    let binding = json!({
        "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": selector },
        },
    });
    let user = site.plane.user();
    for object in [policy, binding] {
        user.apply(&object).unwrap();
    }
    // The API server enforces it only after a moment.
    let kind = site.kind("v1", "ConfigMap");
    eventually("the policy is enforced", || {
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "no-configmaps", "namespace": name },
        });
        if user.try_create(kind, &probe).unwrap().code == 422 {
            return Ok(());
        }
        user.delete(kind, "no-configmaps").unwrap();
        Err("the object was created".to_owned())
    });
}

#[test]
fn a_site_with_a_refused_child_is_not_ready() {
    let site = Site::new("wordpress-refused");
    refuse(&site);
    let routes = json!([{ "domain": "shop.example.com" }]);
    let table = [
        ("no-statefulsets", json!({})),
        ("no-deployments", json!({})),
        ("no-services", json!({})),
        ("no-configmaps", json!({ "phpConfig": "memory_limit = 1G" })),
        ("no-ingresses", json!({ "routes": routes })),
        ("keep-ingresses", json!({ "routes": routes })),
    ];
    for (name, spec) in &table {
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "Wordpress",
            "metadata": { "name": name, "namespace": site.namespace }, "spec": spec,
        });
        site.plane.user().apply(&parent).unwrap();
    }
    let target = ("example.com/v1", "Wordpress", "keep-ingresses");
    site.wait_ready(target);
    let class = json!({ "ingress": { "className": "refused" } });
    site.merge(target, &json!({ "spec": class }));
    let targets = table
        .iter()
        .map(|(name, _)| ("example.com/v1", "Wordpress", *name));
    for target in targets.clone() {
        site.wait("the refusal is told", target, |parent| {
            condition(parent, "Synced")
                .is_some_and(|message| message.contains("the administrator refuses it"))
                && condition_status(parent, "Ready") == "False"
                && (!target.2.ends_with("ingresses")
                    || reason(parent, "Degraded") == "ChildNotApplied")
        });
    }
    let binding = Kind::cluster(ADMISSION, "ValidatingAdmissionPolicyBinding");
    site.plane.user().delete(binding, &site.namespace).unwrap();
    for target in targets {
        site.wait_ready(target);
    }
}

// The quota allows the database Pod but no site Pod; the other quota allows no Pod at all.
#[test]
fn a_site_without_room_for_its_pods_tells_it() {
    let table = [
        (
            "wordpress-room-one",
            "1",
            "ReplicaFailure",
            "exceeded quota: small",
        ),
        (
            "wordpress-room-none",
            "0",
            "DatabaseUnavailable",
            "has no Pod",
        ),
    ];
    for (prefix, pods, cause, words) in table {
        let site = Site::new(prefix);
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": "small", "namespace": site.namespace }, "spec": { "hard": { "pods": pods } },
        });
        site.plane.user().apply(&quota).unwrap();
        let target = ("v1", "ResourceQuota", "small");
        site.wait("the quota is counted", target, |quota| {
            quota["status"]["hard"]["pods"] == pods
        });
        site.apply_example("examples/wordpress/01-article.yaml");
        site.wait("the cause is told", PARENT, |parent| {
            reason(parent, "Degraded") == cause
                && condition_status(parent, "Ready") == "False"
                && ["Ready", "Degraded"].iter().all(|type_| {
                    condition(parent, type_).is_some_and(|message| message.contains(words))
                })
        });
    }
}
