//! Recorded passes: captured from a running host, and replayed offline.
//!
//! A recording has all inputs for a call, and the answer. The replay runs in the sandbox with the default limits, and
//! needs no cluster.

mod replay;

use std::path::{Path, PathBuf};

use innkeeper_command::{Exit, Failure, OrFail as _, Streams};
use innkeeper_model::{Limits, ReadKey};
use innkeeper_sandbox::{CallOutput, Described, LogLine, Recording, Request};
use serde_json::{Value, json};

use crate::{
    args::{Inspected, LoadArgs},
    diff, plugin_file, render,
};

pub use replay::run as replay;

/// A repeated call's result.
pub(crate) struct Repeated {
    /// The new answer.
    pub(crate) answer: CallOutput,
    /// The revision that answered.
    revision: String,
    log: Vec<LogLine>,
    /// Reads that the recording does not have.
    unknown: Vec<ReadKey>,
}

impl Repeated {
    /// Returns the new answer as JSON.
    pub(crate) fn answer(&self) -> Value {
        Value::Object(self.answer.to_json())
    }

    /// Returns each place in which the new answer differs from the recorded one.
    pub(crate) fn differences(&self, recording: &Recording) -> Vec<String> {
        diff::differences(&Value::Object(recording.answer.clone()), &self.answer())
    }

    /// Replaces the recorded answer with the new one.
    pub(crate) fn becomes_expected(&self, recording: &mut Recording) {
        recording.answer = self.answer.to_json();
        recording.revision.clone_from(&self.revision);
    }

    /// Returns a line for each read without a recorded answer.
    pub(crate) fn unknown_reads(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().map(|read| {
            let read = json!(read);
            format!("the recording does not contain this read, and the plugin got the answer \"not granted\": {read}")
        })
    }

    /// Prints the guest's log and fault, and the reads without a recorded answer.
    fn note(&self, streams: &mut Streams<'_>) {
        render::note_log(&self.log, streams);
        for line in self.unknown_reads() {
            streams.note(&line);
        }
        render::note_fault(&self.answer, streams);
    }
}

/// Reads a recording.
pub(crate) fn read(path: &Path, streams: &mut Streams<'_>) -> Result<Recording, Failure> {
    let content = render::bytes(path, streams)?;
    let message = format!(
        "{} is no recording of a pass: use a file of innkeeper record, or one JSON object that a host logged at the target recording",
        render::named(path)
    );
    serde_json::from_slice(&content).or_fail(Exit::Usage, message)
}

/// Repeats a recorded call with a plugin, which need not be the recorded one.
pub(crate) fn repeat(
    recording: &Recording,
    described: &Described,
    from: &Inspected,
) -> Result<Repeated, Failure> {
    let plugin = described
        .configure(&recording.config(), plugin_file::checker())
        .or_fail_by(
            plugin_file::exit_for,
            format!(
                "failed to configure the plugin {from} with the configuration of the recording"
            ),
        )?;
    let children = recording.children();
    let request = Request {
        parent: recording.parent(),
        children: &children,
        phase: recording.phase(),
        namespace_terminating: recording.namespace_terminating(),
        predict: false,
    };
    let limits = Limits::default();
    let called = plugin.call(&request, recording.reads(), &recording.context(), &limits);
    let (report, reads) = render::started(called, from)?;
    Ok(Repeated {
        answer: CallOutput::from(report.end),
        revision: plugin.revision().to_string(),
        log: report.log,
        unknown: reads.unknown().to_vec(),
    })
}

/// Loads the given plugin, or the one from the project in the current directory.
fn plugin(given: Option<&Inspected>, load: &LoadArgs) -> Result<(Inspected, Described), Failure> {
    let from = match given {
        Some(given) => given.clone(),
        None => Inspected::File(plugin_file::built(&PathBuf::from("."))?),
    };
    let described = render::described(&from, load)?;
    Ok((from, described))
}
