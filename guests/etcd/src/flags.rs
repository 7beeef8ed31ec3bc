//! The flags of etcd that a parent may state in `spec.options`, and the versions that have them.
//!
//! Other flags name files, addresses and programs of others, give up data, or open a door: configuration, logs, keys of
//! tokens, traces, profiles. So the check knows the flags that do none of this, and refuses the others.

mod life;
pub(crate) mod together;

use std::collections::BTreeMap;

use innkeeper_kit::tenants::{Form, check_listed};

use self::life::{EXPERIMENTAL, Life};
use crate::version::Version;

/// A flag of etcd.
pub(crate) struct Flag {
    /// Its name without `experimental-`.
    pub(crate) name: &'static str,
    /// The form of its value; none for a flag that only the configuration permits.
    pub(crate) form: Option<Form>,
    life: Life,
}

const fn flag(name: &'static str, form: Form, life: Life) -> Flag {
    Flag {
        name,
        form: Some(form),
        life,
    }
}

const fn listed(name: &'static str, life: Life) -> Flag {
    Flag {
        name,
        form: None,
        life,
    }
}

/// A duration, a number of hours or of revisions.
const RETENTION: Form = Form::Words;

const PROXY: Life = Life::Until(6, "run etcd grpc-proxy apart, or leave it out");

/// The flags with the form of their value, and at the end those that only some versions have and the configuration permits.
pub(crate) const FLAGS: &[Flag] = &[
    flag("auth-token", Form::Choice(&["simple"]), Life::Always),
    flag("auth-token-ttl", Form::Number, Life::Since(&[(4, 10)])),
    flag(
        "auto-compaction-mode",
        Form::Choice(&["periodic", "revision"]),
        Life::Always,
    ),
    flag("auto-compaction-retention", RETENTION, Life::Always),
    flag("backend-batch-interval", Form::Duration, Life::Always),
    flag("backend-batch-limit", Form::Number, Life::Always),
    flag(
        "backend-bbolt-freelist-type",
        Form::Choice(&["array", "map"]),
        Life::Renamed(&[(4, 0)], 5, 5),
    ),
    flag("bcrypt-cost", Form::Number, Life::Always),
    flag(
        "bootstrap-defrag-threshold-megabytes",
        Form::Number,
        Life::Renamed(&[(5, 0)], 6, 7),
    ),
    flag("cipher-suites", Form::Words, Life::Always),
    flag(
        "compact-hash-check-enabled",
        Form::Switch,
        Life::Gate(&[(5, 5)], "CompactHashCheck"),
    ),
    flag(
        "compact-hash-check-time",
        Form::Duration,
        Life::Renamed(&[(5, 5)], 6, 7),
    ),
    flag(
        "compaction-batch-limit",
        Form::Number,
        Life::Renamed(&[(4, 0)], 6, 7),
    ),
    flag(
        "compaction-sleep-interval",
        Form::Duration,
        Life::Renamed(&[(5, 16)], 6, 7),
    ),
    flag(
        "corrupt-check-time",
        Form::Duration,
        Life::Renamed(&[(4, 0)], 6, 7),
    ),
    flag("cors", Form::Words, Life::Always),
    flag(
        "debug",
        Form::Switch,
        Life::Until(5, "set log-level to debug"),
    ),
    flag(
        "downgrade-check-time",
        Form::Duration,
        Life::Renamed(&[(5, 0)], 6, 7),
    ),
    flag("election-timeout", Form::Number, Life::Always),
    flag("enable-grpc-gateway", Form::Switch, Life::Always),
    flag(
        "enable-lease-checkpoint",
        Form::Switch,
        Life::Gate(&[(4, 0)], "LeaseCheckpoint"),
    ),
    flag(
        "enable-lease-checkpoint-persist",
        Form::Switch,
        Life::Gate(&[(4, 20), (5, 2)], "LeaseCheckpointPersist"),
    ),
    flag("enable-v2", Form::Switch, Life::Until(6, "leave it out")),
    flag("feature-gates", Form::Words, Life::Since(&[(6, 0)])),
    flag("grpc-keepalive-interval", Form::Duration, Life::Always),
    flag("grpc-keepalive-min-time", Form::Duration, Life::Always),
    flag("grpc-keepalive-timeout", Form::Duration, Life::Always),
    flag("heartbeat-interval", Form::Number, Life::Always),
    flag("host-whitelist", Form::Words, Life::Always),
    flag(
        "initial-corrupt-check",
        Form::Switch,
        Life::Gate(&[(4, 0)], "InitialCorruptCheck"),
    ),
    flag(
        "log-format",
        Form::Choice(&["console", "json"]),
        Life::Since(&[(6, 0)]),
    ),
    flag(
        "log-level",
        Form::Choice(&["debug", "info", "warn", "error", "panic", "fatal"]),
        Life::Always,
    ),
    flag("logger", Form::Choice(&["capnslog", "zap"]), Life::Always),
    flag(
        "max-concurrent-streams",
        Form::Number,
        Life::Since(&[(4, 20), (5, 5)]),
    ),
    flag("max-learners", Form::Number, Life::Since(&[(6, 0)])),
    flag("max-request-bytes", Form::Number, Life::Always),
    flag("max-snapshots", Form::Number, Life::Always),
    flag("max-txn-ops", Form::Number, Life::Always),
    flag("max-wals", Form::Number, Life::Always),
    flag("memory-mlock", Form::Switch, Life::Renamed(&[(5, 0)], 6, 7)),
    flag(
        "metrics",
        Form::Choice(&["basic", "extensive"]),
        Life::Always,
    ),
    flag("pre-vote", Form::Switch, Life::Always),
    flag("quota-backend-bytes", Form::Number, Life::Always),
    flag("raft-read-timeout", Form::Duration, Life::Since(&[(5, 0)])),
    flag("raft-write-timeout", Form::Duration, Life::Since(&[(5, 0)])),
    flag(
        "snapshot-catchup-entries",
        Form::Number,
        Life::Renamed(&[(5, 14)], 6, 7),
    ),
    flag("snapshot-count", Form::Number, Life::Always),
    flag("socket-reuse-address", Form::Switch, Life::Since(&[(5, 0)])),
    flag("socket-reuse-port", Form::Switch, Life::Since(&[(5, 0)])),
    flag(
        "stop-grpc-service-on-defrag",
        Form::Switch,
        Life::Gate(&[(5, 14)], "StopGRPCServiceOnDefrag"),
    ),
    flag("strict-reconfig-check", Form::Switch, Life::Always),
    flag(
        "tls-max-version",
        Form::Choice(&["TLS1.2", "TLS1.3"]),
        Life::Since(&[(4, 25), (5, 8)]),
    ),
    flag(
        "tls-min-version",
        Form::Choice(&["TLS1.2", "TLS1.3"]),
        Life::Since(&[(4, 25), (5, 8)]),
    ),
    flag(
        "txn-mode-write-with-shared-buffer",
        Form::Switch,
        Life::Gate(&[(5, 0)], "TxnModeWriteWithSharedBuffer"),
    ),
    flag(
        "warning-apply-duration",
        Form::Duration,
        Life::Renamed(&[(4, 16), (5, 0)], 6, 7),
    ),
    flag(
        "warning-unary-request-duration",
        Form::Duration,
        Life::Renamed(&[(6, 0)], 6, 7),
    ),
    flag(
        "watch-progress-notify-interval",
        Form::Duration,
        Life::Renamed(&[(4, 11), (5, 0)], 6, 7),
    ),
    listed("client-cert-file", Life::Since(&[(5, 0)])),
    listed("client-key-file", Life::Since(&[(5, 0)])),
    listed(
        "distributed-tracing-address",
        Life::Renamed(&[(5, 0)], 6, 7),
    ),
    listed(
        "distributed-tracing-instance-id",
        Life::Renamed(&[(5, 0)], 6, 7),
    ),
    listed(
        "distributed-tracing-sampling-rate",
        Life::Renamed(&[(5, 11)], 6, 7),
    ),
    listed(
        "distributed-tracing-service-name",
        Life::Renamed(&[(5, 0)], 6, 7),
    ),
    listed("enable-distributed-tracing", Life::Renamed(&[(5, 0)], 6, 7)),
    listed("enable-log-rotation", Life::Since(&[(5, 0)])),
    listed("experimental-enable-v2v3", Life::Until(6, "leave it out")),
    listed("log-output", Life::Until(5, "use log-outputs")),
    listed("log-package-levels", Life::Until(5, "use log-level")),
    listed("log-rotation-config-json", Life::Since(&[(5, 0)])),
    listed(
        "next-cluster-version-compatible",
        Life::Until(5, "leave it out"),
    ),
    listed("proxy", PROXY),
    listed("proxy-dial-timeout", PROXY),
    listed("proxy-failure-wait", PROXY),
    listed("proxy-read-timeout", PROXY),
    listed("proxy-refresh-interval", PROXY),
    listed("proxy-write-timeout", PROXY),
    listed("self-signed-cert-validity", Life::Since(&[(5, 0)])),
    listed("unsafe-no-fsync", Life::Since(&[(4, 10)])),
    listed("v2-deprecation", Life::Since(&[(5, 0)])),
];

