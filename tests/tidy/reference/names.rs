//! The page about labels, annotations, finalizers and field managers.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    TAKES_ANY_TEXT, check, has_extension, read, sentence, table, texts, tracked, without_links,
};
use crate::assert_none;

/// The prefix for labels and annotations.
const PREFIX: &str = "innkeeper.dev/";

/// The files whose documented constants are the labels and annotations.
const NAMES: [&str; 2] = [
    "host/crates/model/src/names.rs",
    "guests/kit/src/tenants.rs",
];

/// An annotation that only the chart sets.
const OF_THE_CHART: (&str, &str) = (
    "innkeeper.dev/grants",
    "Annotation on the Pods of the chart: the hash of the grants of plugin files, so that changed grants replace the Pods.",
);

/// Returns the labels and annotations with their doc comments, without duplicates.
fn names() -> Vec<(String, String)> {
    let is_name = |name: &str| name.len() > PREFIX.len() && name.starts_with(PREFIX);
    let mut names: Vec<(String, String)> = Vec::new();
    for (name, docs) in NAMES.into_iter().flat_map(texts) {
        if is_name(&name) && !names.iter().any(|(known, _)| *known == name) {
            let docs = without_links(&docs)
                // A reference to code, for readers of the code.
                .split(", see `")
                .next()
                .unwrap_or_default()
                .to_owned();
            names.push((name, docs));
        }
    }
    let (name, docs) = OF_THE_CHART;
    names.push((name.to_owned(), docs.to_owned()));
    names
}

/// Returns a source without the unit tests, which may use other names.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// Returns true if a text can be a domain-prefixed label or annotation, and is not an API version.
fn is_key(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.')
            && domain.chars().all(is_part)
            && !name.is_empty()
            && name.chars().all(is_name)
    })
}

/// The plugin and SDK sources, with each one's directory below `guests`.
fn sources_of_plugins() -> Vec<(String, String)> {
    tracked()
        .into_iter()
        .filter(|path| has_extension(path, "rs") && !path.contains("tests"))
        .filter_map(|path| {
            let (plugin, _) = path.strip_prefix("guests/")?.split_once("/src/")?;
            // Neither is in a plugin.
            let is_tool = ["build", "testing"].contains(&plugin);
            (!is_tool).then(|| (plugin.to_owned(), path.clone()))
        })
        .collect()
}

/// Returns the labels and annotations that the plugins define, with the plugin and the doc comment.
fn names_of_plugins() -> Vec<(String, String, String)> {
    let mut names = Vec::new();
    for (plugin, path) in sources_of_plugins() {
        let own = texts(&path)
            .into_iter()
            .filter(|(name, _)| is_key(name) && !name.starts_with(PREFIX));
        names.extend(own.map(|(name, docs)| (plugin.clone(), name, docs)));
    }
    names
}

/// Returns the rows for plugin labels and annotations.
fn rows_of_plugins() -> Vec<[String; 4]> {
    let rows = names_of_plugins().into_iter().map(|(plugin, name, docs)| {
        // The kit defines the labels that all plugins set.
        let plugin = if plugin == "kit" { "all" } else { &plugin };
        let (kind, rest) = docs
            .strip_prefix("The ")
            .and_then(|name| name.split_once(' '))
            .unwrap_or_default();
        assert!(["label", "annotation"].contains(&kind), "{name}: {docs}");
        let meaning = sentence(&capitalized(rest));
        [
            format!("`{name}`"),
            plugin.to_owned(),
            kind.to_owned(),
            meaning,
        ]
    });
    rows.collect()
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

#[test]
fn the_page_of_labels_and_annotations_is_up_to_date() {
    let rows = names().into_iter().map(|(name, docs)| {
        let (kind, rest) = docs.split_once(' ').unwrap_or((&docs, ""));
        let meaning = sentence(&capitalized(rest));
        [format!("`{name}`"), kind.to_lowercase(), meaning]
    });
    let mut body = table(["name", "is", "place and meaning"], rows);
    let managers = [
        (
            "`innkeeper.dev/NAME`",
            "finalizer",
            "On a parent, if the plugin NAME finalizes. On a Plugin, while parents have the finalizer.",
        ),
        (
            "`innkeeper:NAME`",
            "field manager",
            "Writes children of the plugin NAME, unless `spec.fieldManager` names another.",
        ),
        (
            "`innkeeper:NAME:status`",
            "field manager",
            "Writes the parents' status: the plugin's part and the host's conditions.",
        ),
        (
            "`innkeeper:NAME:host`",
            "field manager",
            "Writes the finalizer, and the host's conditions if there is no status from the plugin.",
        ),
    ];
    let rows = managers.map(|row| [row.0, row.1, row.2].map(str::to_owned));
    write!(
        body,
        "\nFinalizers and field managers contain the plugin's name:\n\n{}",
        table(["name", "is", "meaning"], rows)
    )
    .expect(TAKES_ANY_TEXT);
    write!(
        body,
        "\nThe included plugins use further labels and annotations. Users set those on a parent or on an object that a parent names; the plugin sets the others:\n\n{}",
        table(["name", "plugin", "is", "place and meaning"], rows_of_plugins())
    )
    .expect(TAKES_ANY_TEXT);
    let opening = "All labels, annotations, finalizers and field managers that Innkeeper uses.\nPlugins must not set labels or annotations below `innkeeper.dev/`; the host rejects such an answer.";
    check(
        "labels-and-annotations.md",
        "Labels and annotations",
        opening,
        &body,
    );
}

/// Returns the labels and annotations with a prefix that a text names.
fn named(text: &str, prefix: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split(prefix).collect();
    let names = parts.windows(2).filter_map(|pair| {
        let [before, after] = pair else { return None };
        let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '-');
        let (name, rest) = after.split_at(end.unwrap_or(after.len()));
        // `kubectl annotate` removes an annotation whose name ends so.
        let name = name.trim_end_matches('-');
        // An API version, or a part of an address or a longer domain.
        let is_version = name == "v" && rest.starts_with(|c: char| c.is_ascii_digit());
        let is_part = before.ends_with(['.', '/']);
        (!name.is_empty() && !is_version && !is_part).then(|| format!("{prefix}{name}"))
    });
    names.collect()
}

