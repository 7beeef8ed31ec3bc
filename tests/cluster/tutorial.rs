//! The tutorial for authors, command by command, from an empty directory outside of the repository.

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

/// The page.
pub(crate) const PAGE: &str = "guests/docs/tutorial.md";

/// The command that stays up.
const STAYS_UP: &str = "innkeeper dev";

/// Its last line when the example is served.
const IS_UP: &str = "1 parent is Ready";

/// The longest time from the start of a control plane to that line.
const UP_WITHIN: Duration = Duration::from_mins(3);

/// The commands that compile.
const COMPILES: [&str; 2] = ["cargo test", "innkeeper build"];

/// The first command of the step that needs a registry and a cluster.
const LAST_STEP: &str = "innkeeper push";

/// An author with Rust, the programs of the project, and a checkout beside the own directory.
struct Author {
    directory: TempDir,
    /// The directory after the last `cd`.
    place: PathBuf,
    environment: Vec<(String, String)>,
}

impl Author {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for made in ["bin", "work", "work/innkeeper/target"] {
            fs::create_dir_all(path(made)).unwrap();
        }
        let used = |(name, _): &(&str, &str)| ["innkeeper", "kubectl"].contains(name);
        for (name, variable) in PROGRAMS.into_iter().filter(used) {
            let program = path_from_env(variable).unwrap();
            symlink(program, path("bin").join(name)).unwrap();
        }
        let program = path_from_env("INNKEEPER_CONTROLPLANE").unwrap();
        let built = path("work/innkeeper/target/controlplane");
        symlink(program.parent().unwrap(), built).unwrap();
        let cache = path("cache").to_str().unwrap().to_owned();
        let environment = [
            ("INNKEEPER_CACHE_DIR", cache),
            // The registry of crates is that of the machine.
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

    /// A shell in the place of the author.
    fn shell(&self, script: &str) -> Command {
        // The variables that cargo gives to tests are no business of a project.
        const AS_USER: &str = "for name in $(compgen -e CARGO_); do\n\
            [[ $name == CARGO_HOME || $name == CARGO_NET_OFFLINE ]] || unset \"$name\"\ndone\n";
        let programs = self.directory.path().join("bin");
        let script = format!(
            "{AS_USER}export PATH=\"{}:$PATH\"\n{script}",
            programs.display()
        );
        let mut bash = bound(Path::new("bash"));
        bash.args(["-euo", "pipefail", "-c", &script]);
        bash.current_dir(&self.place);
        bash.envs(self.environment.iter().map(|(name, value)| (name, value)));
        bash
    }

    /// Runs commands, and remains in their directory.
    #[track_caller]
    fn run(&mut self, commands: &str) {
        let left = self.directory.path().join("place");
        let script = format!("{commands}\npwd > {}", left.display());
        let output = self.shell(&script).output().unwrap();
        let [out, error] =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert!(output.status.success(), "{commands}\n{out}\n{error}");
        self.place = fs::read_to_string(left).unwrap().trim_end().into();
    }

    /// Runs a command until it shows that the example is Ready, and interrupts it.
    #[track_caller]
    fn run_until_ready(&self, command: &str) {
        let shown = self.directory.path().join("shown");
        let file = File::create(&shown).unwrap();
        // In place of the shell, which would not pass the signal on.
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

/// A cluster whose host gets plugins from `registry.example`.
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
        // Only the proxy can resolve the name.
        let proxy = Proxy::start(&registry).unwrap();
        let authority = registry.ca_file().to_str().unwrap().to_owned();
        let environment = [
            ("HTTPS_PROXY", proxy.url()),
            ("NO_PROXY", "localhost,127.0.0.1".to_owned()),
            ("SSL_CERT_FILE", authority),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value));
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

/// Only `tests/full` compiles: the first builds take minutes. `tests/run` makes the project and its files.
#[test]
fn the_tutorial_leads_from_an_empty_directory_to_a_cluster() {
    let mut pages = Page::all().unwrap();
    pages.retain(|page| page.path == PAGE);
    let fences = pages[0].fences();
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
