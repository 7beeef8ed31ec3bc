//! A pass's input: the parent, the observed children, and the configuration.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::{Answer, Desired};
use crate::child::Child;
use crate::children::{Children, Observed, group_of};
use crate::condition::{self, Condition, StoredCondition};
use crate::fault::{Fault, FaultKind};

mod size;

/// The largest parent that [`Request::parent`] accepts, in bytes of JSON without metadata and status.
///
/// Hosts, API servers and clients cache whole parents. This is a hundred times the size of the example parents.
pub const PARENT_BYTES_MAX: usize = 256 * 1024;

/// A pass's phase in the parent's life cycle; set by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The parent exists: the cluster should match the spec.
    #[default]
    Reconcile,
    /// The parent is being deleted and waits for this plugin.
    Finalize,
}

/// A pass's input.
#[derive(Clone, Debug)]
pub struct Request {
    parent_text: String,
    config_text: String,
    head: OnceCell<Head>,
    status: OnceCell<Option<Value>>,
    parent: OnceCell<Value>,
    /// All the parent's children, sorted by kind, namespace and name.
    pub children: Children,
    /// The phase of the parent's life.
    pub phase: Phase,
    /// In phase finalize, whether the API server has refused a child because the parent's namespace is being deleted.
    /// Nothing can be created there: finalize without new children.
    pub namespace_terminating: bool,
}

impl Request {
    /// A request from the host's texts; for tests use [`TestRequest`](crate::testing::TestRequest).
    pub fn new(parent: String, children: Children, config: String, phase: Phase) -> Self {
        Self {
            parent_text: parent,
            config_text: config,
            head: OnceCell::new(),
            status: OnceCell::new(),
            parent: OnceCell::new(),
            children,
            phase,
            namespace_terminating: false,
        }
    }

    /// The same request with other children.
    pub(crate) fn with_children(&self, children: Children) -> Self {
        Self {
            parent_text: self.parent_text.clone(),
            config_text: self.config_text.clone(),
            head: self.head.clone(),
            status: self.status.clone(),
            parent: self.parent.clone(),
            children,
            phase: self.phase,
            namespace_terminating: self.namespace_terminating,
        }
    }

