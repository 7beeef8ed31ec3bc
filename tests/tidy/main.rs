//! Rules of the source tree: pure crates, headers, lengths, a fixed top level, complete tables.
//!
//! The tests read files as text and run in milliseconds. They do not understand the code.

mod files;
mod generated;
mod guests;
mod mutants;
mod pages;
mod parsers;
mod promises;
mod reference;

use std::collections::BTreeMap;

use files::{Source, tracked};

/// The crates of the host without I/O, waiting, a clock or the environment.
const PURE: [&str; 5] = ["metrics", "model", "plan", "policy", "schema"];

/// The longest allowed file, without its tests.
const LINES_MAX: usize = 500;

/// The largest crate of the host, without its tests: about 9,000 lines, so that its purpose fits into one sentence.
const CRATE_LINES_MAX: usize = 9000;

/// The most names of types that stand for two or more types of the host: a reader has to look for their modules.
const SHARED_NAMES_MAX: usize = 30;

/// The longest sequence of a pass, which has to fit into one view.
const PASS_LINES_MAX: usize = 100;

/// The entries of the top level. Dotfiles and dot-folders such as `.github` are allowed beside them.
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

/// A tag of an action can be moved to other code, a commit cannot.
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
    let mut found: Vec<String> = tracked()
        .iter()
        .filter_map(|path| path.split('/').next())
        .filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(name))
        .map(str::to_owned)
        .collect();
    found.dedup();
    assert_none("not part of the fixed top level", found);
}

#[test]
fn nothing_built_is_tracked() {
    let found = tracked()
        .into_iter()
        .filter(|path| {
            ["wasm", "cwasm"]
                .iter()
                .any(|it| files::has_extension(path, it))
                || path.contains("target/")
        })
        .collect();
    assert_none("built artifacts in version control", found);
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
    let mut found = Vec::new();
    for pure in PURE {
        let path = format!("host/crates/{pure}/Cargo.toml");
        let manifest = files::read(&path);
        let impure = manifest.lines().filter(|line| is_impure(line));
        found.extend(impure.map(|line| format!("{path}: {line}")));
    }
    assert_none("a pure crate that depends on a runtime", found);
}

#[test]
fn every_file_has_a_header() {
    let found = Source::all()
        .iter()
        .filter(|source| !source.is_test_file() && !source.text.starts_with("//!"))
        // The documentation of the host crate is in ARCHITECTURE.md.
        .filter(|source| !source.text.starts_with("#![doc = include_str!"))
        .map(|source| source.path.clone())
        .collect();
    assert_none("a file without a //! header", found);
}

#[test]
fn no_file_is_too_long() {
    let found = Source::all()
        .iter()
        .filter(|source| !source.is_test_file() && source.product_lines() > LINES_MAX)
        .map(|source| {
            format!(
                "{} has {} lines without tests",
                source.path,
                source.product_lines()
            )
        })
        .collect();
    assert_none(
        &format!("a file with over {LINES_MAX} lines: split it"),
        found,
    );
}

#[test]
fn no_crate_is_too_large() {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in Source::all().iter().filter(|source| !source.is_test_file()) {
        // The binary crate is above the others.
        let name = match source.path.strip_prefix("host/crates/") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None if source.path.starts_with("host/") => "innkeeper",
            None => continue,
        };
        *lines.entry(name).or_default() += source.product_lines();
    }
    let found = lines
        .into_iter()
        .filter(|(_, lines)| *lines > CRATE_LINES_MAX)
        .map(|(name, lines)| format!("{name} has {lines} lines without tests"))
        .collect();
    assert_none(
        &format!("a crate with over {CRATE_LINES_MAX} lines: split it"),
        found,
    );
}

#[test]
fn few_types_share_a_name() {
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let product = Source::all().iter().filter(|source| {
        source.path.starts_with("host/") && source.path.contains("/src/") && !source.is_test_file()
    });
    for source in product {
        let lines = source.text.lines().take(source.product_lines());
        for name in lines.filter_map(defined_type) {
            types.entry(name).or_default().push(&source.path);
        }
    }
    types.retain(|_, paths| paths.len() > 1);
    assert!(
        types.len() <= SHARED_NAMES_MAX,
        "{} names stand for two or more types, at most {SHARED_NAMES_MAX} may: {types:#?}",
        types.len()
    );
}

/// Returns the name of the type or the trait that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    if word.starts_with("pub") {
        word = words.next()?;
    }
    let name = ["struct", "enum", "trait"]
        .contains(&word)
        .then(|| words.next())??;
    name.split(|it: char| !it.is_alphanumeric()).next()
}

