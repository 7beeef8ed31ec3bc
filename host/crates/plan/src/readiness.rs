//! Child readiness.

use std::borrow::Cow;

use innkeeper_model::{ApplyPolicy, Child, Gvk, Object, Readiness};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{PlannedChild, Progress};

/// Returns true if the observed child is ready, before this pass writes anything.
pub(super) fn observed(
    child: &Child,
    object: Option<&Object>,
    progress: &Progress,
    ready_condition: Option<&str>,
) -> bool {
    let exists = match progress {
        Progress::Unchanged | Progress::Updated | Progress::Transferred | Progress::Held => true,
        Progress::Missing if child.apply == ApplyPolicy::Hold => {
            // There is no object to derive it from, so only the guest's own statement counts.
            return child.readiness == Readiness::Ready;
        }
        Progress::Created
        | Progress::Missing
        | Progress::Waiting { .. }
        | Progress::Deleting
        | Progress::Withheld
        | Progress::NamespaceTerminating
        | Progress::NotServed { .. }
        | Progress::Unreadable { .. }
        | Progress::NotOwned(_)
        | Progress::Adoptable { .. }
        | Progress::NotAllowed { .. } => false,
    };
    let Some(object) = object.filter(|_| exists) else {
        return false;
    };
    match child.readiness {
        Readiness::Ready => true,
        Readiness::NotReady => false,
        // The kind's controller has not seen the update that this pass applies. A kind without a generation has no
        // controller that would need to see it.
        Readiness::Derive if *progress == Progress::Updated && object.generation.is_some() => false,
        Readiness::Derive => is_ready(&child.kind, &object.json, ready_condition),
    }
}

/// Returns true if a planned child is ready, judged by the object that the API server returned for the write.
pub(super) fn written(child: &PlannedChild, json: &str) -> bool {
    match child.readiness {
        Readiness::Ready => true,
        Readiness::NotReady => false,
        Readiness::Derive => is_ready(&child.kind, json, child.ready_condition.as_deref()),
    }
}

/// Derives an object's readiness from the JSON.
///
/// No object is ready while it is being deleted or while the controller has not seen the last generation.
/// Otherwise the declared condition decides, or the kind's rule; without a rule for the kind, an object is ready as soon
/// as it exists.
pub fn is_ready(kind: &Gvk, json: &str, ready_condition: Option<&str>) -> bool {
    let Ok(probe) = serde_json::from_str::<Probe<'_>>(json) else {
        return false;
    };
    if probe.metadata.deletion_timestamp.is_some() || probe.is_behind() {
        return false;
    }
    if let Some(name) = ready_condition {
        return probe.condition(name);
    }
    match (&*kind.group, &*kind.kind) {
        // Before its controller has seen a workload, the missing counts would equal zero desired replicas.
        ("apps", "Deployment") => probe.seen() && probe.deployment(),
        ("apps", "StatefulSet") => probe.seen() && probe.stateful_set(),
        ("apps", "DaemonSet") => probe.seen() && probe.daemon_set(),
        ("apps", "ReplicaSet") => {
            probe.seen() && probe.status("readyReplicas") == Probe::replicas(&probe.spec())
        }
        ("batch", "Job") => probe.condition("Complete"),
        // A Pod that has run to its end has the condition Ready=False.
        ("", "Pod") => probe.phase() == Some("Succeeded") || probe.condition("Ready"),
        // A claim may stay pending until the first consumer, so pending counts as ready.
        ("", "PersistentVolumeClaim") => probe.phase() != Some("Lost"),
        ("", "Service") => !probe.is_load_balancer() || probe.has_ingress(),
        _ => true,
    }
}

/// The fields that decide about readiness.
///
/// The spec stays raw text and is parsed only for the kinds that need it, because specs are large.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow, default)]
    metadata: ProbeMetadata<'a>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(default)]
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProbeMetadata<'a> {
    generation: Option<i64>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

impl Probe<'_> {
    fn spec(&self) -> Value {
        self.spec
            .map(|spec| serde_json::from_str(spec.get()))
            .and_then(Result::ok)
            .unwrap_or_default()
    }

    fn status_count(&self, field: &str) -> Option<i64> {
        self.status.get(field)?.as_i64()
    }

    /// Returns a count from the status; a missing count is zero, because controllers omit zeros.
    fn status(&self, field: &str) -> i64 {
        self.status_count(field).unwrap_or(0)
    }

    /// Returns the desired replicas; the API server's default is one.
    fn replicas(spec: &Value) -> i64 {
        spec.get("replicas").and_then(Value::as_i64).unwrap_or(1)
    }

    fn phase(&self) -> Option<&str> {
        self.status.get("phase")?.as_str()
    }

    /// Returns true if the controller has seen any generation.
    fn seen(&self) -> bool {
        self.status_count("observedGeneration").is_some()
    }

    fn is_behind(&self) -> bool {
        let observed = self.status_count("observedGeneration");
        observed
            .zip(self.metadata.generation)
            .is_some_and(|(observed, generation)| observed < generation)
    }

    fn condition(&self, name: &str) -> bool {
        let generation = self.metadata.generation;
        let holds = |condition: &Value| {
            let field = |name| condition.get(name).and_then(Value::as_str);
            // Many controllers leave it out. Where it is older, the condition is about an earlier spec.
            let observed = condition.get("observedGeneration").and_then(Value::as_i64);
            field("type") == Some(name)
                && field("status") == Some("True")
                && observed
                    .zip(generation)
                    .is_none_or(|(observed, generation)| observed >= generation)
        };
        self.status
            .get("conditions")
            .and_then(Value::as_array)
            .is_some_and(|conditions| conditions.iter().any(holds))
    }

    /// Returns true if all replicas are updated and ready, and none from an older template is left.
    fn deployment(&self) -> bool {
        let replicas = Self::replicas(&self.spec());
        self.status("replicas") == replicas
            && self.status("updatedReplicas") == replicas
            && self.status("readyReplicas") == replicas
    }

    /// Applies a Deployment's rule, except that replicas below the partition need no update.
    fn stateful_set(&self) -> bool {
        let spec = self.spec();
        let replicas = Self::replicas(&spec);
        let partition = spec
            .pointer("/updateStrategy/rollingUpdate/partition")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        self.status("replicas") == replicas
            && self.status("updatedReplicas") >= replicas.saturating_sub(partition)
            && self.status("readyReplicas") == replicas
    }

    fn daemon_set(&self) -> bool {
        let desired = self.status("desiredNumberScheduled");
        self.status("updatedNumberScheduled") == desired && self.status("numberReady") == desired
    }

    fn is_load_balancer(&self) -> bool {
        self.spec().get("type").and_then(Value::as_str) == Some("LoadBalancer")
    }

    fn has_ingress(&self) -> bool {
        self.status
            .pointer("/loadBalancer/ingress")
            .and_then(Value::as_array)
            .is_some_and(|ingress| !ingress.is_empty())
    }
}
