//! Runs a script under the `sh` of this machine and under busybox, with a program in place of gobackup.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{standin::STORING, *};

/// The run's user.
pub(super) const USER: u32 = 65532;

/// The script's programs.
const PROGRAMS: [&str; 22] = [
    "awk",
    "cat",
    "cut",
    "date",
    "expr",
    "find",
    "grep",
    "gzip",
    "head",
    "id",
    "mkdir",
    "od",
    "printf",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "stat",
    "tail",
    "touch",
    "tr",
    "[",
];

/// The directories of a run, deleted at the end.
pub(super) struct Run {
    pub(super) root: PathBuf,
    shell: Shell,
}

/// A shell with programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    /// This machine's `sh`.
    Own,
    /// The default image's, if this machine has it.
    Busybox,
}

impl Shell {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let has_busybox = Command::new("busybox")
            .arg("true")
            .status()
            .is_ok_and(|status| status.success());
        std::iter::once(Self::Own).chain(has_busybox.then_some(Self::Busybox))
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunResult {
    pub(super) code: Option<i32>,
    /// The lines of both streams.
    pub(super) log: String,
    /// The termination message.
    pub(super) message: String,
}

impl Run {
    /// Returns a run with this program instead of gobackup.
    pub(super) fn new(shell: Shell, gobackup: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("innkeeper-backup-{}-{number}", id());
        let run = Self {
            root: Self::place().join(name),
            shell,
        };
        for directory in ["bin", "state", "work", "home", "keys"] {
            run.directory(directory);
        }
        run.file("termination", "");
        if shell == Shell::Busybox {
            let path = Command::new("which")
                .arg("busybox")
                .output()
                .unwrap()
                .stdout;
            let path = String::from_utf8(path).unwrap();
            for name in PROGRAMS {
                symlink(path.trim(), run.root.join("bin").join(name)).unwrap();
            }
        }
        run.program("gobackup", gobackup);
        run
    }

    /// Replaces a program by a script.
    pub(super) fn program(&self, name: &str, script: &str) {
        // In a busybox run the file links to this machine's program, which must not change.
        fs::remove_file(self.root.join("bin").join(name)).ok();
        let program = self.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}"));
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the parent directory for runs: as root, one that the run's user may enter.
    fn place() -> PathBuf {
        match Self::owner() {
            Some(_) => PathBuf::from("/tmp"),
            None => std::env::temp_dir(),
        }
    }

    /// Returns the user and group for new files; none unless the tests run as root.
    pub(super) fn owner() -> Option<u32> {
        static OWNER: LazyLock<Option<u32>> = LazyLock::new(|| {
            let probe = std::env::temp_dir().join(format!("innkeeper-backup-owner-{}", id()));
            fs::write(&probe, "").unwrap();
            let is_root = chown(&probe, Some(USER), Some(USER)).is_ok();
            fs::remove_file(probe).unwrap();
            is_root.then_some(USER)
        });
        *OWNER
    }

    /// Creates a directory for the run's user.
    pub(super) fn directory(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// Creates a file for the run's user.
    pub(super) fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::write(&path, content).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// Returns an answer's script, with paths of this run.
    pub(super) fn script(&self, outcome: &Answer) -> String {
        self.script_of(&gobackup(outcome))
    }

    /// Returns a container's script, with paths of this run.
    fn script_of(&self, container: &Value) -> String {
        let script = container["args"][0].as_str().unwrap();
        let root = self.root.to_str().unwrap();
        script
            .replace("/dev/termination-log", &format!("{root}/termination"))
            .replace("/etc/gobackup/keys", &format!("{root}/keys"))
            .replace("/work/", &format!("{root}/work/"))
            .replace("'/data", &format!("'{root}/volumes/data"))
    }

    /// Returns the path for one of the run's mounts.
    pub(super) fn mount(&self, path: &str) -> String {
        self.path(&format!("volumes{path}"))
    }

    /// Runs an answer's script with these Secret values, by variable.
    pub(super) fn end(&self, outcome: &Answer, values: &[(&str, &[u8])]) -> RunResult {
        // busybox has all programs that the script needs.
        let path = match self.shell {
            Shell::Own => self.search_path(),
            Shell::Busybox => self.path("bin"),
        };
        self.execute(&gobackup(outcome), &path, values)
    }

    /// Returns the program directories: this run's, then the machine's.
    pub(super) fn search_path(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin"))
    }

    /// Runs a container's script.
    pub(super) fn execute(
        &self,
        container: &Value,
        path: &str,
        values: &[(&str, &[u8])],
    ) -> RunResult {
        let mut command = match self.shell {
            Shell::Own => Command::new("/bin/sh"),
            Shell::Busybox => Command::new(self.root.join("bin/sh")),
        };
        command
            .args(["-c", &self.script_of(container)])
            .current_dir(&self.root)
            .env_clear();
        for variable in container["env"].as_array().unwrap() {
            let value = variable["value"]
                .as_str()
                .unwrap_or("value")
                .replace("/etc/gobackup/keys", &self.path("keys"));
            let value = match value.strip_prefix("/data/") {
                Some(rest) => self.mount(&format!("/data/{rest}")),
                None => value,
            };
            command.env(variable["name"].as_str().unwrap(), value);
        }
        for (name, value) in values {
            command.env(name, OsStr::from_bytes(value));
        }
        command
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("work"))
            .env("GOBACKUP_DIR", self.path("state"))
            .env("POD_UID", "0f8fad5b-d9cb-469f-a165-70867728950e");
        if let Some(user) = Self::owner() {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        let log = [output.stdout, output.stderr].concat();
        let message = fs::read(self.root.join("termination")).unwrap();
        RunResult {
            code: output.status.code(),
            log: String::from_utf8_lossy(&log).into_owned(),
            message: timeless(&String::from_utf8_lossy(&message)),
        }
    }

    pub(super) fn path(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let is_gone = fs::remove_dir_all(&self.root).is_ok();
        assert!(is_gone || !Path::new(&self.root).exists());
    }
}

/// Replaces the number of seconds in a message by zero.
fn timeless(message: &str) -> String {
    let parts = message.split_once("\"seconds\":");
    parts
        .filter(|(_, rest)| rest.trim_end_matches('}').parse::<u8>().is_ok())
        .map_or_else(
            || message.to_owned(),
            |(before, _)| format!("{before}\"seconds\":0}}"),
        )
}

/// Returns the container of a run.
pub(super) fn gobackup(outcome: &Answer) -> Value {
    let job = Value::from(outcome.child("run").unwrap().object.clone());
    job["spec"]["template"]["spec"]["containers"][0].clone()
}

/// Runs with a program instead of gobackup, with the same result in each shell.
pub(super) fn end(gobackup: &str, outcome: &Answer, values: &[(&str, &[u8])]) -> RunResult {
    let ends = Shell::all().map(|shell| {
        let run = Run::new(shell, gobackup);
        let mut result = run.end(outcome, values);
        for text in [&mut result.log, &mut result.message] {
            *text = text.replace(&run.path(""), "/");
        }
        result
    });
    let ends: Vec<RunResult> = ends.collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    ends.into_iter().next().unwrap()
}

/// Returns the first line of a run with these values; `ok` if gobackup ran.
pub(super) fn verdict(outcome: &Answer, values: &[(&str, &[u8])]) -> String {
    let result = end(STORING, outcome, values);
    let first = result.log.lines().next().unwrap_or_default().to_owned();
    if result.code == Some(0) {
        assert_eq!(first, "gobackup runs", "{result:?}");
        return "ok".to_owned();
    }
    assert_eq!(result.message.trim_end(), first, "{result:?}");
    first
}
