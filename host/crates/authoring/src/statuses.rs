//! Checks parent statuses against their kinds' definitions, without a cluster.
//!
//! The host writes its conditions before a plugin's first answer, and also if it rejects an answer. A definition that
//! rejects a status without the plugin's fields leaves such a parent without any condition.

use std::collections::BTreeMap;

use innkeeper_cluster as cluster;
use innkeeper_crd::{RejectionCause, Schema, name_of};
use innkeeper_model::{
    Access, Condition, ConditionStatus, GroupKind, HashKey, Manifest, Object, PluginName, Report,
    reason,
};
use innkeeper_plan::{self as plan, ParentProgress, StatusWrite};
use serde_json::{Map, Value, json};

use crate::render::UID;

/// The longest condition message, in characters, as the host truncates it.
const MESSAGE_CHARS: usize = 2048;

/// Definitions for a plugin's parents.
pub(crate) struct ParentDefinitions(BTreeMap<GroupKind, ParentDefinition>);

struct ParentDefinition {
    /// Name and version: `ponds.example.com v1`.
    name: String,
    schema: Schema,
    /// A parent with the fields that every object has.
    parent: Object,
}

impl ParentDefinitions {
    /// Compiles the plugin's definitions; omits those that no API server would accept.
    pub(crate) fn new(manifest: &Manifest) -> Self {
        let definitions = manifest.parents.iter().filter_map(|parent| {
            let kind = parent.kind.group_kind();
            let crd = manifest.crd_for(&kind)?;
            let version = &parent.kind.version;
            let name = name_of(crd)?;
            let object = Map::from_iter([
                ("apiVersion".to_owned(), parent.kind.api_version().into()),
                ("kind".to_owned(), (*parent.kind.kind).into()),
                (
                    "metadata".to_owned(),
                    json!({"name": "a", "uid": UID, "generation": 1}),
                ),
            ]);
            // Full access shows no hashes, so the key does not matter.
            let hash_key = HashKey::new([0; 32]);
            let definition = ParentDefinition {
                name: format!("{name} {version}"),
                schema: Schema::new(crd, version).ok()?,
                parent: cluster::present(&object, &parent.kind, Access::Full, &hash_key).ok()?,
            };
            Some((kind, definition))
        });
        Self(definitions.collect())
    }

    /// Returns the rejected fields for each definition that rejects a status with only the host's conditions.
    pub(crate) fn refusals(&self, plugin: &PluginName) -> Vec<String> {
        let definitions = self.0.values();
        let refusals = definitions.filter_map(|definition| {
            let parent = &definition.parent;
            let causes = host_conditions().into_iter().find_map(|(synced, outlook)| {
                definition.refusal(parent, status(plugin, parent, None, &synced, outlook))
            })?;
            let name = &definition.name;
            Some(format!(
                "the definition {name} refuses the host's conditions, which come before the first status of the plugin: {causes}; make the fields of the status optional"
            ))
        });
        refusals.collect()
    }

    /// Returns why the API server would reject an answer's status, if it would.
    pub(crate) fn problem(
        &self,
        plugin: &PluginName,
        parent: &Object,
        report: &Report,
    ) -> Option<String> {
        let definition = self.0.get(&parent.kind.group_kind())?;
        let (synced, outlook) = host_conditions().into_iter().next()?;
        definition.refusal(
            parent,
            status(plugin, parent, Some(report), &synced, outlook),
        )
    }
}

impl ParentDefinition {
    fn refusal(&self, parent: &Object, status: Option<StatusWrite>) -> Option<String> {
        let mut object: Map<String, Value> = serde_json::from_str(&parent.json).ok()?;
        object.insert("status".to_owned(), Value::Object(status?.status));
        let causes = self.schema.check_status(object);
        let causes: Vec<String> = causes.iter().map(RejectionCause::to_string).collect();
        (!causes.is_empty()).then(|| causes.join("; "))
    }
}

fn status(
    plugin: &PluginName,
    parent: &Object,
    report: Option<&Report>,
    synced: &Condition,
    outlook: ParentProgress,
) -> Option<StatusWrite> {
    let now = jiff::Timestamp::UNIX_EPOCH;
    plan::status(plugin, parent, report, synced, None, outlook, now)
}