    /// The parent, typed, if it has at most [`PARENT_BYTES_MAX`].
    ///
    /// # Errors
    ///
    /// As of [`parent_within`](Self::parent_within).
    pub fn parent<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        self.parent_within(PARENT_BYTES_MAX)
    }

    /// The parent, typed, for kinds whose purpose is data, such as a ConfigMap.
    ///
    /// A parent that is being deleted may be larger; otherwise the deletion could not finish.
    ///
    /// # Errors
    ///
    /// `invalid` with the largest field if the parent is too large without metadata and status; `invalid` with the path of
    /// the field that does not parse: `spec.size: invalid type: ...`.
    ///
    /// A stored status that does not parse is ignored: an older version may have written it, or it may have only the
    /// host's conditions.
    pub fn parent_within<T: DeserializeOwned>(&self, bytes_max: usize) -> Result<T, Fault> {
        // A parent that is being deleted must be finalized, however large it is.
        if self.phase == Phase::Reconcile {
            size::check(&self.parent_text, bytes_max).map_err(Fault::invalid)?;
        }
        // Another version of the plugin may have written the status, which must not block the spec.
        typed(&self.parent_text).or_else(|problem| match without_status(&self.parent_text) {
            Some(text) => typed(&text).map_err(Fault::invalid),
            None => Err(Fault::invalid(problem)),
        })
    }

    /// Applies urgent child changes although the answer is `invalid` or keeps all children.
    ///
    /// A deletion policy or a suspension must not wait until another field is valid. `edit` returns the changed child, and
    /// none as soon as the observed child has the change; then the host gets the answer itself. An `invalid` without
    /// a report is returned unchanged: add a report.
    ///
    /// # Errors
    ///
    /// Returns the answer's fault.
    pub fn apply_despite_invalid(
        &self,
        answer: Result<Answer, Fault>,
        edit: impl Fn(&Observed, &Child) -> Option<Child>,
    ) -> Result<Answer, Fault> {
        let report = match &answer {
            Ok(Answer::Keep(report)) => report,
            Err(fault) if fault.kind == FaultKind::Invalid => match &fault.report {
                Some(report) => report,
                None => return answer,
            },
            _ => return answer,
        };
        match self.children.hold_except(edit) {
            Some(children) => Ok(Desired {
                children,
                report: report.clone(),
            }
            .into()),
            None => answer,
        }
    }

    /// The parent as JSON; null if the text is not JSON, which the host rules out.
    pub fn parent_value(&self) -> &Value {
        self.parent
            .get_or_init(|| serde_json::from_str(&self.parent_text).unwrap_or_default())
    }

    /// The plugin's configuration, typed.
    ///
    /// # Errors
    ///
    /// `fatal`, because the host has checked the configuration against the manifest's schema.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        typed(&self.config_text)
            .map_err(|problem| Fault::fatal(format!("configuration: {problem}")))
    }

    /// Returns whether the parent has this kind, in any version.
    pub fn is_parent<T: Resource<DynamicType = ()>>(&self) -> bool {
        self.parent_kind() == T::kind(&()) && self.parent_group() == T::group(&())
    }

    /// The parent's kind.
    pub fn parent_kind(&self) -> &str {
        self.head().kind.as_deref().unwrap_or_default()
    }

    /// The parent's API group; empty for the core group.
    pub fn parent_group(&self) -> &str {
        group_of(self.head().api_version.as_deref().unwrap_or_default())
    }

    /// The parent's name.
    pub fn name(&self) -> &str {
        self.head().metadata.name.as_deref().unwrap_or_default()
    }

    /// The parent's namespace; empty for a cluster-scoped parent.
    pub fn namespace(&self) -> &str {
        self.head()
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
    }

    /// The parent's UID.
    pub fn uid(&self) -> &str {
        self.head().metadata.uid.as_deref().unwrap_or_default()
    }

    /// The parent's `metadata.generation`; 0 if it has none.
    pub fn generation(&self) -> i64 {
        self.head().metadata.generation.unwrap_or(0)
    }

    /// The value of a parent annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.head().metadata.annotations.as_ref();
        annotations?.get(key)?.as_deref()
    }

    /// The stored status, typed; none if it is absent or does not parse, because an older version's status must not
    /// stop a pass.
    pub fn stored_status<T: DeserializeOwned>(&self) -> Option<T> {
        let status = self.head().status.as_ref()?;
        serde_json::from_str(status.get()).ok()
    }

    /// The stored status as JSON, `conditions` included.
    pub fn stored_status_value(&self) -> Option<&Value> {
        let read = || {
            let status = self.head().status.as_ref()?;
            serde_json::from_str(status.get()).ok()
        };
        self.status.get_or_init(read).as_ref()
    }

    /// The stored condition of this type.
    pub fn stored_condition(&self, type_: &str) -> Option<StoredCondition> {
        condition::stored_conditions(self.stored_status_value()?)
            .into_iter()
            .find(|condition| condition.type_ == type_)
    }

    /// Returns whether this condition differs from the stored one in status or reason; for Events about transitions.
    pub fn is_transition(&self, condition: &Condition) -> bool {
        self.stored_condition(&condition.type_)
            .is_none_or(|stored| {
                (stored.status, &stored.reason) != (condition.status, &condition.reason)
            })
    }

    fn head(&self) -> &Head {
        self.head
            .get_or_init(|| serde_json::from_str(&self.parent_text).unwrap_or_default())
    }
}

/// The parent fields that nearly every pass reads, parsed without the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: HeadMetadata,
    status: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct HeadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

/// Parses a value; the error names the path of the field.
///
/// It has no text position, because the user wrote the parent in another form, such as YAML. Tracking the path costs
/// code and time per type, so observed objects are parsed without it.
fn typed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Tracking the path takes twice as long, so it happens only after a failure.
    if let Ok(parsed) = serde_json::from_str(text) {
        return Ok(parsed);
    }
    let deserializer = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        let problem = text.rsplit_once(" at line ").map_or(&*text, |(it, _)| it);
        if path == "." {
            problem.to_owned()
        } else {
            format!("{path}: {problem}")
        }
    })
}

