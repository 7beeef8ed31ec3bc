//! Each misbehaviour has a test: the table in `tests/guests/README.md` matches the guests and the tests.

use std::collections::BTreeSet;

use super::{
    files::{Source, read},
    promises::tests_of,
};

const TABLE: &str = "tests/guests/README.md";

/// Files whose functions make misbehaving components; a test has to use each of them.
const MAKERS: [&str; 2] = ["tests/support/astray.rs", "tests/support/handmade.rs"];

/// A row of the table.
struct Row {
    /// The guest and its behaviour, or only the guest if it has one behaviour; none for a component made by hand.
    guest: Option<String>,
    file: String,
    test: String,
}

fn rows() -> Vec<Row> {
    let table = read(TABLE);
    let cells = table.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<&str> = line.split(" | ").collect();
        let [_, guest, test] = *cells else {
            return None;
        };
        let (file, test) = test.split_once(' ')?;
        Some(Row {
            guest: (guest != "by hand").then(|| guest.to_owned()),
            file: file.to_owned(),
            test: test.to_owned(),
        })
    });
    cells.collect()
}

/// Converts `MadeUpName` to `made-up-name`.
fn kebab_case(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

/// Returns the behaviours that a guest knows: the cases of its kebab-case enums, and the texts that it matches.
fn behaviours(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut is_named, mut is_inside) = (false, false);
    for line in text.lines() {
        match line {
            "#[serde(rename_all = \"kebab-case\")]" => is_named = true,
            "}" => is_inside = false,
            _ if line.contains("enum ") => is_inside = std::mem::take(&mut is_named),
            _ => {}
        }
        let line = line.trim();
        if let Some(case) = line.strip_suffix(',')
            && is_inside
            && case.chars().all(|c| c.is_ascii_alphanumeric())
        {
            found.insert(kebab_case(case));
        }
        if let Some((text, _)) = line.split_once("\" => ")
            && let Some(text) = text.strip_prefix('"')
        {
            found.insert(text.to_owned());
        }
    }
    found
}

/// Returns each guest with each of its behaviours, or alone if it has none.
fn offered() -> BTreeSet<String> {
    let guest = |source: &&Source| {
        source.path.starts_with("tests/guests/") && source.path.ends_with("/src/lib.rs")
    };
    let guests = Source::all().iter().filter(guest);
    let offered = guests.flat_map(|source| {
        let guest = source.path.split('/').nth(2).unwrap_or_default();
        let behaviours = behaviours(&source.text);
        if behaviours.is_empty() {
            return vec![guest.to_owned()];
        }
        let named = behaviours.iter().map(|it| format!("{guest} {it}"));
        named.collect()
    });
    offered.collect()
}

/// Returns the text of a test, and the lines of its file outside of tests; none if the file has no such test.
fn parts<'a>(file: &'a str, wanted: &str) -> Option<(String, Vec<&'a str>)> {
    let (mut own, mut common) = (None, Vec::new());
    let mut name = "";
    let (mut is_test, mut is_own) = (false, false);
    for line in file.lines() {
        let trimmed = line.trim_start();
        if trimmed == "#[test]" || trimmed == "#[tokio::test]" {
            is_test = true;
        } else if is_test && name.is_empty() {
            let after = trimmed.trim_start_matches("async ").strip_prefix("fn ");
            name = after.and_then(|it| it.split('(').next()).unwrap_or("?");
            is_own = name == wanted;
            if is_own {
                own = Some(String::new());
            }
        }
        // A row of a macro that makes tests.
        if !is_test && trimmed.starts_with(&format!("{wanted}:")) {
            own.get_or_insert_default();
        }
        match &mut own {
            Some(own) if is_own => own.push_str(line),
            _ if !is_test => common.push(line),
            _ => {}
        }
        if line == "}" {
            (is_test, is_own, name) = (false, false, "");
        }
    }
    Some((own?, common))
}

