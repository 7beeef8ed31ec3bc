//! The replay of a pass that a host has recorded: `innkeeper render --recording`.

use std::path::Path;

use innkeeper_model::{Limits, yaml};
use innkeeper_sandbox::{Request, Said, read_to_json};
use serde_json::Value;

use super::{ENCODE, guest, input};
use crate::{
    config::{Exit, OutputFormat, RenderArgs, Streams},
    diff,
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
    guest::note_log(&report.log, streams);
    for read in reads.unknown() {
        streams.note(&format!(
            "the recording does not contain this read, and the plugin got the answer \"not granted\": {}",
            read_to_json(read)
        ));
    }
    let said = Said::from(report.end);
    guest::note_fault(&said, streams);
    let answer = Value::Object(said.to_json());
    let difference = diff::of(&Value::Object(recording.answer), &answer)
        .into_iter()
        .next();
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
