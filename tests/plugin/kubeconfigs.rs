//! Unusable kubeconfigs: `run` exits at once and prints one line with problem, file and remedy.

use std::{fs, path::PathBuf, time::Duration};

use innkeeper_tests::{Host, HostOptions, process::path_from_env};
use tempfile::TempDir;

/// The exit code of `run` when it cannot start.
const BAD_USE: i32 = 2;

/// A kubeconfig with two contexts and no current context.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters: [{ name: here, cluster: { server: "http://127.0.0.1:1" } }]
contexts:
- { name: one, context: { cluster: here, user: me } }
- { name: two, context: { cluster: here, user: me } }
users: [{ name: me, user: {} }]
"#;

struct Case {
    directory: TempDir,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory }
    }

    fn with(text: &str) -> Self {
        let case = Self::new();
        fs::write(case.file(), text).expect("a file can be written");
        case
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Returns the one-line output of a host that rejects the kubeconfig.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").expect("the guests are built");
        let options = HostOptions {
            plugins: vec![guests.join("garbage.wasm")],
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            ..HostOptions::default()
        };
        let mut host = Host::start(&self.file(), &options).expect("the host can be started");
        let (status, log) = host
            .wait_exit(Duration::from_secs(30))
            .expect("the host exits");
        assert_eq!(status.code(), Some(BAD_USE), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.starts_with("error: "), "{log}");
        log
    }

    #[track_caller]
    fn check(&self, arguments: &[&str], parts: &[&str]) {
        let message = self.refused(arguments);
        let file = self.file().display().to_string();
        for part in parts.iter().copied().chain([file.as_str()]) {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}

#[test]
fn refuses_a_missing_kubeconfig() {
    Case::new().check(&[], &["No such file", "--kubeconfig"]);
}

#[test]
fn refuses_an_unreadable_kubeconfig() {
    let case = Case::new();
    fs::create_dir(case.file()).unwrap();
    case.check(&[], &["directory", "--kubeconfig"]);
}

#[test]
fn refuses_a_kubeconfig_that_does_not_parse() {
    Case::with("clusters: [").check(&[], &["line 1, column 11", "--kubeconfig"]);
}

#[test]
fn prints_no_credentials_of_a_kubeconfig_that_does_not_parse() {
    for users in ["token: [hush]", "token: hush: hush", "token: \"hush"] {
        let text = format!("kind: Config\nusers:\n- name: one\n  user:\n    {users}\n");
        let message = Case::with(&text).refused(&[]);
        assert!(
            message.contains("line ") && !message.contains("hush"),
            "{message}"
        );
    }
}

#[test]
fn refuses_an_unknown_context_and_lists_the_known_ones() {
    Case::with(KUBECONFIG).check(
        &["--context", "three"],
        &["no context \"three\"", "--context one or --context two"],
    );
}

#[test]
fn refuses_a_kubeconfig_without_a_current_context() {
    Case::with(KUBECONFIG).check(&[], &["no current context", "--context one"]);
}
