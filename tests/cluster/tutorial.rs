//! Runs the tutorial's commands one by one, from an empty directory outside the repository.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, eventually_for, manifest,
    pages::Page,
    process::{bound, is_full, path_from_env, spawn_bound},
    registry::{Proxy, Registry, RegistryOptions},
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::pages::PROGRAMS;

pub(crate) const PAGE: &str = "guests/docs/tutorial.md";

/// The command that runs until it is interrupted.
const STAYS_UP: &str = "innkeeper dev";

/// The last line in the output of `STAYS_UP` when the example is Ready.
const IS_UP: &str = "1 parent is Ready";

/// Time limit from the start of the control plane to `IS_UP`.
const UP_WITHIN: Duration = Duration::from_mins(3);

/// The commands that compile.
const COMPILES: [&str; 2] = ["cargo test", "innkeeper build"];

/// The first command in the step that needs a registry and a cluster.
const LAST_STEP: &str = "innkeeper push";

/// An author with Rust, the project's programs, and a checkout beside the working directory.
struct Author {
    directory: TempDir,
    /// The working directory after the last command.
    place: PathBuf,
    environment: Vec<(String, String)>,
}

impl Author {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["bin", "work", "work/innkeeper/target"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let used = |(name, _): &(&str, &str)| ["innkeeper", "kubectl"].contains(name);
        for (name, variable) in PROGRAMS.into_iter().filter(used) {
            let program = path_from_env(variable).unwrap();
            symlink(program, path("bin").join(name)).unwrap();
        }
        let program = path_from_env("INNKEEPER_CONTROLPLANE").unwrap();
        let link = path("work/innkeeper/target/controlplane");
        symlink(program.parent().unwrap(), link).unwrap();
        let cache = path("cache").to_str().unwrap().to_owned();
        let environment = [
            ("INNKEEPER_CACHE_DIR", cache),
            // The machine's cargo cache must have all crates.
            ("CARGO_NET_OFFLINE", "true".to_owned()),
        ];
        Self {
            place: path("work"),
            directory,
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        }
    }

    /// A shell in the author's working directory.
    fn shell(&self, script: &str) -> Command {
        // Variables that cargo sets for tests must not affect the author's project.
        const AS_USER: &str = "for name in $(compgen -e CARGO_); do\n\
            [[ $name == CARGO_HOME || $name == CARGO_NET_OFFLINE ]] || unset \"$name\"\ndone\n";
        let programs = self.directory.path().join("bin");
        let script = format!(
            "{AS_USER}export PATH=\"{}:$PATH\"\n{script}",
            programs.display()
        );
        let mut bash = bound(Path::new("bash"));
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        bash.args(["-euo", "pipefail", "-c", &script])
            .current_dir(&self.place)
            .envs(environment);
        bash
    }

    /// Runs commands, and keeps the working directory for the next ones.
    #[track_caller]
    fn run(&mut self, commands: &str) {
        let file = self.directory.path().join("place");
        let script = format!("{commands}\npwd > {}", file.display());
        let output = self.shell(&script).output().unwrap();
        let [out, error] = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(output.status.success(), "{commands}\n{out}\n{error}");
        self.place = fs::read_to_string(file).unwrap().trim_end().into();
    }

    /// Runs a command until it shows that the example is Ready, and interrupts it.
    #[track_caller]
    fn run_until_ready(&self, command: &str) {
        let shown = self.directory.path().join("shown");
        let file = File::create(&shown).unwrap();
        // `exec` replaces the shell, which would not forward the signal.
        let mut command = self.shell(&format!("exec {command}"));
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut running = spawn_bound(command).unwrap();
        let read = || fs::read_to_string(&shown).unwrap();
        eventually_for(UP_WITHIN, IS_UP, || {
            let text = read();
            text.contains(IS_UP).then_some(()).ok_or(text)
        });
        running.signal(Signal::INT).unwrap();
        let status = running.wait_for(Duration::from_mins(1)).unwrap();
        assert!(status.success(), "{status}: {}", read());
    }

    /// Shares the compiled dependencies with later runs.
    fn keep_compiled(&self) {
        let target = self.place.join("target");
        if is_full() && self.place.join("Cargo.toml").exists() && !target.exists() {
            let shared = path_from_env("INNKEEPER_GUESTS")
                .unwrap()
                .with_file_name("tutorial");
            fs::create_dir_all(&shared).unwrap();
            symlink(shared, target).unwrap();
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.place.join(name), text).unwrap();
    }
}

/// A cluster whose host fetches plugins from `registry.example`.
struct Site {
    _host: Host,
    _control_plane: ControlPlane,
    _proxy: Proxy,
    _registry: Registry,
}

impl Site {
    /// Starts the site, and lets the author use it.
    fn start(author: &mut Author) -> Self {
        let options = RegistryOptions {
            tls: true,
            ..RegistryOptions::default()
        };
        let registry = Registry::start_with(&options).unwrap();
        // Only the proxy can resolve `registry.example`.
        let proxy = Proxy::start(&registry).unwrap();
        let authority = registry.ca_file().to_str().unwrap().to_owned();
        let environment = [
            ("HTTPS_PROXY", proxy.url()),
            ("NO_PROXY", "localhost,127.0.0.1".to_owned()),
            ("SSL_CERT_FILE", authority),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let control_plane = ControlPlane::start().unwrap();
        let kubeconfig = control_plane.kubeconfig();
        author.environment.extend(environment.clone());
        let text = kubeconfig.to_str().unwrap().to_owned();
        author.environment.push(("KUBECONFIG".to_owned(), text));
        for object in manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap() {
            control_plane.user().apply(&object).unwrap();
        }
        let host = HostOptions {
            arguments: vec!["--plugin-resources".to_owned(), "--leader-elect".to_owned()],
            environment: environment.into(),
            ..HostOptions::default()
        };
        Self {
            _host: Host::start(&kubeconfig, &host).unwrap(),
            _control_plane: control_plane,
            _proxy: proxy,
            _registry: registry,
        }
    }
}

/// `tests/run` only creates the project and the files; `tests/full` also compiles, because the first
/// builds take minutes.
#[test]
fn the_tutorial_leads_from_an_empty_directory_to_a_cluster() {
    let page = Page::all()
        .unwrap()
        .into_iter()
        .find(|page| page.path == PAGE)
        .unwrap();
    let fences = page.fences();
    let mut author = Author::new();
    let mut site = None;
    for fence in &fences {
        let text = &fence.text;
        match &*fence.language {
            "rust" => author.write("src/lib.rs", text),
            "rust,ignore" => {
                let code = fs::read_to_string(author.place.join("src/lib.rs")).unwrap();
                author.write("src/lib.rs", &format!("{code}\n{text}"));
            }
            "yaml" => author.write("tests/example/parent.yaml", text),
            _ if fence.is_shell() => {
                if !is_full() && COMPILES.iter().any(|command| text.contains(command)) {
                    break;
                }
                if text.starts_with(LAST_STEP) {
                    site = Some(Site::start(&mut author));
                }
                let begin = Instant::now();
                if text.starts_with(STAYS_UP) {
                    author.run_until_ready(text);
                } else {
                    author.run(text);
                }
                let first = text.lines().next().unwrap_or_default();
                println!("{:.1} s: {first}", begin.elapsed().as_secs_f64());
                author.keep_compiled();
            }
            other => panic!("the page has a block of {other}"),
        }
    }
    assert!(author.place.ends_with("pond"));
    assert_eq!(site.is_some(), is_full());
}
