//! Invalid and borderline parents: the CRD's verdict or, after it, the plugin's.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{PLUGIN, host};

/// A parent as users write it.
fn object(name: &str, spec: Option<&Value>) -> Value {
    let mut object = json!({
        "apiVersion": "cache.example.com/v1", "kind": "Memcached",
        "metadata": { "name": name, "namespace": "default" },
    });
    if let Some(spec) = spec {
        object["spec"] = spec.clone();
    }
    object
}

/// A parent's verdict in one line.
pub(super) fn verdict(object: &Value) -> String {
    PLUGIN.verdict(object, &host())
}

/// Compares one verdict line per spec.
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs.iter().map(|spec| {
        let verdict = verdict(&object("example", Some(spec)));
        format!("{spec}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn names_leave_room_for_those_of_children() {
    let longest = "a".repeat(52);
    let too_long = "a".repeat(53);
    let lines = [&*longest, "a-1", &*too_long, "1cache", "a.b", "x-mcrouter"].map(|name| {
        let verdict = verdict(&object(name, Some(&json!({}))));
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
        verdict(&object("example", None)),
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
            json!({ "memcached": { "threads": 128, "maxConnections": 784 } }),
            json!({ "memcached": { "threads": 128, "maxConnections": 783 } }),
            json!({ "memcached": { "threads": 64, "maxConnections": 256 } }),
            json!({ "memcached": { "threads": 1, "maxConnections": 22 } }),
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
            {"memcached":{"maxConnections":784,"threads":128}}: accepted
            {"memcached":{"maxConnections":783,"threads":128}}: rejected, spec.memcached: maxConnections must be at least 6 times threads plus 16
            {"memcached":{"maxConnections":256,"threads":64}}: rejected, spec.memcached: maxConnections must be at least 6 times threads plus 16
            {"memcached":{"maxConnections":22,"threads":1}}: accepted
            {"memcached":{"threads":128}}: accepted
            {"memcached":{"threads":0}}: rejected, spec.memcached.threads: 0 is less than the minimum of 1
            {"memcached":{"threads":129}}: rejected, spec.memcached.threads: 129 is greater than the maximum of 128
            {"memcached":{"maxConnections":1}}: rejected, spec.memcached: maxConnections must be at least 6 times threads plus 16
            {"memcached":{"maxConnections":65536}}: accepted
            {"memcached":{"maxConnections":0}}: rejected, spec.memcached: maxConnections must be at least 6 times threads plus 16; spec.memcached.maxConnections: 0 is less than the minimum of 1
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
        "512k",
        "1536k",
        "1k",
        "100k",
        "1000k",
        "7681k",
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
            {"memcached":{"maxItemSize":"512k","maxMemoryMB":16}}: accepted
            {"memcached":{"maxItemSize":"1536k","maxMemoryMB":16}}: accepted
            {"memcached":{"maxItemSize":"1k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"100k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"1000k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"7681k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"9m","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"8193k","maxMemoryMB":16}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"1g","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1g" does not match "^[1-9][0-9]{0,6}(k|m)$"
            {"memcached":{"maxItemSize":"0k","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "0k" does not match "^[1-9][0-9]{0,6}(k|m)$"
            {"memcached":{"maxItemSize":"1M","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1M" does not match "^[1-9][0-9]{0,6}(k|m)$"
            {"memcached":{"maxItemSize":"","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "" does not match "^[1-9][0-9]{0,6}(k|m)$"
            {"memcached":{"maxItemSize":"1","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "1" does not match "^[1-9][0-9]{0,6}(k|m)$"
            {"memcached":{"maxItemSize":"99999999k","maxMemoryMB":16}}: rejected, spec.memcached.maxItemSize: "99999999k" does not match "^[1-9][0-9]{0,6}(k|m)$"; spec.memcached.maxItemSize: "99999999k" is longer than 8 characters
        "#]],
    );
    let sizes = ["1024m", "1048576k", "1025m", "1049088k", "1025k"];
    let large =
        sizes.map(|size| json!({ "memcached": { "maxMemoryMB": 65536, "maxItemSize": size } }));
    check(
        &large,
        &expect![[r#"
            {"memcached":{"maxItemSize":"1024m","maxMemoryMB":65536}}: accepted
            {"memcached":{"maxItemSize":"1048576k","maxMemoryMB":65536}}: accepted
            {"memcached":{"maxItemSize":"1025m","maxMemoryMB":65536}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"1049088k","maxMemoryMB":65536}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
            {"memcached":{"maxItemSize":"1025k","maxMemoryMB":65536}}: rejected, spec.memcached: maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m
        "#]],
    );
}

#[test]
fn a_memory_limit_holds_the_cache() {
    let limits = ["103Mi", "102Mi", "96Mi", "64Mi", "107374183", "1Gi"];
    let mut specs: Vec<Value> = limits
        .iter()
        .map(|limit| json!({ "resources": { "limits": { "memory": limit } } }))
        .collect();
    specs.push(json!({ "resources": { "limits": { "memory": 107_374_183 } } }));
    specs.push(json!({ "resources": { "limits": { "memory": 107_374_182 } } }));
    specs.push(json!({ "resources": { "limits": { "cpu": 1 } } }));
    for (memory, limit) in [
        (1024, "1056Mi"),
        (1024, "1158Mi"),
        (1024, "1159Mi"),
        (65536, "72121Mi"),
        (65536, "72122Mi"),
    ] {
        specs.push(json!({
            "memcached": { "maxMemoryMB": memory }, "resources": { "limits": { "memory": limit } },
        }));
    }
    check(
        &specs,
        &expect![[r#"
            {"resources":{"limits":{"memory":"103Mi"}}}: accepted
            {"resources":{"limits":{"memory":"102Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"resources":{"limits":{"memory":"96Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"resources":{"limits":{"memory":"64Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"resources":{"limits":{"memory":"107374183"}}}: accepted
            {"resources":{"limits":{"memory":"1Gi"}}}: accepted
            {"resources":{"limits":{"memory":107374183}}}: accepted
            {"resources":{"limits":{"memory":107374182}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"resources":{"limits":{"cpu":1}}}: accepted
            {"memcached":{"maxMemoryMB":1024},"resources":{"limits":{"memory":"1056Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"memcached":{"maxMemoryMB":1024},"resources":{"limits":{"memory":"1158Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"memcached":{"maxMemoryMB":1024},"resources":{"limits":{"memory":"1159Mi"}}}: accepted
            {"memcached":{"maxMemoryMB":65536},"resources":{"limits":{"memory":"72121Mi"}}}: rejected, spec: resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi
            {"memcached":{"maxMemoryMB":65536},"resources":{"limits":{"memory":"72122Mi"}}}: accepted
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

/// The verdict on extra arguments.
fn arguments(given_arguments: &[&str]) -> String {
    let spec = json!({ "memcached": { "extraArgs": given_arguments } });
    verdict(&object("example", Some(&spec)))
}

const RESERVED: &str = "has its own field or would break the probes: remove it";
const UNLISTED: &str = "tenants.extraArgs of the plugin's configuration does not list";

/// memcached arguments, the name in the verdict, and the rule that rejects it.
const DANGEROUS: &[(&[&str], &str, &str)] = &[
    // Files with memory and values.
    (&["-e", "/tmp/x"], "-e", UNLISTED),
    (&["--memory-file", "/tmp/x"], "--memory-file", UNLISTED),
    (&["--memory-file=/tmp/x"], "--memory-file", UNLISTED),
    (&["-o", "ext_path=/tmp/x:1g"], "ext_path", UNLISTED),
    (&["-o", "modern,ext_path=/tmp/x:1g"], "ext_path", UNLISTED),
    (&["-o", "ext_wbuf_size=1"], "ext_wbuf_size", UNLISTED),
    (&["-o", " ext_path=/tmp/x:1g"], " ext_path", UNLISTED),
    // Lua code, and keys.
    (&["-o", "proxy_config=/tmp/x.lua"], "proxy_config", UNLISTED),
    (&["-o", "proxy_arg=x"], "proxy_arg", UNLISTED),
    (&["-o", "ssl_key=/tmp/x"], "ssl_key", UNLISTED),
    (&["-o", "ssl_chain_cert=/tmp/x"], "ssl_chain_cert", UNLISTED),
    (
        &["-o", "no_drop_privileges"],
        "no_drop_privileges",
        UNLISTED,
    ),
    (
        &["-o", "relaxed_privileges"],
        "relaxed_privileges",
        UNLISTED,
    ),
    // Lets every client shut memcached down.
    (&["-A"], "-A", UNLISTED),
    (&["--enable-shutdown"], "--enable-shutdown", UNLISTED),
    (&["-r"], "-r", UNLISTED),
    (&["--enable-coredumps"], "--enable-coredumps", UNLISTED),
    (&["-N", "4"], "-N", UNLISTED),
    (&["-D", ":"], "-D", UNLISTED),
    // Files, users, addresses and protocols.
    (&["-S"], "-S", RESERVED),
    (&["--enable-sasl"], "--enable-sasl", RESERVED),
    (&["-Y", "/tmp/x"], "-Y", RESERVED),
    (&["--auth-file=/tmp/x"], "--auth-file", RESERVED),
    (&["-Z"], "-Z", RESERVED),
    (&["--enable-ssl"], "--enable-ssl", RESERVED),
    (&["-u", "root"], "-u", RESERVED),
    (&["--user=root"], "--user", RESERVED),
    (&["-P", "/tmp/x"], "-P", RESERVED),
    (&["--pidfile=/tmp/x"], "--pidfile", RESERVED),
    (&["-l", "127.0.0.1"], "-l", RESERVED),
    (&["--listen=127.0.0.1"], "--listen", RESERVED),
    (&["-s", "/tmp/x"], "-s", RESERVED),
    (&["--unix-socket=/tmp/x"], "--unix-socket", RESERVED),
    (&["-a", "0777"], "-a", RESERVED),
    (&["-p", "1"], "-p", RESERVED),
    (&["--port=1"], "--port", RESERVED),
    (&["-U", "11211"], "-U", RESERVED),
    (&["-B", "ascii"], "-B", RESERVED),
    (&["-d"], "-d", RESERVED),
    (&["-h"], "-h", RESERVED),
    (&["-i"], "-i", RESERVED),
    (&["-V"], "-V", RESERVED),
    (&["--version"], "--version", RESERVED),
    (&["-c", "1"], "-c", RESERVED),
    (&["--conn-limit=1"], "--conn-limit", RESERVED),
    (&["-m", "1"], "-m", RESERVED),
    (&["-t", "1"], "-t", RESERVED),
    (&["-I", "1m"], "-I", RESERVED),
    (&["-vv"], "-vv", UNLISTED),
    // Other spellings: joined, after a space, shortened.
    (&["-p1"], "-p1", UNLISTED),
    (&["-e/tmp/x"], "-e/tmp/x", UNLISTED),
    (&["-kA"], "-kA", UNLISTED),
    (&["-oext_path=/tmp/x:1g"], "-oext_path=/tmp/x:1g", UNLISTED),
    (&["--memory-f=/tmp/x"], "--memory-f", UNLISTED),
    (&["--ext=ext_path=/tmp/x:1g"], "--ext", UNLISTED),
    (&["--"], "--", UNLISTED),
    (&["x"], "x", UNLISTED),
    (&["$(HOME)"], "$(HOME)", UNLISTED),
];

#[test]
fn extra_arguments_are_options_that_reach_nothing_outside_of_memcached() {
    for accepted in [
        &["-o", "modern"][..],
        &[
            "-o",
            "no_lru_crawler,slab_automove,idle_timeout=60,hash_algorithm=xxh3,slab_automove_ratio=0.8",
        ],
        &["--extended=maxconns_fast,hashpower=20", "-k", "-M", "-L"],
        &[
            "-f", "1.25", "-n", "72", "-b", "4096", "-R", "40", "-C", "-F", "-X", "-W",
        ],
        &[
            "--slab-growth-factor=1.25",
            "--listen-backlog",
            "1024",
            "--disable-evictions",
        ],
        &[
            "--disable-flush-all",
            "--disable-dumping",
            "--disable-watch",
            "--lock-memory",
        ],
    ] {
        assert_eq!(arguments(accepted), "accepted", "{accepted:?}");
    }
    for (dangerous, name, rule) in DANGEROUS {
        let expected = if *rule == RESERVED {
            format!("Invalid, spec.memcached.extraArgs: {name} {rule}")
        } else {
            format!("Invalid, spec.memcached.extraArgs: {rule} {name}")
        };
        assert_eq!(arguments(dangerous), expected, "{dangerous:?}");
    }
}

#[test]
fn extra_arguments_have_values_of_their_form() {
    for (wrong, problem) in [
        (
            &["-f", "-e"][..],
            "-f \"-e\": write a number above 1 and below 100",
        ),
        (
            &["-o modern"],
            "\"-o modern\": write a flag and its value as two items",
        ),
        (
            &["-e /tmp/x"],
            "\"-e /tmp/x\": write a flag and its value as two items",
        ),
        (
            &["-k", "-f\t1.25"],
            "\"-f\t1.25\": write a flag and its value as two items",
        ),
        (
            &["-o", "hashpower=12"],
            "hashpower \"12\": write a whole number from 13 to 28",
        ),
        (
            &["-o", "hot_lru_pct=30", "-o", "warm_lru_pct=51"],
            "hot_lru_pct (default 20) and warm_lru_pct (default 40) must be at most 80 together",
        ),
        (
            &["-o", "no_lru_maintainer,temporary_ttl=60"],
            "temporary_ttl needs the LRU maintainer: remove no_lru_maintainer",
        ),
        (
            &["-b", "1 -e /tmp/x"],
            "-b \"1 -e /tmp/x\": write a whole number",
        ),
        (
            &["--listen-backlog=$(X)"],
            "--listen-backlog \"$(X)\": write a whole number",
        ),
        (&["--disable-cas=1"], "--disable-cas \"1\": write no value"),
        (
            &["-o", "idle_timeout=/x"],
            "idle_timeout \"/x\": write a whole number",
        ),
        (&["-o", "modern=1"], "modern \"1\": write no value"),
        (
            &["-o", "hash_algorithm=md5"],
            "hash_algorithm \"md5\": write jenkins or murmur3 or xxh3",
        ),
        (&["-k", "-f"], "-f needs a value, as the next item"),
        (&["-o"], "-o needs a value, as the next item"),
    ] {
        let expected = format!("Invalid, spec.memcached.extraArgs: {problem}");
        assert_eq!(arguments(wrong), expected, "{wrong:?}");
    }
    let too_long = "x".repeat(257);
    for wrong in [vec![""], vec![&*too_long], vec!["-k"; 65]] {
        let verdict = arguments(&wrong);
        let expected = "rejected, spec.memcached.extraArgs";
        assert!(verdict.starts_with(expected), "{verdict}");
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
            budget(Some(3), json!({ "minAvailable": "66%" })),
            budget(Some(3), json!({ "minAvailable": "67%" })),
            budget(Some(3), json!({ "minAvailable": "90%" })),
            budget(Some(64), json!({ "minAvailable": "98%" })),
            budget(Some(64), json!({ "minAvailable": "99%" })),
            budget(Some(2), json!({ "minAvailable": "50%" })),
            budget(Some(1), json!({ "minAvailable": "50%" })),
            budget(None, json!({ "minAvailable": "1%" })),
            budget(None, json!({ "minAvailable": "0%" })),
            budget(Some(0), json!({ "minAvailable": "90%" })),
            json!({ "highAvailability": { "podDisruptionBudget": { "minAvailable": "90%" } } }),
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
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"66%"}},"size":3}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"67%"}},"size":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"90%"}},"size":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"98%"}},"size":64}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"99%"}},"size":64}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"}},"size":2}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"}},"size":1}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"1%"}}}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"0%"}}}: accepted
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"90%"}},"size":0}: accepted
            {"highAvailability":{"podDisruptionBudget":{"minAvailable":"90%"}}}: accepted
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
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"100%"}},"size":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"half"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":-1}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"minAvailable":"2"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"highAvailability":{"podDisruptionBudget":{"enabled":true,"maxUnavailable":"101%"}},"size":3}: rejected, spec.highAvailability.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
        "#]],
    );
}

