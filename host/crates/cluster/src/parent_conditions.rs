//! Reads the host's conditions Ready and Synced on a parent.

use innkeeper_model::{Object, reason};
use serde::Deserialize;

/// The conditions Ready and Synced for a parent's current generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentConditions {
    /// The condition Ready; none if it is not about the current generation.
    pub ready: Option<ConditionContent>,
    /// The condition Synced, likewise.
    pub synced: Option<ConditionContent>,
}

/// One condition's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConditionContent {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl ParentConditions {
    /// Reads the conditions; a status in another form has none.
    pub fn new(parent: &Object) -> Self {
        let ConditionedParent { status } = serde_json::from_str(&parent.json).unwrap_or_default();
        let mut conditions = Self::default();
        for condition in status.conditions {
            // A condition about an earlier generation may not hold for this one.
            if condition.observed_generation != parent.generation {
                continue;
            }
            let target = match &*condition.kind {
                reason::READY => &mut conditions.ready,
                reason::SYNCED => &mut conditions.synced,
                _ => continue,
            };
            *target = Some(condition.content);
        }
        conditions
    }

    /// Returns true if the current generation is Synced and Ready.
    pub fn is_ready(&self) -> bool {
        [&self.ready, &self.synced]
            .into_iter()
            .all(|condition| condition.as_ref().is_some_and(ConditionContent::is_true))
    }

    /// The status of Ready: `True`, `False`, `Unknown`; none if it is not about the current generation.
    pub fn ready_status(&self) -> Option<&str> {
        self.ready.as_ref().map(|condition| &*condition.status)
    }

    /// The status of Synced, likewise.
    pub fn synced_status(&self) -> Option<&str> {
        self.synced.as_ref().map(|condition| &*condition.status)
    }

    /// The condition that explains an unready parent, Synced first; none if both are True or absent.
    pub fn why(&self) -> Option<&ConditionContent> {
        [&self.synced, &self.ready]
            .into_iter()
            .flatten()
            .find(|condition| !condition.is_true())
    }
}

impl ConditionContent {
    fn is_true(&self) -> bool {
        self.status == "True"
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionedParent {
    status: RawStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    conditions: Vec<RawCondition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    observed_generation: Option<i64>,
    #[serde(flatten)]
    content: ConditionContent,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::present;
    use innkeeper_model::{Access, Gvk, HashKey};

    fn conditions(generation: i64, conditions: &[(&str, &str, i64)]) -> ParentConditions {
        let kind = Gvk::new("example.com", "v1", "Pond");
        let conditions = conditions.iter().map(|(kind, status, generation)| {
            json!({
                "type": kind, "status": status, "reason": format!("{kind}Reason"),
                "message": "why", "observedGeneration": generation,
            })
        });
        let object = json!({
            "apiVersion": "example.com/v1",
            "kind": "Pond",
            "metadata": {"name": "a", "namespace": "demo", "generation": generation},
            "status": {"conditions": conditions.collect::<Vec<_>>()},
        });
        let key = HashKey::new([0; 32]);
        let object = present(object.as_object().unwrap(), &kind, Access::Full, &key);
        ParentConditions::new(&object.unwrap())
    }

    #[test]
    fn a_parent_is_ready_when_the_current_generation_is() {
        assert!(conditions(2, &[("Ready", "True", 2), ("Synced", "True", 2)]).is_ready());
        let earlier = conditions(2, &[("Ready", "True", 1), ("Synced", "True", 1)]);
        assert_eq!(earlier, ParentConditions::default());
        assert!(!earlier.is_ready());
        assert_eq!(earlier.why(), None);
    }

    #[test]
    fn synced_explains_more_than_ready() {
        let reason = |rows: &[(&str, &str, i64)]| {
            let conditions = conditions(1, rows);
            assert!(!conditions.is_ready());
            conditions
                .why()
                .map(|condition| condition.reason.clone())
                .unwrap_or_default()
        };
        assert_eq!(
            reason(&[("Ready", "False", 1), ("Synced", "False", 1)]),
            "SyncedReason"
        );
        assert_eq!(
            reason(&[("Ready", "Unknown", 1), ("Synced", "True", 1)]),
            "ReadyReason"
        );
        assert_eq!(reason(&[("Ready", "True", 1)]), "");
    }
}
