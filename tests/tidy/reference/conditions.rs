//! The conditions page.

use std::{collections::BTreeSet, fmt::Write as _};

use innkeeper_model::reason;

use super::{TAKES_ANY_TEXT, check, reasons::REASONS, sentence, table, texts};
use crate::files::Source;

/// The start of the remedy in a reason's doc comment.
const REMEDY: &str = " Remedy: ";

const PARENT_REASONS: &str = "host/crates/model/src/condition.rs";

/// The condition types, which have no remedy.
const TYPES: [&str; 4] = [
    reason::SYNCED,
    reason::READY,
    reason::RECONCILING,
    reason::STALLED,
];

#[test]
fn the_page_of_conditions_is_up_to_date() {
    let rows = remedied(PARENT_REASONS);
    let mut body = "## Conditions of a parent\n\n\
        | condition | meaning |\n\
        |---|---|\n\
        | `Synced` | Whether the last pass did all its work: True (`Applied`), False after a failure, Unknown while no pass runs. |\n\
        | `Ready` | Whether all children are ready, unless the plugin sets `Ready` itself. |\n\
        | `Stalled` | After a failure: True if the host retries only after a change. Read by Flux and kpt. |\n\
        | `Reconciling` | After a failure: True if the host retries by itself. Read by Flux and kpt. |\n\n\
        `Stalled` and `Reconciling` have the reason and message of `Synced`, unless the plugin sets them itself.\n\
        `observedGeneration` is the generation that a condition describes.\n\n"
        .to_owned();
    let head = ["reason", "meaning", "remedy"];
    body.push_str(&table(head, rows));
    body.push_str(
        "\n## Conditions of a Plugin\n\n\
        | condition | meaning |\n\
        |---|---|\n\
        | `Fetched`, `Verified`, `Compiled`, `Described`, `Granted`, `Serving` | The stages of loading a revision. A stage that succeeded has the stage's name as the reason, unless there is more to say. |\n\
        | `Ready` | True while the declared revision is active and passes run. |\n\
        | `Degraded` | True while a stage of the declared revision fails. The message says whether an earlier revision is active. |\n\
        | `RolledBack` | True after the host reactivated an earlier revision by itself. |\n\n",
    );
    let rows = REASONS.iter().map(|[condition, reason, meaning, remedy]| {
        let condition = format!("`{condition}`").replace("`any`", "any stage");
        [
            condition,
            format!("`{reason}`"),
            (*meaning).to_owned(),
            (*remedy).to_owned(),
        ]
    });
    write!(
        body,
        "{}",
        table(["condition", "reason", "meaning", "remedy"], rows)
    )
    .expect(TAKES_ANY_TEXT);
    let opening = "Every reason in the conditions of parents and Plugins, with the remedy.\n\
        `kubectl describe` shows the condition's message, which names the object, the cause and the values. `innkeeper status` lists parents that are not Ready.";
    check("conditions.md", "Conditions and reasons", opening, &body);
}

/// Returns the rows for this file's reasons whose comments end with a remedy.
fn remedied(path: &str) -> Vec<[String; 3]> {
    let row = |(name, docs): (String, String)| {
        let (meaning, remedy) = docs.split_once(REMEDY)?;
        Some([format!("`{name}`"), sentence(meaning), sentence(remedy)])
    };
    texts(path).into_iter().filter_map(row).collect()
}

#[test]
fn every_reason_of_parents_has_a_remedy() {
    let missing = texts(PARENT_REASONS)
        .into_iter()
        .filter(|(_, docs)| !docs.contains(REMEDY))
        .map(|(name, _)| name)
        .filter(|name| !TYPES.contains(&name.as_str()));
    crate::assert_none("a reason whose comment has no remedy", missing.collect());
}

/// CamelCase literals in the manager that are not reasons: kinds, condition types and statuses.
const NO_REASONS: [&str; 19] = [
    "Age",
    "CacheFull",
    "ConfigMap",
    "CustomResourceDefinition",
    "Degraded",
    "False",
    "Faults",
    "Fetched",
    "Namespaced",
    "Parents",
    "Plugin",
    "PluginStatus",
    "Reason",
    "Revision",
    "Secret",
    "ServiceAccount",
    "True",
    "Unknown",
    "Version",
];

fn is_camel_case(text: &str) -> bool {
    text.len() > 2
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphabetic())
        && text.chars().any(|c| c.is_ascii_lowercase())
}

