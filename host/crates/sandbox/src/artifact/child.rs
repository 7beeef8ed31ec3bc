//! The process that compiles one plugin, or checks one configuration: it limits and confines itself, reads from
//! standard input, and writes native code or the configuration's problems to standard output.
//!
//! If the compiler breaks down or takes too much, this process ends and not the host. It knows no file, no cluster and
//! no cache.

use std::{
    fs,
    io::{self, Read, Write},
    num::NonZeroUsize,
};

use rayon::ThreadPoolBuilder;
use rustix::{
    process::{
        Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
    },
    thread::set_no_new_privs,
};

use innkeeper_crd::config;

use super::{
    config::ConfigCheck,
    confinement::{self, Confinement},
};
use crate::{Metering, engine};

/// Open files: the standard streams, one or two for a moment, and some to spare.
const DESCRIPTORS_MAX: u64 = 16;
/// Seconds between SIGXCPU at the CPU time limit, which tells the host the reason, and SIGKILL, which cannot be
/// ignored.
const CPU_SECONDS_EXTRA: u64 = 2;
/// The highest score: the kernel ends this process first when memory is short.
const OOM_SCORE: &[u8] = b"1000";

/// The exit code if the compiler refused the component or a configuration schema.
/// Not 2: an unusable command line ends with 2, and that is no verdict on the component.
const REFUSED: u8 = 3;
/// The exit code if the process failed to write code to the host's file.
pub(super) const UNWRITTEN: u8 = 4;
/// The exit code for all other failures.
const FAILED: u8 = 1;

/// Bounds on the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildBounds {
    /// Address space, in bytes.
    pub memory_bytes_max: u64,
    /// CPU time, in seconds.
    pub cpu_seconds_max: u64,
    /// The compiled code's size, in bytes.
    pub code_bytes_max: u64,
    /// The host's process ID; this process ends with the host.
    pub host_process: Option<u32>,
}

/// The process's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildTask {
    /// It compiles a component.
    Compile {
        /// Compiler threads.
        threads: NonZeroUsize,
        /// True if the engine that will run the code counts fuel.
        fuel: bool,
    },
    /// It checks a configuration against a schema.
    CheckConfig,
}

/// An error in the compiling process.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The compiling process cannot lower its own limits.
    #[error("failed to set the limits of this process")]
    Limit(#[source] io::Error),
    /// The compiling process ends with the host that started it.
    #[error("the host that started this process has ended")]
    Orphaned,
    /// The process was not confined.
    #[error(transparent)]
    Confine(#[from] confinement::Error),
    /// The input did not arrive from the host.
    #[error("failed to read standard input")]
    Read(#[source] io::Error),
    /// A configuration schema does not compile.
    #[error(transparent)]
    Schema(config::Refusal),
    /// The operating system gave no thread.
    #[error("failed to start the threads that compile")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The compiler refused the settings.
    #[error("failed to set up the compiler")]
    Engine(#[source] wasmtime::Error),
    /// The compiler refused the component.
    #[error(transparent)]
    Compile(wasmtime::Error),
    /// The compiled code did not reach the host.
    #[error("failed to write the compiled code")]
    Write(#[source] io::Error),
}

impl ChildError {
    /// The process's exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Compile(_) | Self::Schema(_) => REFUSED,
            Self::Write(_) => UNWRITTEN,
            _ => FAILED,
        }
    }
}

/// Returns true if an exit code means that the compiler refused the component or the schema.
pub(super) fn is_refusal(code: i32) -> bool {
    code == i32::from(REFUSED)
}

/// Limits and confines this process, calls `confined`, and does the work with `input` whose result goes to `output`.
/// Must run before any other thread.
pub fn child(
    bounds: ChildBounds,
    task: ChildTask,
    input: &mut dyn Read,
    output: &mut dyn Write,
    confined: &mut dyn FnMut(Confinement),
) -> Result<(), ChildError> {
    limit(&bounds).map_err(ChildError::Limit)?;
    // The host may have died before this process asked for a signal at the host's death: then it never comes.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    if bounds.host_process.is_some_and(|host| parent != Some(host)) {
        return Err(ChildError::Orphaned);
    }
    // Before the input is read, and written at once: if the process is stopped later, this line shows the host that the
    // input is the cause.
    confined(Confinement::enforce()?);
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(ChildError::Read)?;
    let result = match task {
        ChildTask::Compile { threads, fuel } => compile(&bytes, threads, fuel)?,
        ChildTask::CheckConfig => check_config(&bytes)?,
    };
    output
        .write_all(&result)
        .and_then(|()| output.flush())
        .map_err(ChildError::Write)
}

fn compile(bytes: &[u8], threads: NonZeroUsize, fuel: bool) -> Result<Vec<u8>, ChildError> {
    let metering = if fuel {
        Metering::Fuel
    } else {
        Metering::Epochs
    };
    // Wasmtime compiles in rayon's global pool, which would have a thread for each processor.
    ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build_global()
        .map_err(ChildError::Threads)?;
    let engine = engine::compiler(metering).map_err(ChildError::Engine)?;
    engine
        .precompile_component(bytes)
        .map_err(ChildError::Compile)
}

/// Returns a configuration's problems as JSON.
fn check_config(bytes: &[u8]) -> Result<Vec<u8>, ChildError> {
    let ConfigCheck { schema, config } =
        serde_json::from_slice(bytes).map_err(|error| ChildError::Read(error.into()))?;
    let problems = config::problems(&schema, &config).map_err(ChildError::Schema)?;
    serde_json::to_vec(&problems).map_err(|error| ChildError::Write(error.into()))
}

fn limit(bounds: &ChildBounds) -> io::Result<()> {
    let ChildBounds {
        memory_bytes_max: memory,
        cpu_seconds_max: cpu,
        code_bytes_max: code,
        host_process: _,
    } = *bounds;
    // First, while there is enough address space. Most systems allow a process to raise its own score. If not, the
    // kernel ends the largest process, which is a compiler that needs too much; so the error is ignored.
    drop(fs::write("/proc/self/oom_score_adj", OOM_SCORE));
    for (resource, current, maximum) in [
        (Resource::Core, 0, 0),
        (Resource::Nofile, DESCRIPTORS_MAX, DESCRIPTORS_MAX),
        (Resource::Fsize, code, code),
        (Resource::Cpu, cpu, cpu.saturating_add(CPU_SECONDS_EXTRA)),
        (Resource::As, memory, memory),
    ] {
        // A lower limit that is already set stays.
        let present = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit {
            current: Some(current.min(present)),
            maximum: Some(maximum.min(present)),
        };
        setrlimit(resource, limit)?;
    }
    // Without the host nothing would read the result.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Without this, the kernel takes filters from privileged processes only.
    set_no_new_privs(true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_of_a_configuration_answers_with_its_problems() {
        for (schema, config, expected) in [
            (r#"{"type": "object"}"#, "{}", "[]"),
            (
                r#"{"additionalProperties": {"type": "integer"}}"#,
                r#"{"a": 1, "b": true}"#,
                r#"["/b: true is not of type \"integer\""]"#,
            ),
        ] {
            let input = format!("{{\"schema\": {schema}, \"config\": {config}}}");
            let output = check_config(input.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
        let error =
            check_config(br#"{"schema": {"properties": {"a": {"pattern": "("}}}, "config": {}}"#);
        assert_eq!(error.unwrap_err().exit_code(), REFUSED);
        assert_eq!(check_config(b"{").unwrap_err().exit_code(), FAILED);
    }
}
