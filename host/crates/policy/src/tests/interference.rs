//! Children that affect others, with and without a confirming grant.

use super::*;
use crate::{is_privileged, is_privileged_to_read};

/// A child with a spec in the namespace `default`, for a cluster-scoped parent.
fn object(api_version: &str, kind: &str, spec: &Value) -> Child {
    let mut child = child(api_version, kind, "a");
    child.namespace = Some("default".to_owned());
    child.object.insert("spec".to_owned(), spec.clone());
    child
}

fn annotated(api_version: &str, kind: &str, key: &str) -> Child {
    let mut child = object(api_version, kind, &json!({}));
    child.object["metadata"]["annotations"] = json!({ key: "x" });
    child
}

/// Checks an answer with grants for the children's kinds, with or without `privileged: true`.
fn checked(children: &[Child], privileged: bool) -> Result<(), String> {
    let mut scene = Scene::cluster_scoped();
    for child in children {
        scene.manifest.children.push(ChildKind {
            kind: child.kind.clone(),
            ..kind_of_child("v1", "ConfigMap", true)
        });
        let grant = ChildGrant {
            privileged,
            ..ChildGrant::default()
        };
        let kind = child.kind.group_kind();
        scene.grants.children.insert(kind, grant);
    }
    check(desired(children.to_vec()), &scene.rules())
        .map(drop)
        .map_err(|rejection| rejection.to_string())
}

/// Checks that a child needs `privileged: true`, and that the message has this text.
#[track_caller]
fn check_confirmed(child: Child, expected: &str) {
    let shown = serde_json::to_string(&child.object).unwrap();
    let kind = child.kind.kind.to_string();
    let children = [child];
    let message = checked(&children, false).expect_err(&shown);
    let remedy = format!("the grant for children of kind {kind} would need `privileged: true`");
    assert!(message.contains(expected), "{shown}: {message}");
    assert!(message.ends_with(&remedy), "{shown}: {message}");
    assert_eq!(checked(&children, true), Ok(()), "{shown}");
}

#[test]
fn kinds_that_decide_about_others_in_a_namespace_need_a_confirmation_to_make_them_but_not_to_read_them()
 {
    for (api_version, kind, is_confirmed) in [
        ("v1", "Endpoints", true),
        ("v1", "LimitRange", true),
        ("v1", "ResourceQuota", true),
        ("coordination.k8s.io/v1", "Lease", true),
        ("discovery.k8s.io/v1", "EndpointSlice", true),
        ("v1", "Service", false),
        ("autoscaling/v2", "HorizontalPodAutoscaler", false),
        ("example.dev/v1", "Lease", false),
        ("networking.k8s.io/v1", "Ingress", false),
        ("networking.k8s.io/v1", "NetworkPolicy", false),
        ("policy/v1", "PodDisruptionBudget", false),
    ] {
        let group_kind = gvk(api_version, kind).group_kind();
        assert_eq!(is_privileged(&group_kind), is_confirmed, "{kind}");
        assert!(!is_privileged_to_read(&group_kind), "{kind}");
        if is_confirmed {
            let children = [object(api_version, kind, &json!({}))];
            let message = checked(&children, false).expect_err(kind);
            assert!(
                message.contains("is not granted children of kind"),
                "{message}"
            );
            assert_eq!(checked(&children, true), Ok(()), "{kind}");
        }
    }
}

#[test]
fn services_with_foreign_addresses_need_a_confirmation() {
    for spec in [
        json!({"externalIPs": ["192.0.2.1"]}),
        json!({"externalIPs": "192.0.2.1"}),
        json!({"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"}),
        json!({"type": "ExternalName", "externalName": "a.example"}),
        json!({"externalName": "a.example"}),
        json!({"type": "ExternalName"}),
    ] {
        check_confirmed(
            object("v1", "Service", &spec),
            "takes the traffic for an address",
        );
    }
    for key in [
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
        "lbipam.cilium.io/ips",
        "service.beta.kubernetes.io/azure-load-balancer-ipv4",
    ] {
        let expected = format!("`metadata.annotations.{key}` takes the traffic");
        check_confirmed(annotated("v1", "Service", key), &expected);
    }
    for spec in [
        json!({}),
        json!({"externalIPs": [], "loadBalancerIP": null}),
        json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/lb"}),
        json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
        json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
    ] {
        assert_eq!(
            checked(&[object("v1", "Service", &spec)], false),
            Ok(()),
            "{spec}"
        );
    }
}

#[test]
fn ingresses_that_configure_controllers_or_take_all_hosts_need_a_confirmation() {
    const INGRESS: [&str; 2] = ["networking.k8s.io/v1", "Ingress"];
    let [api_version, kind] = INGRESS;
    for key in [
        "nginx.ingress.kubernetes.io/server-snippet",
        "nginx.ingress.kubernetes.io/configuration-snippet",
        "nginx.ingress.kubernetes.io/auth-snippet",
        "nginx.ingress.kubernetes.io/modsecurity-snippet",
        "nginx.ingress.kubernetes.io/stream-snippet",
        "nginx.org/location-snippets",
        "haproxy.org/backend-config-snippet",
        "haproxy-ingress.github.io/config-global",
        "ingress.kubernetes.io/config-backend",
    ] {
        let expected = format!("`metadata.annotations.{key}` becomes configuration");
        check_confirmed(annotated(api_version, kind, key), &expected);
    }
    for (spec, field) in [
        (
            json!({"defaultBackend": {"service": {"name": "a"}}}),
            "`spec.defaultBackend`",
        ),
        (
            json!({"rules": [{"host": "a.example"}, {}]}),
            "`spec.rules without a host`",
        ),
        (
            json!({"rules": [{"host": ""}]}),
            "`spec.rules without a host`",
        ),
    ] {
        check_confirmed(object(api_version, kind, &spec), field);
    }
    let hosts = json!({"rules": [{"host": "a.example"}, {"host": "*.b.example"}]});
    assert_eq!(checked(&[object(api_version, kind, &hosts)], false), Ok(()));
    for key in [
        "nginx.ingress.kubernetes.io/rewrite-target",
        "config-a",
        "note",
    ] {
        assert_eq!(
            checked(&[annotated(api_version, kind, key)], false),
            Ok(()),
            "{key}"
        );
    }
}

