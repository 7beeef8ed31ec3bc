//! The page about labels, annotations, finalizers and field managers.

use std::fmt::Write as _;

use innkeeper_model::NAMES;

use super::{TAKES_ANY_TEXT, check, sentence, table};
use crate::{
    assert_none,
    files::{has_extension, read, tracked},
};

/// The prefix for labels and annotations.
pub(super) const PREFIX: &str = "innkeeper.dev/";

/// Annotations that the host neither sets nor reads.
const FOR_OTHERS: [(&str, &str); 2] = [
    (
        "innkeeper.dev/shared-with",
        "Annotation on an object of one parent that shares it with others: `<kind>.<group>/<name>` of a parent in the same namespace, several separated by commas. The included plugins read it. `<kind>/<name>` stands for the parents of this kind in all groups, so use it only for a kind that one plugin has.",
    ),
    (
        "innkeeper.dev/grants",
        "Annotation on the Pods of the chart: the hash of the grants of plugin files, so that changed grants replace the Pods.",
    ),
];

/// Returns the labels and annotations with their descriptions.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.iter().copied().chain(FOR_OTHERS)
}

/// Returns a source without the unit tests, which may use other names.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

#[test]
fn the_page_of_labels_and_annotations_is_up_to_date() {
    let rows = names().map(|(name, docs)| {
        let (kind, rest) = docs.trim().split_once(' ').unwrap_or((docs, ""));
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
    body.push_str("\nThe pages of the [included plugins](../../../guests/README.md) list the plugins' own labels and annotations.\n");
    let opening = "All labels, annotations, finalizers and field managers that Innkeeper uses.\nPlugins must not set labels or annotations below `innkeeper.dev/`; the host rejects such an answer.";
    check(
        "labels-and-annotations.md",
        "Labels and annotations",
        opening,
        &body,
    );
}

/// Returns the labels and annotations with a prefix that a text names.
pub(super) fn named(text: &str, prefix: &str) -> Vec<String> {
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
            .filter(|name| names().all(|(entry, _)| entry != name));
        missing.extend(unknown.map(|name| format!("{name} in {path}")));
    }
    let problem = "a label or annotation without an entry in the reference";
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
