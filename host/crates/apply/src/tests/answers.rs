//! The error for each answer: A10, A11.

use std::time::Duration;

use innkeeper_model::Retry;
use serde_json::{Value, json};

use super::super::{Error, error::refused, request::Verb};

fn answer(verb: Verb, code: u16, retry_after: Option<&str>, body: &Value) -> Error {
    let mut response = http::Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let (parts, ()) = response.body(()).unwrap().into_parts();
    refused(
        verb,
        "write it".to_owned(),
        &parts,
        body.to_string().as_bytes(),
    )
}

fn status(message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": message})
}

fn details(message: &str, details: Value) -> Value {
    let mut status = status(message);
    status["details"] = details;
    status
}

#[track_caller]
fn check(verb: Verb, code: u16, body: Value, category: &str, retry: Retry) {
    let error = answer(verb, code, None, &body);
    assert_eq!(error.category(), category, "{verb:?} {code} {body}");
    assert_eq!(error.retry(), retry, "{verb:?} {code} {body}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_answer_has_a_type_a10() {
    use Retry::{At, Backoff, Never, OnChange};
    use Verb::{Apply, Create, Delete, JsonPatch, Status, Update};
    let modified =
        || status("the object has been modified; please apply your changes to the latest version");
    check(Create, 409, modified(), "Exists", Backoff);
    check(Update, 409, modified(), "Conflict", Backoff);
    check(Status, 409, modified(), "Conflict", Backoff);
    let quota = details(
        "Operation cannot be fulfilled",
        json!({"kind": "resourcequotas"}),
    );
    check(Create, 409, quota, "Conflict", Backoff);
    let uid = details("is invalid", json!({"causes": [{"field": "metadata.uid"}]}));
    check(Update, 422, uid.clone(), "Conflict", Backoff);
    check(Create, 422, uid, "Rejected", OnChange);
    let failed_test = status("the server rejected our request due to an error in our request");
    check(JsonPatch, 422, failed_test.clone(), "Conflict", Backoff);
    check(Update, 422, failed_test, "Rejected", OnChange);
    check(
        JsonPatch,
        422,
        status("Web is invalid: spec.size"),
        "Rejected",
        OnChange,
    );
    check(
        Update,
        422,
        status("Service is invalid: spec.clusterIP"),
        "Rejected",
        OnChange,
    );
    check(Update, 400, status("bad"), "Rejected", OnChange);
    let untyped = status(
        "failed to create typed patch object (a/b; v1, Kind=X): .foo: field not declared in schema",
    );
    check(Create, 500, untyped, "Rejected", OnChange);
    check(
        Create,
        413,
        status("limit is 3145728"),
        "TooLarge",
        OnChange,
    );
    check(
        Create,
        500,
        status("etcdserver: request is too large"),
        "TooLarge",
        OnChange,
    );
    check(Update, 404, status("not found"), "Gone", Backoff);
    check(Status, 404, status("not found"), "Gone", Backoff);
    check(Create, 404, status("page not found"), "NotServed", Backoff);
    check(Apply, 404, status("page not found"), "NotServed", Backoff);
    let namespace = details("namespaces \"x\" not found", json!({"kind": "namespaces"}));
    check(Create, 404, namespace, "NamespaceMissing", Backoff);
    let terminating = details(
        "forbidden",
        json!({"causes": [{"reason": "NamespaceTerminating"}]}),
    );
    check(Create, 403, terminating, "NamespaceTerminating", Never);
    let rbac = status(
        "secrets \"x\" is forbidden: User \"u\" cannot patch resource \"secrets\" in API group \"\"",
    );
    check(Create, 403, rbac, "Forbidden", Backoff);
    check(Create, 401, status("Unauthorized"), "Forbidden", Backoff);
    for denial in [
        "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1",
        "admission webhook \"w\" denied the request: no",
        "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
        "x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
    ] {
        check(Create, 403, status(denial), "Denied", Backoff);
    }
    // Webhooks choose the code.
    let denial = || status("admission webhook \"w\" denied the request: no");
    for verb in [Create, Apply, Update, Status, JsonPatch, Delete] {
        for code in [400, 401, 404, 409, 413, 422] {
            check(verb, code, denial(), "Denied", Backoff);
        }
    }
    check(
        Update,
        429,
        denial(),
        "Throttled",
        At(Duration::from_secs(1)),
    );
    check(
        Create,
        500,
        status("failed calling webhook"),
        "Unavailable",
        Backoff,
    );
    check(Create, 503, status("starting"), "Unavailable", Backoff);
    check(
        Create,
        504,
        status("Timeout: request did not complete"),
        "Ambiguous",
        Backoff,
    );
    check(
        Create,
        502,
        json!("no status at all"),
        "Unavailable",
        Backoff,
    );
}

#[test]
fn pauses_that_the_api_server_asks_for_are_kept_a10() {
    let pause = |code, header, body: Value| answer(Verb::Update, code, header, &body).retry();
    let seconds = |seconds| Retry::At(Duration::from_secs(seconds));
    assert_eq!(pause(429, Some("7"), status("busy")), seconds(7));
    assert_eq!(pause(429, None, status("busy")), seconds(1));
    assert_eq!(pause(503, Some("3"), status("busy")), seconds(3));
    assert_eq!(pause(503, None, status("busy")), Retry::Backoff);
    assert_eq!(
        pause(429, None, details("busy", json!({"retryAfterSeconds": 9}))),
        seconds(9)
    );
    // A wrong header must not stop the host for a day.
    assert_eq!(pause(429, Some("86400"), status("busy")), seconds(300));
}

#[test]
fn an_error_says_whether_it_is_silent_ambiguous_or_a_rejection() {
    let error = |code, message: &str| answer(Verb::Update, code, None, &status(message));
    assert!(error(409, "").is_conflict_only() && error(404, "").is_conflict_only());
    assert!(!error(422, "").is_conflict_only());
    assert!(error(504, "").is_ambiguous() && !error(503, "").is_ambiguous());
    assert!(error(422, "").is_rejection() && error(413, "").is_rejection());
    assert!(!error(409, "").is_rejection() && !error(503, "").is_rejection());
}

#[test]
fn a_failure_has_the_reason_for_the_condition_and_the_servers_words() {
    let failure =
        |code, message: &str| answer(Verb::Update, code, None, &status(message)).failure();
    let rejected = failure(422, "spec.size: Invalid value");
    assert_eq!(rejected.reason, "ChildRejected");
    assert_eq!(
        rejected.message,
        "failed to write it: the API server rejected it: spec.size: Invalid value"
    );
    assert_eq!(failure(429, "").reason, "Throttled");
    assert_eq!(failure(503, "").reason, "ApplyFailed");
}
