//! The flags of etcd that a parent may state in `spec.options`.
//!
//! Other flags name files, addresses and programs of others, give up data, or open a door: configuration, logs, keys of
//! tokens, traces, profiles. So the check knows the flags that do none of this, and refuses the others.

use std::collections::BTreeMap;

use innkeeper_sdk::tenants::{Form, check_listed};

use crate::version::Version;

/// The flags with the form of their value. Each may begin with `experimental-`, as it did in the version that brought it.
pub(crate) const FLAGS: &[(&str, Form)] = &[
    ("auth-token", Form::Choice(&["simple"])),
    ("auth-token-ttl", Form::Number),
    (
        "auto-compaction-mode",
        Form::Choice(&["periodic", "revision"]),
    ),
    ("auto-compaction-retention", RETENTION),
    ("backend-batch-interval", Form::Duration),
    ("backend-batch-limit", Form::Number),
    (
        "backend-bbolt-freelist-type",
        Form::Choice(&["array", "map"]),
    ),
    ("bcrypt-cost", Form::Number),
    ("bootstrap-defrag-threshold-megabytes", Form::Number),
    ("cipher-suites", Form::Words),
    ("compact-hash-check-enabled", Form::Switch),
    ("compact-hash-check-time", Form::Duration),
    ("compaction-batch-limit", Form::Number),
    ("compaction-sleep-interval", Form::Duration),
    ("corrupt-check-time", Form::Duration),
    ("cors", Form::Words),
    ("debug", Form::Switch),
    ("downgrade-check-time", Form::Duration),
    ("election-timeout", Form::Number),
    ("enable-grpc-gateway", Form::Switch),
    ("enable-lease-checkpoint", Form::Switch),
    ("enable-lease-checkpoint-persist", Form::Switch),
    ("enable-v2", Form::Switch),
    ("feature-gates", Form::Words),
    ("grpc-keepalive-interval", Form::Duration),
    ("grpc-keepalive-min-time", Form::Duration),
    ("grpc-keepalive-timeout", Form::Duration),
    ("heartbeat-interval", Form::Number),
    ("host-whitelist", Form::Words),
    ("initial-corrupt-check", Form::Switch),
    ("log-format", Form::Choice(&["console", "json"])),
    (
        "log-level",
        Form::Choice(&["debug", "info", "warn", "error", "panic", "fatal"]),
    ),
    ("logger", Form::Choice(&["capnslog", "zap"])),
    ("max-concurrent-streams", Form::Number),
    ("max-learners", Form::Number),
    ("max-request-bytes", Form::Number),
    ("max-snapshots", Form::Number),
    ("max-txn-ops", Form::Number),
    ("max-wals", Form::Number),
    ("memory-mlock", Form::Switch),
    ("metrics", Form::Choice(&["basic", "extensive"])),
    ("pre-vote", Form::Switch),
    ("quota-backend-bytes", Form::Number),
    ("raft-read-timeout", Form::Duration),
    ("raft-write-timeout", Form::Duration),
    ("snapshot-catchup-entries", Form::Number),
    ("snapshot-count", Form::Number),
    ("socket-reuse-address", Form::Switch),
    ("socket-reuse-port", Form::Switch),
    ("stop-grpc-service-on-defrag", Form::Switch),
    ("strict-reconfig-check", Form::Switch),
    ("tls-max-version", Form::Choice(&["TLS1.2", "TLS1.3"])),
    ("tls-min-version", Form::Choice(&["TLS1.2", "TLS1.3"])),
    ("txn-mode-write-with-shared-buffer", Form::Switch),
    ("warning-apply-duration", Form::Duration),
    ("warning-unary-request-duration", Form::Duration),
    ("watch-progress-notify-interval", Form::Duration),
];

/// Flags that a version does not know any more, as major and minor version, with the remedy.
///
/// Those that became feature gates never had a name without `experimental-`.
const REMOVED: &[(&str, u32, &str)] = &[
    ("compact-hash-check-enabled", 6, GATE),
    ("debug", 6, "set log-level to debug"),
    ("enable-lease-checkpoint", 6, GATE),
    ("enable-lease-checkpoint-persist", 6, GATE),
    ("enable-v2", 6, "leave it out"),
    ("initial-corrupt-check", 6, GATE),
    ("stop-grpc-service-on-defrag", 6, GATE),
    ("txn-mode-write-with-shared-buffer", 6, GATE),
];

const GATE: &str = "use feature-gates";

/// Checks that a version has the flags.
pub(crate) fn check_version(
    options: &BTreeMap<String, String>,
    version: Version,
) -> Result<(), String> {
    let is_removed = |minor: u32| version.is_from_minor(minor);
    for name in options.keys() {
        if name.starts_with("experimental-") && is_removed(7) {
            return Err(format!(
                "spec.options: {name} was removed in etcd 3.7: use the flag without experimental-, or leave it out"
            ));
        }
        let mut removed = REMOVED.iter();
        if let Some((_, minor, remedy)) = removed.find(|it| it.0 == name && is_removed(it.1)) {
            return Err(format!(
                "spec.options: etcd 3.{minor} has no flag {name}: {remedy}"
            ));
        }
    }
    Ok(())
}

/// A duration, a number of hours or of revisions.
const RETENTION: Form = Form::Words;

/// Checks the names of the flags, and their values unless the configuration lists the flag.
///
/// A flag without the value that it needs would take the next argument for it.
pub(crate) fn check(options: &BTreeMap<String, String>, listed: &[String]) -> Result<(), String> {
    options
        .iter()
        .try_for_each(|(name, value)| check_flag(name, value, listed))
}

fn check_flag(name: &str, value: &str, listed: &[String]) -> Result<(), String> {
    // The definition may have been installed without this plugin's rules. A name such as `data-dir=/x` would state a flag
    // under another name.
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_part) {
        return Err(format!(
            "spec.options: \"{name}\" is no name of a flag, which has lower-case letters, digits and dashes \
             only"
        ));
    }
    let plain = name.strip_prefix("experimental-").unwrap_or(name);
    match FLAGS.iter().find(|(flag, _)| *flag == plain) {
        Some((_, form)) if form.accepts(value) => Ok(()),
        Some((_, form)) => Err(format!("spec.options: {name} \"{value}\": write {form}")),
        None => check_listed(
            "spec.options",
            "tenants.options",
            [&name.to_owned()],
            listed,
        ),
    }
}
