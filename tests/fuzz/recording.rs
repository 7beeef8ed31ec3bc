//! A recording of a call, and the YAML files beside which `render` reads it.

use std::sync::Arc;

use innkeeper_model::{Gvk, ListSelector, ObjectRef, ReadKey, Reads as _, yaml};
use innkeeper_sandbox::Recording;
use serde::Deserialize;
use serde_json::Value;

use super::run::run;

#[test]
fn a_recording_is_refused_or_gives_the_same_input_again() {
    run("recording", check);
}

fn check(input: &[u8]) {
    if let Ok(text) = str::from_utf8(input)
        && let Ok(values) = yaml::read(text)
    {
        let written = yaml::write(&values).unwrap();
        assert_eq!(yaml::read(&written).unwrap(), values);
    }
    let Ok(recording) = serde_json::from_slice::<Recording>(input) else {
        return;
    };
    recording.config();
    recording.context();
    check_reads(&recording, input);
    let again = serde_json::to_string(&recording).unwrap();
    let again: Recording = serde_json::from_str(&again).unwrap();
    assert_eq!(again.parent(), recording.parent());
    assert_eq!(again.children(), recording.children());
    assert_eq!(again.context().now_ms, recording.context().now_ms);
    assert_eq!(again.phase(), recording.phase());
}

#[derive(Deserialize)]
struct Stored {
    reads: Vec<StoredRead>,
}

#[derive(Deserialize)]
struct StoredRead {
    read: Value,
}

/// Makes every recorded read.
fn check_reads(recording: &Recording, input: &[u8]) {
    let stored: Stored = serde_json::from_slice(input).unwrap();
    let mut reads = recording.reads();
    for StoredRead { read } in stored.reads.iter().take(1000) {
        match key(read) {
            ReadKey::Get(reference) => drop(reads.get(&reference)),
            ReadKey::List(selector) => drop(reads.list(&selector)),
        }
    }
    assert_eq!(reads.unknown(), []);
}

fn key(read: &Value) -> ReadKey {
    let text = |field: &str| read[field].as_str().map(Arc::from);
    let version = read["apiVersion"].as_str().unwrap();
    let kind = Gvk::parse(version, read["kind"].as_str().unwrap()).unwrap();
    let namespace = text("namespace");
    match text("name") {
        Some(name) => ReadKey::Get(ObjectRef {
            kind,
            namespace,
            name,
        }),
        None => ReadKey::List(ListSelector {
            kind,
            namespace,
            label_selector: text("labelSelector"),
        }),
    }
}
