//! Flags that an etcd version lacks.

use super::*;

/// The problem with options for a version, without the field's path; empty if there is none.
fn problem(version: &str, options: &Value) -> String {
    let names: Vec<&String> = options.as_object().unwrap().keys().collect();
    let config = json!({ "tenants": { "options": names } });
    let parent = parent(json!({ "version": version, "options": options }));
    let request = TestRequest::new(&parent).config(&config).build();
    Plugin::reconcile(&request, &host())
        .err()
        .map_or_else(String::new, |fault| {
            fault
                .message
                .strip_prefix("spec.options: ")
                .unwrap_or(&fault.message)
                .to_owned()
        })
}

/// Version, flag and problem, from real members with 3.4.13, 3.5.35, 3.6.16 and 3.7.3, and from etcd's source for the
/// patches between.
const CASES: &[(&str, &str, &str)] = &[
    ("3.6.14", "pre-vote", ""),
    // Removed.
    ("3.4.13", "debug", ""),
    (
        "3.5.0",
        "debug",
        "debug was removed in etcd 3.5: set log-level to debug",
    ),
    (
        "3.5.26",
        "log-package-levels",
        "log-package-levels was removed in etcd 3.5: use log-level",
    ),
    (
        "3.6.14",
        "log-output",
        "log-output was removed in etcd 3.5: use log-outputs",
    ),
    ("3.5.26", "enable-v2", ""),
    (
        "3.6.14",
        "enable-v2",
        "enable-v2 was removed in etcd 3.6: remove it",
    ),
    (
        "3.6.0-rc.0",
        "enable-v2",
        "enable-v2 was removed in etcd 3.6: remove it",
    ),
    (
        "3.7.1",
        "enable-v2",
        "enable-v2 was removed in etcd 3.6: remove it",
    ),
    ("3.5.26", "experimental-enable-v2v3", ""),
    (
        "3.6.14",
        "experimental-enable-v2v3",
        "experimental-enable-v2v3 was removed in etcd 3.6: remove it",
    ),
    ("3.5.26", "proxy-failure-wait", ""),
    (
        "3.6.14",
        "proxy-failure-wait",
        "proxy-failure-wait was removed in etcd 3.6: run etcd grpc-proxy separately, or remove it",
    ),
    // Without the prefix since 3.6, and not with it in 3.7.
    ("3.5.0", "experimental-memory-mlock", ""),
    ("3.6.14", "experimental-memory-mlock", ""),
    ("3.6.14", "memory-mlock", ""),
    ("3.6.0-rc.0", "memory-mlock", ""),
    (
        "3.7.1",
        "experimental-memory-mlock",
        "experimental-memory-mlock was removed in etcd 3.7: use memory-mlock",
    ),
    (
        "3.5.26",
        "memory-mlock",
        "etcd 3.5.26 has no flag memory-mlock, which came with 3.6.0: use experimental-memory-mlock",
    ),
    (
        "3.4.13",
        "memory-mlock",
        "etcd 3.4.13 has no flag memory-mlock, which came with 3.6.0: remove it",
    ),
    (
        "3.4.13",
        "experimental-memory-mlock",
        "etcd 3.4.13 has no flag experimental-memory-mlock, which came with 3.5.0: remove it",
    ),
    ("3.4.13", "experimental-backend-bbolt-freelist-type", ""),
    (
        "3.5.0",
        "experimental-backend-bbolt-freelist-type",
        "experimental-backend-bbolt-freelist-type was removed in etcd 3.5: use backend-bbolt-freelist-type",
    ),
    (
        "3.4.13",
        "backend-bbolt-freelist-type",
        "etcd 3.4.13 has no flag backend-bbolt-freelist-type, which came with 3.5.0: use \
             experimental-backend-bbolt-freelist-type",
    ),
    (
        "3.7.1",
        "experimental-distributed-tracing-address",
        "experimental-distributed-tracing-address was removed in etcd 3.7: use distributed-tracing-address",
    ),
    (
        "3.7.1",
        "experimental-unknown",
        "experimental-unknown was removed in etcd 3.7: use the flag without experimental-, or remove it",
    ),
    ("3.6.14", "experimental-unknown", ""),
    // Feature gates that never had a flag without the prefix.
    ("3.4.13", "experimental-initial-corrupt-check", ""),
    ("3.6.14", "experimental-initial-corrupt-check", ""),
    (
        "3.7.1",
        "experimental-initial-corrupt-check",
        "experimental-initial-corrupt-check was removed in etcd 3.7: use feature-gates with InitialCorruptCheck=true",
    ),
    (
        "3.5.26",
        "initial-corrupt-check",
        "etcd has no flag initial-corrupt-check: use experimental-initial-corrupt-check",
    ),
    (
        "3.6.14",
        "initial-corrupt-check",
        "etcd has no flag initial-corrupt-check: use feature-gates with InitialCorruptCheck=true",
    ),
    // Not available yet, also within one minor version.
    (
        "3.5.26",
        "feature-gates",
        "etcd 3.5.26 has no flag feature-gates, which came with 3.6.0: remove it",
    ),
    ("3.4.25", "tls-min-version", ""),
    ("3.5.8", "tls-min-version", ""),
    (
        "3.5.7",
        "tls-min-version",
        "etcd 3.5.7 has no flag tls-min-version, which came with 3.5.8: remove it",
    ),
    (
        "3.4.13",
        "tls-min-version",
        "etcd 3.4.13 has no flag tls-min-version, which came with 3.4.25: remove it",
    ),
    ("3.4.16", "experimental-warning-apply-duration", ""),
    (
        "3.4.13",
        "experimental-warning-apply-duration",
        "etcd 3.4.13 has no flag experimental-warning-apply-duration, which came with 3.4.16: remove it",
    ),
    (
        "3.6.14",
        "experimental-heartbeat-interval",
        "etcd has no flag experimental-heartbeat-interval: use heartbeat-interval",
    ),
    (
        "3.5.26",
        "experimental-enable-v2",
        "etcd has no flag experimental-enable-v2: use enable-v2",
    ),
    ("3.8.0", "memory-mlock", ""),
    ("4.0.0", "pre-vote", ""),
];

