//! The promises (W1 to O5) and faults (F1 to F20) that test names carry: `tests/README.md` explains each id and lists its
//! tests.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;

use super::files::{Source, read};

const README: &str = "tests/README.md";

/// The last line before the generated list.
const MARKER: &str = "<!-- Generated: UPDATE_EXPECT=1 cargo test --release --locked -p innkeeper-tests --test tidy promises -->\n";

/// The first letters of the ids, in the order of the list.
const FAMILIES: &str = "WQALOF";

/// An id such as W6, as the position of its family and its number, which gives the order of the list.
type Id = (usize, u8);

/// Parses an id in upper case, for example `W6`.
fn id(word: &str) -> Option<Id> {
    let number = word.get(1..).filter(|digits| digits.len() <= 2)?;
    Some((FAMILIES.find(word.get(..1)?)?, number.parse().ok()?))
}

fn shown((family, number): Id) -> String {
    format!("{}{number}", &FAMILIES[family..=family])
}

/// Returns the ids in the name of the test that a line declares, as a function or as a row of a macro that makes tests.
fn declared(line: &str) -> Option<(&str, BTreeSet<Id>)> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    let line = line.strip_prefix("fn ").unwrap_or(line);
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = line.split_at(end);
    let words = name
        .split('_')
        .filter(|word| word.starts_with(char::is_lowercase));
    let ids: BTreeSet<Id> = words
        .filter_map(|word| id(&word.to_ascii_uppercase()))
        .collect();
    let is_test = name.contains('_') && rest.starts_with(['(', ':', ' ']) && !ids.is_empty();
    is_test.then_some((name, ids))
}

/// Returns the tests of each id by file. A file whose header names the id is there as well, maybe without a test.
fn carriers() -> BTreeMap<Id, BTreeMap<&'static str, BTreeSet<&'static str>>> {
    let mut found: BTreeMap<Id, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    let own = |source: &&Source| source.path.starts_with("tests/tidy/");
    for source in Source::all().iter().filter(|source| !own(source)) {
        let header = source
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"));
        let words = header.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()));
        for id in words.filter_map(id) {
            found
                .entry(id)
                .or_default()
                .entry(&source.path)
                .or_default();
        }
        for (name, ids) in source.text.lines().filter_map(declared) {
            for id in ids {
                let files = found.entry(id).or_default();
                files.entry(&source.path).or_default().insert(name);
            }
        }
    }
    found
}

/// Returns the list of the README.
fn list() -> String {
    let lines = carriers().into_iter().flat_map(|(id, files)| {
        let lines = files.into_iter().map(|(file, names)| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let separator = if names.is_empty() { "" } else { ": " };
            format!("- {file}{separator}{}\n", names.join(", "))
        });
        let heading = std::iter::once(format!("\n### {}\n\n", shown(id)));
        heading.chain(lines).collect::<Vec<_>>()
    });
    lines.collect()
}

#[test]
fn every_id_of_a_test_is_explained_and_every_explained_id_has_a_test() {
    let readme = read(README);
    let rows = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let explained: BTreeSet<Id> = rows.filter_map(id).collect();
    let carried: BTreeSet<Id> = carriers().into_keys().collect();
    let unexplained = carried.difference(&explained);
    let unexplained = unexplained.map(|id| format!("{} is not explained in {README}", shown(*id)));
    let untested = explained.difference(&carried);
    let untested = untested.map(|id| format!("no test carries {}", shown(*id)));
    let found = unexplained.chain(untested).collect();
    super::assert_none("the table of promises and faults is wrong", found);
}

#[test]
fn the_list_of_tests_is_up_to_date() {
    let readme = read(README);
    let (text, _) = readme
        .split_once(MARKER)
        .expect("the README has the marker");
    expect_file!["../README.md"].assert_eq(&format!("{text}{MARKER}{}", list()));
}

#[test]
fn finds_ids_in_names_of_functions_and_rows() {
    let found = |line| {
        let (name, ids) = declared(line)?;
        Some((
            name,
            ids.into_iter().map(shown).collect::<Vec<_>>().join(" "),
        ))
    };
    assert_eq!(
        found("    fn w6_f9_time_goes_back() {"),
        Some(("w6_f9_time_goes_back", "W6 F9".into()))
    );
    assert_eq!(
        found("async fn is_bound_a5_l1() {"),
        Some(("is_bound_a5_l1", "A5 L1".into()))
    );
    assert_eq!(
        found("    f16_rejects_it: \"it\";"),
        Some(("f16_rejects_it", "F16".into()))
    );
    assert_eq!(
        found("    f2_answers_are_lost 2"),
        Some(("f2_answers_are_lost", "F2".into()))
    );
    assert_eq!(found("fn v1_of_p256_x9_f100_l() {"), None);
    assert_eq!(found("let l1_line = 1;"), None);
}
