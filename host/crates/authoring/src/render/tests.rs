//! Passes with a fake plugin, whose guest is a Rust function.

use std::{fs, io, path::PathBuf, time::Duration};

use expect_test::{expect, expect_file};
use innkeeper_model::foreign::is_deceptive;
use innkeeper_model::{
    Access, ApplyPolicy, Child, ChildKind, Condition, ConditionStatus, Desired, Fault, FaultKind,
    Generated, Gvk, ListSelector, Manifest, ObjectRef, Outcome, ParentKind, PluginName, ReadKind,
    ReadScope, Readiness, Reads, RemovalPolicy, Report, Scope, Selector,
};
use innkeeper_sandbox::{CallFault, CallSpeed, Context, Dropped, LogLevel, Timing};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{reads::OfflineReads, *};
use crate::{args::LoadArgs, tests::captured};

pub(crate) type Answer = fn(&Request<'_>, &mut OfflineReads, &Context) -> End;

use innkeeper_sandbox::End;

pub(crate) struct Pond {
    pub(crate) manifest: Manifest,
    answer: Answer,
}

impl Pond {
    pub(crate) fn call(
        &self,
        request: &Request<'_>,
        mut reads: OfflineReads,
        context: &Context,
    ) -> (CallReport, OfflineReads) {
        let end = (self.answer)(request, &mut reads, context);
        let report = CallReport {
            end,
            fuel: Some(42),
            cpu: Duration::ZERO,
            memory_peak_bytes: 0,
            reads: 0,
            read_bytes: 0,
            used_now: false,
            used_random: false,
            log: Vec::new(),
            log_dropped: Dropped::default(),
            timing: Timing::default(),
            waited_for_memory: false,
            speed: CallSpeed::default(),
        };
        (report, reads)
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is an object"),
    }
}

pub(crate) fn pond(answer: Answer) -> Pond {
    let read = |kind: &str, access| ReadKind {
        kind: Gvk::new("", "v1", kind),
        access,
        scope: ReadScope::ParentNamespace,
        label_selector: Selector::default(),
    };
    let child = |api_version: &str, kind: &str| ChildKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        required: true,
        ready_condition: None,
        never_deleted: false,
    };
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "default": {},
                "x-kubernetes-validations": [
                    {"rule": "self.size <= 9", "message": "a pond is no lake"},
                ],
                "properties": {"size": {"type": "integer", "default": 3, "minimum": 0}},
            },
            "status": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"url": {"type": "string"}},
            },
        },
    });
    let crd = json!({
        "metadata": {"name": "ponds.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Pond", "plural": "ponds"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    Pond {
        manifest: Manifest {
            name: PluginName::new("pond").unwrap(),
            version: "1".to_owned(),
            parents: vec![ParentKind {
                kind: Gvk::new("example.com", "v1", "Pond"),
                plural: "ponds".to_owned(),
                scope: Scope::Namespaced,
            }],
            crds: vec![object(crd)],
            children: vec![
                child("v1", "ConfigMap"),
                child("v1", "Secret"),
                child("batch/v1", "Job"),
            ],
            reads: vec![read("Secret", Access::Hash), read("Pod", Access::Metadata)],
            finalize: true,
            reads_own_status: false,
            config_schema: None,
        },
        answer,
    }
}

pub(crate) fn child(key: &str, value: Value) -> Child {
    let object = object(value);
    let text = |name: &str| object[name].as_str().unwrap().to_owned();
    Child {
        key: key.to_owned(),
        kind: Gvk::parse(&text("apiVersion"), &text("kind")).unwrap(),
        namespace: None,
        name: object["metadata"]["name"].as_str().unwrap().to_owned(),
        object,
        generate: Vec::new(),
        apply: ApplyPolicy::Always,
        removal: RemovalPolicy::Delete,
        readiness: Readiness::Derive,
        after: Vec::new(),
    }
}

pub(crate) fn desired(children: Vec<Child>) -> End {
    End::Answered(Outcome::Desired(Desired {
        children,
        report: Report::default(),
        prediction: None,
    }))
}

/// A directory with input files, and the arguments that name them.
struct Given {
    directory: TempDir,
    args: RenderArgs,
    stdin: String,
}

fn given(parent: &str) -> Given {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("parent.yaml");
    fs::write(&path, parent).unwrap();
    let args = RenderArgs {
        plugin: PathBuf::from("pond.wasm").into(),
        parent_file: None,
        parent: Some(path),
        observed: Vec::new(),
        config: None,
        grants: None,
        phase: RenderPhase::Reconcile,
        now: Some("2024-05-06T07:08:09Z".parse().unwrap()),
        seed: 0,
        hash_key: None,
        load: LoadArgs::default(),
        output: OutputFormat::Yaml,
    };
    Given {
        directory,
        args,
        stdin: String::new(),
    }
}

impl Given {
    fn observing(mut self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.args.observed.push(path);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut RenderArgs)) -> Self {
        change(&mut self.args);
        self
    }

    fn render(&self, guest: &Pond) -> (Exit, String, String) {
        let parent = self.args.parent.as_deref().unwrap();
        let call: &Call<'_> = &|request, reads, context| Ok(guest.call(request, reads, context));
        captured(self.stdin.as_bytes(), |streams| {
            let files = Files::read(&paths(&self.args, parent), streams)?;
            pass(&guest.manifest, call, &self.args, files, 0, streams)
        })
    }
}

/// Removes the escapes from the output: the guest echoes JSON inside a YAML text.
fn unescaped(text: &str) -> String {
    text.replace('\\', "")
}

const PARENT: &str = "apiVersion: example.com/v1\nkind: Pond\nmetadata: {name: koi}\n";

/// Answers with one child that contains the guest's input.
fn echo(value: Value) -> End {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let data: Map<String, Value> = object(value)
        .iter()
        .map(|(key, value)| (key.clone(), text(value).into()))
        .collect();
    desired(vec![child(
        "echo",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "echo"}, "data": data}),
    )])
}

