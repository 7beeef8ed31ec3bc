//! The process that runs a target. An input that overflows the stack, exhausts the memory or never ends is reported as a
//! named failure, and the suite continues.
//!
//! The process is this test binary again: the test `worker::inputs_that_end_their_process_are_named` serves a socket if
//! the environment names one.

use std::{
    any::Any,
    env, fs,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    panic::catch_unwind,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tempfile::TempDir;

/// Judges one input: returns for each check whether the input reached the end, or panics.
pub(super) type Check = fn(&[u8]) -> Vec<bool>;

/// The stack size for the thread that runs a target, equal to the host's threads.
const STACK_BYTES: usize = 2 << 20;
/// The longest CPU time for one input; most inputs take less than a millisecond.
const TIME_MAX: Duration = Duration::from_secs(5);
/// When an input counts as endless. Twelve times [`TIME_MAX`], because a busy machine gives a thread less than a whole
/// processor.
const PATIENCE: Duration = Duration::from_mins(1);
/// The most memory that one input with at most [`BYTES_MAX`](super::edits::BYTES_MAX) bytes may add to the process.
const GROWTH_MAX: u64 = 256 << 20;
/// Address space that an allocator may reserve without using it: two glibc arenas.
const RESERVE: u64 = 256 << 20;

/// The socket and the target for a worker process, separated by a space.
const SERVE: &str = "INNKEEPER_FUZZ_WORKER";
/// The test that serves.
const TEST: &str = "worker::inputs_that_end_their_process_are_named";

/// A target in a separate process, which restarts after an input that ended it.
pub(super) struct Worker {
    target: &'static str,
    process: Mutex<Option<Process>>,
}

struct Process {
    child: Child,
    stream: UnixStream,
    /// Holds the socket, and the standard error as a file: nobody reads a pipe while the process works.
    directory: TempDir,
}

impl Worker {
    pub(super) const fn new(target: &'static str) -> Self {
        Self {
            target,
            process: Mutex::new(None),
        }
    }

    /// Runs the target on an input. Returns which checks reached the end, or the problem.
    pub(super) fn check(&self, input: &[u8]) -> Result<Vec<bool>, String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let mut serving = process
            .take()
            .unwrap_or_else(|| Process::start(self.target));
        match serving.ask(input) {
            Ok(answer) => {
                *process = Some(serving);
                match answer.split_first() {
                    Some((0, reached)) => Ok(reached.iter().map(|byte| *byte == 1).collect()),
                    _ => Err(String::from_utf8_lossy(&answer[1..]).into_owned()),
                }
            }
            Err(error) => Err(serving.end(error.kind())),
        }
    }
}

impl Process {
    fn start(target: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let errors = fs::File::create(directory.path().join("stderr")).unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(SERVE, format!("{} {target}", path.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            child,
            stream,
            directory,
        }
    }

    fn ask(&mut self, input: &[u8]) -> std::io::Result<Vec<u8>> {
        send(&mut self.stream, input)?;
        receive(&mut self.stream)
    }

    /// Stops the process and returns why it did not answer.
    fn end(mut self, kind: ErrorKind) -> String {
        if matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            drop(self.child.kill());
            drop(self.child.wait());
            return format!("not done after {PATIENCE:?}");
        }
        let status = self.child.wait().unwrap();
        let bytes = fs::read(self.directory.path().join("stderr")).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&bytes);
        let why = stderr
            .lines()
            .rev()
            .find(|line| {
                ["has overflowed its stack", "memory allocation of"]
                    .iter()
                    .any(|cause| line.contains(cause))
            })
            .unwrap_or("without a message");
        // 24 is SIGXCPU on every platform that has it.
        if status.to_string().contains("signal: 24") {
            return format!("more than {TIME_MAX:?} of CPU time");
        }
        format!("the process ended: {why} ({status})")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn send(stream: &mut UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(bytes)
}

fn receive(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Serves the parent until it closes the socket.
fn serve(path: &str, check: Check) {
    let no_core = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, no_core).unwrap();
    let mut stream = UnixStream::connect(path).unwrap();
    let serving = thread::Builder::new()
        .name("target".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            while let Ok(input) = receive(&mut stream) {
                let answer = match judge(check, &input) {
                    Ok(reached) => {
                        let reached = reached.into_iter().map(u8::from);
                        std::iter::once(0).chain(reached).collect()
                    }
                    Err(problem) => [&[1], problem.as_bytes()].concat(),
                };
                if send(&mut stream, &answer).is_err() {
                    return;
                }
            }
        });
    serving.unwrap().join().unwrap();
}

