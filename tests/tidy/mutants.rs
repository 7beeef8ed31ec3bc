//! Checks that each patch in `tests/mutants` applies to the tree and names an existing test.

use std::{path::Path, process::Command};

use innkeeper_tests::manifest::root;

use super::files::{Source, has_extension, read, tracked};

/// The lines that a patch begins with, in this order.
const HEADER: [&str; 3] = ["suite: ", "test: ", "breaks: "];

/// The patches that `tests/mutants/run` cannot use, with the reason.
pub(crate) fn broken() -> Vec<String> {
    let patches: Vec<String> = tracked()
        .into_iter()
        .filter(|path| path.starts_with("tests/mutants/") && has_extension(path, "patch"))
        .collect();
    assert!(!patches.is_empty(), "there are no mutants to check");
    let reason = |path: &String| check(path).err().map(|reason| format!("{path}: {reason}"));
    patches.iter().filter_map(reason).collect()
}

fn check(path: &str) -> Result<(), String> {
    let text = read(path);
    let mut lines = text.lines();
    let mut header = Vec::new();
    for name in HEADER {
        let value = lines.next().and_then(|line| line.strip_prefix(name));
        header.push(value.ok_or_else(|| format!("the header line \"{name}\" is missing"))?);
    }
    let patched = lines
        .find_map(|line| line.strip_prefix("+++ b/"))
        .ok_or("it changes no file")?;
    let crate_root = match (header[0], header[0].strip_prefix("unit ")) {
        ("unit", _) => package(patched)?,
        ("cluster", _) => "tests/cluster".to_owned(),
        (_, Some(directory)) => directory.to_owned(),
        (suite, None) => return Err(format!("unknown suite {suite}")),
    };
    let function = header[1].rsplit("::").next().unwrap_or_default();
    let definition = format!("fn {function}(");
    let is_there = Source::all().iter().any(|source| {
        source.path.starts_with(&format!("{crate_root}/")) && source.text.contains(&definition)
    });
    if !is_there {
        return Err(format!("{crate_root} has no test {function}"));
    }
    applies(path)
}

/// The directory of the package that contains a file.
fn package(path: &str) -> Result<String, String> {
    Path::new(path)
        .ancestors()
        .skip(1)
        .filter(|directory| *directory != Path::new(""))
        .find(|directory| root().join(directory).join("Cargo.toml").exists())
        .and_then(Path::to_str)
        .map(str::to_owned)
        .ok_or_else(|| format!("{path} is part of no package"))
}

fn applies(path: &str) -> Result<(), String> {
    let output = Command::new("git")
        .args(["apply", "--check", path])
        .current_dir(root())
        .output()
        .map_err(|error| format!("failed to start git: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
