//! The conditions of a parent, as far as they are about its present generation.

use innkeeper_model::{Object, reason};
use serde::Deserialize;

/// The conditions Ready and Synced of a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The condition Ready; none if it is missing or about an earlier generation.
    pub ready: Option<Said>,
    /// The condition Synced, likewise.
    pub synced: Option<Said>,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Said {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A reason in CamelCase.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Standing {
    /// Reads the conditions; an object in any other form has none.
    pub fn of(parent: &Object) -> Self {
        let Stated { status } = serde_json::from_str(&parent.json).unwrap_or_default();
        let mut standing = Self::default();
        for condition in status.conditions {
            // The plugin has not judged the present generation yet.
            if condition.observed_generation != parent.generation {
                continue;
            }
            let place = match &*condition.kind {
                reason::READY => &mut standing.ready,
                reason::SYNCED => &mut standing.synced,
                _ => continue,
            };
            *place = Some(condition.said);
        }
        standing
    }

    /// Returns true if the present generation is Synced and Ready.
    pub fn is_ready(&self) -> bool {
        let holds = |said: &Option<Said>| said.as_ref().is_some_and(Said::holds);
        holds(&self.ready) && holds(&self.synced)
    }

    /// The status of Ready: `True`, `False`, `Unknown`; none if it is missing or about an earlier generation.
    pub fn ready_status(&self) -> Option<&str> {
        self.ready.as_ref().map(|said| &*said.status)
    }

    /// The status of Synced, likewise.
    pub fn synced_status(&self) -> Option<&str> {
        self.synced.as_ref().map(|said| &*said.status)
    }

    /// Returns the condition that is not `True`; none if both are or none is known.
    ///
    /// Synced comes first: a parent whose children could not be written is not ready for that reason.
    pub fn why(&self) -> Option<&Said> {
        let said = [&self.synced, &self.ready].into_iter().flatten();
        said.into_iter().find(|said| !said.holds())
    }
}

impl Said {
    fn holds(&self) -> bool {
        self.status == "True"
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stated {
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    observed_generation: Option<i64>,
    #[serde(flatten)]
    said: Said,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::present;
    use innkeeper_model::{Access, Gvk, HashKey};

    fn standing(generation: i64, conditions: &[(&str, &str, i64)]) -> Standing {
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
        Standing::of(&object.unwrap())
    }

    #[test]
    fn a_parent_is_ready_when_its_present_generation_is() {
        assert!(standing(2, &[("Ready", "True", 2), ("Synced", "True", 2)]).is_ready());
        let earlier = standing(2, &[("Ready", "True", 1), ("Synced", "True", 1)]);
        assert_eq!(earlier, Standing::default());
        assert!(!earlier.is_ready());
        assert_eq!(earlier.why(), None);
    }

    #[test]
    fn synced_explains_a_parent_that_is_not_ready_better_than_ready() {
        let reason = |conditions| {
            let standing = standing(1, conditions);
            assert!(!standing.is_ready());
            standing
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