#[test]
fn a_pass_is_read_from_top_to_bottom() {
    let pass = "host/crates/reconcile/src/pass";
    let lines = files::read(&format!("{pass}.rs")).lines().count();
    assert!(lines <= PASS_LINES_MAX, "{pass}.rs has {lines} lines");
    // The callers of a pass.
    let above = ["reconciler", "controller", "dry_run"];
    let names_one = |line: &str| {
        let mut words = line.split(|it: char| !(it.is_alphanumeric() || matches!(it, '_' | ':')));
        words.any(|word| {
            let path = word.strip_prefix("crate::").unwrap_or(word);
            above
                .iter()
                .any(|one| path.starts_with(&format!("{one}::")))
        })
    };
    let mut found = Vec::new();
    for source in Source::all() {
        let is_step = source.path.starts_with(&format!("{pass}/"));
        let lines = source.text.lines();
        let upwards = lines.clone().filter(|line| is_step && names_one(line));
        found.extend(upwards.map(|line| format!("{}: {line}", source.path)));
        let is_elsewhere =
            source.path.starts_with("host/") && !source.path.ends_with("/reconciler.rs");
        let methods = lines.filter(|line| is_elsewhere && line.starts_with("impl Reconciler {"));
        found.extend(methods.map(|line| format!("{}: {line}", source.path)));
    }
    assert_none(
        "a step that reaches up to its loop, or a method of the reconciler outside its file",
        found,
    );
}

#[test]
fn every_file_is_part_of_its_crate() {
    assert_none("a file that no `mod` declares", files::orphans());
}

#[test]
fn modules_are_not_named_mod_rs() {
    let found = Source::all()
        .iter()
        .filter(|source| source.path.ends_with("/mod.rs"))
        .map(|source| source.path.clone())
        .collect();
    assert_none("use foo.rs and foo/ instead of foo/mod.rs", found);
}

#[test]
fn unsafe_code_is_expected_in_three_places() {
    // The allocator of guests, loading compiled code, and the settings of the host's allocator.
    const PLACES: [&str; 3] = [
        "guests/sdk/src/allocator.rs",
        "host/crates/sandbox/src/code.rs",
        "host/src/main.rs",
    ];
    // Written in parts, so that this file does not find itself.
    let mark = concat!("expect(unsafe", "_code");
    let mut found: Vec<String> = Source::all()
        .iter()
        .flat_map(|source| {
            let text: String = source.text.split_whitespace().collect();
            std::iter::repeat_n(source.path.clone(), text.matches(mark).count())
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, PLACES, "the places of unsafe code");
}

#[test]
fn features_for_tests_are_in_no_build_for_users() {
    // Written in parts, so that this file does not find itself.
    let marks = [concat!("--fea", "tures"), concat!("\"fail", "points\"")];
    // That of the tests and that of the SDK make no host.
    let harmless = [
        concat!("--fea", "tures innkeeper-tests/failpoints"),
        concat!("--fea", "tures v1_33"),
    ];
    let weakens = |path: &String| {
        let text = files::read(path);
        let text = harmless.iter().fold(text, |text, it| text.replace(it, ""));
        marks.iter().any(|mark| text.contains(mark))
    };
    let found = tracked()
        .into_iter()
        .filter(|path| path != "tests/failpoints")
        // A packed chart is no text, and builds nothing.
        .filter(|path| {
            !["rs", "tgz"]
                .iter()
                .any(|it| files::has_extension(path, it))
        })
        .filter(weakens)
        .collect();
    assert_none("a feature that weakens or kills the host", found);
}

#[test]
fn every_mutant_applies_and_names_a_test() {
    assert_none("an unusable mutant", mutants::broken());
}

#[test]
fn no_code_is_left_unfinished() {
    // Written in two parts, so that the search does not find this file.
    let marks = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
    ];
    let found = Source::all()
        .iter()
        .filter(|source| marks.iter().any(|mark| source.text.contains(mark)))
        .map(|source| source.path.clone())
        .collect();
    assert_none("unfinished code or ignored tests", found);
}

#[test]
fn every_manifest_names_the_licence() {
    let found = tracked()
        .into_iter()
        .filter(|path| path.ends_with("/Cargo.toml"))
        .filter(|path| !files::read(path).contains("license.workspace = true"))
        .collect();
    assert_none("a manifest without the workspace's licence", found);
    assert!(files::read("Cargo.toml").contains("license = \"Apache-2.0\""));
}