#[test]
fn policies_and_budgets_for_pods_of_others_need_a_confirmation() {
    let all = [
        json!({}),
        json!({"matchLabels": {}}),
        json!({"matchExpressions": []}),
        json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
    ];
    let some = [
        json!({"matchLabels": {"app": "web"}}),
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
    ];
    for (api_version, kind, field) in [
        ("networking.k8s.io/v1", "NetworkPolicy", "podSelector"),
        ("policy/v1", "PodDisruptionBudget", "selector"),
    ] {
        for selector in &all {
            let child = object(api_version, kind, &json!({ field: selector }));
            check_confirmed(child, "so it selects Pods of others");
        }
        for selector in &some {
            let child = object(api_version, kind, &json!({ field: selector }));
            assert_eq!(checked(&[child], false), Ok(()), "{kind} {selector}");
        }
    }
    // Without the field, a policy selects all Pods, and a budget none.
    let policy = object("networking.k8s.io/v1", "NetworkPolicy", &json!({}));
    check_confirmed(policy, "so it selects Pods of others");
    let budget = object("policy/v1", "PodDisruptionBudget", &json!({}));
    assert_eq!(checked(&[budget], false), Ok(()));
}

#[test]
fn autoscalers_of_foreign_workloads_need_a_confirmation() {
    let scaler = |target: Value| {
        let spec = json!({"scaleTargetRef": target});
        let mut child = object("autoscaling/v2", "HorizontalPodAutoscaler", &spec);
        child.key = "scaler".to_owned();
        child
    };
    let target = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "name": name});
    let own = object("example.dev/v1", "Related", &json!({}));
    for (target, is_own) in [
        (target("example.dev/v1", "Related", "a"), true),
        // Another version, the same kind.
        (target("example.dev/v2", "Related", "a"), true),
        (target("example.dev/v1", "Related", "b"), false),
        (target("example.dev/v1", "Other", "a"), false),
        (target("apps/v1", "Related", "a"), false),
        (json!({"kind": "Related", "name": "a"}), false),
        (
            json!({"apiVersion": "example.dev/v1", "kind": "Related"}),
            false,
        ),
        (json!(null), false),
    ] {
        let children = [own.clone(), scaler(target.clone())];
        if is_own {
            assert_eq!(checked(&children, false), Ok(()), "{target}");
        } else {
            let message = checked(&children, false).expect_err("a foreign target");
            let expected = "child \"scaler\": `spec.scaleTargetRef` names neither a child of the answer nor the parent: the grant for children of kind HorizontalPodAutoscaler would need `privileged: true`";
            assert_eq!(message, expected, "{target}");
            assert_eq!(checked(&children, true), Ok(()), "{target}");
        }
    }
    // An object with this name in another namespace is no target.
    let mut elsewhere = own;
    elsewhere.namespace = Some("other".to_owned());
    let children = [elsewhere, scaler(target("example.dev/v1", "Related", "a"))];
    assert!(checked(&children, false).is_err());
    // A parent may have a scale subresource.
    let mut scene = scene();
    let mut scaler = scaler(target("example.dev/v1", "Web", "shop"));
    scaler.namespace = None;
    scene.manifest.children.push(ChildKind {
        kind: scaler.kind.clone(),
        ..kind_of_child("v1", "ConfigMap", true)
    });
    let kind = scaler.kind.group_kind();
    scene.grants.children.insert(kind, ChildGrant::default());
    assert!(check(desired(vec![scaler]), &scene.rules()).is_ok());
}

#[test]
fn the_service_of_the_api_server_needs_a_confirmation() {
    let named = |namespace: &str, name: &str| {
        let mut child = child("v1", "Service", name);
        child.namespace = Some(namespace.to_owned());
        child
    };
    let expected = "it directs the traffic for the API server";
    check_confirmed(named("default", "kubernetes"), expected);
    assert_eq!(checked(&[named("default", "web")], false), Ok(()));
    assert_eq!(checked(&[named("web", "kubernetes")], false), Ok(()));
}

#[test]
fn confirmed_effects_on_others_are_described() {
    let kinds = [
        ("v1", "Secret"),
        ("v1", "Service"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("policy/v1", "PodDisruptionBudget"),
    ];
    let manifest = Manifest {
        children: kinds
            .iter()
            .map(|(api_version, kind)| kind_of_child(api_version, kind, true))
            .collect(),
        ..manifest()
    };
    let mut grants = Grants::requested(&manifest);
    let ordinary = grants.powers(&manifest);
    for grant in grants.children.values_mut() {
        grant.privileged = true;
    }
    let mut powers = grants.powers(&manifest);
    powers.retain(|power| !ordinary.contains(power));
    expect![[r"
        can get the token of every service account in its children's namespaces
        can take the traffic for any foreign address, and point names in its namespaces to servers elsewhere
        can scale workloads of others
        can configure ingress controllers that serve others, and take the requests for all hosts
        can control the traffic of all Pods in its children's namespaces
        can control the eviction of all Pods in its children's namespaces"]]
    .assert_eq(&powers.join("\n"));
}
