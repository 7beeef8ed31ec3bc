//! The search for the first revision that answers a recorded pass differently: `innkeeper bisect`.

use std::{collections::BTreeMap, fs, iter, path::Path};

use innkeeper_command::{Exit, Failure, OrFail as _, Output, ResultFormat, Streams, runtime};
use innkeeper_sandbox::{Recording, description};
use innkeeper_source as source;
use semver::Version;
use serde_json::{Value, json};

use super::{Repeated, read, repeat};
use crate::{
    args::{BisectArgs, BisectReference, Inspected, RegistryArgs},
    diff, plugin_file, render,
};

/// The width of a number in the key of a name: that of the largest 64-bit number.
const NUMBER_WIDTH: usize = 20;

/// One of the published revisions.
#[derive(Debug, PartialEq, Eq)]
struct Revision {
    name: String,
    from: Inspected,
}

/// Searches by halves, prints each tried revision, and then the differences of the first one with another answer.
pub fn run(args: &BisectArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let recording = read(&args.recording, streams)?;
    let revisions = match &args.revisions {
        Inspected::File(directory) => files(directory)?,
        Inspected::Artifact(repository) => artifacts(repository, &args.load.registry)?,
    };
    let [oldest, .., newest] = &revisions[..] else {
        let message = format!(
            "found {} revisions in {}: a search needs two or more, as .wasm files or as tags that are semantic versions",
            revisions.len(),
            args.revisions
        );
        return Err(Failure::new(Exit::Usage, message));
    };
    let (count, first, last) = (revisions.len(), &oldest.name, &newest.name);
    streams.note(&format!("{count} revisions, from {first} to {last}"));
    let mut answers = Answers {
        args,
        recording: &recording,
        revisions: &revisions,
        known: BTreeMap::new(),
    };
    let (expected, reference) = match args.reference {
        BisectReference::Oldest => (answers.of(0)?.answer(), first.clone()),
        BisectReference::Recorded => {
            let answer = Value::Object(recording.answer.clone());
            (answer, "recorded".to_owned())
        }
    };
    let mut tried = Vec::new();
    let first = first_other(count, |at| {
        let differs = !diff::of(&expected, &answers.of(at)?.answer()).is_empty();
        let name = &revisions[at].name;
        tried.push(json!({"revision": name, "differs": differs}));
        if args.output == ResultFormat::Text {
            let word = if differs { "differs" } else { "same" };
            streams.print(&Output::from_line(format!("{word:<7}  {name}")))?;
        }
        Ok(differs)
    })?;
    let differences = match first {
        None => Vec::new(),
        Some(at) => {
            let repeated = answers.of(at)?;
            repeated.note(streams);
            diff::of(&expected, &repeated.answer())
        }
    };
    let first = first.map(|at| &revisions[at].name);
    let output = match (args.output, first) {
        (ResultFormat::Json, _) => {
            Output::json(&json!({"first": first, "tried": tried, "differences": differences}))?
        }
        (ResultFormat::Text, None) => {
            Output::from_line(format!("all {count} revisions answer as {reference}"))
        }
        (ResultFormat::Text, Some(name)) => {
            let mut output = Output::from_line(format!(
                "{name} is the first of {count} revisions that does not answer as {reference}:"
            ));
            for line in &differences {
                output.line(line);
            }
            output
        }
    };
    streams.print(&output)?;
    Ok(match first {
        None => Exit::Success,
        Some(_) => Exit::Finding,
    })
}

/// The answers of the revisions so far.
struct Answers<'a> {
    args: &'a BisectArgs,
    recording: &'a Recording,
    revisions: &'a [Revision],
    known: BTreeMap<usize, Repeated>,
}

impl Answers<'_> {
    fn of(&mut self, at: usize) -> Result<&Repeated, Failure> {
        if !self.known.contains_key(&at) {
            let (args, from) = (self.args, &self.revisions[at].from);
            let described = render::described(from, &args.load)?;
            let repeated = repeat(self.recording, &described, from)?;
            self.known.insert(at, repeated);
        }
        Ok(&self.known[&at])
    }
}

/// Returns the first revision that differs. If the last one does, the search goes by halves, as between a good and a bad
/// commit.
fn first_other(
    count: usize,
    mut differs: impl FnMut(usize) -> Result<bool, Failure>,
) -> Result<Option<usize>, Failure> {
    let (mut same, mut other) = (0, count.saturating_sub(1));
    if differs(same)? {
        return Ok(Some(same));
    }
    if !differs(other)? {
        // A difference that came and went is found only by trying all.
        for at in 1..other {
            if differs(at)? {
                return Ok(Some(at));
            }
        }
        return Ok(None);
    }
    while other - same > 1 {
        let middle = same.midpoint(other);
        if differs(middle)? {
            other = middle;
        } else {
            same = middle;
        }
    }
    Ok(Some(other))
}