/// Conditions as the host writes them: for a parent in the desired state, a paused one, and two failed ones.
fn host_conditions() -> Vec<(Condition, ParentProgress)> {
    let long = "x".repeat(MESSAGE_CHARS);
    let rows = [
        (
            ConditionStatus::True,
            reason::APPLIED,
            "all children are as desired",
            ParentProgress::Ok,
        ),
        (
            ConditionStatus::Unknown,
            reason::PAUSED,
            "",
            ParentProgress::Ok,
        ),
        (
            ConditionStatus::False,
            reason::GUEST_TRAPPED,
            &long,
            ParentProgress::Reconciling,
        ),
        (
            ConditionStatus::False,
            reason::INVALID,
            &long,
            ParentProgress::Stalled,
        ),
    ];
    let condition =
        |(status, reason, message, outlook)| (plan::synced(status, reason, message), outlook);
    rows.map(condition).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::tests::{desired, pond};

    /// The `render` tests' plugin, with another parent schema.
    fn manifest(status: &Value, rules: &Value) -> Manifest {
        let mut manifest = pond(|_, _, _| desired(Vec::new())).manifest;
        let schema = json!({
            "type": "object",
            "required": ["spec"],
            "x-kubernetes-validations": rules,
            "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                "status": status,
            },
        });
        let version = manifest.crds[0].get_mut("spec").unwrap();
        version["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        manifest
    }

    fn status(change: fn(&mut Value)) -> Value {
        let mut status = json!({
            "type": "object",
            "properties": {
                "url": {"type": "string"},
                "conditions": {"type": "array", "items": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "type": {"type": "string"}, "reason": {"type": "string"},
                        "message": {"type": "string"},
                    },
                }},
            },
        });
        change(&mut status);
        status
    }

    const ITEM: &str = "/properties/conditions/items";

    /// A change to a status that accepts the conditions, and the field that then rejects them.
    type Change = (&'static str, fn(&mut Value), &'static str);

    fn changes() -> [Change; 9] {
        [
            ("nothing", |_| (), ""),
            (
                "required",
                |status| status["required"] = json!(["url"]),
                "status.url: is required",
            ),
            (
                "minProperties",
                |status| status["minProperties"] = json!(2),
                "status: ",
            ),
            (
                "a rule",
                |status| {
                    status["x-kubernetes-validations"] =
                        json!([{"rule": "self.url != ''", "message": "a pond has an address"}]);
                },
                "status: ",
            ),
            (
                "a default",
                |status| {
                    status["properties"]["left"] = json!({
                        "type": "object", "default": {}, "required": ["birds"],
                        "properties": {"birds": {"type": "integer"}},
                    });
                },
                "status.left.birds: is required",
            ),
            (
                "types",
                |status| {
                    let item = status.pointer_mut(ITEM).unwrap();
                    item["properties"]["type"]["enum"] = json!(["Ready"]);
                },
                "status.conditions[0].type: ",
            ),
            (
                "messages",
                |status| {
                    let item = status.pointer_mut(ITEM).unwrap();
                    item["properties"]["message"]["maxLength"] = json!(100);
                },
                "].message: ",
            ),
            (
                "few conditions",
                |status| status["properties"]["conditions"]["maxItems"] = json!(1),
                "status.conditions: ",
            ),
            (
                "no conditions",
                |status| {
                    drop(
                        status["properties"]
                            .as_object_mut()
                            .unwrap()
                            .remove("conditions"),
                    )
                },
                "status.conditions: the definition has no such field",
            ),
        ]
    }

    #[test]
    fn a_definition_that_refuses_the_conditions_of_the_host_is_named_with_the_field() {
        let refusal = |status: &Value, rules: Value| {
            let manifest = manifest(status, &rules);
            ParentDefinitions::new(&manifest)
                .refusals(&manifest.name)
                .into_iter()
                .next()
                .unwrap_or_default()
        };
        for (name, change, expected) in changes() {
            let text = refusal(&status(change), json!([]));
            assert_eq!(text.is_empty(), expected.is_empty(), "{name}: {text}");
            assert!(text.contains(expected), "{name}: {text}");
        }
        let rule = |rule: &str| json!([{"rule": rule, "message": "no"}]);
        let about_status = rule("!has(self.status) || has(self.status.url)");
        assert!(refusal(&status(|_| ()), about_status).contains("no"));
        // This rule does not concern the status.
        let about_spec = rule("self.spec.size > 3");
        assert_eq!(refusal(&status(|_| ()), about_spec), "");
    }
}
