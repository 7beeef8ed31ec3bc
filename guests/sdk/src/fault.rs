//! Faults: why a pass has no answer.

use std::fmt;

use crate::answer::Report;
use crate::host::ReadError;

/// A [`Fault`]'s kind, which decides when the next pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The cause is temporary: the host retries with backoff.
    Retry,
    /// The parent or an object that it names is wrong: the host retries when an input changes.
    Invalid,
    /// The plugin or the configuration is wrong: the host retries when an input or the configuration changes.
    Fatal,
}

/// The result of a pass without an answer. The host changes no child.
///
/// ```
/// use innkeeper_sdk::fault::{Fault, FaultKind};
///
/// let fault = Fault::invalid("spec.size: must be odd");
/// assert_eq!(fault.kind, FaultKind::Invalid);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind, which decides when the next pass runs.
    pub kind: FaultKind,
    /// A sentence for users: the problem, the field, and the remedy.
    pub message: String,
    /// The parent's status and conditions; none leaves the stored ones unchanged.
    pub report: Option<Box<Report>>,
}

impl Fault {
    /// A temporary cause: the host retries with backoff.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::FakeHost;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// /// Returns the depth that another team states, and waits for it.
    /// fn depth(host: &dyn Host) -> Result<String, Fault> {
    ///     let settings: Option<ConfigMap> = host.get("water", "settings")?;
    ///     let depth = settings.and_then(|it| it.data?.remove("depth"));
    ///     depth.ok_or_else(|| Fault::retry("ConfigMap water/settings has no key depth yet"))
    /// }
    ///
    /// assert_eq!(depth(&FakeHost::new()).unwrap_err().kind, FaultKind::Retry);
    /// ```
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Retry, message)
    }

    /// The parent or an object that it names is wrong: the host retries when an input changes.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::TestRequest;
    /// use serde_json::json;
    ///
    /// /// Returns the depth in the parent's spec.
    /// fn depth(request: &Request) -> Result<u64, Fault> {
    ///     let depth = request.parent_value()["spec"]["depth"].as_u64().unwrap_or(1);
    ///     if depth > 100 {
    ///         return Err(Fault::invalid(format!("spec.depth: {depth} is more than 100: make it smaller")));
    ///     }
    ///     Ok(depth)
    /// }
    ///
    /// let pond = json!({
    ///     "apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"},
    ///     "spec": {"depth": 101},
    /// });
    /// let fault = depth(&TestRequest::new(&pond).build()).unwrap_err();
    /// assert_eq!(fault.kind, FaultKind::Invalid);
    /// ```
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message)
    }

    /// The plugin or the configuration is wrong: the host retries when an input or the configuration changes.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::TestRequest;
    /// use serde_json::json;
    ///
    /// /// Returns the image that the administrator configures.
    /// fn image(request: &Request) -> Result<String, Fault> {
    ///     let config: serde_json::Value = request.config()?;
    ///     let image = config["image"].as_str().filter(|image| image.contains(':'));
    ///     let problem = || Fault::fatal("spec.config.image of the Plugin has no tag: add one");
    ///     image.map(str::to_owned).ok_or_else(problem)
    /// }
    ///
    /// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
    /// let request = TestRequest::new(&pond).config(&json!({"image": "pump"})).build();
    /// assert_eq!(image(&request).unwrap_err().kind, FaultKind::Fatal);
    /// ```
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Fatal, message)
    }

    /// Adds status and conditions to the fault.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    ///
    /// let message = "spec.depth: 101 is more than 100: make it smaller";
    /// let ready = Condition::new("Ready", false, "Invalid", message);
    /// let fault = Fault::invalid(message).with_report(Report::new().condition(ready));
    /// assert_eq!(fault.report.unwrap().conditions.len(), 1);
    /// ```
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            report: None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// A validation error becomes `invalid`.
impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::invalid(message)
    }
}

/// A failed read becomes `retry`: grants and served kinds change without the parent.
impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::retry(error.to_string())
    }
}
