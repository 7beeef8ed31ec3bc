//! Bad and borderline parents: the verdict of the definition or, after it, of the plugin.

use expect_test::{Expect, expect};
use innkeeper_guest_testing as testing;
use innkeeper_sdk::{reconciler::Reconciler, testing::TestRequest};
use serde_json::{Map, Value, json};

use super::{host, schema};
use crate::Plugin;

/// A parent as a user writes it.
fn given(name: &str, spec: Option<&Value>) -> Map<String, Value> {
    let mut object = json!({
        "apiVersion": "cache.example.com/v1", "kind": "Memcached",
        "metadata": { "name": name, "namespace": "default" },
    });
    if let Some(spec) = spec {
        object["spec"] = spec.clone();
    }
    object.as_object().unwrap().clone()
}

/// The verdict on a parent, in one line.
fn verdict(object: Map<String, Value>) -> String {
    let admitted = match testing::admit(schema(), object) {
        Ok(admitted) => admitted,
        Err(rejected) => return rejected,
    };
    let request = TestRequest::new(&admitted.object).build();
    let answer = Plugin::reconcile(&request, &host());
    testing::verdict(&admitted, answer.map(|_| "accepted".to_owned()))
}

/// Compares one line for each spec.
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs.iter().map(|spec| {
        let verdict = verdict(given("example", Some(spec)));
        format!("{spec}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn names_leave_room_for_those_of_children() {
    let longest = "a".repeat(52);
    let too_long = "a".repeat(53);
    let names = [&*longest, "a-1", &*too_long, "1cache", "a.b", "x-mcrouter"];
    let lines = names.map(|name| {
        let verdict = verdict(given(name, Some(&json!({}))));
        format!("{name}: {verdict}\n")
    });
    expect![[r"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: accepted
        a-1: accepted
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: rejected, the object: metadata.name must be at most 52 characters
        1cache: rejected, the object: metadata.name must be a DNS label that starts with a letter
        a.b: rejected, the object: metadata.name must be a DNS label that starts with a letter
        x-mcrouter: rejected, the object: metadata.name must not end in -mcrouter: that name belongs to the proxy of another Memcached
    "]].assert_eq(&lines.concat());
}

#[test]
fn a_spec_is_required_and_may_be_empty() {
    assert_eq!(
        verdict(given("example", None)),
        "rejected, spec: is required"
    );
    check(
        &[json!({}), json!({ "replicas": 3 })],
        &expect![[r#"
        {}: accepted
        {"replicas":3}: accepted without spec.replicas
    "#]],
    );
}

#[test]
fn numbers_have_ranges() {
    let option = |name: &str, value: Value| json!({ "memcached": { name: value } });
    check(
        &[
            json!({ "size": 0 }),
            json!({ "size": 64 }),
            json!({ "size": -1 }),
            json!({ "size": 65 }),
            json!({ "size": "3" }),
            json!({ "containerPort": 1024 }),
            json!({ "containerPort": 65535 }),
            json!({ "containerPort": 80 }),
            json!({ "containerPort": 65536 }),
            option("maxMemoryMB", json!(16)),
            option("maxMemoryMB", json!(65536)),
            option("maxMemoryMB", json!(15)),
            option("maxMemoryMB", json!(65537)),
            option("threads", json!(1)),
            option("threads", json!(128)),
            option("threads", json!(0)),
            option("threads", json!(129)),
            option("maxConnections", json!(1)),
            option("maxConnections", json!(65536)),
            option("maxConnections", json!(0)),
            option("maxConnections", json!(65537)),
            option("verbosity", json!(2)),
            option("verbosity", json!(-1)),
            option("verbosity", json!(3)),
        ],
        &expect![[r#"
            {"size":0}: accepted
            {"size":64}: accepted
            {"size":-1}: rejected, spec.size: -1 is less than the minimum of 0
            {"size":65}: rejected, spec.size: 65 is greater than the maximum of 64
            {"size":"3"}: rejected, spec.size: "3" is not of type "integer"
            {"containerPort":1024}: accepted
            {"containerPort":65535}: accepted
            {"containerPort":80}: rejected, spec.containerPort: 80 is less than the minimum of 1024
            {"containerPort":65536}: rejected, spec.containerPort: 65536 is greater than the maximum of 65535
            {"memcached":{"maxMemoryMB":16}}: accepted
            {"memcached":{"maxMemoryMB":65536}}: accepted
            {"memcached":{"maxMemoryMB":15}}: rejected, spec.memcached.maxMemoryMB: 15 is less than the minimum of 16
            {"memcached":{"maxMemoryMB":65537}}: rejected, spec.memcached.maxMemoryMB: 65537 is greater than the maximum of 65536
            {"memcached":{"threads":1}}: accepted
            {"memcached":{"threads":128}}: accepted
            {"memcached":{"threads":0}}: rejected, spec.memcached.threads: 0 is less than the minimum of 1
            {"memcached":{"threads":129}}: rejected, spec.memcached.threads: 129 is greater than the maximum of 128
            {"memcached":{"maxConnections":1}}: accepted
            {"memcached":{"maxConnections":65536}}: accepted
            {"memcached":{"maxConnections":0}}: rejected, spec.memcached.maxConnections: 0 is less than the minimum of 1
            {"memcached":{"maxConnections":65537}}: rejected, spec.memcached.maxConnections: 65537 is greater than the maximum of 65536
            {"memcached":{"verbosity":2}}: accepted
            {"memcached":{"verbosity":-1}}: rejected, spec.memcached.verbosity: -1 is less than the minimum of 0
            {"memcached":{"verbosity":3}}: rejected, spec.memcached.verbosity: 3 is greater than the maximum of 2
        "#]],
    );
}

#[test]
fn an_item_fits_into_half_of_the_memory() {
    let sizes = [
        "8m",
        "8192k",
        "1k",
        "9m",
        "8193k",
        "1g",
        "0k",
        "1M",
        "",
        "1",
        "99999999k",
    ];
    let small =
        sizes.map(|size| json!({ "memcached": { "maxMemoryMB": 16, "maxItemSize": size } }));
    check(
        &small,
        &expect![[r#"
        {"memcached":{"maxItemSize":"8m","maxMemoryMB":16}}: accepted
        {"memcached":{"maxItemSize":"8192k","maxMemoryMB":16}}: accepted
        {"memcached":{"maxItemSize":"1k","maxMemoryMB":16}}: accepted
        {"memcached":{"maxItemSize":"9m","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be at most half of maxMemoryMB and at most 1024m
        {"memcached":{"maxItemSize":"8193k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be at most half of maxMemoryMB and at most 1024m
        {"memcached":{"maxItemSize":"1g","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1g" does not match "^[1-9][0-9]{0,6}(k|m)$"
        {"memcached":{"maxItemSize":"0k","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "0k" does not match "^[1-9][0-9]{0,6}(k|m)$"
        {"memcached":{"maxItemSize":"1M","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1M" does not match "^[1-9][0-9]{0,6}(k|m)$"
        {"memcached":{"maxItemSize":"","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "" does not match "^[1-9][0-9]{0,6}(k|m)$"
        {"memcached":{"maxItemSize":"1","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1" does not match "^[1-9][0-9]{0,6}(k|m)$"
        {"memcached":{"maxItemSize":"99999999k","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "99999999k" does not match "^[1-9][0-9]{0,6}(k|m)$"; spec.memcached.maxItemSize: "99999999k" is longer than 8 characters
    "#]],
    );
    let sizes = ["1024m", "1048576k", "1025m", "1048577k"];
    let large =
        sizes.map(|size| json!({ "memcached": { "maxMemoryMB": 65536, "maxItemSize": size } }));
    check(
        &large,
        &expect![[r#"
        {"memcached":{"maxItemSize":"1024m","maxMemoryMB":65536}}: accepted
        {"memcached":{"maxItemSize":"1048576k","maxMemoryMB":65536}}: accepted
        {"memcached":{"maxItemSize":"1025m","maxMemoryMB":65536}}: rejected, spec.memcached: maxItemSize must be at most half of maxMemoryMB and at most 1024m
        {"memcached":{"maxItemSize":"1048577k","maxMemoryMB":65536}}: rejected, spec.memcached: maxItemSize must be at most half of maxMemoryMB and at most 1024m
    "#]],
    );
}

#[test]
fn a_memory_limit_holds_the_cache() {
    let limits = ["96Mi", "95Mi", "64Mi", "100663296", "1Gi"];
    let mut specs: Vec<Value> = limits
        .iter()
        .map(|limit| json!({ "resources": { "limits": { "memory": limit } } }))
        .collect();
    specs.push(json!({ "resources": { "limits": { "memory": 100_663_296 } } }));
    specs.push(json!({ "resources": { "limits": { "memory": 100_663_295 } } }));
    specs.push(json!({ "resources": { "limits": { "cpu": 1 } } }));
    check(
        &specs,
        &expect![[r#"
        {"resources":{"limits":{"memory":"96Mi"}}}: accepted
        {"resources":{"limits":{"memory":"95Mi"}}}: rejected, spec: resources.limits.memory must be at least memcached.maxMemoryMB plus 32Mi
        {"resources":{"limits":{"memory":"64Mi"}}}: rejected, spec: resources.limits.memory must be at least memcached.maxMemoryMB plus 32Mi
        {"resources":{"limits":{"memory":"100663296"}}}: accepted
        {"resources":{"limits":{"memory":"1Gi"}}}: accepted
        {"resources":{"limits":{"memory":100663296}}}: accepted
        {"resources":{"limits":{"memory":100663295}}}: rejected, spec: resources.limits.memory must be at least memcached.maxMemoryMB plus 32Mi
        {"resources":{"limits":{"cpu":1}}}: accepted
    "#]],
    );
}

#[test]
fn quantities_parse_and_requests_stay_below_limits() {
    let resources = |requests: Value, limits: Value| json!({ "resources": { "requests": requests, "limits": limits } });
    check(
        &[
            resources(json!({ "cpu": 1 }), json!({})),
            resources(json!({ "cpu": "100m" }), json!({ "cpu": 1 })),
            resources(json!({ "cpu": "lots" }), json!({})),
            resources(json!({ "memory": "2Gi" }), json!({ "memory": "1Gi" })),
            json!({ "resources": { "claims": [{ "name": "gpu" }] } }),
        ],
        &expect![[r#"
            {"resources":{"limits":{},"requests":{"cpu":1}}}: accepted
            {"resources":{"limits":{"cpu":1},"requests":{"cpu":"100m"}}}: accepted
            {"resources":{"limits":{},"requests":{"cpu":"lots"}}}: Invalid, spec.resources.requests.cpu: "lots" is not a quantity
            {"resources":{"limits":{"memory":"1Gi"},"requests":{"memory":"2Gi"}}}: Invalid, spec.resources.memory: request 2Gi exceeds limit 1Gi
            {"resources":{"claims":[{"name":"gpu"}]}}: accepted without spec.resources.claims
        "#]],
    );
}

#[test]
fn extra_arguments_repeat_no_field_and_spare_the_probes() {
    let accepted = [
        "-o",
        "modern",
        "-f",
        "1.25",
        "-k",
        "-M",
        "--listen-backlog=1024",
        "--factor=1.2",
        "--enable-shutdown",
        "--disable-evictions",
    ];
    check(
        &[json!({ "memcached": { "extraArgs": accepted } })],
        &expect![[r#"
            {"memcached":{"extraArgs":["-o","modern","-f","1.25","-k","-M","--listen-backlog=1024","--factor=1.2","--enable-shutdown","--disable-evictions"]}}: accepted
        "#]],
    );
    let short = "m c t I p l s U d u P Y Z S B v h i V"
        .split(' ')
        .map(|it| format!("-{it}"));
    let long = "memory-limit conn-limit threads max-item-size port listen unix-socket udp-port daemon user \
                pidfile auth-file enable-ssl enable-sasl protocol verbose help license version";
    let long = long.split(' ').map(|it| format!("--{it}"));
    let others = [
        "-p1",
        "-kd",
        "-kMp1",
        "--port=1",
        "--por=1",
        "--p",
        "--hel",
        "--vers",
        "--",
        "--enable-s",
    ];
    for argument in short.chain(long).chain(others.map(str::to_owned)) {
        let spec = json!({ "memcached": { "extraArgs": ["-k", argument] } });
        assert_eq!(
            verdict(given("example", Some(&spec))),
            "rejected, spec.memcached: extraArgs must not repeat an option that has its own field or that \
             would break the probes",
            "{argument}"
        );
    }
    let too_long = "x".repeat(257);
    for arguments in [vec![""], vec![&*too_long], vec!["-k"; 65]] {
        let spec = json!({ "memcached": { "extraArgs": arguments } });
        let verdict = verdict(given("example", Some(&spec)));
        assert!(
            verdict.starts_with("rejected, spec.memcached.extraArgs"),
            "{verdict}"
        );
    }
}

#[test]
fn a_disruption_budget_lets_some_pods_go() {
    let budget = |size: Option<i32>, mut budget: Value| {
        budget["enabled"] = json!(true);
        let mut spec = json!({ "highAvailability": { "podDisruptionBudget": budget } });
        if let Some(size) = size {
            spec["size"] = json!(size);
        }
        spec
    };
    check(
        &[
            json!({ "highAvailability": { "podDisruptionBudget": {} } }),
            budget(Some(3), json!({ "minAvailable": 2 })),
            budget(Some(3), json!({ "minAvailable": "50%" })),
            budget(Some(3), json!({ "maxUnavailable": 1 })),
            budget(Some(3), json!({ "maxUnavailable": "100%" })),
            budget(Some(0), json!({ "minAvailable": 1 })),
            budget(None, json!({ "minAvailable": 0 })),
            budget(Some(3), json!({})),
            budget(Some(3), json!({ "minAvailable": 1, "maxUnavailable": 1 })),
            budget(Some(2), json!({ "minAvailable": 2 })),
            budget(None, json!({ "minAvailable": 1 })),
            budget(Some(3), json!({ "maxUnavailable": 0 })),
            budget(Some(3), json!({ "maxUnavailable": "0%" })),
            budget(Some(3), json!({ "minAvailable": "100%" })),
            budget(Some(3), json!({ "minAvailable": "half" })),
            budget(Some(3), json!({ "minAvailable": -1 })),
            budget(Some(3), json!({ "minAvailable": "2" })),
            budget(Some(3), json!({ "maxUnavailable": "101%" })),
        ],
        &expect![[r#"
            {"highAvailability":{"podDisruptionBudget":{}}}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":2}},"size":3}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"}},"size":3}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":1}},"size":3}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":"100%"}},"size":3}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":1}},"size":0}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":0}}}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":1,"minAvailable":1}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":2}},"size":2}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":1}}}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":0}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":"0%"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"100%"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"half"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":-1}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"2"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":"101%"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
        "#]],
    );
}

#[test]
fn texts_have_a_form() {
    let image = |image: &str| json!({ "image": image });
    let annotations = |key: &str| json!({ "service": { "annotations": { key: "x" } } });
    check(
        &[
            image("registry:5000/memcached"),
            image("registry:5000/a/memcached:1.6.6@sha256:00"),
            image(""),
            image("-memcached"),
            image("a b"),
            json!({ "imagePullPolicy": "Always" }),
            json!({ "imagePullPolicy": "Sometimes" }),
            json!({ "imagePullSecrets": vec![json!({ "name": "a" }); 9] }),
            annotations("a b"),
            annotations("team"),
        ],
        &expect![[r#"
            {"image":"registry:5000/memcached"}: accepted
            {"image":"registry:5000/a/memcached:1.6.6@sha256:00"}: accepted
            {"image":""}: rejected, spec.image: "" does not match "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"; spec.image: "" is shorter than 1 character
            {"image":"-memcached"}: rejected, spec.image: "-memcached" does not match "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
            {"image":"a b"}: rejected, spec.image: "a b" does not match "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
            {"imagePullPolicy":"Always"}: accepted
            {"imagePullPolicy":"Sometimes"}: rejected, spec.imagePullPolicy: "Sometimes" is not one of "Always", "IfNotPresent" or "Never"
            {"imagePullSecrets":[{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"}]}: rejected, spec.imagePullSecrets: the value has more than 8 items
            {"service":{"annotations":{"a b":"x"}}}: Invalid, spec.service.annotations: "a b" is not an annotation key: write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be
            {"service":{"annotations":{"team":"x"}}}: Invalid, spec.service.annotations: tenants.serviceAnnotations of the plugin's configuration does not list team
        "#]],
    );
}
#[test]
fn a_parent_is_at_most_256_kib_large() {
    let annotations = |length: usize| {
        let spec = json!({ "service": { "annotations": { "a".repeat(length): "" } } });
        verdict(given("example", Some(&spec)))
    };
    // Nothing in a definition bounds the keys of a map.
    let problem = annotations(256 * 1024);
    let expected = "Invalid, the object is too large: ";
    assert!(problem.starts_with(expected), "{problem}");
    let smaller = annotations(255 * 1024);
    assert!(
        smaller.starts_with("Invalid, spec.service.annotations: "),
        "{smaller}"
    );
}

