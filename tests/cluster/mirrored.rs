//! Objects from public bug reports, as children of a plugin that copies them from its parent.

use std::{path::PathBuf, time::Duration};

use innkeeper_tests::{Host, manifest};
use serde_json::{Value, json};

use crate::{
    moody::guest_file,
    stage::{Stage, is_applied, lines},
};

/// The parents' CRD.
pub(crate) const MIRRORS: &str = "mirrors.test.innkeeper.dev";

/// The CRDs for the parents and for an optional child kind.
pub(crate) const MIRRORS_AND_GADGETS: [&str; 2] = [MIRRORS, "gadgets.test.innkeeper.dev"];

pub(crate) fn mirror_guest() -> PathBuf {
    guest_file("mirror")
}

/// A control plane without controllers, with the plugin and the CRD for its optional children.
pub(crate) fn stage_with_gadgets() -> Stage {
    let stage = Stage::api_only(vec![mirror_guest()]);
    for object in manifest::load("tests/cluster/gadget.yaml").unwrap() {
        stage.plane.user().apply(&object).unwrap();
    }
    stage
}

/// Like [`stage_with_gadgets`], with a host that serves both kinds.
pub(crate) fn serve_gadgets() -> (Stage, Host) {
    let stage = stage_with_gadgets();
    let host = stage.host_serving(&MIRRORS_AND_GADGETS);
    (stage, host)
}

/// A name and the children, as text because a parser would normalize numbers.
type Row = (&'static str, &'static [&'static str]);

/// Children that the API server defaults or normalizes.
const STORED_OTHERWISE: [Row; 6] = [
    (
        "omitted-list-key",
        &[
            r#"{"apiVersion":"test.innkeeper.dev/v1","kind":"Gadget","metadata":{"name":"omitted-list-key"},"spec":{"ports":[{"port":80,"name":"a"}]}}"#,
        ],
    ),
    (
        "omitted-beside-stated",
        &[
            r#"{"apiVersion":"test.innkeeper.dev/v1","kind":"Gadget","metadata":{"name":"omitted-beside-stated"},"spec":{"ports":[{"port":53,"name":"udp"},{"port":53,"protocol":"TCP","name":"tcp"}]}}"#,
        ],
    ),
    (
        "keys-of-three-types",
        &[
            r#"{"apiVersion":"test.innkeeper.dev/v1","kind":"Gadget","metadata":{"name":"keys-of-three-types"},"spec":{"rules":[{"target":"a"},{"weight":5},{"final":false,"zone":"b"},{"weight":5,"zone":"b"}]}}"#,
        ],
    ),
    (
        "numbers",
        &[
            r#"{"apiVersion":"test.innkeeper.dev/v1","kind":"Gadget","metadata":{"name":"numbers"},"spec":{"numbers":[2.0,1e3,0.5,-0.0],"ports":[{"port":80.0},{"port":8e1,"protocol":"TCP"}]}}"#,
        ],
    ),
    (
        "service",
        &[
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"service"},"spec":{"ports":[{"name":"tcp","port":53},{"name":"udp","port":53,"protocol":"UDP"}]}}"#,
        ],
    ),
    (
        "deployment",
        &[
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"deployment"},"spec":{"replicas":0,"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"a","image":"a","ports":[{"containerPort":80}],"env":[{"name":"A","value":""}],"resources":{"limits":{"cpu":"0.5","memory":"1000M"}}}]}}}}"#,
        ],
    ),
];

fn target(name: &'static str) -> (&'static str, &'static str, &'static str) {
    ("test.innkeeper.dev/v1", "Mirror", name)
}

/// The host must not see a change in fields that the API server defaults or normalizes: it would
/// write the child again in every pass.
#[test]
fn children_that_the_api_server_stores_in_another_form_are_written_once() {
    let (stage, host) = serve_gadgets();
    let namespace = stage.namespace("mirrored");
    for (name, children) in STORED_OTHERWISE {
        let (api_version, kind, name) = target(name);
        let parent = json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "name": name },
            "spec": { "children": children },
        });
        stage.apply_new(&namespace, &parent);
        stage.wait(&host, &namespace, target(name), is_applied);
    }
    let mark = stage.settle(Duration::from_secs(1));
    for touch in 1..=8 {
        for (name, _) in STORED_OTHERWISE {
            let note = json!({ "metadata": { "annotations": { "touch": touch.to_string() } } });
            stage.merge(&namespace, target(name), &note);
        }
        stage.settle(Duration::from_millis(500));
    }
    let writes = stage.writes_since(mark);
    let is_child = |line: &String| !line.contains("/status") && !line.contains(" events.");
    let repeated: Vec<String> = lines(&writes).into_iter().filter(is_child).collect();
    assert_eq!(repeated, Vec::<String>::new(), "{}", host.log().unwrap());
    for (name, _) in STORED_OTHERWISE {
        let parent: Value = stage.get(&namespace, target(name));
        assert!(is_applied(&parent), "{name}: {:#}", parent["status"]);
    }
    Stage::stop(host);
}
