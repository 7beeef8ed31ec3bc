//! Predicted reports: the parts of children that they depend on, and the calls that they save.

use serde_json::{Value, json};

use super::{FakeHost, TestRequest, identity, with_defaults};
use crate::answer::{Answer, Desired};
use crate::child::Child;
use crate::children::Observed;
use crate::fault::Fault;
use crate::host::Host;
use crate::prediction::{Prediction, initial_status, predict, waits};
use crate::request::Request;

/// The most rounds of [`calls_from_empty`]: more than a reconciler has that creates its children in steps.
const ROUNDS_MAX: usize = 20;

/// Returns the parts of new and changed children that the report after an answer depends on, each as the child's key with
/// a JSON pointer, in the children's order; none if the report cannot be predicted, as [`Observed`] explains.
///
/// The prediction saves a call only if the API server answers with the same values in these parts. So they should lack
/// the parts that it fills in, such as `/metadata/uid`, and whole maps that it extends, such as `/metadata/annotations`.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::{FakeHost, TestRequest, predicted_parts};
/// use serde_json::json;
///
/// fn reconcile(request: &Request, _: &dyn Host) -> Result<Answer, Fault> {
///     let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "north"}});
///     let web = request.children.by_key("web");
///     let is_ready = web.is_some_and(|web| web.field("/status/ready").is_some());
///     let desired = Desired::new().child(Child::untyped("web", &service));
///     Ok(desired.status(&json!({"isReady": is_ready})).into())
/// }
///
/// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
/// let request = TestRequest::new(&pond).build();
/// let parts = predicted_parts(&request, &FakeHost::new(), reconcile);
/// assert_eq!(parts.unwrap(), ["web/status/ready"]);
/// ```
///
/// # Panics
///
/// Panics if the reconciler faults.
///
/// [`Observed`]: crate::children::Observed
pub fn predicted_parts(
    request: &Request,
    host: &dyn Host,
    reconcile: impl Fn(&Request, &dyn Host) -> Result<Answer, Fault>,
) -> Option<Vec<String>> {
    let answer = reconcile(request, host).expect("should give an answer");
    let Answer::Desired(desired) = &answer else {
        return None;
    };
    let prediction = predict(request, host, desired, reconcile)?;
    let children = prediction.children.iter();
    let parts = children.flat_map(|child| {
        child
            .parts
            .iter()
            .map(move |(pointer, _)| format!("{}{pointer}", child.key))
    });
    Some(parts.collect())
}

/// The calls of a reconciler for a new parent, until its answer changes no child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The calls that the host makes.
    pub made: usize,
    /// The calls in whose place the host uses a prediction.
    pub saved: usize,
}

/// Counts the calls for a new parent in a cluster without controllers: the host writes children that wait for no others,
/// and the API server adds identity, defaults and the first status.
///
/// A fault ends the count, because the host then waits for a change.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::{Calls, FakeHost, calls_from_empty};
/// use serde_json::json;
///
/// fn reconcile(request: &Request, _: &dyn Host) -> Result<Answer, Fault> {
///     let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "north"}});
///     let exists = request.children.by_key("web").is_some();
///     let desired = Desired::new().child(Child::untyped("web", &service));
///     Ok(desired.status(&json!({"exists": exists})).into())
/// }
///
/// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
/// let calls = calls_from_empty(&pond, &FakeHost::new(), reconcile);
/// assert_eq!(calls, Calls { made: 1, saved: 1 });
/// ```
///
/// # Panics
///
/// Panics if a prediction differs from the call that it saves, or if the answers still change children after 20 rounds.
pub fn calls_from_empty(
    parent: &Value,
    host: &FakeHost,
    reconcile: impl Fn(&Request, &dyn Host) -> Result<Answer, Fault>,
) -> Calls {
    let mut calls = Calls::default();
    let mut observed = TestRequest::new(parent);
    let mut predicted: Option<Answer> = None;
    loop {
        assert!(
            calls.made + calls.saved < ROUNDS_MAX,
            "the answers still change children after {ROUNDS_MAX} rounds"
        );
        let request = observed.clone().build();
        let before = (host.drawn.get(), host.asked_now.replace(false));
        let Ok(answer) = reconcile(&request, host) else {
            calls.made += 1;
            return calls;
        };
        let is_unique = host.asked_now() || host.drawn.get() != before.0;
        host.asked_now.set(before.1 || host.asked_now());
        let mut prediction = None;
        if let Some(predicted) = predicted.take() {
            assert_eq!(answer, predicted, "another answer was predicted");
            calls.saved += 1;
        } else {
            calls.made += 1;
            if let Answer::Desired(desired) = &answer
                && !is_unique
            {
                prediction = predict(&request, host, desired, &reconcile);
            }
        }
        let next = written(&observed, &request, &answer);
        if next.children == observed.children {
            return calls;
        }
        let after = next.clone().build();
        predicted = prediction
            .filter(|prediction| holds(prediction, answer.children(), &request, &after))
            .map(|prediction| {
                let children = answer.children().to_vec();
                let report = prediction.report;
                Desired { children, report }.into()
            });
        observed = next;
    }
}