#[test]
fn every_reason_of_plugins_has_an_entry() {
    let entries: BTreeSet<&str> = REASONS.iter().map(|entry| entry[1]).collect();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for source in Source::all() {
        let path = &source.path;
        let gives_reasons = path.starts_with("host/crates/plugin-controller/src/")
            && !path.contains("/resource")
            && !["/lib.rs", "/testing.rs"]
                .iter()
                .any(|name| path.ends_with(name))
            || path.ends_with("resource/identity.rs");
        if gives_reasons && !source.is_test_file() {
            let product: Vec<&str> = source.text.lines().take(source.product_lines()).collect();
            let literals = product.join("\n");
            listed.extend(
                literals
                    .split('"')
                    .skip(1)
                    .step_by(2)
                    .filter(|reason| is_camel_case(reason))
                    .map(str::to_owned),
            );
        }
    }
    // Source error categories become reasons in CamelCase; the compiler and the sandbox have separate ones.
    let sources = crate::files::read("host/crates/source/src/error.rs");
    let categories = sources
        .split("=> (\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    // Only commands create signatures.
    let categories = categories.filter(|category| *category != "signing-failed");
    listed.extend(categories.map(|category| category.split('-').map(capital).collect::<String>()));
    for errors in ["artifact/error.rs", "error.rs"] {
        let errors = crate::files::read(&format!("host/crates/sandbox/src/{errors}"));
        let (_, reasons) = errors
            .split_once("fn reason")
            .expect("the errors have reasons");
        let reasons = reasons.split("\n    }\n").next().unwrap_or_default();
        listed.extend(reasons.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    listed.retain(|name| !NO_REASONS.contains(&name.as_str()));
    assert!(
        listed.len() > 40,
        "the test looks in the wrong place: {listed:?}"
    );
    let missing = listed
        .iter()
        .filter(|name| !entries.contains(name.as_str()))
        .cloned()
        .collect();
    crate::assert_none("a reason without an entry in REASONS", missing);
    let unused = entries
        .iter()
        .filter(|name| !listed.contains(**name))
        .map(|name| (*name).to_owned())
        .collect();
    crate::assert_none("an entry in REASONS that no code gives", unused);
}

/// The plugins whose pages list their reasons.
const PLUGINS: [&str; 4] = ["backup", "etcd", "memcached", "wordpress"];

/// The code before a reason or code in plugin files.
const GIVES: [&str; 4] = ["Condition::new(", "Event::", "Warning", "reason: \""];

/// CamelCase literals in these files that are not reasons: kinds and Pod phases.
const NO_REASONS_OF_PLUGINS: [&str; 5] = ["Failed", "Job", "Pod", "Secret", "Succeeded"];

/// Returns the CamelCase literals in a plugin's files that report reasons and codes.
fn given(plugin: &str) -> BTreeSet<&'static str> {
    let directory = format!("guests/{plugin}/src/");
    Source::all()
        .iter()
        .filter(|source| {
            source.path.starts_with(&directory)
                && !source.path.ends_with("/api.rs")
                && !source.is_test_file()
        })
        .flat_map(|source| {
            let product = source.text.lines().take(source.product_lines());
            let gives = product
                .clone()
                .any(|line| GIVES.iter().any(|marker| line.contains(marker)));
            product
                .flat_map(|line| line.split('"'))
                .filter(move |text| gives && is_camel_case(text))
        })
        .filter(|reason| !NO_REASONS_OF_PLUGINS.contains(reason))
        .collect()
}

#[test]
fn the_page_of_each_plugin_has_its_reasons() {
    let missing = PLUGINS.into_iter().flat_map(|plugin| {
        let page = crate::files::read(&format!("guests/{plugin}/README.md"));
        let code: String = page
            .split('`')
            .skip(1)
            .step_by(2)
            .flat_map(|word| [word, " "])
            .collect();
        let words: BTreeSet<&str> = code.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let reasons = given(plugin);
        assert!(
            reasons.len() > 8,
            "the test looks in the wrong place: {reasons:?}"
        );
        reasons
            .into_iter()
            .filter(|reason| !words.contains(reason))
            .map(|reason| format!("{reason} of {plugin}"))
            .collect::<Vec<_>>()
    });
    crate::assert_none(
        "a reason that the page of its plugin lacks",
        missing.collect(),
    );
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|c| c.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}
