//! Other clients that keep undoing the host's writes: deletions, fields, annotations, labels, status and
//! finalizers.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, Write, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    mirrored::{MIRRORS, mirror_guest},
    plugins::{HEALTHY, NAME, PLUGIN, PluginSite},
    stage::{Stage, is_applied},
    suite::Target,
};

/// How long the other client undoes writes. The host repeats a write after 5 and 15 s, and the next
/// time only after 35 s.
const FIGHT: Duration = Duration::from_secs(25);

/// The host's maximum number of writes in that time: the first one, five repetitions at once, and those
/// after 5 and 15 s.
const WRITES_MAX: usize = 8;

/// How often the other client checks the object.
const LOOK: Duration = Duration::from_millis(50);

/// The other client's field manager.
const OTHER: &str = "test-user";

/// How the other client undoes a write.
enum Undo {
    /// Deletes the child.
    Delete,
    /// Merges a patch into the child.
    Child(&'static str),
    /// Merges a patch into the parent.
    Parent(&'static str),
    /// Merges a patch into the parent's status.
    Status(&'static str),
}

struct Row {
    name: &'static str,
    undo: Undo,
    /// The reason in the condition `Synced`, and words in the message.
    reason: &'static str,
    words: &'static [&'static str],
}

const ROWS: [Row; 7] = [
    Row {
        name: "deleted",
        undo: Undo::Delete,
        reason: "ChildDeletedAgain",
        words: &["ConfigMap", "deleted is deleted again", "stop the client"],
    },
    Row {
        name: "field",
        undo: Undo::Child(r#"{"data":{"a":"other"}}"#),
        reason: "FieldConflict",
        words: &["data.a of ConfigMap", "(by test-user)"],
    },
    Row {
        name: "annotations",
        undo: Undo::Child(r#"{"metadata":{"annotations":null}}"#),
        reason: "FieldConflict",
        words: &[
            "metadata.annotations of ConfigMap",
            "(by a client that removes it)",
        ],
    },
    Row {
        name: "replaced-annotations",
        undo: Undo::Child(
            r#"{"metadata":{"annotations":{"note":"b","innkeeper.dev/applied":null,"innkeeper.dev/key":null}}}"#,
        ),
        reason: "FieldConflict",
        words: &["metadata.annotations.", "(by test-user)"],
    },
    Row {
        name: "labels",
        undo: Undo::Child(r#"{"metadata":{"labels":null}}"#),
        reason: "FieldConflict",
        words: &[
            "metadata.labels of ConfigMap",
            "(by a client that removes it)",
        ],
    },
    Row {
        name: "status",
        undo: Undo::Status(
            r#"{"status":{"phase":"Broken","conditions":[{"type":"Available","status":"True"}]}}"#,
        ),
        reason: "FieldConflict",
        words: &["status.", "(by test-user)", "stop the other controller"],
    },
    Row {
        name: "finalizer",
        undo: Undo::Parent(r#"{"metadata":{"finalizers":null}}"#),
        reason: "FieldConflict",
        words: &["metadata.finalizers of Mirror"],
    },
];

impl Row {
    const fn parent(&self) -> Target<'static> {
        ("test.innkeeper.dev/v1", "Mirror", self.name)
    }

    const fn target(&self) -> Target<'static> {
        match self.undo {
            Undo::Delete | Undo::Child(_) => ("v1", "ConfigMap", self.name),
            Undo::Parent(_) | Undo::Status(_) => self.parent(),
        }
    }

    /// Returns true for the host's writes that the other client undoes.
    fn counts(&self, write: &Write) -> bool {
        let resource = match self.undo {
            Undo::Delete | Undo::Child(_) => "configmaps",
            Undo::Parent(_) => MIRRORS,
            Undo::Status(_) => "mirrors.test.innkeeper.dev/status",
        };
        write.resource == resource && write.name == self.name && write.code < 400
    }

    /// Returns true if the host has restored the object.
    fn is_restored(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        match self.undo {
            Undo::Delete | Undo::Child(_) => {
                object["data"]["a"] == "b"
                    && metadata["annotations"]["note"] == "a"
                    && metadata["annotations"]["innkeeper.dev/key"] == "child-0"
                    && metadata["labels"]["innkeeper.dev/plugin"] == "mirror"
            }
            Undo::Parent(_) => metadata["finalizers"][0].is_string(),
            Undo::Status(_) => object["status"]["phase"] == "Fine",
        }
    }

    /// Undoes each write by the host for the time `FIGHT`.
    fn fight(&self, stage: &Stage, namespace: &str) {
        let (api_version, kind, name) = self.target();
        let kind = Kind::new(api_version, kind, namespace);
        let user = stage.plane.user();
        let begin = Instant::now();
        while begin.elapsed() < FIGHT {
            let object = user.get(kind, name).unwrap();
            if object.is_some_and(|object| self.is_restored(&object)) {
                let result = match self.undo {
                    Undo::Delete => user.delete(kind, name),
                    Undo::Child(patch) | Undo::Parent(patch) => {
                        user.merge(kind, name, &parsed(patch)).map(drop)
                    }
                    Undo::Status(patch) => user.merge_status(kind, name, &parsed(patch)).map(drop),
                };
                result.unwrap();
            }
            thread::sleep(LOOK);
        }
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Waits until a parent has a condition with these words.
#[track_caller]
fn wait_condition(stage: &Stage, host: &Host, namespace: &str, row: &Row) {
    eventually(row.name, || {
        let parent = stage.get(namespace, row.parent());
        let synced = condition(&parent, "Synced").unwrap_or_default();
        let says = |words: &&&str| synced.contains(**words);
        let start = format!("False/{}:", row.reason);
        if synced.starts_with(&start) && row.words.iter().filter(says).count() == row.words.len() {
            return Ok(());
        }
        Err(format!("{synced}\n{}", host.log().unwrap_or_default()))
    });
}

/// The host repeats undone writes with backoff, reports the conflict, and recovers when the other
/// client stops.
#[test]
fn whatever_others_undo_is_repeated_less_and_less_often() {
    let (stage, host) = Stage::serving(vec![mirror_guest()], &[MIRRORS]);
    let namespace = stage.namespace("undone");
    let mark = stage.mark();
    for row in &ROWS {
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": row.name, "annotations": { "note": "a" } },
            "data": { "a": "b" },
        });
        let (api_version, kind, name) = row.parent();
        let parent = json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "name": name },
            "spec": { "children": [child.to_string()], "status": r#"{"phase":"Fine"}"# },
        });
        stage.apply_new(&namespace, &parent);
        stage.wait(&host, &namespace, row.parent(), is_applied);
    }
    thread::scope(|scope| {
        for row in &ROWS {
            scope.spawn(|| row.fight(&stage, &namespace));
        }
    });
    let writes = stage.writes_since(mark);
    let counts: BTreeMap<&str, usize> = ROWS
        .iter()
        .map(|row| {
            (
                row.name,
                writes.iter().filter(|write| row.counts(write)).count(),
            )
        })
        .collect();
    // The first status may take two writes.
    let is_bounded = |count: &usize| (6..=WRITES_MAX + 2).contains(count);
    assert!(
        counts.values().all(is_bounded),
        "{counts:?}\n{}",
        host.log().unwrap()
    );
    for row in &ROWS {
        wait_condition(&stage, &host, &namespace, row);
        stage.wait(&host, &namespace, row.target(), |object| {
            row.is_restored(object)
        });
    }
    let events = stage
        .plane
        .user()
        .list(Kind::new("events.k8s.io/v1", "Event", &namespace), "");
    let is_about_status = |event: &&Value| {
        let note = event["note"].as_str().unwrap_or_default();
        event["reason"] == "FieldConflict"
            && event["regarding"]["name"] == "status"
            && note.contains(OTHER)
    };
    assert_eq!(events.unwrap().iter().filter(is_about_status).count(), 1);
    Stage::stop(host);
}

/// The host also backs off for a Plugin status. It reports the conflict in an Event, because the
/// conditions are in the disputed status.
#[test]
fn a_status_of_a_plugin_that_another_overwrites_is_repeated_less_and_less_often() {
    let (site, host) = PluginSite::started();
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    let stage = &site.stage;
    let user = stage.plane.user();
    let mark = stage.mark();
    let begin = Instant::now();
    let other = json!({"status": {"version": "other"}});
    while begin.elapsed() < FIGHT {
        if site.plugin_of(NAME)["status"]["version"] != "other" {
            user.merge_status(PLUGIN, NAME, &other).unwrap();
        }
        thread::sleep(LOOK);
    }
    let writes = stage.writes_since(mark);
    let is_status =
        |write: &&Write| write.resource == "plugins.innkeeper.dev/status" && write.code < 400;
    let count = writes.iter().filter(is_status).count();
    let log = host.log().unwrap();
    assert!((5..=WRITES_MAX).contains(&count), "{count}\n{log}");
    assert!(
        log.contains("the status of a Plugin is overwritten"),
        "{log}"
    );
    let events = user.list(Kind::new("events.k8s.io/v1", "Event", "default"), "");
    let is_conflict = |event: &Value| {
        let note = event["note"].as_str().unwrap_or_default();
        event["reason"] == "FieldConflict"
            && event["regarding"]["kind"] == "Plugin"
            && note.contains("status.version of Plugin")
            && note.contains(OTHER)
    };
    assert!(events.unwrap().iter().any(is_conflict), "{log}");
    eventually("the host writes it once more", || {
        let plugin = site.plugin_of(NAME);
        if plugin["status"]["version"] == "other" {
            return Err(host.log().unwrap());
        }
        Ok(())
    });
    Stage::stop(host);
}

/// The host backs off from creating a Job again that the cluster deletes after each run.
#[test]
fn a_job_with_a_time_to_live_runs_less_and_less_often() {
    let stage = Stage::full(vec![mirror_guest()]);
    let host = stage.host_serving(&[MIRRORS]);
    let namespace = stage.namespace("jobs");
    let mark = stage.mark();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "job" },
        "spec": { "ttlSecondsAfterFinished": 0, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "a", "image": "registry.example/a:1" }],
        } } },
    });
    let parent = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Mirror", "metadata": { "name": "job" },
        "spec": { "children": [job.to_string()] },
    });
    stage.apply_new(&namespace, &parent);
    let row = Row {
        name: "job",
        undo: Undo::Delete,
        reason: "ChildDeletedAgain",
        words: &[
            "Job",
            "spec.ttlSecondsAfterFinished is 0",
            "leave ttlSecondsAfterFinished out",
        ],
    };
    wait_condition(&stage, &host, &namespace, &row);
    // Covers the waits of 5 and 10 s, and a part of the next one.
    let begin = Instant::now();
    let creates = || {
        let is_job = |write: &&Write| write.resource == "jobs.batch" && write.code == 201;
        stage.writes_since(mark).iter().filter(is_job).count()
    };
    while begin.elapsed() < Duration::from_secs(20) {
        assert!(creates() <= WRITES_MAX, "{}", host.log().unwrap());
        thread::sleep(LOOK * 10);
    }
    assert!(creates() >= 7, "{}", creates());
    wait_condition(&stage, &host, &namespace, &row);
    Stage::stop(host);
}
