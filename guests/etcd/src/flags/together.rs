//! Flags that contradict each other, with which etcd would exit.

use innkeeper_kit::tenants::Form;

use super::{Availability, EXPERIMENTAL, FLAGS};
use crate::api::{CompactionMode, EtcdClusterSpec};

/// The longest election timeout that etcd accepts, in milliseconds.
const ELECTION_MS_MAX: u64 = 50_000;

/// Checks flags against each other, after their forms.
pub(crate) fn check(spec: &EtcdClusterSpec) -> Result<(), String> {
    retention(spec)?;
    let options = &spec.options;
    let number = |name: &str, default: u64| {
        options
            .get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    let heartbeat = number("heartbeat-interval", 100);
    let election = number("election-timeout", 1000);
    let least = heartbeat.saturating_mul(5).max(1);
    if heartbeat == 0 {
        return Err("spec.options: heartbeat-interval must be at least 1".to_owned());
    }
    if !(least..=ELECTION_MS_MAX).contains(&election) {
        return Err(format!(
            "spec.options: election-timeout {election} must be at least {least}, five times heartbeat-interval, and at most \
             {ELECTION_MS_MAX}"
        ));
    }
    let is = |name: &str, value: &str| options.get(name).is_some_and(|stated| stated == value);
    if is("tls-min-version", "TLS1.3") && is("tls-max-version", "TLS1.2") {
        return Err(
            "spec.options: tls-min-version TLS1.3 is above tls-max-version TLS1.2".to_owned(),
        );
    }
    for (name, plain) in options
        .keys()
        .filter_map(|key| Some((key, key.strip_prefix(EXPERIMENTAL)?)))
    {
        if options.contains_key(plain) {
            return Err(format!(
                "spec.options: {name} and {plain} are one flag: remove {name}"
            ));
        }
        let gate = FLAGS.iter().find_map(|flag| match flag.availability {
            Availability::Gate(_, gate) if flag.name == plain => Some(gate),
            _ => None,
        });
        let mut gates = options
            .get("feature-gates")
            .into_iter()
            .flat_map(|gates| gates.split(','));
        let mut is_twice = |gate: &str| gates.any(|part| part.split('=').next() == Some(gate));
        if let Some(gate) = gate.filter(|gate| is_twice(gate)) {
            return Err(format!(
                "spec.options: {name} and {gate} of feature-gates are one setting: remove {name}"
            ));
        }
    }
    Ok(())
}

/// Checks compaction retention: a number of revisions, a duration, or a number of hours.
fn retention(spec: &EtcdClusterSpec) -> Result<(), String> {
    const RETENTION: &str = "auto-compaction-retention";
    let typed = spec
        .auto_compaction_retention
        .as_ref()
        .map(|text| ("spec.autoCompactionRetention".to_owned(), text));
    let option = spec.options.get(RETENTION);
    let stated = typed.or_else(|| Some((format!("spec.options: {RETENTION}"), option?)));
    let Some((path, text)) = stated else {
        return Ok(());
    };
    let mode = spec.options.get("auto-compaction-mode");
    let is_by_revision = spec.auto_compaction_mode == Some(CompactionMode::Revision)
        || mode.is_some_and(|mode| mode == "revision");
    if Form::Number.accepts(text) || (!is_by_revision && Form::Duration.accepts(text)) {
        return Ok(());
    }
    let form = if is_by_revision {
        "a number of revisions"
    } else {
        "a duration such as 1h30m, or a number of hours"
    };
    Err(format!("{path} \"{text}\": write {form}"))
}
