//! Smaller recordings that still show a failure: `innkeeper shrink`.
//!
//! Parts of the input are removed: children, read objects, and fields of all objects. The names of objects stay.

use std::{ops::Range, path::Path};

use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams, file};
use innkeeper_sandbox::{Described, Recording};
use serde::Deserialize as _;
use serde_json::Value;

use super::{Repeated, plugin, read, repeat};
use crate::{
    args::{Inspected, ShrinkArgs},
    render,
    shrink::{self, Smaller},
};

/// The most repeated calls. Each takes about a millisecond, so that the command ends within seconds.
const TRIES_MAX: usize = 5_000;

/// The failure to encode the result.
const ENCODE: &str = "failed to encode the recording";

/// Writes the smallest recording that shows the same failure.
pub fn run(args: &ShrinkArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let recording = read(&args.recording, streams)?;
    let against = args.against.as_ref().map(|from| {
        let described = render::described(from, &args.load)?;
        Ok::<_, Failure>((from.clone(), described))
    });
    let builds = Builds {
        plugin: plugin(args.plugin.as_ref(), &args.load)?,
        against: against.transpose()?,
    };
    let Some(failure) = builds.failure_of(&recording)? else {
        let (plugin, _) = &builds.plugin;
        let problem = match &args.against {
            Some(other) => format!("{plugin} and {other} give the same answer"),
            None => format!(
                "{plugin} ends without a fault: give the build with another answer by --against"
            ),
        };
        let message = format!("the recording shows no failure: {problem}");
        return Err(Failure::new(Exit::Usage, message));
    };
    let shown = failure.signs();
    let whole = serde_json::to_value(&recording).or_fail(Exit::Failure, ENCODE)?;
    let before = whole.to_string().len();
    let mut tries = 0;
    let failure_of = |input: &Value| {
        tries += 1;
        let Ok(recording) = Recording::deserialize(input) else {
            return Ok(None);
        };
        match builds.failure_of(&recording) {
            Ok(failure) => Ok(failure.filter(|failure| failure.signs() == shown)),
            // The rest of the configuration does not fit the schema.
            Err(failure) if failure.exit() == Exit::Usage => Ok(None),
            Err(failure) => Err(failure),
        }
    };
    let (smallest, failure) = shrink::smallest((whole, failure), TRIES_MAX, smaller, failure_of)?;
    let removed = before - smallest.to_string().len();
    let mut smallest = Recording::deserialize(smallest).or_fail(Exit::Failure, ENCODE)?;
    let expected = failure.other.as_ref().unwrap_or(&failure.repeated);
    expected.becomes_expected(&mut smallest);
    let text = serde_json::to_string(&smallest).or_fail(Exit::Failure, ENCODE)?;
    keep(&args.to, &text)?;
    streams.note(&format!(
        "removed {removed} bytes of the input in {tries} tries"
    ));
    if tries == TRIES_MAX {
        streams.note("the tries are used up: a second run on the result may make it smaller");
    }
    streams.print(&Output::from_line(args.to.display().to_string()))?;
    Ok(Exit::Success)
}

/// The plugin, and another build of it.
struct Builds {
    plugin: (Inspected, Described),
    against: Option<(Inspected, Described)>,
}

/// Answers that show a failure: a fault, or two answers that differ.
struct Failing {
    repeated: Repeated,
    other: Option<Repeated>,
}

impl Builds {
    /// Returns the answers if they show a failure.
    fn failure_of(&self, recording: &Recording) -> Result<Option<Failing>, Failure> {
        let answer =
            |(from, described): &(Inspected, Described)| repeat(recording, described, from);
        let repeated = answer(&self.plugin)?;
        let other = self.against.as_ref().map(answer).transpose()?;
        let fails = match &other {
            Some(other) => other.answer() != repeated.answer(),
            None => repeated.said.fault.is_some(),
        };
        Ok(fails.then_some(Failing { repeated, other }))
    }
}

impl Failing {
    /// Returns the properties that a smaller recording must keep: outcome and fault of each answer. Otherwise two builds
    /// would soon differ only in the message of a fault about a missing field.
    fn signs(&self) -> Vec<Value> {
        let answers = [Some(&self.repeated), self.other.as_ref()]
            .into_iter()
            .flatten()
            .map(Repeated::answer);
        answers
            .map(|answer| Value::from(vec![answer["outcome"].clone(), answer["fault"].clone()]))
            .collect()
    }
}

/// A part that can be removed from a recording: members or items of the value at a JSON pointer.
struct Cut {
    at: String,
    part: Part,
}

enum Part {
    Member(String),
    Items(Range<usize>),
}

