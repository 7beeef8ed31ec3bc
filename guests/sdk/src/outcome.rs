//! The answer of a pass: the desired children, and the report about the parent.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::child::Child;
use crate::condition::Condition;
use crate::json;

/// The answer of one pass.
///
/// An empty desired set, "keep all children" and a [`Fault`](crate::fault::Fault) are different
/// answers, because an answer that is empty by accident must never delete a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The host brings the children to this set, and deletes owned children that are not in it.
    Desired(Desired),
    /// The host leaves all children as they are.
    Keep(Report),
    /// The parent may be deleted; valid in phase `finalize` only.
    Finalized(Report),
}

impl Outcome {
    /// An answer with the whole desired set; the host deletes owned children that are not in it.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::{FakeHost, TestRequest};
    /// use serde_json::json;
    ///
    /// fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///     let water = json!({
    ///         "apiVersion": "v1", "kind": "ConfigMap",
    ///         "metadata": {"name": request.name()}, "data": {"depth": "2"},
    ///     });
    ///     let report = Report::new().condition(Condition::new("Ready", true, "Filled", "there is water"));
    ///     // A child of an earlier answer that is not here any more is deleted.
    ///     Ok(Outcome::desired([Child::new("water", &water)], report))
    /// }
    ///
    /// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
    /// let outcome = reconcile(&TestRequest::new(&pond).build(), &FakeHost::new()).unwrap();
    /// assert_eq!(outcome.child("water").unwrap().kind_and_name(), "ConfigMap/north");
    /// ```
    pub fn desired(children: impl IntoIterator<Item = Child>, report: Report) -> Self {
        Self::Desired(Desired {
            children: children.into_iter().collect(),
            report,
        })
    }

    /// An answer that leaves all children as they are.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::{FakeHost, TestRequest};
    /// use serde_json::json;
    ///
    /// fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///     if request.parent_value()["spec"]["suspend"] == true {
    ///         let paused = Condition::new("Ready", false, "Suspended", "spec.suspend is true");
    ///         return Ok(Outcome::keep(Report::new().condition(paused)));
    ///     }
    ///     Ok(Outcome::desired([], Report::new()))
    /// }
    ///
    /// let pond = json!({
    ///     "apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"},
    ///     "spec": {"suspend": true},
    /// });
    /// let outcome = reconcile(&TestRequest::new(&pond).build(), &FakeHost::new()).unwrap();
    /// assert!(matches!(outcome, Outcome::Keep(_)));
    /// ```
    pub const fn keep(report: Report) -> Self {
        Self::Keep(report)
    }

    /// An answer that lets the parent be deleted; valid in phase `finalize` only.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::{FakeHost, TestRequest};
    /// use k8s_openapi::api::batch::v1::Job;
    /// use serde_json::json;
    ///
    /// struct Ponds;
    ///
    /// impl Reconciler for Ponds {
    ///     fn describe() -> Manifest {
    ///         Manifest::new("ponds", "1.0.0").child::<Job>().finalize()
    ///     }
    ///
    ///     fn reconcile(_: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///         Ok(Outcome::desired([], Report::new()))
    ///     }
    ///
    ///     // The parent is deleted, and stays until a Job has drained the pond.
    ///     fn finalize(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///         let drain = json!({
    ///             "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": request.name()},
    ///             "spec": {"template": {"spec": {
    ///                 "restartPolicy": "Never", "containers": [{"name": "drain", "image": "pump:1"}],
    ///             }}},
    ///         });
    ///         let job: Option<Job> = request.children.get(request.name())?;
    ///         let status = job.and_then(|job| job.status).unwrap_or_default();
    ///         if status.succeeded == Some(1) {
    ///             return Ok(Outcome::finalized(Report::new()));
    ///         }
    ///         Ok(Outcome::desired([Child::new("drain", &drain)], Report::new()))
    ///     }
    /// }
    ///
    /// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
    /// let deleted = || TestRequest::new(&pond).finalizing();
    /// let first = Ponds::finalize(&deleted().build(), &FakeHost::new()).unwrap();
    /// assert!(first.child("drain").is_some());
    /// let done = json!({
    ///     "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "north"},
    ///     "status": {"succeeded": 1},
    /// });
    /// let last = Ponds::finalize(&deleted().child("drain", &done).build(), &FakeHost::new()).unwrap();
    /// assert_eq!(last, Outcome::finalized(Report::new()));
    /// ```
    pub const fn finalized(report: Report) -> Self {
        Self::Finalized(report)
    }

