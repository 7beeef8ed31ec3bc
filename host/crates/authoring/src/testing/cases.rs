//! Cases: directories with a pass's input and the expected answer, and recordings, which have both.

use std::{
    fs,
    path::{Path, PathBuf},
};

use innkeeper_command::{Exit, Failure, OrFail as _, Streams};
use innkeeper_model::{Limits, Phase, yaml};
use innkeeper_sandbox::Described;
use serde_json::Value;

use super::{TestResult, properties};
use crate::{
    args::Inspected,
    diff,
    document::Document,
    plugin_file, recordings,
    render::{self, Call, Files, Offline, Simulation, Variation},
};

/// The message for an answer that cannot be encoded.
const ENCODE: &str = "failed to encode the answer";

/// One case.
pub(super) struct Case {
    name: String,
    /// The directory, or the recording.
    path: PathBuf,
}

impl Case {
    /// Finds the cases in a directory, sorted by name: each directory with a `parent.yaml`, and each JSON file.
    pub(super) fn all(directory: &Path) -> Result<Vec<Self>, Failure> {
        let message = format!("failed to read the cases in {}", directory.display());
        let mut cases = Vec::new();
        for entry in fs::read_dir(directory).or_fail(Exit::Usage, &message)? {
            let path = entry.or_fail(Exit::Usage, &message)?.path();
            if is_recording(&path) || path.join("parent.yaml").is_file() {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                cases.push(Self { name, path });
            }
        }
        cases.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(cases)
    }

    /// Runs the pass and compares the answer. Returns the parent for the properties as well, unless the case has its
    /// own configuration or grants, or is a recording.
    pub(super) fn run(
        &self,
        plugin: (&Described, &Inspected),
        update: bool,
        streams: &mut Streams<'_>,
    ) -> Result<(TestResult, Option<Document>), Failure> {
        let (problem, parent) = if is_recording(&self.path) {
            (self.replay(plugin, update, streams)?, None)
        } else {
            self.pass(plugin, update, streams)?
        };
        let name = format!("case {}", self.name);
        Ok((TestResult { name, problem }, parent))
    }

    /// Repeats a recorded pass; returns the differences.
    fn replay(
        &self,
        (described, from): (&Described, &Inspected),
        update: bool,
        streams: &mut Streams<'_>,
    ) -> Result<Option<String>, Failure> {
        let mut recording = recordings::read(&self.path, streams)?;
        let at = self.path.display();
        let repeated = recordings::repeat(&recording, described, from)
            .or_fail_by(Failure::exit, format!("failed to repeat {at}"))?;
        let mut lines = repeated.differences(&recording);
        if lines.is_empty() {
            return Ok(None);
        }
        if update {
            repeated.becomes_expected(&mut recording);
            let text = serde_json::to_string(&recording).or_fail(Exit::Failure, ENCODE)?;
            write(&self.path, &(text + "\n"))?;
            return Ok(None);
        }
        lines.extend(repeated.unknown_reads());
        Ok(Some(unexpected(&lines, &self.path)))
    }

    /// Runs a pass from the files in the directory; returns the differences and the parent.
    fn pass(
        &self,
        (described, from): (&Described, &Inspected),
        update: bool,
        streams: &mut Streams<'_>,
    ) -> Result<(Option<String>, Option<Document>), Failure> {
        let file = |name: &str| Some(self.path.join(name)).filter(|path| path.exists());
        let files = Files::read(
            &render::Paths {
                parent: self.path.join("parent.yaml"),
                observed: file("observed").into_iter().collect(),
                config: file("config.yaml"),
                grants: file("grants.yaml"),
                hash_key: None,
            },
            streams,
        )?;
        let is_usual = file("config.yaml").is_none() && file("grants.yaml").is_none();
        let plugin = described.configure(&files.config, plugin_file::checker());
        let message = format!("failed to configure the plugin for the case {}", self.name);
        let plugin = plugin.or_fail_by(plugin_file::exit_for, message)?;
        let manifest = plugin.manifest();
        let limits = Limits::default();
        let call: &Call<'_> =
            &|request, reads, context| plugin.call(request, reads, context, &limits);
        let offline = Offline::new(manifest, files.grants.as_ref(), from, call)?;
        let inputs = render::given(files, 0, manifest, &offline.kinds, streams)?;
        let variation = Variation {
            phase: phase(&inputs.parent),
            now_ms: properties::NOW_MS,
            seed: 0,
            predict: false,
            simulation: Simulation::default(),
        };
        let passed = offline.pass(inputs.parent.clone(), inputs.others, variation)?;
        let problem = self.compare(&Value::Object(passed.answer.to_json()), update)?;
        // Without the observed objects, which would be wrong for another state of the parent.
        Ok((problem, is_usual.then_some(inputs.parent)))
    }

    fn compare(&self, answer: &Value, update: bool) -> Result<Option<String>, Failure> {
        let path = self.path.join("expect.yaml");
        let at = path.display();
        let expected = match fs::read_to_string(&path) {
            Ok(text) => {
                let mut values =
                    yaml::read(&text).or_fail(Exit::Usage, format!("failed to parse {at}"))?;
                values.pop().unwrap_or_default()
            }
            Err(_) => Value::Null,
        };
        let differences = diff::differences(&expected, answer);
        if differences.is_empty() {
            return Ok(None);
        }
        if update {
            let text = yaml::write(std::slice::from_ref(answer)).or_fail(Exit::Failure, ENCODE)?;
            write(&path, &text)?;
            return Ok(None);
        }
        Ok(Some(if expected.is_null() {
            format!("there is no expected answer: run again with --update, which writes {at}")
        } else {
            unexpected(&differences, &path)
        }))
    }
}

fn is_recording(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
        && path.is_file()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let message = format!("failed to write {}", path.display());
    fs::write(path, text).or_fail(Exit::Failure, message)
}

/// Returns the problem for a case whose expectation has these differences.
fn unexpected(differences: &[String], path: &Path) -> String {
    let at = path.display();
    let differences = differences.join("\n");
    format!("{differences}\nif this is right, run again with --update, which writes {at}")
}

fn phase(parent: &Document) -> Phase {
    match parent.metadata("deletionTimestamp") {
        Some(_) => Phase::Finalize,
        None => Phase::Reconcile,
    }
}
