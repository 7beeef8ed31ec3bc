//! Toolchain choices on machines that are described as data.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::*;

const LIBDIR: &str = "--print target-libdir --target wasm32-unknown-unknown";

/// A machine: each command's output, as `program arguments`, and the existing files.
#[derive(Default)]
struct Stated {
    prints: BTreeMap<String, String>,
    files: BTreeSet<PathBuf>,
    /// A command, and the file that exists once it has run.
    installs: Option<(String, PathBuf)>,
    ran: RefCell<Vec<String>>,
}

impl Stated {
    fn prints(mut self, command: &str, output: &str) -> Self {
        self.prints
            .insert(command.to_owned(), format!("{output}\n"));
        self
    }

    fn file(mut self, path: &str) -> Self {
        self.files.insert(PathBuf::from(path));
        self
    }

    fn installs(mut self, command: &str, path: &str) -> Self {
        self.installs = Some((command.to_owned(), PathBuf::from(path)));
        self.prints(command, "")
    }

    /// A compiler of `version` with a sysroot and a directory for the target's library.
    fn compiler(self, rustc: &str, version: &str, sysroot: &str) -> Self {
        self.prints(
            &format!("{rustc} --version"),
            &format!("rustc {version} (0 2026-01-01)"),
        )
        .prints(
            &format!("{rustc} -vV"),
            "binary: rustc\nLLVM version: 22.1.8",
        )
        .prints(&format!("{rustc} --print sysroot"), sysroot)
        .prints(
            &format!("{rustc} --print host-tuple"),
            "x86_64-unknown-linux-gnu",
        )
        .prints(&format!("{rustc} {LIBDIR}"), &format!("{sysroot}/lib"))
    }

    /// rustup's compiler with a linker.
    fn rustup(self) -> Self {
        self.compiler("rustc", "1.95.0", "/rustup")
            .file("/rustup/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld")
            .file("/bin/rustup")
    }

    fn source(self, sysroot: &str) -> Self {
        self.file(&format!(
            "{sysroot}/lib/rustlib/src/rust/library/Cargo.lock"
        ))
    }

    fn has_run(&self, command: &str) -> bool {
        self.ran.borrow().iter().any(|ran| ran == command)
    }
}

impl Machine for Stated {
    fn run(&self, program: &Path, args: &[&str]) -> Option<String> {
        let command = format!("{} {}", program.display(), args.join(" "));
        self.ran.borrow_mut().push(command.clone());
        self.prints.get(&command).cloned()
    }