    /// The report about the parent.
    pub const fn report(&self) -> &Report {
        match self {
            Self::Desired(desired) => &desired.report,
            Self::Keep(report) | Self::Finalized(report) => report,
        }
    }

    /// The desired children; empty for the other answers.
    pub fn children(&self) -> &[Child] {
        match self {
            Self::Desired(desired) => &desired.children,
            Self::Keep(_) | Self::Finalized(_) => &[],
        }
    }

    /// The desired child of this key.
    pub fn child(&self, key: &str) -> Option<&Child> {
        self.children().iter().find(|child| child.key == key)
    }
}

impl From<Desired> for Outcome {
    fn from(desired: Desired) -> Self {
        Self::Desired(desired)
    }
}

/// The whole desired set of children, in the order in which the reconciler stated them, and the
/// report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Each child that shall exist; keys are unique.
    pub children: Vec<Child>,
    /// Status, conditions, events, next pass.
    pub report: Report,
}

impl Desired {
    /// No children and an empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a child.
    pub fn child(mut self, child: Child) -> Self {
        self.children.push(child);
        self
    }

    /// Adds children; an `Option<Child>` adds one or none.
    pub fn children(mut self, children: impl IntoIterator<Item = Child>) -> Self {
        self.children.extend(children);
        self
    }

    /// Replaces the report.
    pub fn report(mut self, report: Report) -> Self {
        self.report = report;
        self
    }
}

/// The report of a pass: status, conditions and events of the parent, and the next pass.
///
/// ```
/// use std::time::Duration;
/// use innkeeper_sdk::condition::Condition;
/// use innkeeper_sdk::outcome::{Event, Report};
///
/// let report = Report::new()
///     .status(&serde_json::json!({"replicas": 3}))
///     .condition(Condition::new("Ready", true, "Ready", "all 3 replicas are ready"))
///     .event(Event::normal("Ready", "all 3 replicas are ready"))
///     .requeue(Duration::from_secs(5));
/// assert_eq!(report.requeue, Some(Duration::from_secs(5)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The parent's `status` without `conditions`; none removes the fields that earlier passes stated.
    pub status: Option<Value>,
    /// The plugin's conditions, each type at most once.
    pub conditions: Vec<Condition>,
    /// Kubernetes Events about the parent.
    pub events: Vec<Event>,
    /// The time after which another pass runs, even without a change; crosses the boundary in whole
    /// milliseconds, rounded up.
    pub requeue: Option<Duration>,
}

impl Report {
    /// An empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the whole status.
    ///
    /// Null members and the member `conditions` are removed; conditions are stated beside the status.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn status(mut self, status: &impl Serialize) -> Self {
        let mut value = json::to_value(status);
        if let Some(members) = value.as_object_mut() {
            members.remove("conditions");
        }
        self.status = Some(value);
        self
    }

    /// Adds a condition, or replaces the condition of the same type in its place.
    pub fn condition(mut self, condition: Condition) -> Self {
        match self
            .conditions
            .iter_mut()
            .find(|it| it.type_ == condition.type_)
        {
            Some(stated) => *stated = condition,
            None => self.conditions.push(condition),
        }
        self
    }

    /// Adds conditions, as [`condition`](Self::condition) does; an `Option<Condition>` adds one or
    /// none.
    pub fn conditions(self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        conditions.into_iter().fold(self, Self::condition)
    }

    /// Adds an event.
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Adds events; an `Option<Event>` adds one or none.
    pub fn events(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// Requests another pass after this time, even without a change.
    ///
    /// A part of a millisecond is rounded up, so that the pass is never too early.
    pub const fn requeue(mut self, after: Duration) -> Self {
        self.requeue = Some(after);
        self
    }

    /// The condition of this type.
    pub fn find_condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }
}

/// The type of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Information about normal progress.
    Normal,
    /// A problem that may need attention.
    Warning,
}

/// A Kubernetes Event about the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type.
    pub type_: EventType,
    /// One word in CamelCase, at most 128 characters.
    pub reason: String,
    /// A sentence for users; the host cuts it off after 1024 bytes.
    pub message: String,
}

impl Event {
    /// An event about normal progress.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            type_: EventType::Normal,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// An event about a problem that may need attention.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            type_: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
        }
    }
}
