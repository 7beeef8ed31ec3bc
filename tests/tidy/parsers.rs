//! Every parser of untrusted text has bounds, and tests for them: the table in `deploy/docs/parsers.md` names existing
//! tests, and all fuzz targets.

use super::{
    assert_none,
    files::{read, tracked},
};

const PAGE: &str = "deploy/docs/parsers.md";

/// The cells in a row: text, author, bytes, depth and count, time and memory, tests.
const CELLS: usize = 6;

/// The table rows, without heads.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page.lines().filter_map(|line| {
        let cells = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(cells.split('|').map(str::trim).collect::<Vec<_>>())
    });
    lines
        .filter(|cells| cells[0] != "text" && !cells[0].starts_with("---"))
        .collect()
}

/// The file and the name of each test in a cell.
fn tests<'a>(cell: &'a str) -> Vec<(&'a str, &'a str)> {
    let entry = |entry: &'a str| entry.split_once(" `").unwrap_or((entry, ""));
    cell.split(", ")
        .map(entry)
        .map(|(file, test)| (file, test.trim_end_matches('`')))
        .collect()
}

/// Returns true if a file has a test with this name, as a function after an attribute or as a row in a macro.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(place, line)| {
        let is_function = line
            .trim_start_matches("async ")
            .strip_prefix("fn ")
            .is_some_and(|rest| rest.starts_with(&format!("{name}(")));
        let mut attributes = lines[..place].iter().rev().take_while(|line| {
            line.starts_with("#[") || line.starts_with("///") || line.ends_with(")]")
        });
        is_function
            && attributes
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
            || line.starts_with(&format!("{name}:"))
    })
}

#[test]
fn every_parser_of_untrusted_text_has_bounds_and_tests() {
    let page = read(PAGE);
    let rows = rows(&page);
    assert!(rows.len() > 30, "the test looks in the wrong place");
    let paths = tracked();
    let mut problems = Vec::new();
    for cells in &rows {
        let [text, author, .., named] = cells.as_slice() else {
            problems.push(format!("{cells:?} has too few cells"));
            continue;
        };
        if cells.len() != CELLS || text.is_empty() || author.is_empty() {
            problems.push(format!("{text}: {} cells", cells.len()));
        }
        if cells[2..CELLS - 1].iter().all(|bound| bound.is_empty()) {
            problems.push(format!("{text}: no bound"));
        }
        for (file, test) in tests(named) {
            if !paths.iter().any(|path| path == file) || !has_test(&read(file), test) {
                problems.push(format!("{text}: {file} has no test {test}"));
            }
        }
    }
    assert_none("the table of parsers", problems);
}

#[test]
fn every_fuzz_target_holds_a_bound_of_a_parser() {
    let page = read(PAGE);
    let paths = tracked();
    let mut targets: Vec<&str> = paths
        .iter()
        .filter(|path| path.starts_with("tests/fuzz/corpus/"))
        .filter_map(|path| path.split('/').nth(3))
        .collect();
    targets.dedup();
    assert!(targets.len() > 7, "{targets:?}");
    let missing = targets
        .iter()
        .filter(|target| !page.contains(&format!("tests/fuzz/{target}.rs")))
        .map(|target| (*target).to_owned());
    assert_none(
        "a fuzz target outside of the table of parsers",
        missing.collect(),
    );
}
