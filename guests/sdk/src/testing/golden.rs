//! Answers as files that a review shows.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::answer::{Answer, Report};
use crate::child::Child;

/// Compares an answer with a golden file, and writes the file if it does not exist.
///
/// The path is relative to the crate directory. The file is JSON with the fields of an `expect.yaml` of
/// `innkeeper test`, without what the host adds to children. To accept a changed answer, delete the file and run the
/// test again.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::assert_golden;
///
/// let file = std::env::temp_dir().join("innkeeper-sdk-golden.json");
/// let answer = Desired::new().condition(Condition::new("Full", true, "Rain", "the pond is full")).into();
/// assert_golden(&answer, &file);
/// assert!(std::fs::read_to_string(&file).unwrap().contains("the pond is full"));
/// assert_golden(&answer, &file);
/// # std::fs::remove_file(file).unwrap();
/// ```
///
/// # Panics
///
/// Panics if the answer differs, or the file cannot be read or written.
pub fn assert_golden(answer: &Answer, path: impl AsRef<Path>) {
    let path = path.as_ref();
    let document = document(answer);
    if !path.exists() {
        fs::write(path, format!("{document:#}\n")).expect("the golden file should be writable");
    }
    let text = fs::read_to_string(path).expect("the golden file should be readable");
    let golden: Value = serde_json::from_str(&text).expect("the golden file should be JSON");
    assert!(
        golden == document,
        "the answer differs from {}: delete the file to accept\n{document:#}",
        path.display()
    );
}

fn document(answer: &Answer) -> Value {
    let report: &Report = answer.report();
    let name = match answer {
        Answer::Desired(_) => "desired",
        Answer::Keep(_) => "keep",
        Answer::Finalized(_) => "finalized",
    };
    json!({
        "outcome": name,
        "children": answer.children().iter().map(child).collect::<Vec<_>>(),
        "status": report.status,
        "conditions": report.conditions,
        "events": report.events,
        "requeueAfterMs": report.requeue.map(|after| after.as_secs_f64() * 1000.0),
    })
}

fn child(child: &Child) -> Value {
    json!({
        "key": child.key,
        "apply": child.apply,
        "removal": child.removal,
        "readiness": child.readiness,
        "after": child.after,
        "generate": child.generate,
        "object": *child.object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Desired, Event};
    use crate::condition::Condition;

    #[test]
    fn a_golden_file_has_the_words_of_the_contract() {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        let child = |key: &str| Child::untyped(key, &object);
        let answer = Desired::new()
            .child(child("a"))
            .child(child("b").once().retain().not_ready().after(["a"]))
            .child(child("c").hold().ready().generate("key", 8, "ab"))
            .condition(Condition::new("Full", false, "Dry", "no rain"))
            .event(Event::normal("Filled", "full"))
            .event(Event::warning("Leaks", "a hole"))
            .into();
        let policies = |apply: &str, removal: &str, readiness: &str| {
            json!({
                "apply": apply, "removal": removal, "readiness": readiness, "key": "", "object": object,
                "after": [], "generate": [],
            })
        };
        let mut children = [
            policies("always", "delete", "derive"),
            policies("once", "retain", "not-ready"),
            policies("hold", "delete", "ready"),
        ];
        for (child, key) in children.iter_mut().zip(["a", "b", "c"]) {
            child["key"] = json!(key);
        }
        children[1]["after"] = json!(["a"]);
        children[2]["generate"] =
            json!([{"key": "key", "length": 8, "alphabet": "ab", "token": null}]);
        let document = document(&answer);
        assert_eq!(document["children"], json!(children));
        assert_eq!(
            document["conditions"],
            json!([{"type": "Full", "status": "False", "reason": "Dry", "message": "no rain"}])
        );
        assert_eq!(
            document["events"],
            json!([
                {"type": "Normal", "reason": "Filled", "message": "full"},
                {"type": "Warning", "reason": "Leaks", "message": "a hole"},
            ])
        );
    }
}
