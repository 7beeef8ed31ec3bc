//! Results as text, JSON and JUnit XML.

use std::fmt::Write as _;

use innkeeper_command::plain;
use innkeeper_model::yaml;
use serde_json::{Value, json};

use super::{Cost, Finding, TestResult};
use crate::args::TestFormat;

/// Returns a finding with its objects as files to keep.
pub(super) fn finding(finding: &Finding) -> String {
    let mut text = finding.problem.clone();
    let parent = Value::Object(finding.parent.object.clone());
    let observed = finding
        .observed
        .iter()
        .map(|it| Value::Object(it.object.clone()));
    for (name, objects) in [
        ("parent.yaml", vec![parent]),
        ("observed/children.yaml", observed.collect()),
    ] {
        if !objects.is_empty() {
            let objects = yaml::write(&objects).unwrap_or_default();
            write!(text, "\n# {name}\n{}", objects.trim_end()).expect("a text takes all");
        }
    }
    text
}

pub(super) fn all(results: &[TestResult], cost: Cost, format: TestFormat) -> String {
    match format {
        TestFormat::Text => text(results, cost),
        TestFormat::Json => {
            let result =
                |result: &TestResult| json!({"name": result.name, "problem": result.problem});
            let results: Vec<Value> = results.iter().map(result).collect();
            let cost = json!({"fuel": cost.fuel, "memoryBytes": cost.memory_bytes});
            format!("{:#}\n", json!({"results": results, "cost": cost}))
        }
        TestFormat::Junit => junit(results),
    }
}

fn failed(results: &[TestResult]) -> usize {
    results
        .iter()
        .filter(|result| result.problem.is_some())
        .count()
}

fn text(results: &[TestResult], cost: Cost) -> String {
    let mut text = String::new();
    for TestResult { name, problem } in results {
        match problem {
            None => writeln!(text, "ok      {name}"),
            Some(problem) => writeln!(text, "FAILED  {name}\n  {}", lines(problem, "\n  ")),
        }
        .expect("a text takes all");
    }
    let failed = failed(results);
    let passed = results.len() - failed;
    let Cost { fuel, memory_bytes } = cost;
    writeln!(text, "{passed} passed, {failed} failed; the largest pass took {fuel} fuel and {memory_bytes} bytes of memory")
        .expect("a text takes all");
    text
}

fn junit(results: &[TestResult]) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"innkeeper test\" tests=\"{}\" failures=\"{}\">\n",
        results.len(),
        failed(results)
    );
    for TestResult { name, problem } in results {
        let name = escaped(&plain(name));
        match problem {
            None => writeln!(text, "  <testcase name=\"{name}\"/>"),
            Some(problem) => writeln!(
                text,
                "  <testcase name=\"{name}\"><failure>{}</failure></testcase>",
                escaped(&lines(problem, "\n"))
            ),
        }
        .expect("a text takes all");
    }
    text + "</testsuite>\n"
}

/// Returns the lines of a text without control characters, which guests choose, and XML does not have.
fn lines(text: &str, separator: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(plain).collect();
    lines.join(separator)
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|it| match it {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            other => other.to_string(),
        })
        .collect()
}