#[test]
fn a_parent_gets_the_fields_that_an_api_server_sets() {
    let guest = pond(|request, _, context| {
        echo(json!({"parent": request.parent, "now": context.now_ms.to_string()}))
    });
    let (exit, out, err) = given(PARENT).render(&guest);
    assert_eq!((exit, err.as_str()), (Exit::Success, ""));
    expect![[r#"
        apiVersion: v1
        data:
          now: "1714979289000"
          parent: "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Pond\",\"metadata\":{\"creationTimestamp\":\"2024-05-06T07:08:09Z\",\"generation\":1,\"name\":\"koi\",\"namespace\":\"default\",\"uid\":\"00000000-0000-4000-8000-000000000000\"},\"spec\":{\"size\":3}}"
        kind: ConfigMap
        metadata:
          name: echo
          namespace: default
    "#]].assert_eq(&out);
}

#[test]
fn a_parent_in_phase_finalize_is_being_deleted() {
    let guest = pond(|request, _, _| echo(json!({"parent": request.parent})));
    let fixture = given(PARENT).with(|args| args.phase = RenderPhase::Finalize);
    let out = unescaped(&fixture.render(&guest).1);
    assert!(
        out.contains(r#""deletionTimestamp":"2024-05-06T07:08:09Z""#),
        "{out}"
    );
    assert!(
        out.contains(r#""finalizers":["innkeeper.dev/pond"]"#),
        "{out}"
    );
}

#[test]
fn texts_of_a_plugin_reach_the_terminal_without_escape_sequences() {
    const TEXT: &str = "bad\u{1b}[2J\nerror: mine";

    let guest = pond(|_, _, _| {
        End::GuestFault(Fault {
            kind: FaultKind::Invalid,
            message: TEXT.to_owned(),
            report: None,
        })
    });
    let (_, _, err) = given(PARENT).render(&guest);
    assert_eq!(err, "fault: invalid: bad [2J error: mine\n");
    let mut stderr = Vec::new();
    let mut stdin = io::empty();
    let mut stdout = io::sink();
    let mut streams = Streams::new(&mut stdin, &mut stdout, &mut stderr);
    let line = LogLine {
        level: LogLevel::Info,
        message: TEXT.to_owned(),
    };
    note_log(&[line], &mut streams);
    assert_eq!(stderr, b"log: info: bad [2J error: mine\n");
}

#[test]
fn hostile_children_are_printed_with_escapes() {
    const TEXT: &str = "a\u{1b}[2J\r\nb: forged\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";

    let guest = pond(|_, _, _| {
        desired(vec![child(
            "hostile",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile"},
                "data": {TEXT: TEXT, "lines": "a\u{202e}\nb\n"},
            }),
        )])
    });
    for output in [OutputFormat::Yaml, OutputFormat::Json] {
        let (exit, out, err) = given(PARENT)
            .with(|args| args.output = output)
            .render(&guest);
        assert_eq!((exit, err.as_str()), (Exit::Success, ""));
        assert!(!out.contains(|c| is_deceptive(c) && c != '\n'), "{out:?}");
        assert!(!out.contains("\nb: forged"), "{out}");
        let object = match output {
            OutputFormat::Yaml => innkeeper_model::yaml::read(&out).unwrap().remove(0),
            OutputFormat::Json => {
                let outcome: Value = serde_json::from_str(&out).unwrap();
                outcome["children"][0]["object"].clone()
            }
        };
        assert_eq!(object["data"][TEXT], TEXT, "{out}");
    }
}

#[test]
fn rejects_rejected() {
    let parent = format!("{PARENT}spec: {{size: 12}}\n");
    let (exit, out, err) = given(&parent).render(&pond(|_, _, _| desired(Vec::new())));
    assert_eq!((exit, out.as_str()), (Exit::Finding, ""));
    expect![[r#"
        error: Pond.example.com "koi" is invalid: spec: a pond is no lake
    "#]]
    .assert_eq(&err);
}

#[test]
fn a_status_that_the_definition_refuses_is_a_finding() {
    let mut guest = pond(|_, _, _| {
        End::Answered(Outcome::Keep(Report {
            status: Some(object(json!({"url": 7}))),
            ..Report::default()
        }))
    });
    let (exit, _, err) = given(PARENT).render(&guest);
    assert_eq!(exit, Exit::Finding);
    let problem =
        "the API server would refuse the status of this answer: status.url: 7 is not of type";
    assert!(err.contains(problem), "{err}");
    guest.answer = |_, _, _| desired(Vec::new());
    let schema = "/versions/0/schema/openAPIV3Schema/properties/status";
    guest.manifest.crds[0]
        .get_mut("spec")
        .unwrap()
        .pointer_mut(schema)
        .unwrap()["required"] = json!(["url"]);
    let (exit, _, err) = given(PARENT).render(&guest);
    assert_eq!(exit, Exit::Finding);
    let problem = "the definition ponds.example.com v1 refuses the host's conditions, which come before the first status of the plugin: status.url: is required";
    assert!(err.contains(problem), "{err}");
}

#[test]
fn unknown_fields_are_reported_and_dropped() {
    let guest = pond(|request, _, _| echo(json!({"parent": request.parent})));
    let (exit, out, err) = given(&format!("{PARENT}spec: {{sise: 1}}\n")).render(&guest);
    assert_eq!(exit, Exit::Success);
    assert!(!out.contains("sise"), "{out}");
    expect![[r#"
        warning: example.com/v1 Pond koi: unknown field "spec.sise" is dropped
    "#]]
    .assert_eq(&err);
}

const OBSERVED: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata:
    name: owned
    namespace: default
    resourceVersion: "7"
    annotations: {innkeeper.dev/key: db}
    ownerReferences: [{apiVersion: example.com/v1, kind: Pond, name: koi, uid: u-1, controller: true}]
  data: {password: c2VjcmV0}
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: retained
    namespace: default
    annotations: {innkeeper.dev/retained-for: example.com/Pond/default/koi}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: foreign, namespace: default}
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: of-another
    namespace: default
    ownerReferences: [{apiVersion: example.com/v1, kind: Pond, name: carp, uid: u-2, controller: true}]
"#;

fn children_of(request: &Request<'_>) -> Value {
    let names: Vec<String> = request
        .children
        .iter()
        .map(|child| {
            let object: Value = serde_json::from_str(&child.object).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            format!(
                "{name}:{}:{}",
                child.key.as_deref().unwrap_or("-"),
                child.retained
            )
        })
        .collect();
    json!({"children": names.join(" ")})
}

#[test]
fn children_of_a_parent_without_uid_are_found_by_its_name() {
    let guest = pond(|request, _, _| echo(children_of(request)));
    let (_, out, _) = given(PARENT).observing("all.yaml", OBSERVED).render(&guest);
    assert!(
        out.contains("children: retained:-:true owned:db:false"),
        "{out}"
    );
}

#[test]
fn children_of_a_parent_with_uid_are_found_by_its_uid() {
    let guest = pond(|request, _, _| echo(children_of(request)));
    for (uid, found) in [
        ("u-1", "retained:-:true owned:db:false"),
        ("u-9", "retained:-:true"),
    ] {
        let parent = PARENT.replace("name: koi", &format!("name: koi, uid: {uid}"));
        let (_, out, _) = given(&parent)
            .observing("all.yaml", OBSERVED)
            .render(&guest);
        assert!(
            out.contains(&format!("children: {found}\n")),
            "{uid}: {out}"
        );
    }
}

#[test]
fn observed_secrets_are_hashed_with_the_given_key() {
    let guest = pond(|request, _, _| echo(json!({"secret": &*request.children[1].object})));
    let fixed = given(PARENT).observing("all.yaml", OBSERVED);
    let (_, out, _) = fixed.render(&guest);
    assert!(
        out.contains("hmac-sha256:") && !out.contains("c2VjcmV0"),
        "{out}"
    );
    let key = fixed.directory.path().join("key");
    fs::write(&key, "another").unwrap();
    let (_, other, _) = fixed.with(|args| args.hash_key = Some(key)).render(&guest);
    assert_ne!(out, other);
}

fn get(reads: &mut OfflineReads, kind: &str, namespace: Option<&str>, name: &str) -> String {
    let read = reads.get(&ObjectRef {
        kind: Gvk::new("", "v1", kind),
        namespace: namespace.map(Into::into),
        name: name.into(),
    });
    match read {
        Ok(Some(text)) => text.to_string(),
        Ok(None) => "none".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn reads_see_only_granted_objects_and_are_recorded() {
    let guest = pond(|_, reads, _| {
        let list = |reads: &mut OfflineReads, labels: Option<&str>| {
            reads
                .list(&ListSelector {
                    kind: Gvk::new("", "v1", "Pod"),
                    namespace: None,
                    label_selector: labels.map(Into::into),
                })
                .unwrap()
                .len()
                .to_string()
        };
        echo(json!({
            "hash": get(reads, "Secret", None, "owned"),
            "missing": get(reads, "Secret", Some("default"), "other"),
            "elsewhere": get(reads, "Secret", Some("kube-system"), "owned"),
            "ungranted": get(reads, "Node", None, "n"),
            "pods": list(reads, None),
            "chosen": list(reads, Some("app in (a)")),
        }))
    });
    let pods = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: a}}, spec: {x: 1}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: other}}\n";
    let (exit, out, _) = given(PARENT)
        .observing("all.yaml", OBSERVED)
        .observing("more/pods.yaml", pods)
        .with(|args| args.output = OutputFormat::Json)
        .render(&guest);
    assert_eq!(exit, Exit::Success);
    expect_file!["tests/reads.json"].assert_eq(&out);
}

#[test]
fn generated_values_come_from_the_seed_and_are_kept() {
    let guest = pond(|_, _, _| {
        let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"user": "koi"}});
        let generate = vec![Generated {
            key: "password".to_owned(),
            length: 12,
            alphabet: "abcdefgh".to_owned(),
            token: None,
        }];
        let own = |name: &str| Child {
            generate: generate.clone(),
            ..child(name, secret(name))
        };
        let inherited = Child {
            apply: ApplyPolicy::Hold,
            ..child("held", secret("held"))
        };
        let once = Child {
            apply: ApplyPolicy::Once,
            ..child(
                "once",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "retained"}}),
            )
        };
        desired(vec![own("new"), own("owned"), inherited, once])
    });
    let fixture = given(PARENT).observing("all.yaml", OBSERVED);
    let (_, out, _) = fixture.render(&guest);
    expect![[r"
        apiVersion: v1
        data:
          password: ZGdjZGFjZWNoZmVl
          user: a29p
        kind: Secret
        metadata:
          name: new
          namespace: default
        ---
        apiVersion: v1
        data:
          password: c2VjcmV0
          user: a29p
        kind: Secret
        metadata:
          name: owned
          namespace: default
    "]]
    .assert_eq(&out);
    let (_, other, _) = fixture.with(|args| args.seed = 1).render(&guest);
    assert_ne!(out, other);
}

#[test]
fn a_guest_fault_is_reported_and_ends_with_3() {
    let guest = pond(|_, _, _| {
        End::GuestFault(Fault {
            kind: FaultKind::Invalid,
            message: "spec.size is odd".to_owned(),
            report: None,
        })
    });
    let (exit, out, err) = given(PARENT)
        .with(|args| args.output = OutputFormat::Json)
        .render(&guest);
    assert_eq!(exit, Exit::Finding);
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["outcome"], Value::Null);
    assert_eq!(
        out["fault"],
        json!({"kind": "invalid", "message": "spec.size is odd"})
    );
    assert_eq!(err, "fault: invalid: spec.size is odd\n");
}