/// Returns true if a text requests a behaviour: by its name, or by a function of that name.
fn mentions(text: &str, told: &str) -> bool {
    let call = format!("{}(", told.replace('-', "_"));
    text.contains(&format!("\"{told}\"")) || text.contains(&call)
}

/// Returns the problem of a row, if it has one.
fn problem(row: &Row) -> Option<String> {
    let Row { guest, file, test } = row;
    let source = Source::all().iter().find(|source| source.path == *file);
    let parts = source.and_then(|source| parts(&source.text, test));
    let Some((own, common)) = parts else {
        return Some(format!("{file} has no test {test}"));
    };
    let told = guest.as_ref()?.rsplit(' ').next()?;
    let is_told = mentions(&own, told) || common.iter().any(|line| mentions(line, told));
    (!is_told).then(|| format!("{test} in {file} does not request {guest:?}"))
}

#[test]
fn every_misbehaviour_has_a_test() {
    let rows = rows();
    assert!(rows.len() > 80, "the table is {} rows", rows.len());
    let tested: BTreeSet<&String> = rows.iter().filter_map(|row| row.guest.as_ref()).collect();
    let offered = offered();
    let without = offered.iter().filter(|it| !tested.contains(it));
    let without = without.map(|it| format!("the guest {it} has no test in {TABLE}"));
    let gone = tested.iter().filter(|it| !offered.contains(**it));
    let gone = gone.map(|it| format!("no guest offers {it} of {TABLE}"));
    let named: BTreeSet<&str> = rows.iter().map(|row| row.test.as_str()).collect();
    // A plan of the fault matrix uses guests of the table, but shows no case of its own.
    let unnamed = tests_of("F16").into_iter().filter(|(file, test)| {
        !file.starts_with("tests/cluster/faults/") && !named.contains(*test)
    });
    let unnamed = unnamed.map(|(_, test)| format!("{test} is not in {TABLE}"));
    let found = without.chain(gone).chain(unnamed);
    let found = found.chain(rows.iter().filter_map(problem)).collect();
    super::assert_none("the table of misbehaviours is wrong", found);
}

#[test]
fn every_misbehaving_component_has_a_test() {
    let makers = MAKERS.iter().flat_map(|path| {
        let module = path.rsplit('/').next().unwrap_or_default();
        let module = module.trim_end_matches(".rs").to_owned();
        let text = read(path);
        let names = text.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix("pub fn ")?.split_once('(')?;
            Some(format!("{module}::{name}("))
        });
        names.collect::<Vec<_>>()
    });
    let is_used = |maker: &String| {
        let mut sources = Source::all().iter();
        sources.any(|source| source.text.contains(maker))
    };
    let unused = makers.filter(|maker| !is_used(maker)).collect();
    super::assert_none("misbehaving components without a test", unused);
}

#[test]
fn finds_a_behaviour_without_a_test() {
    let guest = "#[serde(rename_all = \"kebab-case\")]\npub(crate) enum Behaviour {\n    /// Words.\n    MadeUp,\n}\n\
        enum Other {\n    Case,\n}\nfn answer() {\n        \"key-twice\" => 1,\n}\n";
    let found: Vec<String> = behaviours(guest).into_iter().collect();
    assert_eq!(found, ["key-twice", "made-up"]);

    let tests = "const ALL: [&str; 1] = [\"in-a-table\"];\n\n#[test]\nfn one() {\n    tell(\"by-name\");\n}\n\n\
        #[test]\nfn other() {\n    by_call();\n}\n";
    let tells = |test: &str, told: &str| {
        let (own, common) = parts(tests, test)?;
        Some(mentions(&own, told) || common.iter().any(|line| mentions(line, told)))
    };
    assert_eq!(tells("one", "by-name"), Some(true));
    assert_eq!(tells("one", "in-a-table"), Some(true));
    assert_eq!(tells("one", "by-call"), Some(false));
    assert_eq!(tells("other", "by-call"), Some(true));
    assert_eq!(tells("none", "by-call"), None);
}
