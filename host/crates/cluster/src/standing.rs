//! How a parent stands: what its conditions say of its present generation.

use innkeeper_model::{Object, reason};
use serde::Deserialize;

/// How a parent stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The condition Ready; none where nothing is said of the present generation.
    pub ready: Option<Said>,
    /// The condition Synced, likewise.
    pub synced: Option<Said>,
}

/// What one condition says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Said {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Standing {
    /// Reads the conditions; what is not in the usual form says nothing.
    pub fn of(parent: &Object) -> Self {
        let Stated { status } = serde_json::from_str(&parent.json).unwrap_or_default();
        let mut standing = Self::default();
        for condition in status.conditions {
            // What was said about an earlier generation says nothing about this one.
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

    /// Whether the present generation is Synced and Ready.
    pub fn is_ready(&self) -> bool {
        let holds = |said: &Option<Said>| said.as_ref().is_some_and(Said::holds);
        holds(&self.ready) && holds(&self.synced)
    }

    /// The status of Ready: `True`, `False`, `Unknown`; none where nothing is said of the present generation.
    pub fn ready_status(&self) -> Option<&str> {
        self.ready.as_ref().map(|said| &*said.status)
    }

    /// The status of Synced, likewise.
    pub fn synced_status(&self) -> Option<&str> {
        self.synced.as_ref().map(|said| &*said.status)
    }

    /// The condition that says why it is not; none where both hold or nothing is said.
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
    fn synced_says_more_about_why_than_ready() {
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
