//! One test per rejection rule.
#![expect(
    clippy::needless_raw_string_hashes,
    reason = "expect-test writes its expectations like this"
)]

use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};

mod depth;
mod grants;
mod interference;
mod pods;

use innkeeper_model::{
    Access, ApplyPolicy, Child, ChildKind, Condition, ConditionStatus, Desired, Event, EventType,
    Fault, FaultKind, Generated, GroupKind, Gvk, Limits, Manifest, ObjectId, Outcome, ParentKind,
    Phase, PluginName, ReadKind, ReadScope, Readiness, RemovalPolicy, Report, Resource, Resources,
    Scope, Selector,
};

use super::*;

/// Serves everything that the tests name, and has another plugin for Peers; Namespace and ClusterRole are
/// cluster-scoped.
struct Cluster;

impl Resources for Cluster {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        let scope = match &*kind.kind {
            "Namespace" | "ClusterRole" | "Fleet" => Scope::Cluster,
            "ServiceMonitor" => return None,
            _ => Scope::Namespaced,
        };
        Some(Resource {
            kind: kind.clone(),
            plural: "things".into(),
            scope,
        })
    }

    fn has_parents(&self, kind: &GroupKind) -> bool {
        &*kind.kind == "Peer"
    }
}

fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::parse(api_version, kind).unwrap()
}

fn kind_of_child(api_version: &str, kind: &str, required: bool) -> ChildKind {
    ChildKind {
        kind: gvk(api_version, kind),
        required,
        ready_condition: None,
        never_deleted: false,
    }
}

fn read(api_version: &str, kind: &str, access: Access, scope: ReadScope) -> ReadKind {
    ReadKind {
        kind: gvk(api_version, kind),
        access,
        scope,
        label_selector: Selector::default(),
    }
}

