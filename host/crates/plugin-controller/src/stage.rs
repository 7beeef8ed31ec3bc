//! Stages on a Plugin's way to passes, and their failures. Pure.

use std::fmt;

use innkeeper_model::{Condition, ConditionStatus, PluginReason, Retry, error_chain};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use crate::resource::Declared;

/// A stage, in order; each has a condition with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The bytes are in memory.
    Fetched,
    /// The bytes have the declared digest, and one declared signature.
    Verified,
    /// They are machine code.
    Compiled,
    /// The component has a description and accepts the configuration.
    Described,
    /// It has the grants that it requires.
    Granted,
    /// The passes run.
    Serving,
}

impl Stage {
    /// Stages before a revision's activation.
    pub(crate) const LOADING: [Self; 5] = [
        Self::Fetched,
        Self::Verified,
        Self::Compiled,
        Self::Described,
        Self::Granted,
    ];

    /// Returns a failure with a custom message.
    pub(crate) fn failure(
        self,
        reason: PluginReason,
        message: impl ToString,
        retry: Retry,
    ) -> StageFailure {
        StageFailure {
            stage: self,
            status: ConditionStatus::False,
            reason,
            message: message
                .to_string()
                .chars()
                .take(MESSAGE_CHARS_MAX)
                .collect(),
            retry,
        }
    }

    /// Returns an operation's failure, with all causes in the message.
    pub(crate) fn error(
        self,
        reason: PluginReason,
        error: &(impl std::error::Error + 'static),
        retry: Retry,
    ) -> StageFailure {
        self.failure(reason, error_chain(error), retry)
    }
}

impl fmt::Display for Stage {
    /// Shows the condition type, which is the stage name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The longest message, in characters, the same as for parents' conditions. A component or a server may choose parts of
/// it, and the API server rejects a status with a condition above 32,768.
const MESSAGE_CHARS_MAX: usize = 2048;

/// A stage's failure, or an unfinished stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageFailure {
    /// The stage.
    pub(crate) stage: Stage,
    /// False; Unknown while the stage runs.
    pub(crate) status: ConditionStatus,
    /// The condition's reason.
    pub(crate) reason: PluginReason,
    /// The failure and the remedy.
    pub(crate) message: String,
    /// The next retry.
    pub(crate) retry: Retry,
}

impl StageFailure {
    /// Returns the state of a stage that runs outside the passes, or waits for a permit.
    pub(crate) fn running(stage: Stage) -> Self {
        let (reason, message) = match stage {
            Stage::Compiled => (PluginReason::Compiling, "the component is being compiled"),
            _ => (
                PluginReason::Fetching,
                "the component is being fetched, or waits until other fetches end",
            ),
        };
        Self {
            status: ConditionStatus::Unknown,
            ..stage.failure(reason, message, Retry::OnChange)
        }
    }
}

/// Returns true if two declarations load the same bytes and the same configuration from the same source.
pub(crate) fn loads_the_same(one: &Declared, other: &Declared) -> bool {
    has_the_same_component(one, other) && one.config == other.config
}

/// Returns true if two declarations load the same bytes from the same source.
pub(crate) fn has_the_same_component(one: &Declared, other: &Declared) -> bool {
    one.origin == other.origin && one.digest == other.digest && verifies_the_same(one, other)
}

/// Returns true if two declarations have the same requirements for bytes with any digest.
pub(crate) fn verifies_the_same(one: &Declared, other: &Declared) -> bool {
    one.keys == other.keys && one.identity == other.identity
}

/// Converts conditions for the status; each keeps the transition time until the status changes.
pub(crate) fn dated(
    conditions: Vec<Condition>,
    before: &[meta::Condition],
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> Vec<meta::Condition> {
    let dated = |condition: Condition| {
        let status: &str = condition.status.into();
        let same =
            |stored: &&meta::Condition| stored.type_ == condition.kind && stored.status == status;
        let since = before.iter().find(same);
        meta::Condition {
            last_transition_time: since.map_or(meta::Time(now), |stored| {
                stored.last_transition_time.clone()
            }),
            status: status.to_owned(),
            type_: condition.kind,
            reason: condition.reason,
            message: condition.message,
            observed_generation: generation,
        }
    };
    conditions.into_iter().map(dated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let conditions = |fetched, reason: &str| {
            [("Fetched", fetched), ("Degraded", ConditionStatus::False)]
                .map(|(kind, status)| Condition {
                    kind: kind.to_owned(),
                    status,
                    reason: reason.to_owned(),
                    message: String::new(),
                })
                .to_vec()
        };
        let first = dated(conditions(ConditionStatus::True, "A"), &[], Some(1), at(1));
        let failed = conditions(ConditionStatus::False, "B");
        let second = dated(failed.clone(), &first, Some(2), at(2));
        let times = second
            .iter()
            .map(|condition| condition.last_transition_time.0);
        assert_eq!(times.collect::<Vec<_>>(), [at(2), at(1)]);
        let third = dated(failed, &second, Some(3), at(3));
        let moved = |one: &meta::Condition| one.last_transition_time.0 == at(3);
        assert!(!third.iter().any(moved));
        assert!(
            third
                .iter()
                .all(|condition| condition.observed_generation == Some(3))
        );
    }

    #[test]
    fn the_message_of_a_failure_fits_into_a_condition() {
        // A component may have a hundred thousand forbidden imports, and the API server takes 32,768 characters.
        let failure = Stage::Compiled.failure(
            PluginReason::CannotCompile,
            "é".repeat(100_000),
            Retry::Never,
        );
        assert_eq!(failure.message.chars().count(), 2048);
    }
}
