//! Attempts to leave a confined process. The test program starts itself again for each: nothing ends a confinement.

use std::{
    env,
    fs::File,
    io::{self, Read},
    net::TcpStream,
    num::NonZeroUsize,
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
};

use rustix::process::{Pid, Signal, test_kill_process};

use super::*;
use crate::{
    artifact::{ChildBounds, ChildError, ChildTask, child},
    testing::guest,
};

/// The argument that names the attempt. Test programs take it for another test's name.
const ATTEMPT: &str = "attempt=";

const BOUNDS: ChildBounds = ChildBounds {
    memory_bytes_max: 4 << 30,
    cpu_seconds_max: 30,
    code_bytes_max: 64 << 20,
    host_process: None,
};

const TASK: ChildTask = ChildTask::Compile {
    threads: NonZeroUsize::MIN.saturating_add(1),
    fuel: false,
};

fn opens_a_file() -> io::Result<()> {
    File::open("/etc/passwd").map(drop)
}

/// No server listens there, so that the error tells whether the network was reached.
fn connects() -> io::Result<()> {
    TcpStream::connect("127.0.0.1:9").map(drop)
}

fn starts_a_program() -> io::Result<()> {
    Command::new("/bin/true").status().map(drop)
}

fn signals_another_process() -> io::Result<()> {
    let first = Pid::from_raw(1).unwrap();
    Ok(test_kill_process(first)?)
}

/// Makes an attempt when it is read.
struct Attempt(fn() -> io::Result<()>);

impl Read for Attempt {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        (self.0)().map(|()| 0)
    }
}

/// The compiling process makes the attempt where it reads the input.
fn attempt(attempt: fn() -> io::Result<()>) {
    let mut confined = |confinement| println!("{confinement}");
    match child(
        BOUNDS,
        TASK,
        &mut Attempt(attempt),
        &mut io::sink(),
        &mut confined,
    ) {
        Err(ChildError::Read(error)) => println!("refused: {error}"),
        ended => println!("not refused: {ended:?}"),
    }
}

/// The same with Landlock alone.
fn attempt_under_landlock(attempt: fn() -> io::Result<()>) {
    let version = restrict_files().unwrap();
    println!("{version:?}: {}", attempt().unwrap_err());
}

fn compile() {
    let mut code = Vec::new();
    let mut confined = |confinement| println!("{confinement}");
    child(
        BOUNDS,
        TASK,
        &mut guest().build().as_slice(),
        &mut code,
        &mut confined,
    )
    .unwrap();
    println!("compiled: {}", !code.is_empty());
}

/// Compiles under a container profile that answers a call in this way.
fn compile_under(call: i64, answer: SeccompAction) {
    let arch = TargetArch::try_from(ARCH).unwrap();
    let rules = BTreeMap::from([(call, Vec::new())]);
    let profile = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).unwrap();
    let profile = BpfProgram::try_from(profile).unwrap();
    seccompiler::apply_filter_all_threads(&profile).unwrap();
    compile();
}

/// The other tests run this one in a separate process, and it does nothing otherwise.
#[test]
fn inside() {
    let named = |argument: String| argument.strip_prefix(ATTEMPT).map(str::to_owned);
    match env::args().find_map(named).as_deref() {
        Some("file") => attempt(opens_a_file),
        Some("connection") => attempt(connects),
        Some("program") => attempt(starts_a_program),
        Some("signal") => attempt(signals_another_process),
        Some("file under Landlock") => attempt_under_landlock(opens_a_file),
        Some("connection under Landlock") => attempt_under_landlock(connects),
        Some("compile") => compile(),
        Some("compile without seccomp") => {
            let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
            compile_under(libc::SYS_seccomp, refused);
        }
        Some("compile where Landlock kills") => {
            compile_under(
                libc::SYS_landlock_create_ruleset,
                SeccompAction::KillProcess,
            );
        }
        _ => {}
    }
}

fn run(attempt: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("artifact::confinement::tests::inside")
        .arg(format!("{ATTEMPT}{attempt}"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// This kernel's Landlock version.
fn landlock() -> Option<u32> {
    let output = said(&run("compile"));
    let (_, version) = output.split_once("Landlock V")?;
    version.split(',').next()?.parse().ok()
}

#[test]
fn a_confined_process_compiles() {
    let output = run("compile");
    assert!(
        said(&output).contains(", seccomp\ncompiled: true"),
        "{output:?}"
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_part_of_the_filters_is_told_apart_from_none() {
    let expected = [", no seccomp", ", a part of seccomp", ", seccomp"];
    for (filters, expected) in expected.into_iter().enumerate() {
        let landlock = None;
        let line = Confinement { landlock, filters }.to_string();
        assert_eq!(line, format!("confined: no Landlock{expected}"));
    }
}

#[test]
fn a_process_compiles_where_a_profile_refuses_filters() {
    let output = run("compile without seccomp");
    let expected = ", no seccomp\ncompiled: true";
    assert!(said(&output).contains(expected), "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

/// The host can tell this from a process that reached outside.
#[test]
fn a_process_that_is_killed_while_it_confines_itself_does_not_claim_to_be_confined() {
    let output = run("compile where Landlock kills");
    let stopped = Some(Signal::SYS.as_raw());
    assert_eq!(output.status.signal(), stopped, "{output:?}");
    assert!(!said(&output).contains(CONFINED), "{output:?}");
}

#[test]
fn a_confined_process_opens_no_file() {
    let output = run("file");
    let expected = "refused: Function not implemented";
    assert!(said(&output).contains(expected), "{output:?}");
}

#[test]
fn a_process_that_reaches_out_is_stopped() {
    for attempt in ["connection", "program", "signal"] {
        let output = run(attempt);
        let stopped = Some(Signal::SYS.as_raw());
        assert_eq!(output.status.signal(), stopped, "{attempt}: {output:?}");
        // The host takes it for the component's fault.
        assert!(said(&output).contains(CONFINED), "{attempt}: {output:?}");
    }
}

/// Kernels enforce what they know: files from the first version on, TCP from the fourth.
#[test]
fn landlock_refuses_files_and_connections() {
    let version = landlock();
    for (attempt, since, otherwise) in [
        ("file under Landlock", 1, "called `Result::unwrap_err()`"),
        ("connection under Landlock", 4, "Connection refused"),
    ] {
        let output = run(attempt);
        let expected = if version >= Some(since) {
            "Permission denied"
        } else {
            otherwise
        };
        let all = said(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(all.contains(expected), "{version:?} {attempt}: {output:?}");
    }
}
