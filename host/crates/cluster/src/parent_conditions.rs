//! The one reader of the host's conditions Ready and Synced on a parent.

use innkeeper_model::{Object, reason};
use serde::Deserialize;

/// The conditions Ready and Synced of a parent's current generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentConditions {
    /// The condition Ready; none if no condition is of the current generation.
    pub ready: Option<ConditionContent>,
    /// The condition Synced, under the same rule.
    pub synced: Option<ConditionContent>,
}

/// The content of one condition.
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
    /// Reads the conditions; a status in another form counts as none.
    pub fn new(parent: &Object) -> Self {
        let ConditionedParent { status } = serde_json::from_str(&parent.json).unwrap_or_default();
        let mut conditions = Self::default();
        for condition in status.conditions {
            // A condition about an earlier generation may not hold for this one.
            if condition.observed_generation != parent.generation {
                continue;
            }
            let place = match &*condition.kind {
                reason::READY => &mut conditions.ready,
                reason::SYNCED => &mut conditions.synced,
                _ => continue,
            };
            *place = Some(condition.content);
        }
        conditions
    }

    /// Returns whether the current generation is Synced and Ready.
    pub fn is_ready(&self) -> bool {
        let holds =
            |said: &Option<ConditionContent>| said.as_ref().is_some_and(ConditionContent::holds);
        holds(&self.ready) && holds(&self.synced)
    }

    /// The status of Ready: `True`, `False`, `Unknown`; none if no condition is of the current generation.
    pub fn ready_status(&self) -> Option<&str> {
        self.ready.as_ref().map(|said| &*said.status)
    }

    /// The status of Synced, under the same rule.
    pub fn synced_status(&self) -> Option<&str> {
        self.synced.as_ref().map(|said| &*said.status)
    }

    /// The condition that explains an unready parent, Synced first; none if both are True or absent.
    pub fn why(&self) -> Option<&ConditionContent> {
        let said = [&self.synced, &self.ready].into_iter().flatten();
        said.into_iter().find(|said| !said.holds())
    }
}

impl ConditionContent {
    fn holds(&self) -> bool {
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

    fn conditions_of(generation: i64, conditions: &[(&str, &str, i64)]) -> ParentConditions {
        let kind = Gvk::new("example.com", "v1", "Pond");
        let conditions = conditions.iter().map(|(kind, status, of)| {
            json!({
                "type": kind, "status": status, "reason": format!("{kind}Reason"),
                "message": "why", "observedGeneration": of,
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
    fn a_parent_is_ready_when_its_present_generation_is() {
        assert!(conditions_of(2, &[("Ready", "True", 2), ("Synced", "True", 2)]).is_ready());
        let earlier = conditions_of(2, &[("Ready", "True", 1), ("Synced", "True", 1)]);
        assert_eq!(earlier, ParentConditions::default());
        assert!(!earlier.is_ready());
        assert_eq!(earlier.why(), None);
    }

    #[test]
    fn synced_says_more_about_why_than_ready() {
        let reason = |conditions| {
            let conditions = conditions_of(1, conditions);
            assert!(!conditions.is_ready());
            conditions
                .why()
                .map(|said| said.reason.clone())
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
