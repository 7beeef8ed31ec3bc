//! Cases: directories with the input of a pass and the expected answer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use innkeeper_model::{Limits, Phase, yaml};
use innkeeper_sandbox::Described;
use serde_json::Value;

use super::{TestResult, properties};
use crate::{
    config::{Exit, Inspected, Streams},
    diff,
    document::Document,
    failure::{Failure, OrFail as _},
    render::{self, Call, Files, Offline, Turn, World},
};

/// One case.
pub(super) struct Case {
    name: String,
    directory: PathBuf,
}

impl Case {
    /// Finds the cases below a directory, sorted by name: each directory with a `parent.yaml`.
    pub(super) fn all(directory: &Path) -> Result<Vec<Self>, Failure> {
        let message = format!("failed to read the cases in {}", directory.display());
        let mut cases = Vec::new();
        for entry in fs::read_dir(directory).or_fail(Exit::Usage, &message)? {
            let path = entry.or_fail(Exit::Usage, &message)?.path();
            if path.join("parent.yaml").is_file() {
                let name = path.file_name().unwrap_or_default();
                cases.push(Self {
                    name: name.to_string_lossy().into_owned(),
                    directory: path,
                });
            }
        }
        cases.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(cases)
    }

    /// Runs the pass and compares the answer. Returns the parent for the properties as well, unless the case has a
    /// configuration or grants of its own. Its observed objects would be wrong for another state of the parent.
    pub(super) fn run(
        &self,
        described: &Described,
        update: bool,
        streams: &mut Streams<'_>,
    ) -> Result<(TestResult, Option<Document>), Failure> {
        let file = |name: &str| Some(self.directory.join(name)).filter(|path| path.exists());
        let files = Files::read(
            &render::Paths {
                parent: self.directory.join("parent.yaml"),
                observed: file("observed").into_iter().collect(),
                config: file("config.yaml"),
                grants: file("grants.yaml"),
                hash_key: None,
            },
            streams,
        )?;
        let is_usual = file("config.yaml").is_none() && file("grants.yaml").is_none();
        let plugin = described.configure(&files.config);
        let message = format!("failed to configure the plugin for the case {}", self.name);
        let plugin = plugin.or_fail_by(Exit::of_plugin, message)?;
        let manifest = plugin.manifest();
        let limits = Limits::default();
        let from = Inspected::File(self.directory.clone());
        let call: &Call<'_> =
            &|request, reads, context| plugin.call(request, reads, context, &limits);
        let offline = Offline::new(manifest, files.grants.as_ref(), &from, call)?;
        let given = render::given(files, 0, manifest, &offline.kinds, streams)?;
        let turn = Turn {
            phase: phase(&given.parent),
            now_ms: properties::NOW_MS,
            seed: 0,
            world: World::default(),
        };
        let passed = offline.pass(given.parent.clone(), given.others, turn)?;
        let problem = self.compare(&Value::Object(passed.said.to_json()), update)?;
        let result = TestResult {
            name: format!("case {}", self.name),
            problem,
        };
        Ok((result, is_usual.then_some(given.parent)))
    }

    fn compare(&self, answer: &Value, update: bool) -> Result<Option<String>, Failure> {
        let path = self.directory.join("expect.yaml");
        let at = path.display();
        let expected = match fs::read_to_string(&path) {
            Ok(text) => {
                let mut values =
                    yaml::read(&text).or_fail(Exit::Usage, format!("failed to parse {at}"))?;
                values.pop().unwrap_or_default()
            }
            Err(_) => Value::Null,
        };
        let differences = diff::of(&expected, answer);
        if differences.is_empty() {
            return Ok(None);
        }
        if update {
            let text = yaml::write(std::slice::from_ref(answer))
                .or_fail(Exit::Failure, "failed to encode the answer")?;
            fs::write(&path, text).or_fail(Exit::Failure, format!("failed to write {at}"))?;
            return Ok(None);
        }
        let remedy = format!("if this is right, run again with --update, which writes {at}");
        Ok(Some(if expected.is_null() {
            format!("there is no expected answer: run again with --update, which writes {at}")
        } else {
            format!("{}\n{remedy}", differences.join("\n"))
        }))
    }
}

fn phase(parent: &Document) -> Phase {
    match parent.metadata("deletionTimestamp") {
        Some(_) => Phase::Finalize,
        None => Phase::Reconcile,
    }
}