/// Returns an object's text without the status; none if it has no status.
fn without_status(text: &str) -> Option<String> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    members.remove("status")?;
    serde_json::to_string(&members).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Pod;
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::{PARENT_BYTES_MAX, Phase};
    use crate::condition::{Condition, Conditions};
    use crate::fault::FaultKind;
    use crate::testing::TestRequest;

    fn deployment(spec: Value) -> TestRequest {
        TestRequest::new(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {"a/b": "c"}},
            "spec": spec,
        }))
    }

    #[test]
    fn names_the_field_that_does_not_parse() {
        let containers = json!([{"name": "a", "ports": [{"containerPort": "http"}]}]);
        let spec = json!({"selector": {}, "template": {"spec": {"containers": containers}}});
        let fault = deployment(spec).build().parent::<Deployment>().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Invalid);
        assert_eq!(
            fault.message,
            "spec.template.spec.containers[0].ports[0].containerPort: invalid type: string \
             \"http\", expected i32",
        );
    }

    #[test]
    fn refuses_a_large_parent_unless_it_is_being_deleted() {
        let spec = json!({"paused": true, "template": {"spec": {"hostname": "x".repeat(PARENT_BYTES_MAX)}}});
        let large = || deployment(spec.clone());
        let fault = large().build().parent::<Deployment>().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Invalid);
        let field = "spec.template.spec.hostname has 262146 bytes of them, make it smaller";
        assert!(fault.message.ends_with(field), "{}", fault.message);
        assert!(
            large()
                .build()
                .parent_within::<Value>(2 * PARENT_BYTES_MAX)
                .is_ok()
        );
        assert!(large().finalizing().build().parent::<Value>().is_ok());
    }

    #[test]
    fn knows_who_the_parent_is() {
        let request = deployment(json!({})).finalizing().build();
        assert!(request.is_parent::<Deployment>());
        assert!(!request.is_parent::<Pod>());
        assert_eq!(
            (request.parent_group(), request.parent_kind()),
            ("apps", "Deployment")
        );
        assert_eq!((request.namespace(), request.name()), ("default", "web"));
        assert_eq!(request.generation(), 1);
        assert_eq!(request.annotation("a/b"), Some("c"));
        assert_eq!(request.annotation("b"), None);
        assert_eq!(request.phase, Phase::Finalize);
    }

    #[test]
    fn reads_the_stored_status() {
        #[derive(Deserialize)]
        struct Status {
            nodes: Vec<String>,
            #[serde(default)]
            conditions: Conditions,
        }
        let stored = json!({
            "nodes": ["a"],
            "conditions": [
                {"type": "Odd"},
                {"type": "Ready", "status": "False", "reason": "NotReady", "message": "",
                 "lastTransitionTime": "2030-01-01T00:00:00Z", "observedGeneration": 2},
            ],
        });
        let request = deployment(json!({})).status(&stored).build();
        let ready = request.stored_condition("Ready").unwrap();
        assert!(!ready.is_true());
        assert_eq!(ready.observed_generation, Some(2));
        assert_eq!(request.stored_condition("Odd"), None);
        let same = Condition::new("Ready", false, "NotReady", "0 of 3 replicas are ready");
        assert!(!request.is_transition(&same));
        assert!(request.is_transition(&Condition::new("Ready", true, "Ready", "")));
        assert!(request.is_transition(&Condition::new("Odd", true, "Odd", "")));
        assert!(
            request.stored_status::<Status>().is_none(),
            "a condition without a status"
        );

        let only = json!({"nodes": ["a"], "conditions": [stored["conditions"][1]]});
        let request = deployment(json!({})).status(&only).build();
        let status: Status = request.stored_status().unwrap();
        assert_eq!(status.nodes, ["a"]);
        assert_eq!(status.conditions.get("Ready").unwrap().reason, "NotReady");
    }

    #[test]
    fn a_parent_is_read_without_a_status_that_does_not_parse() {
        #[derive(Debug, Deserialize)]
        struct Pond {
            spec: Value,
            status: Option<PondStatus>,
        }
        #[derive(Debug, Deserialize)]
        struct PondStatus {
            fish: u8,
        }
        for (status, fish) in [
            (json!({"fish": 3, "conditions": []}), Some(3)),
            (json!({"conditions": []}), None),
            (json!({"fish": "many"}), None),
        ] {
            let request = deployment(json!({"size": 9.5})).status(&status).build();
            let pond: Pond = request.parent().unwrap();
            assert_eq!(pond.spec, json!({"size": 9.5}));
            assert_eq!(pond.status.map(|status| status.fish), fish, "{status}");
        }
        // The message is about the wrong spec, not about the status.
        let fault = deployment(json!({"replicas": "x"}))
            .status(&json!({"replicas": "y"}))
            .build()
            .parent::<Deployment>()
            .unwrap_err();
        assert!(fault.message.starts_with("spec"), "{}", fault.message);
    }

    #[test]
    fn calls_a_wrong_configuration_fatal() {
        #[derive(Debug, Deserialize)]
        struct Config {
            #[expect(dead_code, reason = "only its type matters")]
            image: String,
        }
        let fault = deployment(json!({}))
            .config(&json!({"image": 1}))
            .build()
            .config::<Config>()
            .unwrap_err();
        assert_eq!(fault.kind, FaultKind::Fatal);
        assert_eq!(
            fault.message,
            "configuration: image: invalid type: integer `1`, expected a string",
        );
    }
}