/// Returns the parent with the children as they are after the writes of an answer.
fn written(observed: &TestRequest, request: &Request, answer: &Answer) -> TestRequest {
    let stated = answer.children();
    let is_written = |child: &&Child| request.children.has(child) || !waits(request, stated, child);
    let children = stated.iter().filter(is_written).cloned();
    let mut written = observed
        .clone()
        .answered(&Desired::new().children(children).into());
    for (key, _, object) in &mut written.children {
        complete(object, key.as_deref());
    }
    written
        .children
        .sort_by(|left, right| identity(&left.2).cmp(&identity(&right.2)));
    written
}

/// Adds what the API server and the host add to an object.
fn complete(object: &mut Value, key: Option<&str>) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut added = json!({"metadata": {
        "annotations": {"innkeeper.dev/key": key},
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "resourceVersion": "1",
        "uid": format!("{kind}/{}", object["metadata"]["name"]),
    }});
    if !object["spec"].is_null() {
        let has_generation = !matches!(kind, "Service" | "PersistentVolumeClaim");
        if has_generation {
            added["metadata"]["generation"] = json!(1);
        }
        added["spec"] = default_spec(kind);
        added["status"] = initial_status(kind);
    }
    with_defaults(object, &added);
}

/// Some of the API server's defaults for a kind.
fn default_spec(kind: &str) -> Value {
    match kind {
        "Service" => json!({"clusterIP": "10.0.0.1", "type": "ClusterIP"}),
        "PersistentVolumeClaim" => {
            json!({"storageClassName": "standard", "volumeMode": "Filesystem"})
        }
        "Deployment" | "StatefulSet" => {
            let containers = json!([{"imagePullPolicy": "Always"}]);
            let pod = json!({"containers": containers, "restartPolicy": "Always"});
            json!({"replicas": 1, "revisionHistoryLimit": 10, "template": {"spec": pod}})
        }
        _ => json!({}),
    }
}

/// Returns whether the children are as a prediction assumes: the host's comparison, as the contract states it.
pub(crate) fn holds(
    prediction: &Prediction,
    stated: &[Child],
    before: &Request,
    after: &Request,
) -> bool {
    let is_predicted = |key: Option<&str>| {
        prediction
            .children
            .iter()
            .find(|child| Some(&*child.key) == key)
    };
    let is_kept = |child: &Observed| {
        let same = |other: &&Observed| other.name() == child.name() && other.kind() == child.kind();
        match is_predicted(child.key.as_deref()) {
            Some(predicted) => predicted.parts.iter().all(|(pointer, value)| {
                let stated = || {
                    let stated = stated.iter().find(|stated| stated.key == predicted.key)?;
                    stated
                        .object
                        .pointer(pointer)
                        .filter(|part| !part.is_null())
                };
                child.tree().pointer(pointer) == value.as_ref().or_else(stated)
            }),
            None => before
                .children
                .iter()
                .find(same)
                .is_some_and(|other| other.tree() == child.tree() && other.key == child.key),
        }
    };
    let has = |key: &str| after.children.by_key(key).is_some();
    after.children.iter().all(is_kept) && prediction.children.iter().all(|child| has(&child.key))
}