/// Returns the recordings with one part less.
fn smaller(recording: &Value) -> Smaller<'_, Value> {
    let mut cuts = Vec::new();
    for list in ["children", "reads"] {
        items(&recording[list], &format!("/{list}"), &mut cuts);
    }
    for (number, child) in each(&recording["children"]) {
        inner(
            &child["object"],
            &format!("/children/{number}/object"),
            &mut cuts,
        );
    }
    for (number, read) in each(&recording["reads"]) {
        for form in ["list", "object"] {
            let at = format!("/reads/{number}/answer/{form}");
            inner(&read["answer"][form], &at, &mut cuts);
        }
    }
    for object in ["parent", "config"] {
        inner(&recording[object], &format!("/{object}"), &mut cuts);
    }
    // The outer parts are the larger ones.
    cuts.sort_by_key(|cut| cut.at.matches('/').count());
    Box::new(cuts.into_iter().map(|cut| {
        let mut without = recording.clone();
        match (without.pointer_mut(&cut.at), cut.part) {
            (Some(Value::Object(fields)), Part::Member(name)) => {
                fields.remove(&name);
            }
            (Some(Value::Array(list)), Part::Items(range)) => {
                list.drain(range);
            }
            _ => {}
        }
        without
    }))
}

fn each(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// Adds the parts below a value.
fn inner(value: &Value, at: &str, cuts: &mut Vec<Cut>) {
    items(value, at, cuts);
    for (number, item) in each(value) {
        inner(item, &format!("{at}/{number}"), cuts);
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        if !is_identity(at, name) {
            cuts.push(Cut {
                at: at.to_owned(),
                part: Part::Member(name.clone()),
            });
        }
        let name = name.replace('~', "~0").replace('/', "~1");
        inner(field, &format!("{at}/{name}"), cuts);
    }
}

/// Adds all items of a list, each half, and each item.
fn items(value: &Value, at: &str, cuts: &mut Vec<Cut>) {
    let count = value.as_array().map_or(0, Vec::len);
    let half = count / 2;
    let mut add = |range: Range<usize>| {
        cuts.push(Cut {
            at: at.to_owned(),
            part: Part::Items(range),
        });
    };
    if count > 1 {
        add(0..count);
    }
    if count > 3 {
        add(0..half);
        add(half..count);
    }
    for number in 0..count {
        add(number..number + 1);
    }
}

/// Returns true for the fields by which objects are told apart, which no API server leaves out.
fn is_identity(at: &str, name: &str) -> bool {
    if at.ends_with("/metadata") {
        return ["name", "namespace", "uid"].contains(&name);
    }
    let is_config = at.starts_with("/config");
    !is_config && ["apiVersion", "kind", "metadata"].contains(&name)
}

/// Writes a new file that only its owner can read.
fn keep(path: &Path, text: &str) -> Result<(), Failure> {
    let message = format!(
        "failed to write {}, which must be a new file",
        path.display()
    );
    file::create_for_owner(path, text.as_bytes()).or_fail_by(file::exit, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn o5_recordings_lose_their_largest_parts_first_and_no_identity() {
        let recording = json!({
            "parent": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "labels": {"x/y": "z"}}, "spec": {"a": 1}},
            "children": [
                {"key": "one", "retained": false, "object": {"kind": "B"}},
                {"key": "two", "retained": false, "object": {"kind": "B"}},
            ],
            "reads": [{"read": {"verb": "list"}, "answer": {"list": [{"kind": "C", "data": {}}]}}],
            "config": {"kind": "any"},
            "answer": {"outcome": "keep"},
        });
        let all: Vec<Value> = smaller(&recording).collect();
        assert_eq!(all[0]["children"], json!([]));
        let without = |pointer: &str| {
            let of = |it: &Value| it.pointer(pointer).cloned();
            all.iter().any(|it| of(it) != of(&recording))
        };
        for pointer in [
            "/children/1",
            "/reads/0/answer/list/0",
            "/reads/0/answer/list/0/data",
            "/parent/spec/a",
            "/parent/metadata/labels/x~1y",
            "/config/kind",
        ] {
            assert!(without(pointer), "{pointer}");
        }
        for pointer in [
            "/parent/kind",
            "/parent/metadata/name",
            "/reads/0/answer/list/0/kind",
            "/reads/0/read",
            "/answer",
        ] {
            // An item goes only as a whole.
            let (whole, _) = pointer.rsplit_once('/').unwrap();
            let kept = |it: &Value| it.pointer(whole).is_none() || it.pointer(pointer).is_some();
            assert!(all.iter().all(kept), "{pointer}");
        }
        // Each loses something, and nothing is made up.
        let length = recording.to_string().len();
        assert!(all.iter().all(|it| it.to_string().len() < length));
    }
}