/// Every name below `innkeeper.dev/` in the code, the chart, the examples and the pages has an entry.
#[test]
fn every_label_and_annotation_has_an_entry() {
    let entries = names();
    let is_searched = |path: &String| {
        let tops = ["host/", "guests/", "deploy/", "examples/"];
        let extensions = ["rs", "yaml", "tpl", "md"];
        tops.iter().any(|top| path.starts_with(top))
            && extensions
                .iter()
                .any(|extension| has_extension(path, extension))
            && !path.contains("tests")
    };
    let mut missing = Vec::new();
    for path in tracked().into_iter().filter(is_searched) {
        let unknown = named(product(&read(&path)), PREFIX)
            .into_iter()
            .filter(|name| entries.iter().all(|(entry, _)| entry != name));
        missing.extend(unknown.map(|name| format!("{name} in {path}")));
    }
    let problem = "a label or annotation without an entry in the reference";
    assert_none(problem, missing);
}

/// Every plugin text that can be a label or annotation, and every such name in plugin pages and examples, has an entry.
#[test]
fn every_label_and_annotation_of_a_plugin_has_an_entry() {
    let names = names_of_plugins();
    let is_known = |name: &str| names.iter().any(|(_, known, _)| known == name);
    let mut missing = Vec::new();
    for (_, path) in sources_of_plugins() {
        let text = read(&path);
        let code = product(&text)
            .lines()
            .filter(|line| !line.trim().starts_with("//"));
        let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        // The node label comes from Kubernetes.
        let unknown = literals.filter(|name| {
            is_key(name)
                && !name.starts_with(PREFIX)
                && *name != "kubernetes.io/hostname"
                && !is_known(name)
        });
        missing.extend(unknown.map(|name| format!("{name} in {path}")));
    }
    let domain = |name: &str| {
        name.split_inclusive('/')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let domains: BTreeSet<(&str, String)> = names
        .iter()
        .map(|(plugin, name, _)| (plugin.as_str(), domain(name)))
        .collect();
    assert!(domains.len() > 4, "{domains:?}");
    for (plugin, domain) in domains {
        let tops = [format!("guests/{plugin}/"), format!("examples/{plugin}/")];
        let is_searched = |path: &String| {
            let extensions = ["rs", "yaml", "md"];
            tops.iter().any(|top| path.starts_with(top))
                && extensions
                    .iter()
                    .any(|extension| has_extension(path, extension))
                && !path.contains("tests")
        };
        for path in tracked().into_iter().filter(is_searched) {
            let unknown = named(product(&read(&path)), &domain)
                .into_iter()
                .filter(|name| !is_known(name));
            missing.extend(unknown.map(|name| format!("{name} in {path}")));
        }
    }
    let problem = "a label or annotation of a plugin without a documented constant";
    assert_none(problem, missing);
}

#[test]
fn finds_labels_and_annotations() {
    let text = "apiVersion: innkeeper.dev/v1alpha1\n x/innkeeper.dev/a innkeeper.dev/one: 1\n innkeeper.dev/two- plugins.innkeeper.dev/b";
    assert_eq!(
        named(text, PREFIX),
        ["innkeeper.dev/one", "innkeeper.dev/two"]
    );
}
