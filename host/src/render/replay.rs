//! The replay of a pass that a host has recorded: `innkeeper render --recording`.

use std::path::Path;

use innkeeper_model::{Limits, yaml};
use innkeeper_sandbox::{Request, Said, read_to_json};
use serde_json::Value;

use super::{ENCODE, guest, input};
use crate::{
    config::{Exit, OutputFormat, RenderArgs, Streams},
    failure::{Failure, OrFail as _},
};

/// Repeats the recorded call, prints the new answer, and reports the first difference from the recorded answer.
pub(super) fn run(
    args: &RenderArgs,
    path: &Path,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let recording = input::recording(path, streams)?;
    let plugin = guest::load(args, &recording.config())?;
    let revision = plugin.revision().to_string();
    if revision != recording.revision {
        streams.note(&format!(
            "the recording is of revision {} of {}, but this is revision {revision}",
            recording.revision, recording.plugin
        ));
    }
    let children = recording.children();
    let request = Request {
        parent: recording.parent(),
        children: &children,
        phase: recording.phase(),
    };
    let limits = Limits::default();
    let called = plugin.call(&request, recording.reads(), &recording.context(), &limits);
    let (report, reads) = guest::started(called, &args.plugin)?;
    guest::note_log(&report, streams);
    for read in reads.unknown() {
        streams.note(&format!(
            "the recording does not contain this read, and the plugin got the answer \"not granted\": {}",
            read_to_json(read)
        ));
    }
    let said = Said::from(report.end);
    guest::note_fault(&said, streams);
    let answer = Value::Object(said.to_json());
    let difference = difference(&Value::Object(recording.answer), &answer, String::new());
    streams.note(&match &difference {
        None => "the answer is the recorded one".to_owned(),
        Some(difference) => format!("the answer is not the recorded one: {difference}"),
    });
    let text = match args.output {
        OutputFormat::Json => format!("{answer:#}\n"),
        OutputFormat::Yaml => yaml::write(&[answer]).or_fail(Exit::Failure, ENCODE)?,
    };
    streams.print(&text)?;
    Ok(match (difference, said.fault) {
        (None, None) => Exit::Success,
        _ => Exit::Finding,
    })
}

/// Returns the first place in which two answers differ, with both values.
fn difference(recorded: &Value, now: &Value, place: String) -> Option<String> {
    match (recorded, now) {
        (Value::Object(recorded), Value::Object(now)) => {
            let names = recorded.keys().chain(now.keys());
            names.into_iter().find_map(|name| {
                let field = |object: &serde_json::Map<String, Value>| {
                    object.get(name).cloned().unwrap_or(Value::Null)
                };
                let dot = if place.is_empty() { "" } else { "." };
                difference(&field(recorded), &field(now), format!("{place}{dot}{name}"))
            })
        }
        (Value::Array(recorded), Value::Array(now)) if recorded.len() == now.len() => {
            let items = recorded.iter().zip(now).enumerate();
            items.into_iter().find_map(|(at, (recorded, now))| {
                difference(recorded, now, format!("{place}[{at}]"))
            })
        }
        (recorded, now) if recorded == now => None,
        (recorded, now) => Some(format!("{place} is {now}, and was {recorded}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn o5_the_first_difference_is_named_with_both_values() {
        let recorded = json!({"children": [{"object": {"spec": {"replicas": 2}}}], "status": {}});
        let differs = |now: Value| difference(&recorded, &now, String::new());
        assert_eq!(differs(recorded.clone()), None);
        let now = json!({"children": [{"object": {"spec": {"replicas": 3}}}], "status": {}});
        let place = "children[0].object.spec.replicas is 3, and was 2";
        assert_eq!(differs(now).as_deref(), Some(place));
        let now = json!({"children": recorded["children"], "status": {"a": 1}});
        assert_eq!(differs(now).as_deref(), Some("status.a is 1, and was null"));
        let now = json!({"children": [], "status": {}});
        assert!(
            differs(now)
                .unwrap()
                .starts_with("children is [], and was [")
        );
    }
}
