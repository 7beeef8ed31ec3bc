//! Files that are not plugins: `inspect` and `run` report problem and remedy, each with a distinct exit code.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, HostOptions, eventually, process::path_from_env};
use serde_json::Value;
use tempfile::TempDir;

/// The exit code for a file, port or directory that a command cannot use.
const BAD_USE: i32 = 2;

/// The exit code of `inspect` for a file that is not a plugin.
const FINDING: i32 = 3;

/// A kubeconfig for a port without a listener, so that `run` never reaches a cluster.
pub(crate) const KUBECONFIG: &str = r#"{
  "apiVersion": "v1", "kind": "Config", "current-context": "none",
  "clusters": [{ "name": "none", "cluster": { "server": "http://127.0.0.1:1" } }],
  "contexts": [{ "name": "none", "context": { "cluster": "none", "user": "none" } }],
  "users": [{ "name": "none", "user": {} }]
}"#;

/// A directory for one file, which may be missing.
struct Case {
    directory: TempDir,
    file: PathBuf,
}

impl Case {
    fn missing() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("pond.wasm");
        Self { directory, file }
    }

    fn new(bytes: &[u8]) -> Self {
        let case = Self::missing();
        fs::write(&case.file, bytes).expect("a file can be written");
        case
    }

    /// A case with a component in text format.
    fn from_text(text: &str) -> Self {
        Self::new(&wat::parse_str(text).expect("a component in the text format"))
    }

    fn inspect(&self, arguments: &[&str]) -> Output {
        Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"))
            .arg("inspect")
            .arg(&self.file)
            .args(arguments)
            .output()
            .expect("inspect can be started")
    }

    /// Checks that both commands reject the file for the same reason. `kind` is the first line of `inspect`, the kind
    /// of file; `None` if it cannot know.
    #[track_caller]
    fn refused(&self, kind: Option<&str>, problem: &str) {
        let output = self.inspect(&[]);
        let (out, err) = texts(&output);
        let code = if kind.is_some() { FINDING } else { BAD_USE };
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.starts_with("error: "), "{err}");
        assert!(err.contains(problem), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert_eq!(out.lines().next(), kind, "{out}");

        let (code, log) = self.run();
        assert_eq!(code, Some(BAD_USE), "{log}");
        let refusals: Vec<Value> = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &Value| line["message"] == "plugin is not served")
            .collect();
        assert_eq!(refusals.len(), 1, "{log}");
        assert_eq!(refusals[0]["file"], *self.file.to_string_lossy());
        let message = refusals[0]["error"].as_str().unwrap_or_default();
        assert!(message.contains(problem), "{message}");
        assert!(log.contains("none of the 1 plugins can be served"), "{log}");
    }

    /// Runs a host with this file as the only plugin; returns exit code and log.
    fn run(&self) -> (Option<i32>, String) {
        self.run_with(&[])
    }

    fn run_with(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.run_in(None, arguments)
    }

    /// Runs a host with this cache directory.
    fn run_in(&self, cache: Option<PathBuf>, arguments: &[&str]) -> (Option<i32>, String) {
        let kubeconfig = self.directory.path().join("kubeconfig");
        fs::write(&kubeconfig, KUBECONFIG).expect("a file can be written");
        let options = HostOptions {
            plugins: vec![self.file.clone()],
            arguments: [&["--log-format", "json"], arguments]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            cache,
            ..HostOptions::default()
        };
        let mut host = Host::start(&kubeconfig, &options).expect("the host can be started");
        let (status, log) = host
            .wait_exit(Duration::from_secs(30))
            .expect("the host exits");
        (status.code(), log)
    }
}