    fn is_file(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    fn names(&self, directory: &Path) -> Vec<PathBuf> {
        let installed = self
            .installs
            .iter()
            .filter(|(command, _)| self.has_run(command))
            .map(|(_, path)| path);
        self.files
            .iter()
            .chain(installed)
            .filter(|path| path.parent() == Some(directory))
            .filter_map(|path| path.file_name().map(PathBuf::from))
            .collect()
    }
}

/// An environment without variables, in which rustup must not download.
fn plain() -> Environment {
    Environment {
        path: vec![PathBuf::from("/bin")],
        ..Environment::default()
    }
}

fn build_std(rustc: &str, sysroot: &str, linker: &str) -> Toolchain {
    Toolchain::BuildStd {
        rustc: PathBuf::from(rustc),
        sysroot: PathBuf::from(sysroot),
        linker: PathBuf::from(linker),
    }
}

#[track_caller]
fn check(environment: &Environment, machine: &Stated, expected: &Toolchain) {
    let chosen = choose(environment, machine, &mut |_| ()).unwrap();
    assert_eq!(&chosen, expected);
}

#[track_caller]
fn error_of(environment: &Environment, machine: &Stated) -> String {
    choose(environment, machine, &mut |_| ())
        .unwrap_err()
        .to_string()
}

const BUNDLED: &str = "/rustup/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld";

#[test]
fn takes_the_installed_target_before_all_else() {
    let machine = Stated::default()
        .rustup()
        .file("/rustup/lib/libstd-0123.rlib")
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    let environment = Environment {
        rustup_may_download: true,
        ..plain()
    };
    check(&environment, &machine, &Toolchain::Installed);
    assert!(!machine.has_run("/bin/rustup target add wasm32-unknown-unknown"));
}

#[test]
fn a_directory_without_the_library_is_not_an_installed_target() {
    let machine = Stated::default()
        .rustup()
        .file("/rustup/lib/libcore-0123.rlib")
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    check(
        &plain(),
        &machine,
        &build_std("/usr/bin/rustc", "/usr", BUNDLED),
    );
}

#[test]
fn lets_rustup_add_the_target_where_it_may_download() {
    let add = "/bin/rustup target add wasm32-unknown-unknown";
    let machine = Stated::default()
        .rustup()
        .installs(add, "/rustup/lib/libstd-0123.rlib")
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    let allowed = Environment {
        rustup_may_download: true,
        ..plain()
    };
    let mut lines = Vec::new();
    let chosen = choose(&allowed, &machine, &mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(chosen, Toolchain::Installed);
    assert_eq!(lines, ["rustup target add wasm32-unknown-unknown"]);
}

#[test]
fn never_runs_rustup_where_it_may_not_download() {
    let add = "/bin/rustup target add wasm32-unknown-unknown";
    let machine = Stated::default()
        .rustup()
        .installs(add, "/rustup/lib/libstd-0123.rlib")
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    check(
        &plain(),
        &machine,
        &build_std("/usr/bin/rustc", "/usr", BUNDLED),
    );
    assert!(!machine.has_run(add));
}

#[test]
fn uses_another_compiler_when_rustup_fails_to_add_the_target() {
    let machine = Stated::default()
        .rustup()
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    let allowed = Environment {
        rustup_may_download: true,
        ..plain()
    };
    check(
        &allowed,
        &machine,
        &build_std("/usr/bin/rustc", "/usr", BUNDLED),
    );
    assert!(machine.has_run("/bin/rustup target add wasm32-unknown-unknown"));
}

#[test]
fn prefers_the_compiler_that_was_named() {
    let machine = Stated::default()
        .rustup()
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr")
        .compiler("/opt/rustc", "1.97.0", "/opt")
        .source("/opt")
        .compiler("/mine/rustc", "1.98.0", "/mine")
        .source("/mine");
    let rustc = Environment {
        rustc: Some(PathBuf::from("/opt/rustc")),
        ..plain()
    };
    // The compiler brings no linker, and the linker of PATH's compiler is not used.
    let lld = machine.file("/bin/wasm-ld");
    check(
        &rustc,
        &lld,
        &build_std("/opt/rustc", "/opt", "/bin/wasm-ld"),
    );
    let both = Environment {
        innkeeper_rustc: Some(PathBuf::from("/mine/rustc")),
        ..rustc
    };
    check(
        &both,
        &lld,
        &build_std("/mine/rustc", "/mine", "/bin/wasm-ld"),
    );
}

#[test]
fn takes_the_source_that_rustup_installed() {
    let machine = Stated::default()
        .rustup()
        .source("/rustup")
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    check(&plain(), &machine, &build_std("rustc", "/rustup", BUNDLED));
}

#[test]
fn takes_the_linker_of_the_compiler_s_own_llvm_first() {
    let machine = Stated::default()
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr")
        .file("/bin/wasm-ld")
        .file("/bin/wasm-ld-22");
    check(
        &plain(),
        &machine,
        &build_std("/usr/bin/rustc", "/usr", "/bin/wasm-ld-22"),
    );
    let named = Environment {
        linker: Some(PathBuf::from("/my/ld")),
        ..plain()
    };
    check(
        &named,
        &machine,
        &build_std("/usr/bin/rustc", "/usr", "/my/ld"),
    );
}

#[test]
fn rejects_no_linker() {
    let machine = Stated::default()
        .compiler("/usr/bin/rustc", "1.96.0", "/usr")
        .source("/usr");
    let error = error_of(&plain(), &machine);
    assert!(
        error.contains("failed to find a linker for wasm for /usr/bin/rustc"),
        "{error}"
    );
    assert!(error.contains("apt-get install lld"), "{error}");
}

#[test]
fn rejects_no_compiler() {
    let machine = Stated::default()
        .rustup()
        .compiler("/usr/bin/rustc", "1.85.0", "/usr")
        .source("/usr");
    let error = error_of(&plain(), &machine);
    let expected = [
        "rustc: wasm32-unknown-unknown is not installed",
        "rustup: must not download (RUSTUP_AUTO_INSTALL=0)",
        "rustc: does not contain the source of its standard library",
        "/usr/bin/rustc: is 1.85.0, older than 1.95",
        "rustup target add wasm32-unknown-unknown",
        "apt-get install --no-install-recommends rustc-web rust-web-src",
    ];
    for line in expected {
        assert!(error.contains(line), "{line:?} is not in\n{error}");
    }
}

#[test]
fn rejects_a_machine_without_a_compiler() {
    let error = error_of(&plain(), &Stated::default());
    assert!(
        error.contains("/usr/bin/rustc: does not exist or does not run"),
        "{error}"
    );
    assert!(error.contains("rustup: is not in PATH"), "{error}");
}

#[test]
fn compares_versions_by_number() {
    assert!(minor_of("1.100.0") > minor_of("1.95"));
    assert!(minor_of("2.0.0") > minor_of("1.95"));
    assert_eq!(minor_of("1.95.0-nightly"), minor_of("1.95"));
    assert!(minor_of("") < minor_of("1.95"));
}
