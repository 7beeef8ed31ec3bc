//! Results as text, JSON and JUnit XML.

use std::fmt::Write as _;

use innkeeper_command::{Failure, Output};
use innkeeper_model::yaml;
use serde_json::{Value, json};

use super::{Cost, Finding, TestResult};
use crate::args::TestFormat;

/// Returns a finding with the objects as files to save.
pub(super) fn finding(finding: &Finding) -> String {
    let mut text = finding.problem.clone();
    let parent = Value::Object(finding.parent.object.clone());
    let observed = finding
        .observed
        .iter()
        .map(|child| Value::Object(child.object.clone()));
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

pub(super) fn all(
    results: &[TestResult],
    cost: Cost,
    format: TestFormat,
) -> Result<Output, Failure> {
    match format {
        TestFormat::Text => Ok(text(results, cost)),
        TestFormat::Json => {
            let result =
                |result: &TestResult| json!({"name": result.name, "problem": result.problem});
            let results: Vec<Value> = results.iter().map(result).collect();
            let cost = json!({"fuel": cost.fuel, "memoryBytes": cost.memory_bytes});
            Output::json(&json!({"results": results, "cost": cost}))
        }
        TestFormat::Junit => Ok(junit(results)),
    }
}

fn failed(results: &[TestResult]) -> usize {
    results
        .iter()
        .filter(|result| result.problem.is_some())
        .count()
}

fn text(results: &[TestResult], cost: Cost) -> Output {
    let mut output = Output::default();
    for TestResult { name, problem } in results {
        match problem {
            None => output.line(format!("ok      {name}")),
            Some(problem) => {
                output.line(format!("FAILED  {name}"));
                output.lines(format!("  {problem}"));
            }
        }
    }
    let failed = failed(results);
    let passed = results.len() - failed;
    let Cost { fuel, memory_bytes } = cost;
    output.line(format!("{passed} passed, {failed} failed; the largest pass took {fuel} fuel and {memory_bytes} bytes of memory"));
    output
}

fn junit(results: &[TestResult]) -> Output {
    let mut output = Output::from_line("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
    output.line(format!(
        "<testsuite name=\"innkeeper test\" tests=\"{}\" failures=\"{}\">",
        results.len(),
        failed(results)
    ));
    for TestResult { name, problem } in results {
        let name = escaped(name);
        match problem {
            None => output.line(format!("  <testcase name=\"{name}\"/>")),
            Some(problem) => output.lines(format!(
                "  <testcase name=\"{name}\"><failure>{}</failure></testcase>",
                escaped(problem)
            )),
        }
    }
    output.line("</testsuite>");
    output
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|entry| match entry {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            other => other.to_string(),
        })
        .collect()
}