/// Returns the plugin files of a directory, oldest first.
fn files(directory: &Path) -> Result<Vec<Revision>, Failure> {
    let message = format!("failed to read the revisions in {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).or_fail(Exit::Usage, &message)? {
        let path = entry.or_fail(Exit::Usage, &message)?.path();
        if path.extension().is_none_or(|it| it != "wasm") {
            continue;
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let from = Inspected::File(path);
        let version = match version_in(name.trim_end_matches(".wasm")) {
            None => described_version(&from)?,
            in_name => in_name,
        };
        found.push((version, Revision { name, from }));
    }
    Ok(in_order(found))
}

/// Returns the version in the description that the file carries.
fn described_version(file: &Inspected) -> Result<Option<Version>, Failure> {
    let bytes = plugin_file::bytes(file, &RegistryArgs::default())?;
    let preview = description::preview(&bytes).ok().flatten();
    Ok(preview.and_then(|preview| Version::parse(&preview.version).ok()))
}

/// Returns the artifacts of a repository whose tags are versions, oldest first.
fn artifacts(repository: &str, registry: &RegistryArgs) -> Result<Vec<Revision>, Failure> {
    let tags = runtime::block_on(source::tags(repository, &registry.settings()))?;
    let found = tags.into_iter().filter_map(|tag| {
        let version = Version::parse(tag.strip_prefix('v').unwrap_or(&tag)).ok()?;
        let from = Inspected::Artifact(format!("{repository}:{tag}"));
        Some((Some(version), Revision { name: tag, from }))
    });
    Ok(in_order(found.collect()))
}

/// Sorts by version, and by name where versions are equal, or if one is missing.
fn in_order(mut found: Vec<(Option<Version>, Revision)>) -> Vec<Revision> {
    let all = found.iter().all(|(version, _)| version.is_some());
    found.sort_by_cached_key(|(version, revision)| {
        (version.clone().filter(|_| all), by_numbers(&revision.name))
    });
    found.into_iter().map(|(_, revision)| revision).collect()
}

/// Returns the version at the end of a name, such as `memcached-1.4.0`.
fn version_in(name: &str) -> Option<Version> {
    let starts = |at: &usize| *at == 0 || name[..*at].ends_with(['-', '_', 'v', '@']);
    let digits = name.match_indices(|it: char| it.is_ascii_digit());
    let mut starts = digits.map(|(at, _)| at).filter(starts);
    starts.find_map(|at| Version::parse(&name[at..]).ok())
}

/// Returns a key that sorts names by the numbers in them: 9 before 10.
fn by_numbers(name: &str) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    // The end of the name ends a number as well.
    for it in name.chars().chain(['\0']) {
        if it.is_ascii_digit() {
            digits.push(it);
            continue;
        }
        if !digits.is_empty() {
            let zeros = NUMBER_WIDTH.saturating_sub(digits.len());
            key.extend(iter::repeat_n('0', zeros).chain(digits.drain(..)));
        }
        key.push(it);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches revisions of which these differ; returns the first one and the number of tries.
    fn search(count: usize, differ: impl Fn(usize) -> bool) -> (Option<usize>, usize) {
        let mut tries = 0;
        let first = first_other(count, |at| {
            tries += 1;
            Ok(differ(at))
        });
        (first.unwrap(), tries)
    }

    #[test]
    fn o5_the_first_other_revision_is_found_by_halves() {
        for count in 2..40 {
            assert_eq!(search(count, |_| false), (None, count));
            assert_eq!(search(count, |_| true), (Some(0), 1));
            for first in 1..count {
                let (found, tries) = search(count, |at| at >= first);
                assert_eq!(found, Some(first), "of {count}");
                let halves = usize::try_from((count - 1).next_power_of_two().ilog2()).unwrap();
                assert!(tries <= 2 + halves, "{tries} of {count}");
            }
        }
        let (found, _) = search(16, |at| at == 5 || at == 6);
        assert_eq!(found, Some(5), "a difference that came and went");
    }

    #[test]
    fn o5_revisions_are_sorted_by_version_or_else_by_name() {
        for (names, sorted) in [
            (
                "pond-1.10.0 pond-1.9.0 pond-1.9.0-rc.1 pond_v1.2.0 2.0.0",
                "pond_v1.2.0 pond-1.9.0-rc.1 pond-1.9.0 pond-1.10.0 2.0.0",
            ),
            ("b10 b9 a", "a b9 b10"),
            // One has no version.
            ("pond-2.0.0 apond-10.0.0 b", "apond-10.0.0 b pond-2.0.0"),
        ] {
            let found = names.split(' ').map(|name| {
                let from = Inspected::File(name.into());
                let name = name.to_owned();
                (version_in(&name), Revision { name, from })
            });
            let names: Vec<String> = in_order(found.collect())
                .into_iter()
                .map(|it| it.name)
                .collect();
            assert_eq!(names.join(" "), sorted);
        }
        assert_eq!(version_in("x86-64"), None);
        assert_eq!(version_in("s3-1.0.0"), Some(Version::new(1, 0, 0)));
    }
}
