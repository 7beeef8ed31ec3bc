//! The pages of the included plugins name the plugins' reasons, labels and annotations.

use std::collections::BTreeSet;

use super::names::{PREFIX, named};
use crate::files::{Source, read};

/// The plugins whose pages list their reasons.
const PLUGINS: [&str; 4] = ["backup", "etcd", "memcached", "wordpress"];

/// The code before a reason or code in plugin files.
const GIVES: [&str; 4] = ["Condition::new(", "Event::", "Warning", "reason: \""];

/// CamelCase literals in these files that are not reasons: kinds and Pod phases.
const NO_REASONS: [&str; 5] = ["Failed", "Job", "Pod", "Secret", "Succeeded"];

/// The node label, which comes from Kubernetes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Returns the string literals in the product code below a directory, in files that contain one of the markers.
fn literals(directory: &str, markers: &[&str]) -> BTreeSet<&'static str> {
    Source::all()
        .iter()
        .filter(|source| {
            source.path.starts_with(directory)
                && !source.path.ends_with("/api.rs")
                && !source.is_test_file()
        })
        .map(|source| source.text.lines().take(source.product_lines()))
        .filter(|product| {
            product
                .clone()
                .any(|line| markers.iter().any(|marker| line.contains(marker)))
        })
        .flatten()
        .filter(|line| !line.trim().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .collect()
}

fn is_camel_case(text: &str) -> bool {
    text.len() > 2
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphabetic())
        && text.chars().any(|c| c.is_ascii_lowercase())
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

#[test]
fn the_page_of_each_plugin_has_its_reasons() {
    let mut missing = Vec::new();
    for plugin in PLUGINS {
        let page = read(&format!("guests/{plugin}/README.md"));
        let code: String = page
            .split('`')
            .skip(1)
            .step_by(2)
            .flat_map(|word| [word, " "])
            .collect();
        let words: BTreeSet<&str> = code.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let mut reasons = literals(&format!("guests/{plugin}/src/"), &GIVES);
        reasons.retain(|reason| is_camel_case(reason) && !NO_REASONS.contains(reason));
        assert!(
            reasons.len() > 8,
            "the test looks in the wrong place: {reasons:?}"
        );
        let unnamed = reasons.difference(&words);
        missing.extend(unnamed.map(|reason| format!("{reason} of {plugin}")));
    }
    crate::assert_none("a reason that the page of its plugin lacks", missing);
}

/// Labels and annotations in the code are in the page, and those in the page and the examples are in the code.
#[test]
fn the_page_of_each_plugin_has_its_labels_and_annotations() {
    let mut problems = Vec::new();
    for (directory, page) in PLUGINS
        .map(|plugin| (plugin, format!("guests/{plugin}/README.md")))
        .into_iter()
        .chain([("kit", "guests/README.md".to_owned())])
    {
        let text = read(&page);
        let mut keys = literals(&format!("guests/{directory}/src/"), &[""]);
        keys.retain(|key| is_key(key) && !key.starts_with(PREFIX) && *key != HOSTNAME);
        assert!(!keys.is_empty(), "the test looks in the wrong place");
        let unnamed = keys.iter().filter(|key| !text.contains(&format!("`{key}")));
        problems.extend(unnamed.map(|key| format!("{page} lacks {key}")));
        let domains: BTreeSet<&str> = keys
            .iter()
            .filter_map(|key| key.split_inclusive('/').next())
            .collect();
        let unknown = domains
            .into_iter()
            .flat_map(|domain| named(&text, domain))
            .filter(|name| !keys.contains(&**name));
        problems.extend(unknown.map(|name| format!("{page} names {name}, which no code does")));
    }
    crate::assert_none("labels and annotations of plugins", problems);
}
