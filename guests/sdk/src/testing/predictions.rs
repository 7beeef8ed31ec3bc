//! The parts of new and changed children that the predicted report depends on.

use crate::answer::Answer;
use crate::fault::Fault;
use crate::host::Host;
use crate::prediction::predict;
use crate::request::Request;

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
