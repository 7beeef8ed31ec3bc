//! A recorded call, and the YAML files that `render` reads beside it.

use innkeeper_model::{ReadKey, Reads as _, yaml};
use innkeeper_sandbox::Recording;
use serde::Deserialize;

use super::{run::run_with, shapes};

#[test]
fn a_recording_is_refused_or_gives_the_same_input_again() {
    run_with(
        "recording",
        Vec::new(),
        Some(|shape| shapes::yaml(shape).into()),
    );
}

/// Reaches the YAML checks, and those for a recording with a read.
pub(super) fn check(input: &[u8]) -> [bool; 2] {
    let yaml = check_yaml(input);
    [yaml.is_some(), check_recording(input).unwrap_or_default()]
}

fn check_yaml(input: &[u8]) -> Option<()> {
    let values = yaml::read(str::from_utf8(input).ok()?).ok()?;
    let written = yaml::write(&values).unwrap();
    assert_eq!(yaml::read(&written).unwrap(), values);
    Some(())
}

/// Returns true if the recording has a read.
fn check_recording(input: &[u8]) -> Option<bool> {
    let recording: Recording = serde_json::from_slice(input).ok()?;
    recording.config();
    recording.context();
    let reads = check_reads(&recording, input);
    let again = serde_json::to_string(&recording).unwrap();
    let again: Recording = serde_json::from_str(&again).unwrap();
    assert_eq!(again.parent(), recording.parent());
    assert_eq!(again.children(), recording.children());
    assert_eq!(again.context().now_ms, recording.context().now_ms);
    assert_eq!(again.phase(), recording.phase());
    Some(reads > 0)
}

#[derive(Deserialize)]
struct Stored {
    reads: Vec<StoredRead>,
}

#[derive(Deserialize)]
struct StoredRead {
    read: ReadKey,
}

/// Replays every recorded read; returns their number.
fn check_reads(recording: &Recording, input: &[u8]) -> usize {
    let stored: Stored = serde_json::from_slice(input).unwrap();
    let mut reads = recording.reads();
    for StoredRead { read } in stored.reads.iter().take(1000) {
        match read {
            ReadKey::Get(reference) => drop(reads.get(reference)),
            ReadKey::List(selector) => drop(reads.list(selector)),
            ReadKey::ZoneOffset(time) => drop(reads.zone_offset(time)),
        }
    }
    assert_eq!(reads.unknown(), []);
    stored.reads.len()
}
