//! A pass's answer: the desired children, and the report about the parent.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::child::Child;
use crate::condition::Condition;
use crate::json;

/// A pass's answer.
///
/// An empty desired set, "keep all children" and a [`Fault`](crate::fault::Fault) are different, because an answer that
/// is empty by accident must never delete a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host applies these children, and deletes owned children that are not among them.
    Desired(Desired),
    /// The host leaves all children unchanged.
    Keep(Report),
    /// The parent may be deleted; valid in phase `finalize` only.
    Finalized(Report),
}

impl Answer {
    /// An answer that leaves all children unchanged.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    ///
    /// let paused = Condition::new("Ready", false, "Suspended", "spec.suspend is true");
    /// let answer = Answer::keep(Report::new().condition(paused));
    /// assert!(answer.children().is_empty());
    /// ```
    pub const fn keep(report: Report) -> Self {
        Self::Keep(report)
    }

    /// An answer that lets the parent be deleted; valid in phase `finalize` only.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use k8s_openapi::api::batch::v1::Job;
    ///
    /// /// Lets the parent be deleted when a Job has drained the pond.
    /// fn drain(request: &Request, drain: Child) -> Result<Answer, Fault> {
    ///     let job: Option<Job> = request.children.get(drain.name())?;
    ///     let succeeded = job.and_then(|job| job.status?.succeeded);
    ///     if succeeded == Some(1) {
    ///         return Ok(Answer::finalized(Report::new()));
    ///     }
    ///     Ok(Desired::new().child(drain).into())
    /// }
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

impl From<Desired> for Answer {
    fn from(desired: Desired) -> Self {
        Self::Desired(desired)
    }
}

/// The complete set of desired children, in the reconciler's order, and the report.
///
/// The host deletes owned children that are not in the set.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use serde_json::json;
///
/// let water = json!({
///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "north"}, "data": {"depth": "2"},
/// });
/// let answer: Answer = Desired::new()
///     .child(Child::untyped("water", &water))
///     .status(&json!({"depth": 2}))
///     .condition(Condition::new("Full", true, "Rain", "the pond is full"))
///     .into();
/// assert_eq!(answer.child("water").unwrap().kind_and_name(), "ConfigMap/north");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// All children that should exist; keys are unique.
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

    /// Sets the parent's status, see [`Report::status`].
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn status(mut self, status: &impl Serialize) -> Self {
        self.report = self.report.status(status);
        self
    }

    /// Adds a condition, see [`Report::condition`].
    pub fn condition(mut self, condition: Condition) -> Self {
        self.report = self.report.condition(condition);
        self
    }

    /// Adds an event.
    pub fn event(mut self, event: Event) -> Self {
        self.report = self.report.event(event);
        self
    }

    /// Requests another pass after this time, see [`Report::requeue`].
    pub const fn requeue(mut self, after: Duration) -> Self {
        self.report.requeue = Some(after);
        self
    }
}

/// A report about the parent: status, conditions, events, and the time of the next pass.
///
/// ```
/// use std::time::Duration;
/// use innkeeper_sdk::condition::Condition;
/// use innkeeper_sdk::answer::{Event, Report};
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
    /// Null members and `conditions` are removed; set conditions with [`condition`](Self::condition).
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

    /// Adds a condition, or replaces the one with the same type in place.
    pub fn condition(mut self, condition: Condition) -> Self {
        match self
            .conditions
            .iter_mut()
            .find(|stated| stated.type_ == condition.type_)
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
    /// Rounded up to whole milliseconds, so that the pass is never too early.
    pub const fn requeue(mut self, after: Duration) -> Self {
        self.requeue = Some(after);
        self
    }

    /// Returns the condition with this type.
    pub fn find_condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }
}

/// An [`Event`]'s type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Information about normal progress.
    Normal,
    /// A problem that may need attention.
    Warning,
}

/// A Kubernetes Event about the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The type.
    #[serde(rename = "type")]
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
