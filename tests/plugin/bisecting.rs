//! `innkeeper bisect`: the first of several published revisions that answers a recorded pass differently (O5).

use std::{
    fs,
    process::Output,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    harmless::marked,
    process::path_from_env,
    registry::{Client, Registry},
};
use serde_json::Value;

use crate::testing::a_recording;

const SUCCESS: i32 = 0;
const FAILURE: i32 = 1;
const BAD_USE: i32 = 2;
const FINDING: i32 = 3;

/// A text of memcached in its answer, and one of the same length that no API server accepts.
const GOOD: &[u8] = b"RuntimeDefault";
const BAD: &[u8] = b"RuntimeDefects";

/// Returns a build of memcached: each number gives other bytes with the same behaviour, if it is not the bad one.
pub(crate) fn build(number: u32, is_bad: bool) -> Vec<u8> {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let mut bytes = fs::read(guests.join("memcached.wasm")).unwrap();
    if is_bad {
        let at = bytes.windows(GOOD.len()).position(|it| it == GOOD).unwrap();
        bytes[at..at + BAD.len()].copy_from_slice(BAD);
    }
    marked(&bytes, number)
}

#[track_caller]
pub(crate) fn check(output: &Output, code: i32, part: &str) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let said = said.concat();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{said}");
    said
}

/// Returns the working directory of a client with a recording.
pub(crate) fn client() -> Client {
    let client = Client::innkeeper().unwrap();
    let recording = a_recording().to_string();
    client.put("recording.json", recording).unwrap();
    client
}

fn bisect(client: &Client, revisions: &str, more: &[&str]) -> Output {
    let arguments = ["bisect", "recording.json", "--revisions", revisions];
    client.output(&[&arguments[..], more].concat()).unwrap()
}

#[test]
fn o5_a_regression_in_one_of_sixteen_published_revisions_is_found() {
    const FIRST_BAD: u32 = 10;

    let registry = Registry::start().unwrap();
    let (client, oras) = (client(), Client::oras().unwrap());
    fs::create_dir(client.directory().join("builds")).unwrap();
    let reference = registry.reference("");
    for number in 0..16 {
        let bytes = build(number, number >= FIRST_BAD);
        let name = format!("builds/memcached-1.{number}.0.wasm");
        client.put(&name, &bytes).unwrap();
        oras.put("memcached.wasm", &bytes).unwrap();
        let tagged = format!("{reference}:v1.{number}.0,latest");
        let push = ["push", "--plain-http", &tagged];
        let layer = ["memcached.wasm:application/wasm"];
        oras.run(&[push.as_slice(), &layer].concat()).unwrap();
    }

    let repository = format!("oci://{reference}");
    let found = bisect(&client, &repository, &["--insecure", "-o", "json"]);
    check(&found, FINDING, "16 revisions, from v1.0.0 to v1.15.0");
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["first"], "v1.10.0");
    assert_eq!(found["tried"].as_array().unwrap().len(), 6, "{found}");
    let fetched = registry.asked().unwrap();
    let fetched = fetched.iter().filter(|it| it.contains("/manifests/v"));
    assert_eq!(fetched.filter(|it| it.starts_with("GET")).count(), 6);
    drop(registry);

    // The same bytes as files: offline, with the code that the first search has compiled.
    let started = Instant::now();
    let found = bisect(&client, "builds", &[]);
    let took = started.elapsed();
    let said = check(&found, FINDING, "same     memcached-1.9.0.wasm\n");
    for part in [
        "memcached-1.10.0.wasm is the first of 16 revisions that does not answer as memcached-1.0.0.wasm:\n",
        "seccompProfile.type is \"RuntimeDefects\", and was \"RuntimeDefault\"\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn o5_revisions_that_agree_fault_or_are_none_are_told_apart() {
    let client = client();
    let builds = client.directory().join("builds");
    fs::create_dir(&builds).unwrap();
    let builds = |more: &[&str]| bisect(&client, "builds", more);
    let needs_two = "revisions in builds: a search needs two or more";
    check(&builds(&[]), BAD_USE, &format!("found 0 {needs_two}"));
    client.put("builds/a-1.0.0.wasm", build(0, false)).unwrap();
    check(&builds(&[]), BAD_USE, &format!("found 1 {needs_two}"));
    client.put("builds/a-1.1.0.wasm", build(1, false)).unwrap();
    let agree = "all 2 revisions answer as a-1.0.0.wasm\n";
    check(&builds(&[]), SUCCESS, agree);
    // The recording has another answer, so that already the oldest one differs.
    let recorded = builds(&["--reference", "recorded"]);
    let part = "a-1.0.0.wasm is the first of 2 revisions that does not answer as recorded:\n";
    check(&recorded, FINDING, part);
    // A revision without the code for these parents ends with a fault.
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let other = fs::read(guests.join("unruly.wasm")).unwrap();
    client.put("builds/a-1.2.0.wasm", other).unwrap();
    let said = check(&builds(&[]), FINDING, "a-1.2.0.wasm is the first of 3");
    assert!(said.contains("\nfault is {\"kind\":\"invalid\""), "{said}");

    client.put("builds/a-1.3.0.wasm", "no plugin").unwrap();
    let part = "error: failed to load the plugin builds/a-1.3.0.wasm: ";
    check(&builds(&[]), BAD_USE, part);
    // Of the next file, no version can be read, and so none of the order.
    fs::create_dir(client.directory().join("builds/b.wasm")).unwrap();
    check(&builds(&[]), BAD_USE, "failed to read builds/b.wasm");
    for (revisions, code, part) in [
        ("none", BAD_USE, "failed to read the revisions in none"),
        (
            "oci://127.0.0.1:1/plugins/pond:1",
            BAD_USE,
            "name the repository without a tag and a digest",
        ),
        ("oci://pond", BAD_USE, "it must start with a registry"),
        (
            "oci://127.0.0.1:1/plugins/pond",
            FAILURE,
            "failed to list the tags of 127.0.0.1:1/plugins/pond",
        ),
    ] {
        check(&bisect(&client, revisions, &["--insecure"]), code, part);
    }
    client.put("recording.json", "{}").unwrap();
    check(&builds(&[]), BAD_USE, "is no recording of a pass");
}