#[test]
fn a_guest_over_its_deadline_ends_with_3() {
    let guest = pond(|_, _, _| {
        End::Faulted(CallFault::DeadlineExceeded {
            limit: Duration::from_millis(250),
        })
    });
    let (exit, out, err) = given(PARENT).render(&guest);
    assert_eq!((exit, out.as_str()), (Exit::Finding, ""));
    assert!(err.starts_with("fault: DeadlineExceeded: "), "{err}");
}

#[test]
fn an_answer_that_the_host_would_reject_ends_with_3() {
    let guest = pond(|_, _, _| {
        desired(vec![child(
            "pod",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
        )])
    });
    let (exit, _, err) = given(PARENT).render(&guest);
    assert_eq!(exit, Exit::Finding);
    assert!(err.starts_with("fault: ChildForbidden: "), "{err}");
}

#[test]
fn keep_prints_no_children() {
    let guest = pond(|_, _, _| End::Answered(Outcome::Keep(Report::default())));
    let (exit, out, err) = given(PARENT).render(&guest);
    assert_eq!((exit, out.as_str()), (Exit::Success, ""));
    assert_eq!(err, "the plugin leaves the children as they are\n");
}

#[test]
fn keep_prints_the_reason_that_the_parent_is_not_ready() {
    let guest = pond(|_, _, _| {
        End::Answered(Outcome::Keep(Report {
            conditions: vec![Condition {
                kind: "Ready".to_owned(),
                status: ConditionStatus::False,
                reason: "SecretNotFound".to_owned(),
                message: "Secret not found: keys".to_owned(),
            }],
            ..Report::default()
        }))
    });
    let (exit, out, err) = given(PARENT).render(&guest);
    assert_eq!((exit, out.as_str()), (Exit::Success, ""));
    assert_eq!(
        err,
        "the plugin leaves the children as they are: \
         Ready=False/SecretNotFound: Secret not found: keys\n"
    );
}

