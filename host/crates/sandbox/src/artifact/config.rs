//! Checks configurations in the confined process. Strangers write schemas and configurations: a short schema can have
//! large compiled patterns, and a short configuration can take long to check.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek},
    num::NonZeroU32,
    time::Duration,
};

use innkeeper_model::{Digest, Manifest};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    CompileBounds, CompileVerdict, Program,
    process::{ProcessEnd, in_memory, run_confined},
};
use crate::{Error, semaphore::Semaphore};

/// The bounds on a check. The configurations in this repository take milliseconds and 20 MiB.
const BOUNDS: CompileBounds = CompileBounds {
    // Few, because each may take all the memory, and more than one, because one may wait for CPU time.
    processes_max: NonZeroU32::MIN.saturating_add(1),
    memory_bytes_max: 256 << 20,
    cpu_seconds_max: 5,
    // Ten problems with 500 characters each.
    code_bytes_max: 64 << 10,
    // As for a compiler: a throttled node must not fail innocent configurations.
    wall_max: Duration::from_mins(2),
    // The caller retries, with backoff.
    retries_max: 0,
};

/// Valid configurations that are remembered: more than a host has Plugins.
const REMEMBERED_MAX: usize = 4096;

/// The process's input.
#[derive(Serialize, Deserialize)]
pub(super) struct ConfigCheck<'a> {
    pub(super) schema: Cow<'a, Value>,
    pub(super) config: Cow<'a, Value>,
}

/// Checks configurations against plugin schemas, each in a separate confined process.
pub struct ConfigChecker {
    program: Program,
    bounds: CompileBounds,
    processes: Semaphore,
    /// The revisions with a valid configuration.
    valid: Mutex<BTreeSet<Digest>>,
}

impl ConfigChecker {
    /// Creates a checker whose processes run a program.
    pub fn new(program: Program) -> Self {
        Self::with_bounds(program, BOUNDS)
    }

    /// Creates a checker with other bounds.
    pub(crate) fn with_bounds(program: Program, bounds: CompileBounds) -> Self {
        Self {
            program,
            processes: bounds.permits(),
            bounds,
            valid: Mutex::default(),
        }
    }

    /// Checks a revision's configuration; with no schema, only `{}` fits. Starts no process without a schema, nor for a
    /// configuration that was valid before.
    ///
    /// Blocks until the process has ended: usually 20 ms, and at most two minutes after those before it.
    pub(crate) fn check(
        &self,
        manifest: &Manifest,
        revision: &Digest,
        config: &Map<String, Value>,
    ) -> Result<(), Error> {
        let Some(schema) = &manifest.config_schema else {
            if config.is_empty() {
                return Ok(());
            }
            let problem = "this plugin takes no configuration: leave it out";
            return Err(invalid(manifest, vec![problem.to_owned()]));
        };
        // A revision covers bytes and configuration, so the result stays the same.
        if self.valid.lock().contains(revision) {
            return Ok(());
        }
        let config = Value::Object(config.clone());
        let problems = self.problems(manifest, schema, &config)?;
        if !problems.is_empty() {
            return Err(invalid(manifest, problems));
        }
        let mut valid = self.valid.lock();
        if valid.len() >= REMEMBERED_MAX {
            // A configuration that is forgotten costs one process more.
            valid.clear();
        }
        valid.insert(revision.clone());
        Ok(())
    }

    /// Compiles a plugin's schema, as a check does, without a configuration.
    pub(crate) fn check_schema(&self, manifest: &Manifest) -> Result<(), Error> {
        let Some(schema) = &manifest.config_schema else {
            return Ok(());
        };
        // An empty configuration's problems say nothing about the schema.
        let empty = Value::Object(Map::new());
        self.problems(manifest, schema, &empty).map(drop)
    }

    /// Returns a configuration's problems, from one process.
    fn problems(
        &self,
        manifest: &Manifest,
        schema: &Value,
        config: &Value,
    ) -> Result<Vec<String>, Error> {
        let plugin = || manifest.name.to_string();
        let failed = |source| Error::CheckConfig {
            plugin: plugin(),
            source,
        };
        let schema = Cow::Borrowed(schema);
        let config = Cow::Borrowed(config);
        let input = serde_json::to_vec(&ConfigCheck { schema, config })
            .map_err(|error| failed(error.into()))?;
        let mut output = in_memory("problems").map_err(failed)?;
        let stdout = output.try_clone().map_err(failed)?;
        let permit = self.processes.acquire(1);
        let arguments = vec!["--config".to_owned()];
        let outcome = run_confined(&self.program, &self.bounds, arguments, &input, stdout);
        drop(permit);
        let limit = match outcome.map_err(failed)? {
            ProcessEnd::Success { .. } => return self.read(&mut output).map_err(failed),
            ProcessEnd::Unwritten(last_line) => return Err(failed(io::Error::other(last_line))),
            ProcessEnd::Killed(cause) => {
                let cause =
                    format!("its process was killed {cause}: give the host more CPU or memory");
                return Err(failed(io::Error::other(cause)));
            }
            ProcessEnd::Found(CompileVerdict::Refused(problem)) => {
                return Err(Error::ConfigSchema {
                    plugin: plugin(),
                    problem,
                });
            }
            ProcessEnd::Found(CompileVerdict::Cpu(seconds)) => {
                format!("more than {seconds} s of CPU time")
            }
            ProcessEnd::Found(CompileVerdict::Memory(bytes)) => {
                format!("more than {} MiB of memory", bytes >> 20)
            }
            ProcessEnd::Found(CompileVerdict::Code(bytes)) => {
                format!("more than {bytes} bytes of output")
            }
            ProcessEnd::Found(CompileVerdict::Broke(last_line)) => {
                format!("more than its process survives ({last_line})")
            }
            ProcessEnd::Found(CompileVerdict::ReachedOut) => {
                "a forbidden system call, which no harmless schema causes".to_owned()
            }
        };
        Err(Error::ConfigLimit {
            plugin: plugin(),
            limit,
        })
    }

    fn read(&self, output: &mut File) -> io::Result<Vec<String>> {
        let mut text = Vec::new();
        output.rewind()?;
        output
            .take(self.bounds.code_bytes_max)
            .read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

fn invalid(manifest: &Manifest, problems: Vec<String>) -> Error {
    Error::Config {
        plugin: manifest.name.to_string(),
        problems,
    }
}
