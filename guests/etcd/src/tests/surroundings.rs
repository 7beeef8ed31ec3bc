//! Pod placement, Service options and the network policy.

use super::*;

/// An answer with the members' template, with these limits.
fn answered(spec: &Value, tenants: &Value) -> Result<Answer, String> {
    configured(spec, &json!({ "tenants": tenants }))
}

fn configured(spec: &Value, config: &Value) -> Result<Answer, String> {
    let parent = parent(spec.clone());
    let reconcile = |children: &[(String, Value)]| {
        let request = observing(&parent, children).config(config).build();
        Plugin::reconcile(&request, &host()).map_err(|fault| fault.message)
    };
    let first = reconcile(&[])?;
    reconcile(&settled(&first, 0))
}

fn object(outcome: &Answer, key: &str) -> Value {
    Value::from(outcome.child(key).unwrap().object.clone())
}

#[test]
fn pods_have_the_metadata_and_the_placement_of_the_user() {
    let template = json!({
        "metadata": { "labels": { "team": "a", "app.kubernetes.io/name": "x" }, "annotations": { "team/x": "y" } },
        "spec": {
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "etcd", "operator": "Exists" }],
            "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 1, "podAffinityTerm": { "topologyKey": "zone" } },
            ] } },
            "priorityClassName": "data",
        },
    });
    let tenants = json!({
        "podMetadata": { "labels": ["team", "app.kubernetes.io/"], "annotations": ["team/"] },
        "tolerations": ["etcd"], "priorityClasses": ["data"],
    });
    let spec = json!({ "size": 3, "image": IMAGE, "podTemplate": template });
    let outcome = answered(&spec, &tenants).unwrap();
    let pod = object(&outcome, "members")["spec"]["template"].clone();
    assert_eq!(pod["metadata"]["labels"]["team"], "a");
    // The members' selector depends on it.
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], "etcd");
    assert_eq!(pod["metadata"]["annotations"]["team/x"], "y");
    assert_eq!(pod["spec"]["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "etcd");
    assert_eq!(pod["spec"]["priorityClassName"], "data");
    let rules = "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let rules = pod.pointer(rules).unwrap().as_array().unwrap();
    let key = |rule: &Value| rule["podAffinityTerm"]["topologyKey"].clone();
    assert_eq!(
        rules.iter().map(key).collect::<Vec<_>>(),
        ["zone", "kubernetes.io/hostname"]
    );
}

#[test]
fn jobs_run_on_the_nodes_of_the_members_whatever_keeps_the_members_apart() {
    let nodes = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "arch", "operator": "Exists" }] },
    ] } });
    let apart =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] });
    let parent = parent(json!({
        "size": 3, "image": IMAGE, "inspection": { "schedule": "@hourly" },
        "podTemplate": { "spec": {
            "nodeSelector": { "disk": "ssd" },
            "affinity": { "nodeAffinity": nodes, "podAntiAffinity": apart },
        } },
    }));
    let (outcome, _) = formed(&parent);
    let job = object(&outcome, "inspect")["spec"]["jobTemplate"].clone();
    let spec = &job["spec"]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(spec["affinity"], json!({ "nodeAffinity": nodes }));
}

#[test]
fn services_have_the_type_and_the_annotations_of_the_user() {
    let annotations = json!({ "example.com/lb": "internal" });
    let spec = json!({
        "size": 1, "image": IMAGE, "headlessService": { "annotations": annotations },
        "clientService": { "type": "LoadBalancer", "annotations": annotations },
    });
    let tenants =
        json!({ "serviceAnnotations": ["example.com/"], "serviceTypes": ["LoadBalancer"] });
    let outcome = answered(&spec, &tenants).unwrap();
    let headless = object(&outcome, "headless");
    let client = object(&outcome, "client");
    assert_eq!(headless["metadata"]["annotations"], annotations);
    assert_eq!(headless["spec"]["clusterIP"], "None");
    assert_eq!(client["metadata"]["annotations"], annotations);
    assert_eq!(client["spec"]["type"], "LoadBalancer");
    let plain = answered(&json!({ "size": 1, "image": IMAGE }), &json!({})).unwrap();
    assert_eq!(object(&plain, "client")["spec"]["type"], "ClusterIP");
    assert!(object(&plain, "client")["metadata"]["annotations"].is_null());
}

