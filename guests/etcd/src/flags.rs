//! etcd flags that a parent may set in `spec.options`, and the versions that have them.
//!
//! An allow list: other flags name other parties' files, addresses and programs, risk the data, or open a door
//! (configuration, logs, token keys, traces, profiles).

pub(crate) mod together;

use std::collections::BTreeMap;

use innkeeper_kit::tenants::{Form, check_listed};

use crate::version::Version;

/// An etcd flag.
pub(crate) struct Flag {
    /// The name without `experimental-`.
    pub(crate) name: &'static str,
    /// The value's form; `None` for a flag that the configuration must allow.
    pub(crate) form: Option<Form>,
    availability: Availability,
}

const fn flag(name: &'static str, form: Form, availability: Availability) -> Flag {
    Flag {
        name,
        form: Some(form),
        availability,
    }
}

const fn listed(name: &'static str, availability: Availability) -> Flag {
    Flag {
        name,
        form: None,
        availability,
    }
}

/// A duration, an hour count or a revision count.
const RETENTION: Form = Form::Words;

const PROXY: Availability = Availability::Until(6, "run etcd grpc-proxy separately, or remove it");

/// The flags and their values' forms; at the end, flags that only some versions have and the configuration must
/// allow.
pub(crate) const FLAGS: &[Flag] = &[
    flag(
        "auth-token",
        Form::Choice(&["simple"]),
        Availability::Always,
    ),
    flag(
        "auth-token-ttl",
        Form::Number,
        Availability::Since(&[(4, 10)]),
    ),
    flag(
        "auto-compaction-mode",
        Form::Choice(&["periodic", "revision"]),
        Availability::Always,
    ),
    flag("auto-compaction-retention", RETENTION, Availability::Always),
    flag(
        "backend-batch-interval",
        Form::Duration,
        Availability::Always,
    ),
    flag("backend-batch-limit", Form::Number, Availability::Always),
    flag(
        "backend-bbolt-freelist-type",
        Form::Choice(&["array", "map"]),
        Availability::Renamed(&[(4, 0)], 5, 5),
    ),
    flag("bcrypt-cost", Form::Number, Availability::Always),
    flag(
        "bootstrap-defrag-threshold-megabytes",
        Form::Number,
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    flag("cipher-suites", Form::Words, Availability::Always),
    flag(
        "compact-hash-check-enabled",
        Form::Switch,
        Availability::Gate(&[(5, 5)], "CompactHashCheck"),
    ),
    flag(
        "compact-hash-check-time",
        Form::Duration,
        Availability::Renamed(&[(5, 5)], 6, 7),
    ),
    flag(
        "compaction-batch-limit",
        Form::Number,
        Availability::Renamed(&[(4, 0)], 6, 7),
    ),
    flag(
        "compaction-sleep-interval",
        Form::Duration,
        Availability::Renamed(&[(5, 16)], 6, 7),
    ),
    flag(
        "corrupt-check-time",
        Form::Duration,
        Availability::Renamed(&[(4, 0)], 6, 7),
    ),
    flag("cors", Form::Words, Availability::Always),
    flag(
        "debug",
        Form::Switch,
        Availability::Until(5, "set log-level to debug"),
    ),
    flag(
        "downgrade-check-time",
        Form::Duration,
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    flag("election-timeout", Form::Number, Availability::Always),
    flag("enable-grpc-gateway", Form::Switch, Availability::Always),
    flag(
        "enable-lease-checkpoint",
        Form::Switch,
        Availability::Gate(&[(4, 0)], "LeaseCheckpoint"),
    ),
    flag(
        "enable-lease-checkpoint-persist",
        Form::Switch,
        Availability::Gate(&[(4, 20), (5, 2)], "LeaseCheckpointPersist"),
    ),
    flag(
        "enable-v2",
        Form::Switch,
        Availability::Until(6, "remove it"),
    ),
    flag("feature-gates", Form::Words, Availability::Since(&[(6, 0)])),
    flag(
        "grpc-keepalive-interval",
        Form::Duration,
        Availability::Always,
    ),
    flag(
        "grpc-keepalive-min-time",
        Form::Duration,
        Availability::Always,
    ),
    flag(
        "grpc-keepalive-timeout",
        Form::Duration,
        Availability::Always,
    ),
    flag("heartbeat-interval", Form::Number, Availability::Always),
    flag("host-whitelist", Form::Words, Availability::Always),
    flag(
        "initial-corrupt-check",
        Form::Switch,
        Availability::Gate(&[(4, 0)], "InitialCorruptCheck"),
    ),
    flag(
        "log-format",
        Form::Choice(&["console", "json"]),
        Availability::Since(&[(6, 0)]),
    ),
    flag(
        "log-level",
        Form::Choice(&["debug", "info", "warn", "error", "panic", "fatal"]),
        Availability::Always,
    ),
    flag(
        "logger",
        Form::Choice(&["capnslog", "zap"]),
        Availability::Always,
    ),
    flag(
        "max-concurrent-streams",
        Form::Number,
        Availability::Since(&[(4, 20), (5, 5)]),
    ),
    flag("max-learners", Form::Number, Availability::Since(&[(6, 0)])),
    flag("max-request-bytes", Form::Number, Availability::Always),
    flag("max-snapshots", Form::Number, Availability::Always),
    flag("max-txn-ops", Form::Number, Availability::Always),
    flag("max-wals", Form::Number, Availability::Always),
    flag(
        "memory-mlock",
        Form::Switch,
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    flag(
        "metrics",
        Form::Choice(&["basic", "extensive"]),
        Availability::Always,
    ),
    flag("pre-vote", Form::Switch, Availability::Always),
    flag("quota-backend-bytes", Form::Number, Availability::Always),
    flag(
        "raft-read-timeout",
        Form::Duration,
        Availability::Since(&[(5, 0)]),
    ),
    flag(
        "raft-write-timeout",
        Form::Duration,
        Availability::Since(&[(5, 0)]),
    ),
    flag(
        "snapshot-catchup-entries",
        Form::Number,
        Availability::Renamed(&[(5, 14)], 6, 7),
    ),
    flag("snapshot-count", Form::Number, Availability::Always),
    flag(
        "socket-reuse-address",
        Form::Switch,
        Availability::Since(&[(5, 0)]),
    ),
    flag(
        "socket-reuse-port",
        Form::Switch,
        Availability::Since(&[(5, 0)]),
    ),
    flag(
        "stop-grpc-service-on-defrag",
        Form::Switch,
        Availability::Gate(&[(5, 14)], "StopGRPCServiceOnDefrag"),
    ),
    flag("strict-reconfig-check", Form::Switch, Availability::Always),
    flag(
        "tls-max-version",
        Form::Choice(&["TLS1.2", "TLS1.3"]),
        Availability::Since(&[(4, 25), (5, 8)]),
    ),
    flag(
        "tls-min-version",
        Form::Choice(&["TLS1.2", "TLS1.3"]),
        Availability::Since(&[(4, 25), (5, 8)]),
    ),
    flag(
        "txn-mode-write-with-shared-buffer",
        Form::Switch,
        Availability::Gate(&[(5, 0)], "TxnModeWriteWithSharedBuffer"),
    ),
    flag(
        "warning-apply-duration",
        Form::Duration,
        Availability::Renamed(&[(4, 16), (5, 0)], 6, 7),
    ),
    flag(
        "warning-unary-request-duration",
        Form::Duration,
        Availability::Renamed(&[(6, 0)], 6, 7),
    ),
    flag(
        "watch-progress-notify-interval",
        Form::Duration,
        Availability::Renamed(&[(4, 11), (5, 0)], 6, 7),
    ),
    listed("client-cert-file", Availability::Since(&[(5, 0)])),
    listed("client-key-file", Availability::Since(&[(5, 0)])),
    listed(
        "distributed-tracing-address",
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    listed(
        "distributed-tracing-instance-id",
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    listed(
        "distributed-tracing-sampling-rate",
        Availability::Renamed(&[(5, 11)], 6, 7),
    ),
    listed(
        "distributed-tracing-service-name",
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    listed(
        "enable-distributed-tracing",
        Availability::Renamed(&[(5, 0)], 6, 7),
    ),
    listed("enable-log-rotation", Availability::Since(&[(5, 0)])),
    listed(
        "experimental-enable-v2v3",
        Availability::Until(6, "remove it"),
    ),
    listed("log-output", Availability::Until(5, "use log-outputs")),
    listed(
        "log-package-levels",
        Availability::Until(5, "use log-level"),
    ),
    listed("log-rotation-config-json", Availability::Since(&[(5, 0)])),
    listed(
        "next-cluster-version-compatible",
        Availability::Until(5, "remove it"),
    ),
    listed("proxy", PROXY),
    listed("proxy-dial-timeout", PROXY),
    listed("proxy-failure-wait", PROXY),
    listed("proxy-read-timeout", PROXY),
    listed("proxy-refresh-interval", PROXY),
    listed("proxy-write-timeout", PROXY),
    listed("self-signed-cert-validity", Availability::Since(&[(5, 0)])),
    listed("unsafe-no-fsync", Availability::Since(&[(4, 10)])),
    listed("v2-deprecation", Availability::Since(&[(5, 0)])),
];

fn find(name: &str) -> Option<&'static Flag> {
    let plain = name.strip_prefix(EXPERIMENTAL).unwrap_or(name);
    FLAGS
        .iter()
        .find(|flag| flag.name == name || flag.name == plain)
}

/// The prefix for flags that etcd did not promise to keep. 3.6 accepts most of them with and without it, 3.7 none
/// with it.
const EXPERIMENTAL: &str = "experimental-";

/// The first patch releases with a flag, as minor version and patch, ascending. Later minor versions have it too.
type Patches = &'static [(u32, u32)];

/// The versions that have a flag.
#[derive(Clone, Copy)]
enum Availability {
    /// All versions since 3.4.0.
    Always,
    /// The versions since these patches.
    Since(Patches),
    /// The versions before this minor version; the text says what to do instead.
    Until(u32, &'static str),
    /// The versions since these patches with the prefix, and those since the first minor version without it. The
    /// second minor version is the first that rejects the prefix.
    Renamed(Patches, u32, u32),
    /// The versions since these patches up to 3.6 with the prefix, and a feature gate with this name since 3.6.
    Gate(Patches, &'static str),
}

impl Availability {
    /// Why a version lacks a flag, with the remedy; `None` if it has the flag. `plain` is the flag's name in the
    /// table if it was given with the prefix.
    fn problem(self, name: &str, plain: Option<&str>, version: Version) -> Option<String> {
        let removed = |minor: u32, remedy: &str| {
            version
                .is_from_minor(minor)
                .then(|| format!("{name} was removed in etcd 3.{minor}: {remedy}"))
        };
        match (self, plain) {
            (Self::Until(minor, remedy), None) => removed(minor, remedy),
            (Self::Always, None) => None,
            (Self::Since(patches), None) => unborn(name, patches, version, "remove it"),
            (Self::Always | Self::Since(_) | Self::Until(..), Some(plain)) => {
                Some(format!("etcd has no flag {name}: use {plain}"))
            }
            (Self::Renamed(patches, _, until), Some(plain)) => {
                removed(until, &format!("use {plain}"))
                    .or_else(|| unborn(name, patches, version, "remove it"))
            }
            (Self::Renamed(patches, from, _), None) => {
                let is_experimental = unborn(name, patches, version, "").is_none();
                let remedy = if is_experimental {
                    format!("use {EXPERIMENTAL}{name}")
                } else {
                    "remove it".to_owned()
                };
                unborn(name, &[(from, 0)], version, &remedy)
            }
            (Self::Gate(patches, gate), Some(_)) => {
                removed(7, &format!("use feature-gates with {gate}=true"))
                    .or_else(|| unborn(name, patches, version, "remove it"))
            }
            (Self::Gate(_, gate), None) => Some(if version.is_from_minor(6) {
                format!("etcd has no flag {name}: use feature-gates with {gate}=true")
            } else {
                format!("etcd has no flag {name}: use {EXPERIMENTAL}{name}")
            }),
        }
    }
}

/// Why a version before these patches lacks a flag, with the remedy; `None` for later ones.
fn unborn(name: &str, patches: &[(u32, u32)], version: Version, remedy: &str) -> Option<String> {
    // The last patch for the same or an earlier minor version decides; without one, the first patch for a later one.
    let is_past = |versions: &&(u32, u32)| version.is_from_minor(versions.0);
    let patch = patches.iter().rev().find(is_past);
    let (minor, patch) = *patch.or_else(|| patches.first())?;
    let is_born =
        version >= Version::new(3, minor, patch) || (patch == 0 && version.is_from_minor(minor));
    (!is_born).then(|| {
        format!("etcd {version} has no flag {name}, which came with 3.{minor}.{patch}: {remedy}")
    })
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
                flag.availability.problem(name, plain, version)
            }
            // The configuration allows a flag that is not in this table.
            None if name.starts_with(EXPERIMENTAL) => {
                Availability::Until(7, "use the flag without experimental-, or remove it")
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

/// Checks flag names, and values unless the configuration lists the flag.
///
/// A flag without a value would take the next argument instead.
pub(crate) fn check(options: &BTreeMap<String, String>, listed: &[String]) -> Result<(), String> {
    options
        .iter()
        .try_for_each(|(name, value)| check_flag(name, value, listed))
}

fn check_flag(name: &str, value: &str, listed: &[String]) -> Result<(), String> {
    // The installed CRD may be an older one without this rule. A name such as `data-dir=/x` would hide another flag.
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
