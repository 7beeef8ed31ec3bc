//! Plan results in `target/fault-report.txt`: each plan with its violations, and a summary by row.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use innkeeper_tests::manifest::root;

/// One plan that has run.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) row: String,
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// The slowest step.
    pub(crate) slowest: String,
    pub(crate) violations: Vec<String>,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Records a plan's result. Rewrites the file after every plan, so it is complete however the suite
/// ends.
pub(crate) fn record(entry: Entry) {
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    entries.push(entry);
    let text = text(&entries).expect("writing to a String cannot fail");
    let directory = root().join("target");
    let written = fs::create_dir_all(&directory)
        .and_then(|()| fs::write(directory.join("fault-report.txt"), text));
    written.expect("the report can be written");
}

fn text(entries: &[Entry]) -> Result<String, fmt::Error> {
    let mut rows: BTreeMap<&str, (usize, Vec<&str>, Duration)> = BTreeMap::new();
    for entry in entries {
        let (plans, failed, took) = rows.entry(&entry.row).or_default();
        *plans += 1;
        *took += entry.took;
        if !entry.violations.is_empty() {
            failed.push(&entry.name);
        }
    }
    let mut text = String::from("row  plans  violated  seconds  plans that were violated\n");
    for (row, (plans, failed, took)) in &rows {
        let count = failed.len();
        let seconds = took.as_secs();
        let names = failed.join(" ");
        writeln!(text, "{row:<4} {plans:>5} {count:>9} {seconds:>8}  {names}")?;
    }
    let violated: Vec<&Entry> = entries
        .iter()
        .filter(|entry| !entry.violations.is_empty())
        .collect();
    let plans = entries.len();
    let count = violated.len();
    writeln!(text, "{plans} plans run, {count} violated")?;
    for entry in violated {
        let violations = entry.violations.join("\n  ");
        writeln!(text, "\n{}\n  {violations}", entry.name)?;
    }
    writeln!(text)?;
    for entry in entries {
        let name = &entry.name;
        let seconds = entry.took.as_secs_f64();
        let slowest = &entry.slowest;
        writeln!(text, "{name} {seconds:.1} s, of it {slowest}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_and_violations_listed() {
        let entry = |name: &str, violations: &[&str]| Entry {
            row: "F07".to_owned(),
            name: name.to_owned(),
            took: Duration::from_millis(1500),
            slowest: "1.2s Converge of round 0".to_owned(),
            violations: violations.iter().map(|text| (*text).to_owned()).collect(),
        };
        let text = text(&[entry("F7:1", &[]), entry("F7:2", &["O-live: late"])]).unwrap();
        assert!(
            text.contains("F07      2         1        3  F7:2\n"),
            "{text}"
        );
        assert!(text.contains("2 plans run, 1 violated"), "{text}");
        assert!(text.contains("F7:2\n  O-live: late"), "{text}");
        assert!(text.contains("F7:1 1.5 s, of it 1.2s Converge"), "{text}");
    }
}
