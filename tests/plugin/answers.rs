//! Answers of the guest `garbage` that break a rule of the contract, in the real engine: each is rejected as a whole, with
//! a reason for the plugin's author.
//!
//! The children in the cluster stay in all of these cases; `tests/cluster` shows that for some of them.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::OnceLock,
};

use innkeeper_tests::process::path_from_env;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The exit code of `render` for an answer that breaks a rule.
const REJECTED: i32 = 3;

/// The directory for the parents and for the compile cache, which is filled once.
fn directory() -> &'static TempDir {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(render(&directory, "good").status.code(), Some(0));
        directory
    })
}

fn render(directory: &TempDir, behaviour: &str) -> Output {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    // Without the privileged kinds Role and Plugin.
    let grants = json!({
        "parents": [{"group": "test.innkeeper.dev", "kind": "Garbage"}],
        "children": [
            {"kind": "ConfigMap"},
            {"group": "test.innkeeper.dev", "kind": "Garbage"},
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "privileged": true},
        ],
    });
    // A file per test: otherwise a host could read one that another test is writing.
    let granted = directory.path().join(format!("{behaviour}.grants.json"));
    fs::write(&granted, grants.to_string()).unwrap();
    let parent: PathBuf = directory.path().join(format!("{behaviour}.json"));
    let spec = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Garbage",
        "metadata": {"name": "parent"}, "spec": {"behaviour": behaviour},
    });
    fs::write(&parent, spec.to_string()).unwrap();
    Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["render", "-o", "json", "--plugin"])
        .arg(guests.join("garbage.wasm"))
        .arg("--parent")
        .arg(parent)
        .arg("--grants")
        .arg(granted)
        .arg("--cache-dir")
        .arg(directory.path().join("cache"))
        .output()
        .unwrap()
}

#[track_caller]
fn check_rejected(behaviour: &str, reason: &str, text: &str) {
    let output = render(directory(), behaviour);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(REJECTED), "{stderr}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kind = &answer["fault"]["kind"];
    let message = &answer["fault"]["message"];
    assert_eq!(*kind, reason, "{message}");
    let message = message.as_str().unwrap();
    assert!(message.contains(text), "{message}");
    // The message must fit into the parent's condition.
    assert!(message.len() < 4096, "{}", message.len());
    assert_eq!(
        answer["children"],
        json!([]),
        "no part of the answer is used"
    );
}

/// One test per behavior: test name, behavior, condition reason, text in the message.
macro_rules! rejected {
    ($($name:ident: $behaviour:literal, $reason:literal, $text:literal;)*) => {
        $(
            #[test]
            fn $name() {
                check_rejected($behaviour, $reason, $text);
            }
        )*
    };
}

rejected! {
    rejects_a_duplicate_member: "member-twice", "OutputRejected", r#"the member "key" is stated twice"#;
    rejects_a_duplicate_key: "key-twice", "OutputRejected", r#"the key "only" is given to two children"#;
    rejects_a_duplicate_object: "object-twice", "OutputRejected", r#"it is the same object as child "only""#;
    rejects_children_that_wait_for_each_other: "after-circle", "OutputRejected", "wait for each other in a cycle";
    rejects_a_child_that_waits_for_an_unknown_key: "after-unknown", "OutputRejected", r#"`after` names "nobody", which is not a key"#;
    rejects_an_empty_name: "empty-name", "OutputRejected", "object.metadata.name: it is missing";
    rejects_a_name_of_three_hundred_characters: "long-name", "OutputRejected", "is not a valid name: use at most 253";
    rejects_a_name_with_a_slash: "name-with-slash", "OutputRejected", r#""../configmaps/x" is not a valid name"#;
    rejects_finalizers: "finalizers", "OutputRejected", "leave out `metadata.finalizers`";
    rejects_managed_fields: "managed-fields", "OutputRejected", "leave out `metadata.managedFields`";
    rejects_a_resource_version: "resource-version", "OutputRejected", "leave out `metadata.resourceVersion`";
    rejects_an_invalid_label: "invalid-label", "OutputRejected", r#"the label app has the value "two words""#;
    rejects_a_label_of_the_host: "host-label", "OutputRejected", "leave out the label innkeeper.dev/plugin";
    rejects_a_privileged_kind: "privileged-kind", "ChildForbidden", "is not granted children of kind rbac.authorization.k8s.io/v1 Role";
    rejects_a_cluster_scoped_child_of_a_namespaced_parent: "cluster-scoped", "ChildForbidden", "is cluster-scoped, and the namespaced parent";
    rejects_the_parent_as_a_child: "the-parent-itself", "ChildForbidden", "it is the parent itself";
    rejects_children_of_the_kind_of_their_parent: "fork-bomb", "ChildForbidden", "the plugin reconciles test.innkeeper.dev/v1 Garbage itself";
    rejects_a_plugin_resource_as_a_child: "the-plugin", "ChildForbidden", "is not granted children of kind innkeeper.dev/v1alpha1 Plugin";
    rejects_a_thousand_conditions: "many-conditions", "OutputRejected", "conditions: there are 1000, 64 are allowed";
    rejects_a_condition_of_the_host: "host-condition", "OutputRejected", "the condition type Synced is reserved for the host";
}

/// A misspelled behaviour in a test must fail the test, not count as a rejected answer.
#[test]
fn rejects_an_unknown_behaviour() {
    check_rejected("no-such", "fatal", "no such behaviour: no-such");
}
