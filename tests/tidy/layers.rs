//! The order of the host's modules: a module uses only modules of lower layers.

use std::collections::BTreeMap;

use crate::files::Source;

/// Lower layers first; modules in one layer do not know each other.
const LAYERS: [&[&str]; 10] = [
    &["clock", "model", "yaml"],
    &["config", "metrics"],
    &["policy", "plan", "schema"],
    &["plugin", "cluster", "apply", "source"],
    &["reconcile"],
    &["controller", "lease"],
    // A Plugin resource is worked on by a controller as any parent is.
    &["plugins"],
    &[
        "admin",
        "run",
        "render",
        "inspect",
        "manifests",
        "build",
        "registry",
        "survey",
        "dev",
    ],
    &["command"],
    &["main"],
];

/// Exceptions within the top layer: `run` starts all of them, `dev` is `run` with a local control plane, and `survey`
/// reads the answers of `admin`.
const WITHIN_LAYER: [(&str, &str); 3] = [("run", "admin"), ("dev", "run"), ("survey", "admin")];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the host's module of a file; none for the crate root.
fn module_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("host/src/")?;
    let first = rest.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (module != "lib").then_some(module)
}

/// Returns the modules of the host without a layer.
pub(crate) fn unplaced() -> Vec<String> {
    let modules: BTreeMap<&str, &str> = Source::all()
        .iter()
        .filter_map(|source| Some((module_of(&source.path)?, source.path.as_str())))
        .collect();
    modules
        .into_iter()
        .filter(|(module, _)| layer_of(module).is_none())
        .map(|(module, path)| format!("{module} ({path})"))
        .collect()
}

/// Returns each use of a module by a layer that must not know it.
pub(crate) fn violations() -> Vec<String> {
    let mut found = Vec::new();
    for source in Source::all() {
        let Some(module) = module_of(&source.path) else {
            continue;
        };
        let Some(own) = layer_of(module) else {
            continue;
        };
        for (number, named) in names(&source.text) {
            let Some(layer) = layer_of(&named) else {
                continue;
            };
            let allowed =
                named == module || layer < own || WITHIN_LAYER.contains(&(module, named.as_str()));
            if !allowed {
                found.push(format!("{}:{number}: {module} names {named}", source.path));
            }
        }
    }
    found
}

/// Returns the modules that a text names with `crate::` or, in the binary, with `innkeeper::`, and their line numbers.
fn names(text: &str) -> Vec<(usize, String)> {
    let code: String = text
        .lines()
        .map(|line| {
            if line.trim_start().starts_with("//") {
                ""
            } else {
                line
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    for marker in ["crate::", "innkeeper::"] {
        for (at, _) in code.match_indices(marker) {
            let number = code[..at].matches('\n').count() + 1;
            for name in heads(&code[at + marker.len()..]) {
                found.push((number, name));
            }
        }
    }
    found
}

/// Returns the first segment of a path, or of each path in a braced group.
fn heads(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let mut depth = 0_usize;
    let mut start = 0;
    let mut found = Vec::new();
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(word(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(word(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn names_are_found_in_groups() {
    let text =
        "use crate::{model::{Object, Uid}, plan, cluster::Store};\nlet x = crate::apply::run();";
    let found: Vec<String> = names(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["model", "plan", "cluster", "apply"]);
}
