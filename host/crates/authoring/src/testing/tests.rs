//! Properties for fake plugins, whose guests are Rust functions; `tests/plugin/testing.rs` has real ones.

use expect_test::expect;
use innkeeper_model::{
    Desired, Gvk, ListSelector, ObjectRef, Outcome, Phase, PredictedChild, Prediction, Reads as _,
    Report, SelectorExt as _, parse_selector,
};
use innkeeper_sandbox::{CallFault, Context, End, ObservedChild, Request};
use serde_json::{Value, json};

use super::*;
use crate::render::{
    OfflineReads,
    tests::{Answer, child, desired, pond},
};

/// Returns the properties that a guest violates, each with the problem and the smallest parent.
fn findings(answer: Answer) -> Vec<(Property, String, Value)> {
    findings_and_calls(answer).0
}

fn findings_and_calls(answer: Answer) -> (Vec<(Property, String, Value)>, CallFacts) {
    let guest = pond(answer);
    let from = Inspected::File("pond.wasm".into());
    let call: &Call<'_> = &|request, reads, context| Ok(guest.call(request, reads, context));
    let offline = Offline::new(&guest.manifest, None, &from, call).unwrap();
    let mut calls = CallFacts::default();
    let failures = properties(&offline, &[], 200, &mut calls).unwrap();
    let results = failures.into_iter().map(|finding| {
        (
            finding.property,
            finding.problem,
            finding.parent.object["spec"].clone(),
        )
    });
    (results.collect(), calls)
}

#[track_caller]
fn breaks(property: Property, part: &str, answer: Answer) -> Value {
    let results = findings(answer);
    let Some((_, problem, spec)) = results.iter().find(|finding| finding.0 == property) else {
        panic!("{property:?} holds; found: {results:?}");
    };
    assert!(problem.contains(part), "{problem}");
    spec.clone()
}

fn config(name: &str, text: &str) -> innkeeper_model::Child {
    child(
        name,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}),
    )
}

fn size(request: &Request<'_>) -> i64 {
    let parent: Value = serde_json::from_str(request.parent).unwrap();
    parent["spec"]["size"].as_i64().unwrap()
}

fn has(children: &[ObservedChild], key: &str) -> bool {
    children
        .iter()
        .any(|child| child.key.as_deref() == Some(key))
}

fn finalized() -> End {
    End::Answered(Outcome::Finalized(Report::default()))
}

fn secret_exists(reads: &mut OfflineReads) -> bool {
    let secret = ObjectRef {
        kind: Gvk::new("", "v1", "Secret"),
        namespace: None,
        name: "key".into(),
    };
    reads.get(&secret).unwrap().is_some()
}

fn job(spec: Value) -> innkeeper_model::Child {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run"}, "spec": spec,
    });
    child("run", job)
}

/// The cluster deletes such a Job after the end, and the host would run it again.
#[test]
fn a_job_with_a_time_to_live_is_a_warning() {
    let answers: [(Answer, Option<&str>); 2] = [
        (
            |request, _, _| match request.phase {
                Phase::Finalize => finalized(),
                Phase::Reconcile => desired(vec![job(json!({"ttlSecondsAfterFinished": 0}))]),
            },
            Some("run"),
        ),
        (
            |request, _, _| match request.phase {
                Phase::Finalize => finalized(),
                Phase::Reconcile => desired(vec![job(json!({"backoffLimit": 0}))]),
            },
            None,
        ),
    ];
    for (answer, expected) in answers {
        let (findings, calls) = findings_and_calls(answer);
        let job_findings: Vec<_> = findings.iter().map(|finding| &finding.1).collect();
        assert_eq!(calls.expiring_job.as_deref(), expected, "{job_findings:?}");
    }
}

#[test]
fn a_good_reconciler_has_all_properties() {
    let results = findings(|request, reads, _| match request.phase {
        Phase::Finalize => finalized(),
        Phase::Reconcile if secret_exists(reads) => desired(vec![
            config("a", &size(request).to_string()),
            config("b", ""),
        ]),
        Phase::Reconcile if has(request.children, "b") => {
            End::Answered(Outcome::Keep(Report::default()))
        }
        Phase::Reconcile => desired(vec![config("a", &size(request).to_string())]),
    });
    assert_eq!(results, []);
}

#[test]
fn objects_that_are_not_given_match_the_selector_of_a_list() {
    let results = findings(|request, reads, _| {
        if request.phase == Phase::Finalize {
            return finalized();
        }
        for text in ["app!=web", "tier in (a,b),app", "!app"] {
            let objects = reads.list(&ListSelector {
                kind: Gvk::new("", "v1", "Secret"),
                namespace: None,
                label_selector: Some(text.into()),
            });
            for object in objects.unwrap() {
                let object: Value = serde_json::from_str(&object).unwrap();
                let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap();
                let is_match = parse_selector(text).unwrap().matches(&labels);
                assert!(is_match, "{text}: {object}");
            }
        }
        desired(vec![config("a", &size(request).to_string())])
    });
    assert_eq!(results, []);
}

#[test]
fn statuses_that_the_definition_refuses_are_found() {
    breaks(
        Property::ValidOutput,
        "status.url: 7 is not of type",
        |_, _, _| {
            let status = json!({"url": 7}).as_object().cloned();
            End::Answered(Outcome::Keep(Report {
                status,
                ..Report::default()
            }))
        },
    );
}

#[test]
fn random_names_are_found() {
    let part = "with other random numbers";
    breaks(Property::Deterministic, part, |_, _, context: &Context| {
        desired(vec![config(&format!("a{}", context.seed[0]), "")])
    });
}

