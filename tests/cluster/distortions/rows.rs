//! The distorted answers, and how to make the host ask for them.

use serde_json::{Value, json};

use crate::relay::rules::{Action, Verb};

/// Objects that a distorted answer may show.
pub(super) struct Real {
    pub(super) parent: Value,
    pub(super) child: Value,
    pub(super) foreign: Value,
    pub(super) secret: Value,
    pub(super) elsewhere: Value,
}

/// One distortion.
pub(super) struct Distortion {
    pub(super) name: &'static str,
    pub(super) on: (Verb, &'static str),
    pub(super) answer: fn(&Real) -> Action,
    pub(super) provoke: Provoke,
    /// Part of the log line that reports it; empty if the answer itself cannot be wrong.
    pub(super) logged: &'static str,
}

/// How to make the host ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provoke {
    /// The ConfigMap watch ends as too old, so the host lists them again.
    Relist,
    /// The ConfigMap watch ends, so the host watches again.
    Watch,
    /// The parent changes, so the host writes child and status.
    Edit,
    /// The parent changes and the response to the child's write is empty, so the host reads the
    /// child.
    Doubt,
    /// The watch reports that the child is gone, so the host creates it and reads the existing
    /// object.
    Recreate,
}

const LISTS: &str = "/configmaps";
const READS: &str = "/configmaps/web";

