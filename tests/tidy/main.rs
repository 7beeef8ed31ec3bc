//! Source tree rules: pure crates, the fixed top level, fresh generated files, links that lead somewhere.
//!
//! The tests read files as text and run in milliseconds. They do not understand the code.

mod files;
mod generated;
mod mutants;
mod pages;
mod parsers;
mod reference;

use files::{Source, tracked};

/// Host crates without I/O, waiting, clock or environment.
const PURE: [&str; 5] = ["crd", "metrics", "model", "plan", "policy"];

/// The top-level entries. Dotfiles and dot-folders such as `.github` are allowed beside them.
const TOP_LEVEL: [&str; 10] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "deploy",
    "examples",
    "guests",
    "host",
    "tests",
    "wit",
];

fn assert_none(problem: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{problem}:\n  {}", found.join("\n  "));
}

/// An action's tag can be moved to other code, a commit cannot.
#[test]
fn workflows_name_the_commit_and_the_version_of_each_action() {
    let is_pinned = |uses: &str| {
        let (action, version) = uses.split_once(" # v")?;
        let (_, commit) = action.split_once('@')?;
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_commit && version.contains('.')).then_some(())
    };
    let mut uses = 0;
    let mut unpinned = Vec::new();
    for path in tracked() {
        if !path.starts_with(".github/workflows/") {
            continue;
        }
        for line in files::read(&path).lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            uses += 1;
            if is_pinned(action).is_none() {
                unpinned.push(format!("{path}: {action}"));
            }
        }
    }
    assert!(uses > 0, "there are no workflows to check");
    assert_none("actions without commit and version", unpinned);
}

#[test]
fn top_level_is_fixed() {
    let mut paths: Vec<String> = tracked()
        .iter()
        .filter_map(|path| path.split('/').next())
        .filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(name))
        .map(str::to_owned)
        .collect();
    paths.dedup();
    assert_none("not part of the fixed top level", paths);
}

#[test]
fn nothing_built_is_tracked() {
    let paths = tracked()
        .into_iter()
        .filter(|path| {
            ["wasm", "cwasm"]
                .iter()
                .any(|extension| files::has_extension(path, extension))
                || path.contains("target/")
        })
        .collect();
    assert_none("built artifacts in version control", paths);
}

#[test]
fn pure_crates_depend_on_no_runtime() {
    let runtimes = ["tokio", "kube", "wasmtime", "reqwest", "hyper"];
    let is_impure = |line: &str| {
        let name = line.split(['.', ' ']).next().unwrap_or_default();
        let is_of_host = name.starts_with("innkeeper-");
        let is_pure = PURE.iter().any(|pure| name == format!("innkeeper-{pure}"));
        runtimes.contains(&name) || is_of_host && !is_pure
    };
    let mut problems = Vec::new();
    for pure in PURE {
        let path = format!("host/crates/{pure}/Cargo.toml");
        let manifest = files::read(&path);
        problems.extend(
            manifest
                .lines()
                .filter(|line| is_impure(line))
                .map(|line| format!("{path}: {line}")),
        );
    }
    assert_none("a pure crate that depends on a runtime", problems);
}

#[test]
fn every_file_is_part_of_its_crate() {
    assert_none("a file that no `mod` declares", files::orphans());
}

#[test]
fn unsafe_code_is_expected_in_three_places() {
    // The guest allocator, loading compiled code, and the settings of the host's allocator.
    const PLACES: [&str; 3] = [
        "guests/sdk/src/allocator.rs",
        "host/crates/sandbox/src/code.rs",
        "host/src/main.rs",
    ];
    // Split, so that this file does not match.
    let mark = concat!("expect(unsafe", "_code");
    let mut problems: Vec<String> = Source::all()
        .iter()
        .flat_map(|source| {
            let text: String = source.text.split_whitespace().collect();
            std::iter::repeat_n(source.path.clone(), text.matches(mark).count())
        })
        .collect();
    problems.sort_unstable();
    assert_eq!(problems, PLACES, "the places of unsafe code");
}

#[test]
fn features_for_tests_are_in_no_build_for_users() {
    // Split, so that this file does not match.
    let marks = [concat!("--fea", "tures"), concat!("\"fail", "points\"")];
    // Features of the tests and the SDK are not compiled into a host.
    let harmless = [
        concat!("--fea", "tures innkeeper-tests/failpoints"),
        concat!("--fea", "tures innkeeper-sdk/v1_33,innkeeper-kit/v1_33"),
    ];
    let weakens = |path: &String| {
        let text = files::read(path);
        let text = harmless.iter().fold(text, |text, it| text.replace(it, ""));
        marks.iter().any(|mark| text.contains(mark))
    };
    let paths = tracked()
        .into_iter()
        .filter(|path| path != "tests/failpoints")
        // A packed chart is not text, and builds nothing.
        .filter(|path| {
            !["rs", "tgz"]
                .iter()
                .any(|extension| files::has_extension(path, extension))
        })
        .filter(weakens)
        .collect();
    assert_none("a feature that weakens or kills the host", paths);
}

#[test]
fn every_mutant_applies_and_names_a_test() {
    assert_none("an unusable mutant", mutants::broken());
}