/// States a ConfigMap, reports the URL `new` once it exists, and predicts a URL.
fn predicting(request: &Request<'_>, predicted: &str) -> End {
    if request.phase == Phase::Finalize {
        return finalized();
    }
    let report = |url: &str| Report {
        status: json!({"url": url}).as_object().cloned(),
        ..Report::default()
    };
    let assumed = PredictedChild {
        key: "a".to_owned(),
        parts: vec![
            ("/status".to_owned(), Some(json!({}))),
            // As the answer states it.
            ("/data/text".to_owned(), None),
        ],
    };
    let prediction = request.predict.then(|| Prediction {
        report: report(predicted),
        children: vec![assumed],
    });
    let exists = has(request.children, "a");
    End::Answered(Outcome::Desired(Desired {
        children: vec![config("a", "")],
        report: report(if exists { "new" } else { "" }),
        prediction,
    }))
}

#[test]
fn wrong_predictions_are_found() {
    let part = "the answer is another than the prediction: ";
    breaks(Property::Predicts, part, |request, _, _| {
        predicting(request, "other")
    });
    let results = findings(|request, _, _| predicting(request, "new"));
    assert_eq!(results, []);
}

#[test]
fn answers_that_never_settle_are_found() {
    let part = "ConfigMap default/a still changes after 10 rounds";
    breaks(Property::Converges, part, |request, _, _| {
        let bytes: usize = request
            .children
            .iter()
            .map(|child| child.object.len())
            .sum();
        desired(vec![config("a", &"x".repeat(bytes))])
    });
    // Two answers in turns.
    breaks(
        Property::Converges,
        "still changes after 10 rounds",
        |request, _, _| {
            let other = if has(request.children, "a") { "b" } else { "a" };
            desired(vec![config(other, "")])
        },
    );
}

#[test]
fn a_dependence_on_the_order_is_found() {
    let part = "with children and reads in another order";
    breaks(Property::OrderIndependent, part, |request, _, _| {
        let first = request
            .children
            .first()
            .and_then(|child| child.key.clone())
            .unwrap_or_else(|| "a".into());
        desired(vec![config("a", &first), config("b", "")])
    });
}

#[test]
fn a_trap_on_a_rare_field_is_found_with_the_smallest_parent() {
    let spec = breaks(Property::Total, "boom", |request, _, _| {
        if size(request) != 2 {
            return desired(Vec::new());
        }
        End::Faulted(CallFault::Trapped {
            message: "boom".to_owned(),
            backtrace: Vec::new(),
        })
    });
    assert_eq!(spec, json!({"size": 2}));
}

#[test]
fn slow_answers_are_found() {
    breaks(Property::Total, "within 100 ms", |_, _, _| {
        End::Faulted(CallFault::DeadlineExceeded {
            limit: std::time::Duration::from_millis(100),
        })
    });
}

#[test]
fn invalid_and_forbidden_children_are_found() {
    let part = "child \"a\": there is no field dta";
    breaks(Property::ValidOutput, part, |_, _, _| {
        desired(vec![child(
            "a",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dta": {"b": "c"}}),
        )])
    });
    breaks(Property::InsideGrants, "Service", |_, _, _| {
        desired(vec![child(
            "a",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}),
        )])
    });
}

#[test]
fn prunes_while_a_read_is_empty_are_found() {
    let part = "ConfigMap default/b is deleted while an object is missing";
    breaks(Property::KeepsChildren, part, |_, reads, _| {
        let mut children = vec![config("a", "")];
        children.extend(secret_exists(reads).then(|| config("b", "")));
        desired(children)
    });
}

#[test]
fn an_ignored_deletion_is_found() {
    let part = "the answer does not contain it";
    breaks(Property::SurvivesDeletion, part, |request, _, _| {
        let all = ["a", "b"];
        let is_new = request.children.is_empty();
        let remaining = all
            .iter()
            .filter(|name| is_new || has(request.children, name));
        desired(remaining.map(|name| config(name, "")).collect())
    });
}

#[test]
fn a_budget_is_written_and_then_upheld() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("budget.yaml");
    let cost = |fuel| Cost {
        fuel,
        memory_bytes: 1000,
    };
    assert_eq!(over_budget(&path, cost(1000), false).unwrap(), None);
    assert_eq!(over_budget(&path, cost(1000), true).unwrap(), None);
    assert_eq!(over_budget(&path, cost(1100), false).unwrap(), None);
    let over = over_budget(&path, cost(1101), false).unwrap().unwrap();
    assert!(over.starts_with("fuel is 1101, and the budget"), "{over}");
}

#[test]
fn results_are_shown_as_text_json_and_junit() {
    let results = [
        TestResult {
            name: "case a".to_owned(),
            problem: None,
        },
        TestResult {
            name: "property total".to_owned(),
            problem: Some("a < b\u{1b}[31m\nc".to_owned()),
        },
    ];
    let cost = Cost {
        fuel: 5,
        memory_bytes: 6,
    };
    let show = |format| {
        show::all(&results, cost, format)
            .unwrap()
            .as_str()
            .to_owned()
    };
    expect![[r"
        ok      case a
        FAILED  property total
          a < b [31m
          c
        1 passed, 1 failed; the largest pass took 5 fuel and 6 bytes of memory
    "]]
    .assert_eq(&show(crate::args::TestFormat::Text));
    expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuite name="innkeeper test" tests="2" failures="1">
          <testcase name="case a"/>
          <testcase name="property total"><failure>a &lt; b [31m
          c</failure></testcase>
        </testsuite>
    "#]]
    .assert_eq(&show(crate::args::TestFormat::Junit));
    let json: Value = serde_json::from_str(&show(crate::args::TestFormat::Json)).unwrap();
    assert_eq!(json["results"][1]["problem"], "a < b\u{1b}[31m\nc");
}