#[test]
fn reads_the_parent_from_the_standard_input() {
    let guest = pond(|request, _, _| echo(json!({"parent": request.parent})));
    let mut fixture = given("").with(|args| args.parent = Some("-".into()));
    fixture.stdin = PARENT.replace("koi", "carp");
    let (exit, out, _) = fixture.render(&guest);
    assert_eq!(exit, Exit::Success);
    assert!(unescaped(&out).contains(r#""name":"carp""#), "{out}");
}

#[test]
fn a_long_prefix_is_cut_as_by_an_api_server() {
    let guest = pond(|request, _, _| echo(json!({"parent": request.parent})));
    let parent = |length: usize| {
        let prefix = format!("generateName: {}", "k".repeat(length));
        let out = given(&PARENT.replace("name: koi", &prefix))
            .render(&guest)
            .1;
        let out = unescaped(&out);
        let (_, name) = out.split_once(r#""name":""#).unwrap();
        name.split('"').next().unwrap().to_owned()
    };
    for (length, kept) in [(57, 57), (58, 58), (59, 58), (250, 58)] {
        let name = parent(length);
        assert_eq!(name.len(), kept + 5, "{name}");
        assert!(name.starts_with(&"k".repeat(kept)), "{name}");
    }
}

#[test]
fn everything_else_in_the_parents_file_is_observed() {
    let guest = pond(|_, reads, _| echo(json!({"secret": get(reads, "Secret", None, "beside")})));
    let file =
        format!("{PARENT}---\n{{apiVersion: v1, kind: Secret, metadata: {{name: beside}}}}\n");
    let (_, out, _) = given(&file).render(&guest);
    assert!(unescaped(&out).contains(r#""name":"beside""#), "{out}");
}

#[test]
fn bad_input_is_reported_and_ends_with_2() {
    let guest = pond(|_, _, _| desired(Vec::new()));
    let two = format!("{PARENT}---\n{}", PARENT.replace("koi", "carp"));
    let table = [
        given("a: [").render(&guest),
        given("a: 1").render(&guest),
        given("").render(&guest),
        given(&two).render(&guest),
        given(&PARENT.replace("/v1", "/v2")).render(&guest),
        given(PARENT)
            .with(|args| args.observed.push("/nowhere".into()))
            .render(&guest),
        given(PARENT)
            .with(|args| args.hash_key = Some("/dev/null".into()))
            .render(&guest),
    ];
    let mut messages = String::new();
    for (exit, out, err) in table {
        assert_eq!((exit, out.as_str()), (Exit::Usage, ""), "{err}");
        // The directory name differs in every run.
        let named = err.replace('\\', "/");
        let words: Vec<&str> = named
            .split(' ')
            .map(|word| {
                if word.ends_with("/parent.yaml") || word.ends_with("/parent.yaml:") {
                    "FILE"
                } else {
                    word
                }
            })
            .collect();
        messages.push_str(&words.join(" "));
    }
    expect![[r"
        error: failed to parse FILE failed to read YAML: unclosed bracket '[' at line 1, column 4
        error: document 1 of FILE is not an object: it has no apiVersion
        error: FILE contains 0 parents of kind example.com/v1 Pond: the plugin needs exactly one
        error: FILE contains 2 parents of kind example.com/v1 Pond: the plugin needs exactly one
        error: the parent is example.com/v2 Pond, but the plugin supports example.com/v1 Pond: convert the parent to that version
        error: failed to read /nowhere: No such file or directory (os error 2)
        error: /dev/null is empty: it must contain the cluster's hash key, the bytes of the Secret innkeeper-hash-key
    "]].assert_eq(&messages);
}