#[test]
fn a_parent_is_at_most_256_kib_large() {
    let annotations = |length: usize| {
        let spec = json!({ "service": { "annotations": { "a".repeat(length): "" } } });
        verdict(&object("example", Some(&spec)))
    };
    // A CRD cannot bound map keys.
    let problem = annotations(256 * 1024);
    let expected = "Invalid, the object is too large: ";
    assert!(problem.starts_with(expected), "{problem}");
    let smaller = annotations(255 * 1024);
    assert!(
        smaller.starts_with("Invalid, spec.service.annotations: "),
        "{smaller}"
    );
}

#[test]
fn an_image_is_a_reference() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let accepted = [
        "registry:5000/memcached".to_owned(),
        "memcached".to_owned(),
        "library/memcached:1.6.6-alpine_3.20".to_owned(),
        "Registry.Example.com/a__b/c--d/memcached".to_owned(),
        "[2001:db8::5]:5000/memcached:1".to_owned(),
        "localhost/memcached:1".to_owned(),
        format!("registry:5000/a/memcached:1.6.6@{digest}"),
        format!("memcached@{digest}"),
        format!("memcached:{}", "a".repeat(128)),
        "a".repeat(255),
    ];
    let refused = [
        "-memcached".to_owned(),
        "a b".to_owned(),
        "memcached:".to_owned(),
        "memcached:1:2".to_owned(),
        "memcached:-1".to_owned(),
        "memcached@".to_owned(),
        "memcached@sha256:zz".to_owned(),
        "memcached@sha256:00".to_owned(),
        format!("memcached@sha1:{}", "0".repeat(40)),
        format!("memcached@{}", digest.to_uppercase()),
        "Memcached".to_owned(),
        "library/Memcached:1".to_owned(),
        "a//memcached".to_owned(),
        "/memcached".to_owned(),
        "memcached/".to_owned(),
        "a..b/c..d".to_owned(),
        "registry:port/memcached".to_owned(),
        "http://registry/memcached".to_owned(),
        "memcached.:1".to_owned(),
        format!("memcached:{}", "a".repeat(129)),
        "a".repeat(256),
        "0".repeat(64),
    ];
    let verdict_of = |image: &String| verdict(&object("example", Some(&json!({ "image": image }))));
    for image in &accepted {
        assert_eq!(verdict_of(image), "accepted", "{image}");
    }
    for image in &refused {
        let expected = "rejected, spec.image: must be an image reference such as \
                        registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as \
                        @sha256:<64 hexadecimal digits>";
        assert_eq!(verdict_of(image), expected, "{image}");
    }
}

#[test]
fn texts_have_a_form() {
    let annotations = |key: &str| json!({ "service": { "annotations": { key: "x" } } });
    check(
        &[
            json!({ "image": "" }),
            json!({ "imagePullPolicy": "Always" }),
            json!({ "imagePullPolicy": "Sometimes" }),
            json!({ "imagePullSecrets": vec![json!({ "name": "a" }); 9] }),
            annotations("a b"),
            annotations("team"),
        ],
        &expect![[r#"
            {"image":""}: rejected, spec.image: "" is shorter than 1 character
            {"imagePullPolicy":"Always"}: accepted
            {"imagePullPolicy":"Sometimes"}: rejected, spec.imagePullPolicy: "Sometimes" is not one of "Always", "IfNotPresent" or "Never"
            {"imagePullSecrets":[{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"}]}: rejected, spec.imagePullSecrets: the value has more than 8 items
            {"service":{"annotations":{"a b":"x"}}}: Invalid, spec.service.annotations: "a b" is not an annotation key: write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be
            {"service":{"annotations":{"team":"x"}}}: Invalid, spec.service.annotations: tenants.serviceAnnotations of the plugin's configuration does not list team
        "#]],
    );
}