const fn row(
    name: &'static str,
    on: (Verb, &'static str),
    provoke: Provoke,
    answer: fn(&Real) -> Action,
    logged: &'static str,
) -> Distortion {
    Distortion {
        name,
        on,
        answer,
        provoke,
        logged,
    }
}

const LIST: (Verb, &str) = (Verb::Read, LISTS);
pub(super) const WATCH: (Verb, &str) = (Verb::Watch, LISTS);
const READ: (Verb, &str) = (Verb::Read, READS);
pub(super) const WRITE: (Verb, &str) = (Verb::Write, READS);
const STATUS: (Verb, &str) = (Verb::Write, "/moodies/web/status");

pub(super) const DISTORTIONS: [Distortion; 25] = [
    row(
        "a list is a web page",
        LIST,
        Provoke::Relist,
        |_| page(),
        "failed to parse",
    ),
    row(
        "a list ends early",
        LIST,
        Provoke::Relist,
        |_| forged(r#"{"metadata": {"res"#),
        "failed to parse",
    ),
    row(
        "a list is not compressed as stated",
        LIST,
        Provoke::Relist,
        |_| garbage(),
        "failed to watch",
    ),
    row(
        "a list has other kinds",
        LIST,
        Provoke::Relist,
        |real| list("SecretList", &[typed(&real.secret)], "1000"),
        "instead of v1 ConfigMap",
    ),
    row(
        "a list has an object of another kind",
        LIST,
        Provoke::Relist,
        |real| {
            list(
                "ConfigMapList",
                &[typed(&real.child), real.secret.clone()],
                "1000",
            )
        },
        "instead of v1 ConfigMap",
    ),
    row(
        "a list has an object of another namespace",
        LIST,
        Provoke::Relist,
        |real| list("ConfigMapList", &[typed(&real.elsewhere)], "1000"),
        "instead of v1 ConfigMap",
    ),
    row(
        "a list has an object without a UID",
        LIST,
        Provoke::Relist,
        |real| {
            list(
                "ConfigMapList",
                &[with(&real.child, "uid", &Value::Null)],
                "1000",
            )
        },
        "an object has no metadata.uid",
    ),
    row(
        "a list has a version that is no number",
        LIST,
        Provoke::Relist,
        |real| list("ConfigMapList", &[typed(&real.child)], "newest"),
        "is not a resourceVersion",
    ),
    row(
        "a list shows an object twice, once with another UID",
        LIST,
        Provoke::Relist,
        |real| {
            let other = with(&real.child, "uid", &json!("another"));
            list("ConfigMapList", &[typed(&real.child), other], "1000000000")
        },
        "",
    ),
    row(
        "a list is empty and from the future",
        LIST,
        Provoke::Relist,
        |_| list("ConfigMapList", &[], "1000000000"),
        "",
    ),
    row(
        "an event is about another kind",
        WATCH,
        Provoke::Watch,
        |real| event("MODIFIED", &real.secret),
        "instead of v1 ConfigMap",
    ),
    row(
        "an event is about another namespace",
        WATCH,
        Provoke::Watch,
        |real| event("ADDED", &real.elsewhere),
        "instead of v1 ConfigMap",
    ),
    row(
        "an event is of an unknown type",
        WATCH,
        Provoke::Watch,
        |real| event("GONE", &real.child),
        "failed to parse",
    ),
    row(
        "an event is from the future",
        WATCH,
        Provoke::Watch,
        |real| {
            event(
                "MODIFIED",
                &with(
                    &real.child,
                    "resourceVersion",
                    &json!("18446744073709551615"),
                ),
            )
        },
        "",
    ),
    row(
        "an event has no end",
        WATCH,
        Provoke::Watch,
        |_| Action::Flood,
        "sent more than",
    ),
    row(
        "a watch reports an error without a status",
        WATCH,
        Provoke::Watch,
        |_| event("ERROR", &json!({"metadata": {}, "code": "none"})),
        "failed to watch",
    ),
    row(
        "a read answers with another object",
        READ,
        Provoke::Recreate,
        |real| object(&real.foreign),
        "instead of v1 ConfigMap",
    ),
    row(
        "a read answers with a web page",
        READ,
        Provoke::Recreate,
        |_| page(),
        "failed to parse",
    ),
    row(
        "a read answers with a version from the future",
        READ,
        Provoke::Doubt,
        |real| object(&with(&real.child, "resourceVersion", &json!("1000000000"))),
        "",
    ),
    row(
        "a read has no end",
        READ,
        Provoke::Recreate,
        |_| Action::Flood,
        "sent more than",
    ),
    row(
        "a write is answered with another object",
        WRITE,
        Provoke::Edit,
        |real| replaced(&object(&real.foreign)),
        "it is about v1 ConfigMap",
    ),
    row(
        "a write is answered with another kind",
        WRITE,
        Provoke::Edit,
        |real| replaced(&object(&real.secret)),
        "it is about v1 Secret",
    ),
    row(
        "a write is answered with a web page",
        WRITE,
        Provoke::Edit,
        |_| replaced(&page()),
        "answer cannot be read",
    ),
    row(
        "a write is answered without end",
        WRITE,
        Provoke::Edit,
        |_| Action::Flood,
        "failed to learn the result",
    ),
    row(
        "a status write is answered with another object",
        STATUS,
        Provoke::Edit,
        |real| replaced(&object(&real.foreign)),
        "it is about v1 ConfigMap",
    ),
];

/// Leaks the text, because rules need bytes that live as long as the test.
fn leak(text: String) -> &'static [u8] {
    Box::leak(text.into_bytes().into_boxed_slice())
}

fn answered(header: &str, body: &str) -> Action {
    let length = body.len();
    Action::Forge(leak(format!(
        "HTTP/1.1 200 OK\r\n{header}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )))
}

fn forged(body: &str) -> Action {
    answered("Content-Type: application/json", body)
}

pub(super) fn page() -> Action {
    answered(
        "Content-Type: text/html",
        "<html><body>Please sign in.</body></html>",
    )
}

fn garbage() -> Action {
    answered(
        "Content-Type: application/json\r\nContent-Encoding: gzip",
        "\u{1f}not compressed",
    )
}

fn object(object: &Value) -> Action {
    forged(&object.to_string())
}

pub(super) fn event(kind: &str, object: &Value) -> Action {
    forged(&format!("{}\n", json!({"type": kind, "object": object})))
}

fn list(kind: &str, items: &[Value], version: &str) -> Action {
    let list = json!({
        "kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items,
    });
    forged(&list.to_string())
}

/// Returns the same answer, sent after the API server has executed the request.
pub(super) fn replaced(answer: &Action) -> Action {
    match answer {
        Action::Forge(bytes) => Action::Replace(bytes),
        other => *other,
    }
}

/// Formats an object as an item in a typed list.
fn typed(object: &Value) -> Value {
    let mut item = object.clone();
    for field in ["apiVersion", "kind"] {
        item.as_object_mut().unwrap().remove(field);
    }
    item
}

/// Returns the object with another value for a metadata field.
pub(super) fn with(object: &Value, field: &str, value: &Value) -> Value {
    let mut changed = object.clone();
    changed["metadata"][field] = value.clone();
    changed
}