#[test]
fn a_policy_lets_members_jobs_and_allowed_sources_in() {
    let rules = |policy: Value| {
        let spec = json!({ "size": 1, "image": IMAGE, "networkPolicy": policy });
        let outcome = answered(&spec, &json!({})).unwrap();
        // The members wait for no policy.
        let members = outcome.child("members").unwrap();
        assert!(!members.after.contains(&"netpol".to_owned()));
        let spec = object(&outcome, "netpol")["spec"].clone();
        let member = json!({ "matchLabels": base_labels("etcd", "demo", "member") });
        assert_eq!(spec["podSelector"], member);
        assert_eq!(spec["policyTypes"], json!(["Ingress"]));
        let peers = json!({
            "from": [{ "podSelector": member }], "ports": [{ "port": 2380, "protocol": "TCP" }],
        });
        assert_eq!(spec["ingress"][0], peers);
        spec["ingress"][1].clone()
    };
    let ports = json!([{ "port": 2379, "protocol": "TCP" }, { "port": 2381, "protocol": "TCP" }]);
    assert_eq!(rules(json!({})), json!({ "ports": ports }));
    let source = json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } });
    let own = json!({ "podSelector": { "matchLabels": { "etcd.ydzs.io/cluster": "demo" } } });
    assert_eq!(
        rules(json!({ "allowedSources": [source] })),
        json!({ "from": [own, source], "ports": ports })
    );
    let plain = answered(&json!({ "size": 1, "image": IMAGE }), &json!({})).unwrap();
    assert!(plain.child("netpol").is_none());
}

#[test]
fn a_monitor_selects_the_service_with_all_members() {
    let spec = |monitor: Value| json!({ "size": 1, "image": IMAGE, "monitoring": { "serviceMonitor": monitor } });
    let config = json!({ "monitoring": { "labels": { "release": "prometheus", "app.kubernetes.io/name": "x" } } });
    let outcome = configured(&spec(json!({})), &config).unwrap();
    // The members do not wait for a kind that the cluster may lack.
    let members = outcome.child("members").unwrap();
    assert!(!members.after.contains(&"monitor".to_owned()));
    let monitor = object(&outcome, "monitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(
        monitor["metadata"]["labels"]["app.kubernetes.io/name"],
        "etcd"
    );
    let endpoint = monitor["spec"]["endpoints"][0].clone();
    assert_eq!(endpoint, json!({ "port": "metrics", "interval": "30s" }));
    let service = object(&outcome, "headless");
    // The label with which alerts select metrics; Prometheus replaces other characters in the name.
    assert_eq!(
        monitor["spec"]["targetLabels"],
        json!(["etcd.ydzs.io/cluster"])
    );
    assert_eq!(
        service["metadata"]["labels"]["etcd.ydzs.io/cluster"],
        "demo"
    );
    let selected = monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .unwrap();
    assert!(
        selected
            .iter()
            .all(|(key, value)| service["metadata"]["labels"][key] == *value)
    );
    let ports = service["spec"]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == "metrics"));
    let plain = configured(
        &json!({ "size": 1, "image": IMAGE, "monitoring": {} }),
        &config,
    )
    .unwrap();
    assert!(plain.child("monitor").is_none());
}

#[test]
fn data_in_memory_are_part_of_the_requested_memory() {
    for (storage, resources, expected) in [
        (
            json!({}),
            Value::Null,
            json!({ "cpu": "100m", "memory": "256Mi" }),
        ),
        (
            json!({ "medium": "EmptyDir", "size": "1Gi" }),
            Value::Null,
            json!({ "cpu": "100m", "memory": "256Mi" }),
        ),
        (
            json!({ "medium": "Memory", "size": "1Gi" }),
            Value::Null,
            json!({ "cpu": "100m", "memory": "1152Mi" }),
        ),
        (
            json!({ "medium": "Memory", "size": "1G" }),
            Value::Null,
            json!({ "cpu": "100m", "memory": "1134217728" }),
        ),
        (
            json!({ "medium": "Memory", "size": "64Mi" }),
            Value::Null,
            json!({ "cpu": "100m", "memory": "256Mi" }),
        ),
        (
            json!({ "medium": "Memory", "size": "1Gi" }),
            json!({ "requests": { "cpu": "1" } }),
            json!({ "cpu": "1" }),
        ),
    ] {
        let mut spec = json!({ "size": 3, "image": IMAGE, "storage": storage });
        if resources.is_object() {
            spec["resources"] = resources;
        }
        let outcome = answered(&spec, &json!({})).unwrap();
        let pod = object(&outcome, "members")["spec"]["template"]["spec"].clone();
        assert_eq!(
            pod["containers"][0]["resources"]["requests"], expected,
            "{spec}"
        );
    }
}