/// Makes the kernel stop the process at twice the limits, before an input exhausts the machine.
fn limit() {
    let soften = |resource, current| {
        let maximum = getrlimit(resource).maximum;
        let current = Some(maximum.map_or(current, |maximum| maximum.min(current)));
        setrlimit(resource, Rlimit { current, maximum }).unwrap();
    };
    soften(Resource::As, status_bytes("VmSize:") + GROWTH_MAX + RESERVE);
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec;
    soften(
        Resource::Cpu,
        u64::try_from(used).unwrap() + TIME_MAX.as_secs() + 1,
    );
}

fn judge(check: Check, input: &[u8]) -> Result<Vec<bool>, String> {
    limit();
    forget_peak();
    let begun = cpu_time();
    let before = status_bytes("VmHWM:");
    let reached =
        catch_unwind(|| check(input)).map_err(|panic| format!("a panic: {}", message(&*panic)))?;
    let took = cpu_time().saturating_sub(begun);
    let grew = status_bytes("VmHWM:").saturating_sub(before);
    if took > TIME_MAX {
        return Err(format!("{} bytes took {took:?}", input.len()));
    }
    if grew > GROWTH_MAX {
        return Err(format!("{} bytes took {grew} bytes", input.len()));
    }
    Ok(reached)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// This thread's CPU time: wall time depends on what else the machine does.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Lowers the recorded peak to the current use, if the kernel allows it; otherwise an earlier peak hides smaller ones.
fn forget_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// Reads a byte count from this process's status.
fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap()
        << 10
}

/// Misbehaves as the input demands.
pub(super) fn misbehave(input: &[u8]) -> Vec<bool> {
    fn recurse(levels: u64) -> u64 {
        // The array keeps the compiler from making a loop.
        let frame = std::hint::black_box([levels; 64]);
        if levels == 0 {
            0
        } else {
            recurse(levels - 1) + frame[7]
        }
    }
    match input {
        b"stack" => drop(std::hint::black_box(recurse(1 << 20))),
        b"panic" => panic!("on purpose"),
        b"time" => loop {
            std::hint::black_box(0);
        },
        b"memory" => drop(std::hint::black_box(vec![1_u8; 1 << 30])),
        b"growth" => drop(std::hint::black_box(vec![1_u8; 300 << 20])),
        _ => {}
    }
    vec![true]
}

/// Serves the parent, if there is one; see the module.
#[expect(
    clippy::disallowed_methods,
    reason = "the parent of this process names its socket"
)]
fn serves_parent() -> bool {
    let Ok(order) = env::var(SERVE) else {
        return false;
    };
    let (path, target) = order.split_once(' ').unwrap();
    serve(path, super::check_of(target));
    true
}

#[test]
fn inputs_that_end_their_process_are_named() {
    if serves_parent() {
        return;
    }
    let worker = Worker::new("misbehave");
    for (input, problem) in [
        ("stack", "has overflowed its stack"),
        ("panic", "a panic: on purpose"),
        ("time", "more than 5s of CPU time"),
        ("memory", "memory allocation of 1073741824 bytes failed"),
        ("growth", "6 bytes took 3"),
        // An earlier input must not hide the memory use of a later one.
        ("growth", "6 bytes took 3"),
    ] {
        let error = worker.check(input.as_bytes()).unwrap_err();
        assert!(error.contains(problem), "{input}: {error}");
        assert_eq!(worker.check(b"none"), Ok(vec![true]), "after {input}");
    }
}
