//! The process that compiles plugins: it limits and confines itself before it reads the input, and a component that exhausts
//! the compiler ends that process only.

#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use innkeeper_tests::{
    Host, HostOptions, astray, eventually,
    host::wait_logged,
    process::{bound, path_from_env, spawn_bound},
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::files::KUBECONFIG;

/// Limits that every ordinary component stays within.
const MEMORY: &str = "--memory-bytes-max=2147483648";
const CPU: &str = "--cpu-seconds-max=30";
const CODE: &str = "--code-bytes-max=536870912";

fn host() -> PathBuf {
    path_from_env("INNKEEPER_BIN").expect("the host is built")
}

fn guest(name: &str) -> PathBuf {
    path_from_env("INNKEEPER_TEST_GUESTS")
        .expect("the guests are built")
        .join(format!("{name}.wasm"))
}

/// A child process; dropping the value kills it.
struct Process(Child);

impl Process {
    fn status(&self) -> String {
        fs::read_to_string(self.path("status")).expect("a process has a status")
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string()).join(name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The system call filter count in a process's status.
fn filters(status: &str) -> u32 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn the_compiler_limits_and_confines_itself_before_it_reads_its_input() {
    let mut command = Command::new(host());
    command
        .args(["compile", MEMORY, CPU, CODE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let process = Process(command.spawn().unwrap());
    // The second filter is the last step before the process reads the input, which never arrives here. In a
    // container, it also has this test's filters.
    let expected = filters(&fs::read_to_string("/proc/self/status").unwrap()) + 2;
    eventually("it confines itself", || match process.status() {
        status if filters(&status) == expected => Ok(()),
        status => Err(status),
    });
    assert!(process.status().contains("NoNewPrivs:\t1"));
    let limits = fs::read_to_string(process.path("limits")).unwrap();
    for (limit, soft) in [
        ("Max cpu time", "30 "),
        ("Max file size", "536870912 "),
        ("Max core file size", "0 "),
        ("Max address space", "2147483648 "),
    ] {
        let value = limits
            .lines()
            .find(|line| line.starts_with(limit))
            .unwrap()
            .split_at(limit.len())
            .1
            .trim_start();
        assert!(value.starts_with(soft), "{limits}");
    }
    let score = fs::read_to_string(process.path("oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "1000");
}

/// A process's open file descriptors.
fn descriptors(process: u32) -> Vec<String> {
    let mut open: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    open.sort();
    open
}

fn compile(bytes: &[u8], bounds: [&str; 3]) -> Output {
    let mut command = Command::new(host());
    command.arg("compile").args(bounds);
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let output = tempfile::NamedTempFile::new().unwrap();
    command.stdin(input).stdout(output.reopen().unwrap());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let status = child.wait().unwrap();
    let mut stderr = Vec::new();
    std::io::Read::read_to_end(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    Output {
        status,
        stdout: fs::read(output.path()).unwrap(),
        stderr,
    }
}

#[track_caller]
fn check_killed(status: ExitStatus, signal: Signal) {
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    assert!(!status.core_dumped());
}

#[test]
fn the_compiler_ends_at_its_cpu_limit() {
    let output = compile(&astray::wants_time(), [MEMORY, "--cpu-seconds-max=1", CODE]);
    check_killed(output.status, Signal::XCPU);
}

#[test]
fn the_compiler_ends_at_its_memory_limit() {
    let output = compile(
        &astray::wants_memory(),
        ["--memory-bytes-max=536870912", CPU, CODE],
    );
    check_killed(output.status, Signal::ABORT);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("memory allocation of"), "{words}");
}

#[test]
fn the_compiler_ends_when_its_code_is_too_large() {
    let bytes = fs::read(guest("garbage")).unwrap();
    let output = compile(&bytes, [MEMORY, CPU, "--code-bytes-max=4096"]);
    check_killed(output.status, Signal::XFSZ);
    assert_eq!(output.stdout.len(), 4096);
}

#[test]
fn the_compiler_tells_a_full_disk_from_a_bad_component() {
    let bytes = fs::read(guest("garbage")).unwrap();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(host());
    command
        .args(["compile", MEMORY, CPU, CODE])
        .stdin(Stdio::piped())
        .stdout(full)
        .stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(4));
}

#[test]
fn the_compiler_reports_why_it_refuses_a_component() {
    let output = compile(b"no component", [MEMORY, CPU, CODE]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    let mut lines = words.lines();
    assert!(lines.next().unwrap().starts_with("confined: "), "{words}");
    assert!(lines.next().unwrap().starts_with("error: "), "{words}");
    assert_eq!(output.stdout, b"");
}

/// A host with one plugin and without an API server.
struct Case {
    directory: TempDir,
    options: HostOptions,
}

impl Case {
    fn new(bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let plugin = directory.path().join("plugin.wasm");
        fs::write(&plugin, bytes).unwrap();
        fs::write(directory.path().join("kubeconfig"), KUBECONFIG).unwrap();
        let options = HostOptions {
            plugins: vec![plugin],
            cache: Some(directory.path().join("cache")),
            ..HostOptions::default()
        };
        Self { directory, options }
    }

    fn start(&self) -> Host {
        Host::start(&self.directory.path().join("kubeconfig"), &self.options).unwrap()
    }

    fn cached_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.directory.path().join("cache")) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension()
        .is_some_and(|extension| extension == ending)
}

#[test]
fn a_host_caches_compiled_code_read_only() {
    let case = Case::new(&fs::read(guest("garbage")).unwrap());
    let host = case.start();
    let code = eventually("the plugin is compiled", || {
        case.cached_files()
            .into_iter()
            .find(|path| has_ending(path, "cwasm"))
            .ok_or_else(|| host.log().unwrap())
    });
    wait_logged(&host, "the host logs the confinement", ", seccomp");
    let mode = fs::metadata(code).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn a_host_refuses_a_component_that_exhausts_the_compiler_and_caches_the_verdict() {
    let case = Case::new(&astray::wants_memory());
    let mut found_at = Vec::new();
    for _ in 0..2 {
        let mut host = case.start();
        let (status, log) = host.wait_exit(Duration::from_mins(2)).unwrap();
        assert_eq!(status.code(), Some(2), "{log}");
        for part in [
            "plugin is not served",
            "compiling the component takes more than",
            "make it smaller",
        ] {
            assert!(log.contains(part), "{log}");
        }
        let files = case.cached_files();
        let [verdict] = &*files else {
            panic!("{files:?}");
        };
        assert!(has_ending(verdict, "refused"), "{files:?}");
        found_at.push(fs::metadata(verdict).unwrap().modified().unwrap());
    }
    assert_eq!(found_at[0], found_at[1], "it was compiled again");
}

/// A host with a file size limit reports the limit and exits. The limit says nothing about the component, so nothing
/// is cached.
#[test]
fn a_host_that_cannot_write_compiled_code_ends_and_blames_no_plugin() {
    let mut case = Case::new(&fs::read(guest("garbage")).unwrap());
    // The first limit is too small for the component, the second one for the compiled code.
    for bytes in [16_384, 200_000] {
        case.options.limits = vec![format!("--fsize={bytes}:{bytes}")];
        let mut host = case.start();
        let (status, log) = host.wait_exit(Duration::from_mins(1)).unwrap();
        assert_eq!(status.code(), Some(1), "{status}: {log}");
        assert!(log.contains("File too large"), "{log}");
        assert_eq!(case.cached_files(), Vec::<PathBuf>::new());
    }
    case.options.limits.clear();
    let host = case.start();
    eventually("the plugin is compiled", || {
        case.cached_files()
            .iter()
            .any(|path| has_ending(path, "cwasm"))
            .then_some(())
            .ok_or_else(|| host.log().unwrap())
    });
}

/// A process's children.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task");
    let lists: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The kernel sends no signal for a death before the process has asked for it.
#[test]
fn a_compiler_whose_host_ended_before_its_start_ends() {
    let another = std::process::id() + 1;
    let mut command = Command::new(host());
    command
        .args(["compile", MEMORY, CPU, CODE])
        .arg(format!("--host-process={another}"));
    // The input never arrives.
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = eventually("it ends", || child.try_wait().unwrap().ok_or("it runs"));
    let mut stderr = String::new();
    let mut words = child.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut words, &mut stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("the host that started this process has ended"),
        "{stderr}"
    );
}

#[test]
fn a_compiler_inherits_no_secret_of_its_host_and_ends_with_it() {
    let case = Case::new(&astray::wants_time());
    // The host inherits an open file, which the compiler must not inherit in turn.
    let script = r#"exec 7</etc/passwd; exec "$0" "$@""#;
    let mut command = bound(Path::new("/bin/sh"));
    command
        .args(["-c", script])
        .arg(host())
        .args(["run", "--kubeconfig"])
        .arg(case.directory.path().join("kubeconfig"))
        .arg("--cache-dir")
        .arg(case.directory.path().join("cache"))
        .arg("--plugin")
        .args(&case.options.plugins)
        .env("INNKEEPER_SECRET", "credentials")
        .stderr(Stdio::null());
    let mut host = spawn_bound(command).unwrap();
    let parent = host.id();
    let child = eventually("a process compiles", || {
        children(parent).first().copied().ok_or("there is none")
    });
    assert!(descriptors(parent).contains(&"7".to_owned()));
    let path = |name: &str| Path::new("/proc").join(child.to_string()).join(name);
    eventually("it is the compiler", || {
        let line = fs::read(path("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.starts_with("innkeeper compile ") {
            Ok(())
        } else {
            Err(line)
        }
    });
    assert_eq!(fs::read(path("environ")).unwrap(), b"");
    assert_eq!(descriptors(child), ["0", "1", "2"]);
    host.kill().unwrap();
    eventually("it ends with the host", || {
        let stat = fs::read_to_string(path("stat")).unwrap_or_default();
        // It stays a zombie until the process that adopted it has collected the exit status.
        if stat.is_empty() || stat.contains(") Z ") {
            Ok(())
        } else {
            Err(stat)
        }
    });
    let code = case
        .cached_files()
        .into_iter()
        .find(|path| has_ending(path, "cwasm"));
    assert_eq!(code, None);
}