#[test]
fn a_host_raises_its_descriptor_limit_to_the_hard_limit() {
    let directory = TempDir::new().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let guests = HostOptions::with_guests(&["memcached"]).unwrap();
    let options = HostOptions {
        limits: vec!["--nofile=100:3000".to_owned()],
        ..guests
    };
    let mut host = Host::start(&kubeconfig, &options).unwrap();
    let limits = format!("/proc/{}/limits", host.process().id());
    eventually("the limit is raised", || {
        let limits = fs::read_to_string(&limits).map_err(|error| error.to_string())?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        match words[..] {
            [_, _, _, "3000", "3000", _] => Ok(()),
            _ => Err(limits),
        }
    });
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn test_guest(name: &str) -> PathBuf {
    path_from_env("INNKEEPER_TEST_GUESTS")
        .expect("the guests are built")
        .join(name)
}

fn copy(file: &Path) -> Case {
    Case::new(&fs::read(file).expect("a guest can be read"))
}

#[test]
fn refuses_a_missing_file() {
    let case = Case::missing();
    case.refused(None, &format!("there is no file {}", case.file.display()));
}

#[test]
fn refuses_a_directory() {
    let case = Case::missing();
    fs::create_dir(&case.file).unwrap();
    case.refused(None, &format!("failed to read {}", case.file.display()));
}

#[test]
fn refuses_an_empty_file() {
    Case::new(b"").refused(Some("what          not WebAssembly"), "the file is empty");
}

#[test]
fn refuses_a_file_that_is_not_wasm() {
    Case::new(b"apiVersion: v1").refused(
        Some("what          not WebAssembly"),
        "this is not WebAssembly: it starts with \"apiVersion: v1\"; give the .wasm file that the build made",
    );
}

#[test]
fn refuses_a_core_module() {
    Case::from_text("(module)").refused(
        Some("what          core module"),
        "this is a core WebAssembly module, not a component: make it one with",
    );
}

#[test]
fn refuses_a_component_of_another_world() {
    let text = r#"(component (instance $run) (export "wasi:cli/run@0.2.0" (instance $run)))"#;
    Case::from_text(text).refused(
        Some("what          component"),
        "it is a component, but not a plugin: it neither imports nor exports innkeeper:plugin; it exports wasi:cli/run@0.2.0",
    );
}

#[test]
fn refuses_an_unknown_contract_version() {
    let text =
        r#"(component (instance $r) (export "innkeeper:plugin/reconciler@9.0.0" (instance $r)))"#;
    Case::from_text(text).refused(
        Some("what          plugin"),
        "unsupported contract version innkeeper:plugin@9.0.0 (supported: 0.1.0)",
    );
}

#[test]
fn refuses_an_import_outside_of_the_contract() {
    let text = r#"(component
        (import "wasi:sockets/tcp@0.3.0" (instance))
        (instance $r) (export "innkeeper:plugin/reconciler@0.1.0" (instance $r)))"#;
    Case::from_text(text).refused(Some("what          plugin"), "wasi:sockets/tcp@0.3.0");
}

#[test]
fn refuses_a_truncated_plugin() {
    let bytes = fs::read(test_guest("garbage.wasm")).unwrap();
    Case::new(&bytes[..bytes.len() / 2]).refused(
        Some("what          plugin"),
        "the file is truncated: copy it or build it again",
    );
}

#[test]
fn refuses_a_file_above_the_limit() {
    let case = Case::new(b"\0asm");
    let file = fs::File::options().write(true).open(&case.file).unwrap();
    file.set_len(33 << 20).unwrap();
    case.refused(
        None,
        "the file has more than the 33554432 bytes that are allowed",
    );
}

#[test]
fn ends_at_once_without_a_usable_plugin() {
    let begin = Instant::now();
    let (code, log) = Case::missing().run();
    assert_eq!(code, Some(BAD_USE), "{log}");
    // Without an API server, a host that waited for it would never exit.
    assert!(begin.elapsed() < Duration::from_secs(20), "{log}");
}

/// Runs a host with a usable plugin and these arguments until it ends.
fn ended_run(arguments: &[&str]) -> (Option<i32>, String) {
    copy(&test_guest("unruly.wasm")).run_with(arguments)
}

#[test]
fn input_that_cannot_be_used_is_a_usage_error() {
    // Keeps the port busy.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (code, log) = ended_run(&["--admin-address", &address]);
    assert_eq!(code, Some(BAD_USE), "{log}");
    assert!(log.contains("set another --admin-address"), "{log}");

    let directory = TempDir::new().unwrap();
    let grants = directory.path().join("grants.yaml");
    fs::write(&grants, "children: [{group: '', kind: 7}]").unwrap();
    let grants = format!("unruly={}", grants.display());
    let (code, log) = ended_run(&["--grants", &grants]);
    assert_eq!(code, Some(BAD_USE), "{log}");
    assert!(
        log.contains("failed to read the grants of plugin unruly"),
        "{log}"
    );

    let config = directory.path().join("config.yaml");
    fs::write(&config, "{}").unwrap();
    let config = format!("other={}", config.display());
    let (code, log) = ended_run(&["--config", &config]);
    assert_eq!(code, Some(BAD_USE), "{log}");
    assert!(
        log.contains("names plugin other, which is not among"),
        "{log}"
    );

    // Others could replace compiled code in a directory that they may write to.
    let open = directory.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let case = copy(&test_guest("unruly.wasm"));
    let (code, log) = case.run_in(Some(open), &[]);
    assert_eq!(code, Some(BAD_USE), "{log}");
    assert!(log.contains("set another --cache-dir"), "{log}");
}

#[test]
fn inspect_describes_a_plugin() {
    let output = copy(&test_guest("unruly.wasm")).inspect(&["-o", "json"]);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let description: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(description["what"], "plugin");
    assert_eq!(description["contract"], "0.1.0");
    assert_eq!(description["plugin"]["name"], "unruly");
    assert_eq!(description["plugin"]["parents"][0]["kind"], "Unruly");
    assert_eq!(description["plugin"]["children"][0]["kind"], "ConfigMap");
    assert_eq!(
        description["plugin"]["crds"][0],
        "unrulies.test.innkeeper.dev"
    );
}
