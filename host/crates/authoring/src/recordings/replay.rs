//! Replays a recorded pass: `innkeeper replay`.

use innkeeper_command::{Exit, Failure, Output, ResultFormat, Streams};
use serde_json::json;

use super::{plugin, read, repeat};
use crate::args::ReplayArgs;

/// Repeats the recorded call, and prints how the new answer differs from the recorded one.
pub fn run(args: &ReplayArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let recording = read(&args.recording, streams)?;
    let (from, described) = plugin(args.plugin.as_ref(), &args.load)?;
    let repeated = repeat(&recording, &described, &from)?;
    if repeated.revision != recording.revision {
        streams.note(&format!(
            "the recording is of revision {} of {}, but this is revision {}",
            recording.revision, recording.plugin, repeated.revision
        ));
    }
    repeated.note(streams);
    let differences = repeated.differences(&recording);
    let is_same = differences.is_empty();
    streams.note(if is_same {
        "the answer is the recorded one"
    } else {
        "the answer is not the recorded one"
    });
    let mut output = Output::default();
    match args.output {
        ResultFormat::Json => {
            let result = json!({"answer": repeated.answer(), "differences": differences});
            output = Output::json(&result)?;
        }
        ResultFormat::Text => differences.iter().for_each(|line| output.line(line)),
    }
    streams.print(&output)?;
    Ok(if is_same {
        Exit::Success
    } else {
        Exit::Finding
    })
}