fn manifest() -> Manifest {
    let parent = |kind, scope| ParentKind {
        kind: gvk("example.dev/v1", kind),
        plural: "things".to_owned(),
        scope,
    };
    Manifest {
        name: PluginName::new("web").unwrap(),
        version: "1".to_owned(),
        parents: vec![
            parent("Web", Scope::Namespaced),
            parent("Fleet", Scope::Cluster),
        ],
        crds: vec![fields(json!({
            "spec": {"group": "example.dev", "names": {"kind": "Related"}},
        }))],
        children: vec![
            kind_of_child("v1", "ConfigMap", true),
            kind_of_child("v1", "Secret", true),
            kind_of_child("v1", "Namespace", false),
            kind_of_child("example.dev/v1", "Web", true),
            kind_of_child("example.dev/v1", "Fleet", true),
            kind_of_child("rbac.authorization.k8s.io/v1", "Role", false),
            kind_of_child("monitoring.coreos.com/v1", "ServiceMonitor", false),
        ],
        reads: vec![
            read("v1", "Secret", Access::Full, ReadScope::ParentNamespace),
            read("v1", "ConfigMap", Access::Full, ReadScope::Cluster),
            read("v1", "Node", Access::Metadata, ReadScope::Cluster),
        ],
        finalize: false,
        reads_own_status: false,
        config_schema: None,
    }
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn child(api_version: &str, kind: &str, name: &str) -> Child {
    Child {
        key: name.to_owned(),
        kind: gvk(api_version, kind),
        namespace: None,
        name: name.to_owned(),
        object: fields(json!({"metadata": {"name": name}})),
        generate: Vec::new(),
        apply: ApplyPolicy::Always,
        removal: RemovalPolicy::Delete,
        readiness: Readiness::Derive,
        after: Vec::new(),
    }
}

fn config_map(name: &str) -> Child {
    child("v1", "ConfigMap", name)
}

fn with_metadata(metadata: Value) -> Child {
    let mut child = config_map("a");
    child.object["metadata"] = metadata;
    child
}

fn generating(key: &str, length: u32, alphabet: &str) -> Child {
    let mut child = child("v1", "Secret", "s");
    child.generate = vec![Generated {
        key: key.to_owned(),
        length,
        alphabet: alphabet.to_owned(),
        token: None,
    }];
    child
}

fn desired(children: Vec<Child>) -> Outcome {
    Outcome::Desired(Desired {
        children,
        report: Report::default(),
        prediction: None,
    })
}

/// The inputs to a check besides the answer.
struct Scene {
    manifest: Manifest,
    grants: Grants,
    limits: Limits,
    host: Vec<String>,
    parent: ObjectId,
    phase: Phase,
}

fn scene() -> Scene {
    let manifest = manifest();
    let mut grants = Grants::proposed(&manifest);
    let privileged = ChildGrant {
        privileged: true,
        depth: 1,
        ..ChildGrant::default()
    };
    let all = manifest.children.iter();
    grants.children = all
        .map(|child| (child.kind.group_kind(), privileged))
        .collect();
    Scene {
        grants,
        manifest,
        limits: Limits::default(),
        host: ["innkeeper-system", "innkeeper-pods"]
            .map(str::to_owned)
            .into(),
        parent: ObjectId::new(GroupKind::new("example.dev", "Web"), Some("demo"), "shop"),
        phase: Phase::Reconcile,
    }
}

impl Scene {
    fn cluster_scoped() -> Self {
        Self {
            parent: ObjectId::new(GroupKind::new("example.dev", "Fleet"), None, "all"),
            ..scene()
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            manifest: &self.manifest,
            grants: &self.grants,
            limits: &self.limits,
            resources: &Cluster,
            host_namespaces: &self.host,
            parent: &self.parent,
            depth: 0,
            phase: self.phase,
        }
    }

    #[track_caller]
    fn check_refused(&self, answer: Outcome, expected: Expect) {
        let rejection = check(answer, &self.rules()).unwrap_err();
        expected.assert_eq(&format!("{}: {}", rejection.reason(), rejection.message()));
    }
}

#[track_caller]
fn check_refused(children: Vec<Child>, expected: Expect) {
    scene().check_refused(desired(children), expected);
}

#[track_caller]
fn check_report_refused(report: Report, expected: Expect) {
    scene().check_refused(Outcome::Keep(report.clone()), expected);
    let answer = Outcome::Desired(Desired {
        children: Vec::new(),
        report: report.clone(),
        prediction: None,
    });
    assert!(check(answer, &scene().rules()).is_err());
    let fault = Fault {
        kind: FaultKind::Retry,
        message: String::new(),
        report: Some(report),
    };
    assert!(check_fault(fault).is_err());
}

#[test]
fn fills_in_the_namespace() {
    let checked = check(desired(vec![config_map("a")]), &scene().rules()).unwrap();
    let Outcome::Desired(answer) = &*checked else {
        panic!("{checked:?}");
    };
    assert_eq!(answer.children[0].namespace.as_deref(), Some("demo"));
}

#[test]
fn accepts_an_answer_that_the_contract_allows() {
    let mut typed = with_metadata(json!({
        "name": "a", "creationTimestamp": null, "labels": {"app.kubernetes.io/name": "x"}, "annotations": {"note": "ä"},
    }));
    typed.after = vec!["s".to_owned()];
    let secret = generating("password", 1024, "ab");
    let role = child("rbac.authorization.k8s.io/v1", "Role", "system:web");
    let monitor = child("monitoring.coreos.com/v1", "ServiceMonitor", "m");
    let answer = desired(vec![typed, secret, role, monitor]);
    assert!(check(answer, &scene().rules()).is_ok());
    let mut namespaced = config_map("a");
    namespaced.namespace = Some("anywhere".to_owned());
    let answer = desired(vec![namespaced, child("v1", "Namespace", "anywhere")]);
    assert!(check(answer, &Scene::cluster_scoped().rules()).is_ok());
}

#[test]
fn rejects_kinds_that_are_not_declared() {
    check_refused(
        vec![child("v1", "Pod", "a")],
        expect![[
            r#"ChildForbidden: child "a": v1 Pod is not among the child kinds that the plugin declares in `describe`"#
        ]],
    );
    check_refused(
        vec![child("v2", "ConfigMap", "a")],
        expect![[
            r#"ChildForbidden: child "a": v2 ConfigMap is not among the child kinds that the plugin declares in `describe`"#
        ]],
    );
}

#[test]
fn rejects_kinds_that_are_not_granted() {
    let mut scene = scene();
    scene
        .grants
        .children
        .remove(&GroupKind::new("", "ConfigMap"));
    scene.check_refused(
        desired(vec![config_map("a")]),
        expect![[
            r#"ChildForbidden: child "a": the plugin is not granted children of kind v1 ConfigMap"#
        ]],
    );
    for grant in scene.grants.children.values_mut() {
        grant.privileged = false;
    }
    let role = child("rbac.authorization.k8s.io/v1", "Role", "a");
    scene.check_refused(desired(vec![role]), expect![[r#"ChildForbidden: child "a": the plugin is not granted children of kind rbac.authorization.k8s.io/v1 Role"#]]);
}

#[test]
fn rejects_other_namespaces() {
    let mut child = config_map("a");
    child.namespace = Some("other".to_owned());
    check_refused(
        vec![child],
        expect![[
            r#"ChildForbidden: child "a": it is in namespace "other": children of Web.example.dev demo/shop live in "demo""#
        ]],
    );
}

#[test]
fn rejects_cluster_scoped_children_of_namespaced_parents() {
    check_refused(
        vec![child("v1", "Namespace", "a")],
        expect![[
            r#"ChildForbidden: child "a": v1 Namespace is cluster-scoped, and the namespaced parent Web.example.dev demo/shop cannot own it"#
        ]],
    );
}

#[test]
fn rejects_wrong_places_below_cluster_scoped_parents() {
    let scene = Scene::cluster_scoped();
    scene.check_refused(desired(vec![config_map("a")]), expect![[r#"OutputRejected: child "a": name its namespace: the parent Fleet.example.dev all is cluster-scoped and v1 ConfigMap is not"#]]);
    let mut namespace = child("v1", "Namespace", "a");
    namespace.namespace = Some("demo".to_owned());
    scene.check_refused(desired(vec![namespace]), expect![[r#"OutputRejected: child "a": v1 Namespace is cluster-scoped: leave out the namespace "demo""#]]);
    let mut nowhere = config_map("a");
    nowhere.namespace = Some("No Where".to_owned());
    scene.check_refused(
        desired(vec![nowhere]),
        expect![[r#"OutputRejected: child "a": "No Where" is not a valid namespace name"#]],
    );
}

#[test]
fn rejects_the_parent_as_its_own_child() {
    check_refused(
        vec![child("example.dev/v1", "Web", "shop")],
        expect![[r#"ChildForbidden: child "shop": it is the parent itself"#]],
    );
}

#[test]
fn rejects_names() {
    check_refused(
        vec![config_map("No")],
        expect![[
            r#"OutputRejected: child "No": "No" is not a valid name: use at most 253 lower-case letters, digits, dashes and dots, starting and ending with a letter or digit"#
        ]],
    );
    check_refused(
        vec![child("rbac.authorization.k8s.io/v1", "Role", "a/b")],
        expect![[
            r#"OutputRejected: child "a/b": "a/b" is not a valid name: use at most 253 printable characters other than / % ? #"#
        ]],
    );
}

#[test]
fn rejects_keys() {
    let mut unnamed = config_map("a");
    unnamed.key = String::new();
    check_refused(
        vec![config_map("b"), unnamed.clone()],
        expect!["OutputRejected: child number 1 has a key of 0 characters: give it 1 to 253"],
    );
    unnamed.key = "x".repeat(254);
    check_refused(
        vec![unnamed],
        expect!["OutputRejected: child number 0 has a key of 254 characters: give it 1 to 253"],
    );
    check_refused(
        vec![config_map("a"), child("v1", "Secret", "a")],
        expect![[
            r#"OutputRejected: the key "a" is given to two children, number 0 and number 1 of the answer"#
        ]],
    );
}

#[test]
fn rejects_the_same_object_twice() {
    let mut again = config_map("a");
    again.key = "again".to_owned();
    check_refused(
        vec![config_map("a"), again],
        expect![[
            r#"OutputRejected: child "again": it is the same object as child "a": v1 ConfigMap a"#
        ]],
    );
}

#[test]
fn rejects_objects_that_are_too_large() {
    let mut scene = scene();
    scene.limits.object_bytes_max = 10;
    scene.check_refused(
        desired(vec![config_map("a")]),
        expect![[r#"OutputRejected: child "a": it is 25 bytes of JSON, 10 are allowed"#]],
    );
}

#[test]
fn rejects_after_lists_that_cannot_be_followed() {
    let after = |name: &str, keys: &[&str]| {
        let mut child = config_map(name);
        child.after = keys.iter().map(|key| (*key).to_owned()).collect();
        child
    };
    check_refused(
        vec![after("a", &["a"])],
        expect![[r#"OutputRejected: child "a": its `after` names itself"#]],
    );
    check_refused(
        vec![after("a", &["b"])],
        expect![[
            r#"OutputRejected: child "a": its `after` names "b", which is not a key of the answer"#
        ]],
    );
    check_refused(
        vec![
            after("a", &["c"]),
            after("b", &["a"]),
            after("c", &["b"]),
            config_map("d"),
        ],
        expect![[
            r#"OutputRejected: the children "a", "b", "c" wait for each other in a cycle: remove one of them from an `after` list"#
        ]],
    );
}

#[test]
fn a_long_chain_of_after_lists_is_checked_in_little_time() {
    // As many children as limits allow. Each waits for the one before it, and the first ones come last.
    let chain = |count: usize| -> Vec<Child> {
        let after = |number: usize| {
            (number.saturating_sub(3)..number)
                .map(|number| format!("k{number:05}"))
                .collect()
        };
        let children = (0..count).map(|number| Child {
            after: after(number),
            ..config_map(&format!("k{number:05}"))
        });
        children.rev().collect()
    };
    let started = std::time::Instant::now();
    assert!(order::check(&chain(10_000)).is_ok());
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}

#[test]
fn takes_the_null_that_the_types_of_kubernetes_write() {
    let mut child = with_metadata(json!({"name": "a", "creationTimestamp": null}));
    let nested = json!({"template": {"metadata": {"creationTimestamp": null}}});
    child.object.insert("spec".to_owned(), nested);
    let checked = check(desired(vec![child]), &scene().rules());
    assert!(checked.is_ok(), "{checked:?}");
}

#[test]
fn rejects_metadata_that_the_guest_must_not_set() {
    for field in [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ] {
        let answer = desired(vec![with_metadata(json!({"name": "a", field: "x"}))]);
        let rejection = check(answer, &scene().rules()).unwrap_err();
        assert!(
            rejection
                .message()
                .contains(&format!("leave out `metadata.{field}`")),
            "{rejection}"
        );
    }
    check_refused(
        vec![with_metadata(json!({"name": "a", "uid": "x"}))],
        expect![[r#"OutputRejected: child "a": leave out `metadata.uid`: the API server sets it"#]],
    );
    check_refused(
        vec![with_metadata(json!("a"))],
        expect![[r#"OutputRejected: child "a": `metadata` is not an object"#]],
    );
}

#[test]
fn rejects_labels_and_annotations() {
    for metadata in [
        json!({"labels": {"innkeeper.dev/plugin": "x"}}),
        json!({"annotations": {"innkeeper.dev/applied": "x"}}),
    ] {
        let rejection =
            check(desired(vec![with_metadata(metadata)]), &scene().rules()).unwrap_err();
        assert!(
            rejection
                .message()
                .contains("keys below innkeeper.dev/ are reserved for the host"),
            "{rejection}"
        );
    }
    check_refused(
        vec![with_metadata(json!({"labels": {"a b": "x"}}))],
        expect![[
            r#"OutputRejected: child "a": "a b" is not a valid label key: use a name of at most 63 characters, optionally after a DNS subdomain and a slash"#
        ]],
    );
    check_refused(
        vec![with_metadata(json!({"labels": {"a": "x y"}}))],
        expect![[
            r#"OutputRejected: child "a": the label a has the value "x y": use at most 63 letters, digits, dashes, dots and underscores, starting and ending with a letter or digit"#
        ]],
    );
    check_refused(
        vec![with_metadata(json!({"labels": {"a": 1}}))],
        expect![[r#"OutputRejected: child "a": `metadata.labels.a` is not a string"#]],
    );
    check_refused(
        vec![with_metadata(json!({"annotations": []}))],
        expect![[r#"OutputRejected: child "a": `metadata.annotations` is not an object"#]],
    );
    check_refused(
        vec![with_metadata(json!({"annotations": {"/": "x"}}))],
        expect![[
            r#"OutputRejected: child "a": "/" is not a valid annotation key: use a name of at most 63 characters, optionally after a DNS subdomain and a slash"#
        ]],
    );
}

#[test]
fn rejects_generate() {
    let mut config_map = config_map("a");
    config_map.generate = generating("a", 8, "ab").generate;
    check_refused(
        vec![config_map],
        expect![[
            r#"OutputRejected: child "a": `generate` is for Secrets only, this is a v1 ConfigMap"#
        ]],
    );
    check_refused(
        vec![generating("a b", 8, "ab")],
        expect![[
            r#"OutputRejected: child "s": `generate` has the key "a b": use at most 253 letters, digits, dashes, dots and underscores"#
        ]],
    );
    check_refused(
        vec![generating("a", 0, "ab")],
        expect![[
            r#"OutputRejected: child "s": `generate` asks for 0 characters for "a": ask for 1 to 1024"#
        ]],
    );
    check_refused(
        vec![generating("a", 1025, "ab")],
        expect![[
            r#"OutputRejected: child "s": `generate` asks for 1025 characters for "a": ask for 1 to 1024"#
        ]],
    );
    for alphabet in ["", "a", "aa", "aä", "a\n"] {
        let answer = desired(vec![generating("a", 8, alphabet)]);
        assert!(check(answer, &scene().rules()).is_err(), "{alphabet:?}");
    }
    check_refused(
        vec![generating("a", 8, "aa")],
        expect![[
            r#"OutputRejected: child "s": `generate` has an alphabet for "a" that is not valid: use at least two printable ASCII characters, each once"#
        ]],
    );
    let mut twice = generating("a", 8, "ab");
    twice.generate.push(twice.generate[0].clone());
    check_refused(
        vec![twice],
        expect![[r#"OutputRejected: child "s": `generate` names the key "a" twice"#]],
    );
    let mut stated = generating("a", 8, "ab");
    stated
        .object
        .insert("stringData".to_owned(), json!({"a": "x"}));
    check_refused(
        vec![stated],
        expect![[
            r#"OutputRejected: child "s": the key "a" is set in `stringData` and in `generate`: keep one"#
        ]],
    );
    let mut many = generating("a", 8, "ab");
    many.generate = (0..65)
        .map(|place| Generated {
            key: place.to_string(),
            ..many.generate[0].clone()
        })
        .collect();
    check_refused(
        vec![many],
        expect![[r#"OutputRejected: child "s": `generate` has 65 entries, 64 are allowed"#]],
    );
}

#[test]
fn rejects_generate_with_a_token_that_is_no_short_text() {
    for token in [String::new(), "\n".to_owned(), "x".repeat(254)] {
        let mut child = generating("a", 8, "ab");
        child.generate[0].token = Some(token);
        check_refused(
            vec![child],
            expect![[
                r#"OutputRejected: child "s": `generate` has a token for "a" that is not valid: use 1 to 253 printable ASCII characters"#
            ]],
        );
    }
}

#[test]
fn rejects_finalized_for_a_parent_that_is_not_being_deleted() {
    scene().check_refused(Outcome::Finalized(Report::default()), expect!["OutputRejected: the parent is not being deleted: `finalized` is an answer of the phase finalize only"]);
    let mut finalizing = scene();
    finalizing.phase = Phase::Finalize;
    let answer = Outcome::Finalized(Report::default());
    assert!(check(answer, &finalizing.rules()).is_ok());
}

fn condition(kind: &str, reason: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message: String::new(),
    }
}

fn conditions(conditions: Vec<Condition>) -> Report {
    Report {
        conditions,
        ..Report::default()
    }
}

#[test]
fn rejects_conditions() {
    check_report_refused(
        conditions(vec![condition("Synced", "Ok")]),
        expect![
            "OutputRejected: the condition type Synced is reserved for the host: use another type"
        ],
    );
    check_report_refused(
        conditions(vec![condition("Is Up", "Ok")]),
        expect![[
            r#"OutputRejected: "Is Up" is not a valid condition type: use letters, digits, dashes, dots and underscores, at most 316 characters"#
        ]],
    );
    check_report_refused(
        conditions(vec![condition("Up", "")]),
        expect![[
            r#"OutputRejected: the condition Up has the reason "": use one word in CamelCase of at most 1024 characters"#
        ]],
    );
    check_report_refused(
        conditions(vec![condition("Up", "Ok"), condition("Up", "No")]),
        expect!["OutputRejected: the condition Up is stated twice"],
    );
    let mut long = condition("Up", "Ok");
    long.message = "x".repeat(32_769);
    check_report_refused(
        conditions(vec![long]),
        expect!["OutputRejected: the message of the condition Up is longer than 32768 characters"],
    );
    assert!(
        check(
            Outcome::Keep(conditions(vec![condition("Ready", "Ok")])),
            &scene().rules()
        )
        .is_ok()
    );
}

#[test]
fn rejects_conditions_inside_of_status() {
    let report = Report {
        status: Some(fields(json!({"conditions": []}))),
        ..Report::default()
    };
    check_report_refused(
        report,
        expect![
            "OutputRejected: the status holds `conditions`: state them in the report's own list, so that the host can merge them with its own"
        ],
    );
}

#[test]
fn rejects_events() {
    let report = Report {
        events: vec![Event {
            kind: EventType::Normal,
            reason: "two words".to_owned(),
            message: String::new(),
        }],
        ..Report::default()
    };
    check_report_refused(
        report,
        expect![[
            r#"OutputRejected: an event has the reason "two words": use one word in CamelCase of at most 128 characters"#
        ]],
    );
}

#[test]
fn retains_children_of_kinds_that_are_never_deleted() {
    let mut scene = scene();
    for kind in &mut scene.manifest.children {
        kind.never_deleted = &*kind.kind.kind == "ConfigMap";
    }
    let answer = desired(vec![config_map("a"), child("v1", "Secret", "s")]);
    let Outcome::Desired(checked) = check(answer, &scene.rules()).unwrap().into_inner() else {
        panic!("should be a desired set");
    };
    let removals: Vec<RemovalPolicy> = checked.children.iter().map(|child| child.removal).collect();
    assert_eq!(removals, [RemovalPolicy::Retain, RemovalPolicy::Delete]);
}