#[test]
fn flags_that_a_version_does_not_have_are_invalid() {
    for (version, name, expected) in CASES {
        let value = match *name {
            "experimental-heartbeat-interval" => "1",
            "tls-min-version" => "TLS1.3",
            _ if name.ends_with("type") => "map",
            _ if name.ends_with("duration") => "1s",
            _ => "true",
        };
        let message = problem(version, &json!({ *name: value }));
        assert_eq!(message, *expected, "{version} {name}");
    }
}

#[test]
fn a_logger_that_a_version_does_not_have_is_invalid() {
    for (version, logger, expected) in [
        ("3.4.13", "capnslog", ""),
        ("3.5.0", "zap", ""),
        (
            "3.5.0",
            "capnslog",
            "logger capnslog was removed in etcd 3.5: use zap",
        ),
    ] {
        assert_eq!(problem(version, &json!({ "logger": logger })), expected);
    }
}

/// Real members with 3.6.16 exit with these, except for the revision retention, with which they never compact.
#[test]
fn flags_that_contradict_each_other_are_invalid() {
    for (options, expected) in [
        (json!({ "election-timeout": "500" }), ""),
        (
            json!({ "election-timeout": "499" }),
            "election-timeout 499 must be at least 500, five times heartbeat-interval, and at most 50000",
        ),
        (
            json!({ "heartbeat-interval": "201" }),
            "election-timeout 1000 must be at least 1005, five times heartbeat-interval, and at most 50000",
        ),
        (
            json!({ "election-timeout": "60000" }),
            "election-timeout 60000 must be at least 500, five times heartbeat-interval, and at most 50000",
        ),
        (
            json!({ "heartbeat-interval": "0" }),
            "heartbeat-interval must be at least 1",
        ),
        (json!({ "auto-compaction-retention": "1h30m" }), ""),
        (json!({ "auto-compaction-retention": "1" }), ""),
        (
            json!({ "auto-compaction-retention": "often" }),
            "auto-compaction-retention \"often\": write a duration such as 1h30m, or a number of hours",
        ),
        (
            json!({ "auto-compaction-mode": "revision", "auto-compaction-retention": "5m" }),
            "auto-compaction-retention \"5m\": write a number of revisions",
        ),
        (json!({ "tls-min-version": "TLS1.3" }), ""),
        (
            json!({ "tls-min-version": "TLS1.3", "tls-max-version": "TLS1.2" }),
            "tls-min-version TLS1.3 is above tls-max-version TLS1.2",
        ),
        (
            json!({ "experimental-memory-mlock": "", "memory-mlock": "" }),
            "experimental-memory-mlock and memory-mlock are one flag: remove experimental-memory-mlock",
        ),
        (
            json!({ "experimental-initial-corrupt-check": "true", "feature-gates": "LeaseCheckpoint=true" }),
            "",
        ),
        (
            json!({
                "experimental-initial-corrupt-check": "true",
                "feature-gates": "LeaseCheckpoint=true,InitialCorruptCheck=true",
            }),
            "experimental-initial-corrupt-check and InitialCorruptCheck of feature-gates are one setting: remove \
             experimental-initial-corrupt-check",
        ),
    ] {
        assert_eq!(problem("3.6.14", &options), expected, "{options}");
    }
    let often = parent(json!({ "autoCompactionRetention": "often" }));
    let fault = Plugin::reconcile(&TestRequest::new(&often).build(), &host()).unwrap_err();
    assert_eq!(
        fault.message,
        "spec.autoCompactionRetention \"often\": write a duration such as 1h30m, or a number of hours"
    );
}
