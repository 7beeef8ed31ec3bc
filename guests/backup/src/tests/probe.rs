//! Storage probes: when one is due, the Job, the end, and the conditions.

use std::time::Duration;

use expect_test::expect;
use innkeeper_guest_testing as testing;
use innkeeper_sdk::testing::{TestRequest, with_defaults};
use proptest::prelude::*;

use super::{
    outcomes::{complete as succeeded, failed, job, pod},
    restore::storages,
    run::{Run, Shell},
    *,
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// Returns the storage from [`around`] with these `probe` fields.
fn probed(probe: Value) -> Value {
    let mut storage = s3();
    storage["metadata"]["uid"] = json!(OWNER);
    storage["metadata"]["generation"] = json!(1);
    storage["spec"]["probe"] = probe;
    storage
}

fn pass(storage: &Value, objects: &[Value], status: &Value, observed: Option<&Value>) -> Answer {
    let mut request = TestRequest::new(storage).status(status);
    if let Some(job) = observed {
        request = request.child("probe", job);
    }
    Plugin::reconcile(&request.build(), &host(objects)).unwrap()
}

/// Returns an answer's Job as the cluster shows it.
fn observed(outcome: &Answer, status: Value) -> Value {
    let object = Value::from(outcome.child("probe").unwrap().object.clone());
    let mut job = job("s-probe", "p", OWNER, status);
    job["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
    job["metadata"]["labels"] = object["metadata"]["labels"].clone();
    job
}

/// Returns both conditions and the events' reasons.
fn line(outcome: &Answer) -> String {
    let report = outcome.report();
    let events: Vec<&str> = report
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    let shown = ["Ready", "Available"].map(|type_| match report.find_condition(type_) {
        Some(_) => condition(report, type_),
        None => "none".to_owned(),
    });
    format!("{} | {} {events:?}", shown[0], shown[1])
}

/// Returns the decision about an answer's Job.
fn decision(outcome: &Answer) -> &'static str {
    match outcome.child("probe").map(|child| child.apply) {
        None => "none",
        Some(ApplyPolicy::Hold) => "held",
        Some(_) => "made",
    }
}

#[test]
fn a_storage_without_probe_has_no_children_and_reports_errors() {
    let outcome = pass(&s3(), &[], &json!({}), None);
    assert_eq!(outcome.children(), []);
    expect!["True/Valid: the settings are valid; spec.probe tests the storage itself | none []"]
        .assert_eq(&line(&outcome));
    let mut storage = s3();
    storage["spec"]["config"]
        .as_object_mut()
        .unwrap()
        .remove("bucket");
    let request = TestRequest::new(&storage).build();
    let fault = Plugin::reconcile(&request, &host(&[])).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    expect!["False/Invalid: Storage s: config.bucket is required"]
        .assert_eq(&condition(&fault.report.unwrap(), "Ready"));
}

#[test]
fn a_probe_is_a_run_that_stores_its_configuration() {
    let outcome = pass(&probed(json!({})), &around(), &json!({}), None);
    assert_eq!(names(&outcome), ["Secret/s-probe-gobackup", "Job/s-probe"]);
    expect![[r#"
        models:
          "probe__s":
            compress_with:
              type: "tar"
              filename_format: "gobackup-probe"
            archive:
              includes:
                - "/etc/gobackup/gobackup.yml"
            storages:
              "s":
                type: "s3"
                access_key_id: |2-
                  ${ST0_ACCESS_KEY_ID}
                bucket: "b"
                path: "default/storage/s"
                secret_access_key: |2-
                  ${ST0_SECRET_ACCESS_KEY}
            default_storage: "s"
    "#]]
    .assert_eq(&configuration(&outcome));
    let object = Value::from(outcome.child("probe").unwrap().object.clone());
    let spec = &object["spec"];
    assert_eq!(
        (&spec["backoffLimit"], &spec["activeDeadlineSeconds"]),
        (&json!(0), &json!(600))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"]["capabilities"]["drop"],
        json!(["ALL"])
    );
    let kinds = pod["volumes"].as_array().unwrap().iter().map(|volume| {
        volume
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    });
    assert!(
        kinds
            .flatten()
            .all(|key| matches!(&*key, "name" | "secret" | "emptyDir"))
    );
    // The warning about other parents with the same storage concerns archives.
    let secret = &outcome.child("config").unwrap().object["metadata"]["annotations"];
    assert!(secret.get("gobackup.io/places").is_none());
}

// gobackup cannot replace objects in gcs, and `keep` would count the probe's archives.
#[test]
fn the_archives_of_probes_do_not_pile_up_where_gobackup_can_replace_them() {
    let mut lines = String::new();
    for (type_, mut config) in storages() {
        if type_ == "local" {
            continue;
        }
        config["keep"] = json!(5);
        let mut storage = probed(json!({}));
        storage["spec"]["type"] = json!(type_);
        storage["spec"]["config"] = config;
        let text = configuration(&pass(&storage, &around(), &json!({}), None));
        assert!(!text.contains("keep"), "{text}");
        let is_constant = text.contains("filename_format: \"gobackup-probe\"");
        if !is_constant {
            lines.push_str(type_);
        }
    }
    assert_eq!(lines, "gcs");
}

#[test]
fn a_probe_is_due_after_its_period_and_after_each_change() {
    let first = pass(&probed(json!({})), &around(), &json!({}), None);
    let annotations = &first.child("probe").unwrap().object["metadata"]["annotations"];
    let key = annotations["gobackup.io/config-hash"].clone();
    // The tests' time is 2026-08-20T12:00:00Z.
    let status = |phase: &str, time: &str| json!({ "probe": { "phase": phase, "jobUID": "p", "configHash": key, "completionTime": time, "message": "denied" } });
    let good = status("Succeeded", "2026-08-19T13:00:00Z");
    let changed = |edit: fn(&mut Value, &mut Vec<Value>)| {
        let mut storage = probed(json!({}));
        let mut objects = around();
        edit(&mut storage, &mut objects);
        (storage, objects)
    };
    let same = || changed(|_, _| {});
    let edited = changed(|storage, _| storage["metadata"]["generation"] = json!(2));
    let rotated = changed(|_, them| them[2]["data"]["id"] = json!("bmV3"));
    let unrelated = changed(|_, them| them[2]["data"]["pg"] = json!("bmV3"));
    let often = changed(|storage, _| storage["spec"]["probe"]["everyHours"] = json!(6));
    let table = [
        ("none yet", same(), json!({}), "made"),
        ("23 hours ago", same(), good.clone(), "none"),
        (
            "24 hours ago",
            same(),
            status("Succeeded", "2026-08-19T12:00:00Z"),
            "made",
        ),
        ("23 hours ago, every 6", often, good.clone(), "made"),
        (
            "failed 59 minutes ago",
            same(),
            status("Failed", "2026-08-20T11:01:00Z"),
            "none",
        ),
        (
            "failed an hour ago",
            same(),
            status("Failed", "2026-08-20T11:00:00Z"),
            "made",
        ),
        ("the Storage changed", edited, good.clone(), "made"),
        ("a key of its Secret changed", rotated, good.clone(), "made"),
        ("another key changed", unrelated, good.clone(), "none"),
        // A Job that a user deletes has no end.
        ("its Job is gone", same(), status("Running", ""), "made"),
    ];
    for (name, (storage, objects), status, expected) in table {
        let outcome = pass(&storage, &objects, &status, None);
        assert_eq!(decision(&outcome), expected, "{name}");
        assert!(outcome.child("config").is_some(), "{name}");
        let running = json!({ "active": 1, "startTime": "2026-08-20T11:59:00Z" });
        let mut shown = observed(&first, running);
        shown["metadata"]["uid"] = json!("q");
        let outcome = pass(&storage, &objects, &status, Some(&shown));
        assert_eq!(decision(&outcome), "held", "{name}, while another runs");
        // The host deletes the last Job before the next one is made.
        if matches!(
            status["probe"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        ) {
            let shown = observed(&first, succeeded());
            let outcome = pass(&storage, &objects, &status, Some(&shown));
            let expected = if expected == "made" { "none" } else { "held" };
            assert_eq!(decision(&outcome), expected, "{name}, with the last Job");
        }
    }
    let outcome = pass(&same().0, &around(), &good, None);
    let rest = Duration::from_millis(60 * 60 * 1000 + 1);
    assert_eq!(outcome.report().requeue, Some(rest));
}

#[test]
fn a_probe_result_is_reported_once_and_stays_during_the_next_probe() {
    let storage = probed(json!({}));
    let mut objects = around();
    let first = pass(&storage, &objects, &json!({}), None);
    let mut lines = vec![line(&first)];
    let running = json!({ "active": 1, "startTime": "2026-08-20T11:59:00Z" });
    let mut status = testing::stored_status(&first);
    objects.push(pod("p", "AccessDenied: no such key"));
    objects.last_mut().unwrap()["metadata"]["labels"] =
        observed(&first, json!({}))["metadata"]["labels"].clone();
    let next = |uid: &str, shown: Value| {
        let mut job = observed(&first, shown);
        job["metadata"]["uid"] = json!(uid);
        job
    };
    for (uid, shown) in [
        ("p", running.clone()),
        ("p", failed()),
        ("p", failed()),
        ("q", running),
        ("q", succeeded()),
        ("q", succeeded()),
    ] {
        let outcome = pass(&storage, &objects, &status, Some(&next(uid, shown)));
        lines.push(line(&outcome));
        status = testing::stored_status(&outcome);
    }
    // A result says nothing about other settings.
    let mut edited = storage;
    edited["metadata"]["generation"] = json!(2);
    lines.push(line(&pass(&edited, &objects, &status, None)));
    objects.remove(2);
    lines.push(line(&pass(&edited, &objects, &status, None)));
    expect![[r#"
        False/Pending: the first probe has not ended yet | Unknown/NotProbedYet: the first probe has not ended yet []
        False/Pending: the first probe has not ended yet | Unknown/NotProbedYet: the first probe has not ended yet []
        False/ProbeFailed: AccessDenied: no such key | False/ProbeFailed: AccessDenied: no such key ["ProbeFailed"]
        False/ProbeFailed: AccessDenied: no such key | False/ProbeFailed: AccessDenied: no such key []
        False/ProbeFailed: AccessDenied: no such key | False/ProbeFailed: AccessDenied: no such key []
        True/Available: the last probe stored its archive | True/Stored: the last probe stored its archive ["StorageAvailable"]
        True/Available: the last probe stored its archive | True/Stored: the last probe stored its archive []
        False/Pending: the settings have changed since the last probe | Unknown/NotProbedYet: the settings have changed since the last probe []
        False/SecretNotFound: Secret not found: keys | False/SecretNotFound: Secret not found: keys ["SecretNotFound"]
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn a_probe_obeys_the_limits_for_tenants() {
    let mut objects = around();
    objects[2]["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    objects[2]["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "example.com/v1", "kind": "Wordpress", "name": "b", "uid": "b" }]);
    let outcome = pass(&probed(json!({})), &objects, &json!({}), None);
    assert!(matches!(outcome, Answer::Keep(_)));
    let refused = "False/ReferenceNotAllowed: Secret keys belongs to another parent: annotate it with \
         innkeeper.dev/shared-with: Storage.gobackup.io/s, or name another";
    for type_ in ["Ready", "Available"] {
        assert_eq!(condition(outcome.report(), type_), refused);
    }
    // Backups use the Secret on their own terms.
    let unprobed = pass(&s3(), &objects, &json!({}), None);
    assert!(line(&unprobed).starts_with("True/Valid"));
    objects[2]["metadata"]["annotations"] =
        json!({ "innkeeper.dev/shared-with": "Storage.gobackup.io/s" });
    assert_eq!(
        decision(&pass(&probed(json!({})), &objects, &json!({}), None)),
        "made"
    );

    let templates = [
        json!({ "metadata": { "labels": { "mesh": "on" } } }),
        json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }),
        json!({ "spec": { "priorityClassName": "high" } }),
        json!({ "spec": { "nodeSelector": { "disk": "ssd" } } }),
    ];
    let lines = templates.map(|template| {
        let storage = probed(json!({ "podTemplate": template }));
        let request = TestRequest::new(&storage).build();
        match Plugin::reconcile(&request, &host(&around())) {
            Ok(outcome) => format!("{template}: {}\n", decision(&outcome)),
            Err(fault) => format!("{template}: {}\n", fault.message),
        }
    });
    expect![[r#"
        {"metadata":{"labels":{"mesh":"on"}}}: spec.probe.podTemplate.metadata.labels: tenants.podMetadata.labels of the plugin's configuration does not list mesh
        {"spec":{"tolerations":[{"operator":"Exists"}]}}: spec.probe.podTemplate.spec.tolerations: tenants.tolerations of the plugin's configuration does not list *
        {"spec":{"priorityClassName":"high"}}: spec.probe.podTemplate.spec.priorityClassName: tenants.priorityClasses of the plugin's configuration does not list high
        {"spec":{"nodeSelector":{"disk":"ssd"}}}: made
    "#]]
    .assert_eq(&lines.concat());
}

#[test]
fn every_bad_probe_has_a_verdict() {
    let verdict = |storage: &Value| match testing::admit(PLUGIN.schema("Storage"), storage) {
        Ok(admitted) => testing::verdict(&admitted, Ok("accepted".to_owned())),
        Err(rejected) => rejected,
    };
    let mut long = probed(json!({}));
    long["metadata"]["name"] = json!("a".repeat(51));
    let mut unprobed = long.clone();
    unprobed["spec"].as_object_mut().unwrap().remove("probe");
    let mut local = probed(json!({}));
    local["spec"]["type"] = json!("local");
    local["spec"]["config"] = json!({ "path": "/backups" });
    let selector = json!({ "labelSelector": {}, "topologyKey": "a", "namespaces": ["b"] });
    let affinity =
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [selector] } });
    let storages = [
        probed(json!({})),
        probed(json!({ "everyHours": 0 })),
        probed(json!({ "everyHours": 8761 })),
        probed(json!({ "podTemplate": { "spec": { "affinity": affinity } } })),
        local,
        unprobed,
        long,
    ];
    expect![[r"
        accepted
        rejected, spec.probe.everyHours: 0 is less than the minimum of 1
        rejected, spec.probe.everyHours: 8761 is greater than the maximum of 8760
        accepted without spec.probe.podTemplate.spec.affinity
        rejected, spec: probe: a local storage is a volume of the Backups that use it; remove probe
        accepted
        rejected, the object: metadata.name must be at most 50 characters with spec.probe
    "]]
    .assert_eq(&(storages.map(|storage| verdict(&storage)).join("\n") + "\n"));
}

// The configuration file exists, and every user can read it.
#[test]
fn the_script_of_a_probe_stores_the_configuration_and_hides_credentials() {
    const STORING: &str = r#"echo "key $ST0_SECRET_ACCESS_KEY"
echo '[{"file_key":"gobackup-probe.tar"}]' >"$GOBACKUP_DIR/cycler/${MODEL}_$STORAGES.json"
"#;
    const FAILING: &str = r#"echo "AccessDenied: $ST0_SECRET_ACCESS_KEY"; exit 1"#;
    let outcome = pass(&probed(json!({})), &around(), &json!({}), None);
    let job = Value::from(outcome.child("probe").unwrap().object.clone());
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    for shell in Shell::all() {
        for (gobackup, code) in [(STORING, 0), (FAILING, 1)] {
            let run = Run::new(shell, gobackup);
            let file = run.file("gobackup.yml", "models: {}\n");
            let mut container = container.clone();
            let script = container["args"][0]
                .as_str()
                .unwrap()
                .replace("'/etc/gobackup/gobackup.yml'", file.to_str().unwrap());
            container["args"][0] = json!(script);
            let values: &[(&str, &[u8])] = &[("ST0_SECRET_ACCESS_KEY", b"se cret")];
            let result = run.execute(&container, &run.search_path(), values);
            assert_eq!(result.code, Some(code), "{result:?}");
            assert!(!result.log.contains("se cret") && !result.message.contains("se cret"));
            if code == 1 {
                assert_eq!(result.message, "AccessDenied: ***\n");
            }
        }
    }
}

/// A child as the API server stores it.
fn applied(child: &Child) -> Value {
    let mut object = Value::from(child.object.clone());
    let metadata = json!({
        "namespace": "default", "uid": child.key, "generation": 1, "resourceVersion": "7",
        "creationTimestamp": "2026-08-20T00:00:00Z",
    });
    with_defaults(&mut object, &json!({ "metadata": metadata }));
    if child.kind() == "Job" {
        let spec = json!({ "completions": 1, "parallelism": 1, "suspend": false });
        with_defaults(&mut object, &json!({ "spec": spec, "status": succeeded() }));
    }
    object
}

fn any_storage() -> impl Strategy<Value = Value> {
    // The probe at the host's time ended ten hours ago.
    let probe = prop::option::of((10i64..=48, any::<bool>()));
    (prop::sample::select(storages()), probe).prop_map(|((type_, config), probe)| {
        let mut storage = probed(json!({}));
        storage["spec"] = json!({ "type": type_, "config": config });
        if let Some((hours, is_placed)) = probe.filter(|_| type_ != "local") {
            storage["spec"]["probe"] = json!({ "everyHours": hours });
            if is_placed {
                storage["spec"]["probe"]["podTemplate"] =
                    json!({ "spec": { "nodeSelector": { "disk": "ssd", "a": "b" } } });
            }
        }
        storage
    })
}

proptest! {
    #[test]
    fn an_answer_for_a_storage_is_a_fixed_point_in_any_order(storage in any_storage()) {
        let host = || host(&around());
        let next = |answer: &Answer, children: &[Child]| {
            let request = TestRequest::new(&storage).status(&testing::stored_status(answer));
            children.iter().fold(request, |request, child| request.child(&child.key, &applied(child)))
        };
        let first = pass(&storage, &around(), &json!({}), None);
        let second = Plugin::reconcile(&next(&first, first.children()).build(), &host()).unwrap();
        let request = next(&second, first.children()).build();
        PLUGIN.check_order(&request, host);
        let third = Plugin::reconcile(&request, &host()).unwrap();
        prop_assert_eq!(second.children(), third.children());
        prop_assert_eq!(&second.report().status, &third.report().status);
        prop_assert_eq!(&second.report().conditions, &third.report().conditions);
        prop_assert_eq!(&third.report().events, &[]);
        for (key, child) in first.children().iter().map(|child| (&child.key, child)) {
            prop_assert_eq!(&child.object, &second.child(key).unwrap().object);
        }
    }

    /// A clear-text credential is only under that key in the child Secret.
    #[test]
    fn a_credential_of_a_storage_stays_in_its_key(password in "[a-zA-Z0-9$]{12,24}") {
        let mut storage = probed(json!({}));
        let config = json!({ "host": "h", "username": "u", "path": "p", "password": password });
        storage["spec"]["type"] = json!("sftp");
        storage["spec"]["config"] = config;
        let outcome = pass(&storage, &[], &json!({}), None);
        prop_assert!(!configuration(&outcome).contains(&password));
        for child in outcome.children() {
            prop_assert!(!child.object.to_string().contains(&password));
        }
        let report = format!("{:?}", outcome.report());
        prop_assert!(!report.contains(&password));
        let secret = &outcome.child("config").unwrap().object["data"];
        prop_assert!(secret.get("ST0_PASSWORD").is_some());
    }
}