fn find(name: &str) -> Option<&'static Flag> {
    let plain = name.strip_prefix(EXPERIMENTAL).unwrap_or(name);
    let mut flags = FLAGS.iter();
    flags.find(|flag| flag.name == name || flag.name == plain)
}

/// Checks that a version has the flags.
pub(crate) fn check_version(
    options: &BTreeMap<String, String>,
    version: Version,
) -> Result<(), String> {
    for (name, value) in options {
        let problem = match find(name) {
            Some(_) if name == "logger" && value == "capnslog" && version.is_from_minor(5) => {
                Some("logger capnslog was removed in etcd 3.5: use zap".to_owned())
            }
            Some(flag) => {
                let plain = (flag.name != name).then_some(flag.name);
                flag.life.problem(name, plain, version)
            }
            // The configuration permits a flag that this table does not know.
            None if name.starts_with(EXPERIMENTAL) => {
                Life::Until(7, "use the flag without experimental-, or leave it out")
                    .problem(name, None, version)
            }
            None => None,
        };
        if let Some(problem) = problem {
            return Err(format!("spec.options: {problem}"));
        }
    }
    Ok(())
}

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
    match find(name).and_then(|flag| flag.form) {
        Some(form) if form.accepts(value) => Ok(()),
        Some(form) => Err(format!("spec.options: {name} \"{value}\": write {form}")),
        None => check_listed(
            "spec.options",
            "tenants.options",
            [&name.to_owned()],
            listed,
        ),
    }
}
