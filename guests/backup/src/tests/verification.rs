//! Verifications: when an archive is due, the Job, the end, and the condition.

use expect_test::expect;
use innkeeper_sdk::testing::TestRequest;

use super::{
    outcomes::{complete, failed, job, pod},
    *,
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// Returns a parent with a schedule that verifies the dump in the database `scratch`, with more `verify` fields.
fn verifying(further: Value) -> Value {
    let scratch = json!([{ "database": "pg", "databaseRef": { "name": "scratch" } }]);
    let mut verify = json!({ "databases": scratch });
    for (key, value) in further.as_object().unwrap() {
        verify[key] = value.clone();
    }
    let mut parent = backup(json!({ "schedule": { "cron": "0 2 * * *" }, "verify": verify }));
    parent["metadata"]["uid"] = json!(OWNER);
    parent
}

/// Returns the objects from [`around`] with a scratch database.
fn objects() -> Vec<Value> {
    let mut scratch = postgresql();
    scratch["metadata"]["name"] = json!("scratch");
    scratch["metadata"]["annotations"] = json!({ "gobackup.io/scratch": "true" });
    scratch["spec"]["config"]["database"] = json!("scratch");
    let mut objects = around();
    objects.push(scratch);
    objects
}

/// Returns a status with archives: the name and the day in August 2026 for each, newest first.
fn archives(runs: &[(&str, u32)]) -> Value {
    let run = |(file, day): &(&str, u32)| {
        json!({
            "jobName": file, "jobUID": file, "phase": "Succeeded",
            "startTime": format!("2026-08-{day:02}T02:00:00Z"),
            "completionTime": format!("2026-08-{day:02}T02:10:00Z"),
            "artifacts": [{ "storage": "s", "file": file }],
        })
    };
    json!({ "recentRuns": runs.iter().map(run).collect::<Vec<_>>() })
}

fn pass(parent: &Value, objects: &[Value], status: &Value, observed: Option<&Value>) -> Answer {
    let mut request = TestRequest::new(parent).status(status);
    if let Some(job) = observed {
        request = request.child("verify", job);
    }
    Plugin::reconcile(&request.build(), &host(objects)).unwrap()
}

/// Returns an answer's Job as the cluster shows it.
fn observed(outcome: &Answer, status: Value) -> Value {
    let object = Value::from(outcome.child("verify").unwrap().object.clone());
    let mut job = job("nightly-verify", "v", OWNER, status);
    job["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
    job["metadata"]["labels"] = object["metadata"]["labels"].clone();
    job
}

fn status(outcome: &Answer) -> Value {
    outcome.report().status.clone().unwrap()
}

#[test]
fn a_verification_is_a_job_of_the_parent_that_restores_the_newest_archive() {
    let outcome = pass(
        &verifying(json!({})),
        &objects(),
        &archives(&[("2.tar", 19), ("1.tar", 18)]),
        None,
    );
    assert_eq!(
        names(&outcome),
        [
            "Secret/nightly-gobackup",
            "CronJob/nightly",
            "Job/nightly-verify"
        ]
    );
    let object = Value::from(outcome.child("verify").unwrap().object.clone());
    assert_eq!(
        object["metadata"]["annotations"],
        json!({
            "gobackup.io/file": "2.tar", "gobackup.io/restored": "pg", "gobackup.io/skipped": "",
            "gobackup.io/archive-time": "2026-08-19T02:10:00Z",
        })
    );
    assert_eq!(object["spec"]["backoffLimit"], 0);
    let pod = &object["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        let file = container["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|variable| variable["name"] == "FILE");
        assert_eq!(file.unwrap()["value"], "2.tar");
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"],
            json!(["ALL"])
        );
        // The kubelet would replace the first, and halve the second.
        let script = container["args"][0].as_str().unwrap();
        assert!(!script.contains("$(") && !script.contains("$$"));
    }
    expect!["Unknown/NotVerifiedYet: no archive has been verified yet"]
        .assert_eq(&condition(outcome.report(), "Verified"));
    let without = pass(
        &backup(json!({})),
        &objects(),
        &archives(&[("2.tar", 19)]),
        None,
    );
    assert!(without.report().find_condition("Verified").is_none());
}

// The account may have the role by which gobackup writes to the storage.
#[test]
fn a_verification_has_the_service_account_of_its_parent() {
    let mut objects = objects();
    let config = json!({ "bucket": "b" });
    objects[1] = related("Storage", "s", json!({ "type": "gcs", "config": config }));
    let mut parent = verifying(json!({}));
    parent["spec"]["serviceAccountName"] = json!("archivist");
    let request = TestRequest::new(&parent)
        .status(&archives(&[("1.tar", 19)]))
        .config(&json!({ "tenants": { "serviceAccounts": ["archivist"] } }));
    let outcome = Plugin::reconcile(&request.build(), &host(&objects)).unwrap();
    let pod = &outcome.child("verify").unwrap().object["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "archivist");
    assert_eq!(pod["automountServiceAccountToken"], false);
}

#[test]
fn the_example_verifies_its_archive_from_s3_in_the_scratch_database() {
    const EXAMPLE: &str = include_str!("../../../../examples/backup/08-verified.yaml");
    let mut objects = in_namespace(documents(EXAMPLE));
    let parent = objects.pop().unwrap();
    let file = json!({ "storage": "ledger", "file": "2026.tar.gz.enc" });
    let mut stored = archives(&[("a", 19)]);
    stored["recentRuns"][0]["artifacts"] = json!([file]);
    let outcome = pass(&parent, &objects, &stored, None);
    let object = Value::from(outcome.child("verify").unwrap().object.clone());
    let pod = &object["spec"]["template"]["spec"];
    let containers = [&pod["initContainers"][0], &pod["containers"][0]];
    let variables = |at: usize| {
        containers[at]["env"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|variable| variable.get("valueFrom").is_some())
            .map(|variable| {
                let key = variable["valueFrom"]["secretKeyRef"]["key"]
                    .as_str()
                    .unwrap();
                format!("{}={key}", variable["name"].as_str().unwrap())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        variables(0),
        [
            "RCLONE_CONFIG_SRC_ACCESS_KEY_ID=access-key-id",
            "RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY=secret-access-key",
        ]
    );
    // The container that runs the dump has no credentials for the dumped database or the storage.
    assert_eq!(
        variables(1),
        [
            "ENC_PASSWORD=archive-password",
            "DB0_PASSWORD=check-password"
        ]
    );
    let script = containers[1]["args"][0].as_str().unwrap();
    let step = "  empty_postgresql 'Database ledger-check' 'ledger/postgresql/ledger' 'postgres-check' '5432' 'check' \
                'ledger_check' \"${DB0_PASSWORD-}\"\n";
    assert!(script.contains(step), "{script}");
    // No volume of the parent's runs is mounted.
    let volumes: Vec<_> = pod["volumes"].as_array().unwrap().iter().collect();
    assert!(
        volumes.iter().all(|volume| volume["emptyDir"].is_object()),
        "{volumes:?}"
    );
}

#[test]
fn the_times_of_archives_decide_which_is_verified() {
    let verified = |phase: &str, day: u32| json!({ "phase": phase, "file": "1.tar", "archiveTime": format!("2026-08-{day:02}T02:30:00Z") });
    let stopped = |mut parent: Value| {
        parent["spec"]["suspend"] = json!(true);
        parent
    };
    let often = || verifying(json!({ "everyDays": 1 }));
    let week = || verifying(json!({}));
    let table = [
        ("no archive", week(), &[][..], json!(null), false),
        ("the first", week(), &[("2.tar", 19)][..], json!(null), true),
        (
            "suspended",
            stopped(week()),
            &[("2.tar", 19)],
            json!(null),
            false,
        ),
        (
            "the same",
            often(),
            &[("1.tar", 19)],
            verified("Succeeded", 12),
            false,
        ),
        (
            "too early",
            week(),
            &[("2.tar", 18)],
            verified("Succeeded", 12),
            false,
        ),
        // It ended 20 minutes earlier in the day.
        (
            "a week",
            week(),
            &[("2.tar", 19)],
            verified("Succeeded", 12),
            true,
        ),
        (
            "a day",
            often(),
            &[("2.tar", 13)],
            verified("Succeeded", 12),
            true,
        ),
        (
            "after a failure",
            week(),
            &[("2.tar", 13)],
            verified("Failed", 12),
            true,
        ),
        (
            "the same failed",
            week(),
            &[("1.tar", 13)],
            verified("Failed", 12),
            false,
        ),
    ];
    for (name, parent, runs, verification, is_due) in table {
        let mut stored = archives(runs);
        if !verification.is_null() {
            stored["verification"] = verification;
        }
        let outcome = pass(&parent, &objects(), &stored, None);
        assert_eq!(outcome.child("verify").is_some(), is_due, "{name}");
    }
}

#[test]
fn a_verification_result_is_reported_once_and_is_not_a_run() {
    let parent = verifying(json!({}));
    let stored = archives(&[("2.tar", 19)]);
    let first = pass(&parent, &objects(), &stored, None);
    let running = observed(
        &first,
        json!({ "active": 1, "startTime": "2026-08-20T02:00:01Z" }),
    );
    let during = pass(&parent, &objects(), &stored, Some(&running));
    assert_eq!(during.child("verify").unwrap().apply, ApplyPolicy::Hold);
    assert_eq!(status(&during)["verification"]["phase"], "Running");
    assert_eq!(status(&during)["phase"], "Succeeded");
    assert_eq!(status(&during).get("activeJob"), None);

    let finished = observed(&first, complete());
    let outcome = pass(&parent, &objects(), &status(&during), Some(&finished));
    expect!["True/Restored: 2.tar: restored pg"]
        .assert_eq(&condition(outcome.report(), "Verified"));
    let events = |outcome: &Answer| {
        outcome
            .report()
            .events
            .iter()
            .map(|event| event.reason.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(events(&outcome), ["VerificationSucceeded"]);
    let recorded = status(&outcome);
    assert_eq!(recorded["lastVerificationTime"], "2026-08-20T02:01:00Z");
    assert_eq!(recorded["recentRuns"].as_array().unwrap().len(), 1);
    let again = pass(&parent, &objects(), &recorded, Some(&finished));
    assert!(events(&again).is_empty());
    assert_eq!(status(&again), recorded);
    assert_eq!(again.child("verify").unwrap().apply, ApplyPolicy::Hold);
    // A deleted Job is not made again, and the result stays.
    let without_job = pass(&parent, &objects(), &recorded, None);
    assert_eq!(status(&without_job), recorded);
    assert!(without_job.child("verify").is_none());

    // The next archive: the last Job goes first.
    let mut next = archives(&[("3.tar", 27)]);
    next["verification"] = recorded["verification"].clone();
    assert!(
        pass(&parent, &objects(), &next, Some(&finished))
            .child("verify")
            .is_none()
    );
    let object = pass(&parent, &objects(), &next, None);
    let object = Value::from(object.child("verify").unwrap().object.clone());
    assert_eq!(
        object["metadata"]["annotations"]["gobackup.io/file"],
        "3.tar"
    );
}

#[test]
fn a_failure_has_the_end_of_the_log_and_stays_until_the_next_end() {
    let parent = verifying(json!({}));
    let stored = archives(&[("2.tar", 19)]);
    let first = pass(&parent, &objects(), &stored, None);
    let finished = observed(&first, failed());
    // The Pod ends later.
    let early = pass(&parent, &objects(), &stored, Some(&finished));
    let mut objects = objects();
    let mut pod = pod("v", "psql: error: no such role");
    pod["metadata"]["labels"] = finished["metadata"]["labels"].clone();
    pod["status"]["containerStatuses"][0]["name"] = json!("restore");
    objects.push(pod);
    let outcome = pass(&parent, &objects, &status(&early), Some(&finished));
    let message = "False/VerificationFailed: 2.tar: psql: error: no such role";
    assert_eq!(condition(outcome.report(), "Verified"), message);
    assert_eq!(status(&outcome).get("lastVerificationTime"), None);
    // A failed verification is no failed run.
    assert!(condition(outcome.report(), "Failed").starts_with("False/"));

    let mut next = archives(&[("3.tar", 20)]);
    next["verification"] = json!({ "phase": "Running", "file": "3.tar" });
    next["conditions"] = json!([{
        "type": "Verified", "status": "False", "reason": "VerificationFailed", "message": "2.tar: psql",
    }]);
    let running = json!({ "active": 1 });
    let mut job = observed(&first, running);
    job["metadata"]["annotations"]["gobackup.io/file"] = json!("3.tar");
    let during = pass(&parent, &objects, &next, Some(&job));
    assert_eq!(
        condition(during.report(), "Verified"),
        "False/VerificationFailed: 2.tar: psql"
    );

    let lost = pass(&parent, &objects, &next, None);
    assert_eq!(
        condition(lost.report(), "Verified"),
        "False/VerificationFailed: 3.tar: the Job was deleted before the plugin saw its end"
    );
}

#[test]
fn a_verification_names_dumps_that_it_does_not_restore() {
    let mut parent = verifying(json!({}));
    parent["spec"]["databaseRefs"] = json!([{ "name": "pg" }, { "name": "cache" }]);
    parent["spec"]["archive"] = json!({ "includes": ["/data/a"] });
    parent["spec"]["volumes"] =
        json!([{ "name": "v", "mountPath": "/data", "configMap": { "name": "c" } }]);
    let mut objects = objects();
    objects.push(related(
        "Database",
        "cache",
        json!({ "type": "redis", "config": {} }),
    ));
    let stored = archives(&[("2.tar", 19)]);
    let first = pass(&parent, &objects, &stored, None);
    let object = Value::from(first.child("verify").unwrap().object.clone());
    let script = &object["spec"]["template"]["spec"]["containers"][0]["args"][0];
    assert!(
        script
            .as_str()
            .unwrap()
            .contains("  files 'nightly' '/work/scratch'\n")
    );
    let finished = observed(&first, complete());
    let outcome = pass(&parent, &objects, &stored, Some(&finished));
    expect!["False/PartlyVerified: 2.tar: restored pg, files; not restored: cache; name a scratch database in verify.databases, if the type has one"]
        .assert_eq(&condition(outcome.report(), "Verified"));
    assert_eq!(
        status(&outcome)["lastVerificationTime"],
        "2026-08-20T02:01:00Z"
    );

    parent["spec"]["verify"] = json!({});
    let first = pass(&parent, &objects, &stored, None);
    let outcome = pass(
        &parent,
        &objects,
        &stored,
        Some(&observed(&first, complete())),
    );
    expect!["False/PartlyVerified: 2.tar: restored files; not restored: pg, cache; name a scratch database in verify.databases, if the type has one"]
        .assert_eq(&condition(outcome.report(), "Verified"));
}

#[test]
fn a_database_that_is_a_file_is_verified_without_a_scratch_database() {
    let mut parent = verifying(json!({}));
    parent["spec"]["databaseRefs"] = json!([{ "name": "lite" }, { "name": "pg" }]);
    let mut objects = objects();
    objects.push(related(
        "Database",
        "lite",
        json!({ "type": "sqlite", "config": { "path": "/data/lite.db" } }),
    ));
    let first = pass(&parent, &objects, &archives(&[("2.tar", 19)]), None);
    let object = Value::from(first.child("verify").unwrap().object.clone());
    assert_eq!(
        object["metadata"]["annotations"]["gobackup.io/restored"],
        "lite,pg"
    );
    assert_eq!(object["metadata"]["annotations"]["gobackup.io/skipped"], "");
    let script = &object["spec"]["template"]["spec"]["containers"][0]["args"][0];
    let (_, steps) = script.as_str().unwrap().split_once("steps() {").unwrap();
    assert!(steps.contains("  sqlite 'Database lite' 'nightly/sqlite/lite' '/work/verified.db'\n"));
    assert!(!steps.contains("empty_sqlite"));
}

#[test]
fn a_verification_that_cannot_begin_leaves_the_runs_alone() {
    let stored = archives(&[("2.tar", 19)]);
    let verdict = |parent: &Value, objects: &[Value]| {
        let request = TestRequest::new(parent).status(&stored).build();
        match Plugin::reconcile(&request, &host(objects)) {
            Ok(outcome) => {
                let runs = outcome.child("schedule").is_some();
                let verified = condition(outcome.report(), "Verified");
                let has_job = outcome.child("verify").is_some();
                format!("runs {runs}, verification {has_job}, {verified}")
            }
            Err(fault) => format!("{:?}, {}", fault.kind, fault.message),
        }
    };
    let scratch = |edit: &dyn Fn(&mut Value)| {
        let mut objects = objects();
        edit(objects.last_mut().unwrap());
        objects
    };
    let to = |database: &str, name: &str| json!({ "databases": [{ "database": database, "databaseRef": { "name": name } }] });
    let key = json!({ "name": "none", "key": "id" });
    let lines = [
        verdict(&verifying(json!({})), &objects()),
        verdict(&verifying(json!({})), &around()),
        verdict(
            &verifying(json!({})),
            &scratch(&|object| object["metadata"]["annotations"] = json!({})),
        ),
        verdict(
            &verifying(json!({})),
            &scratch(&|object| object["spec"]["config"]["password_ref"] = key.clone()),
        ),
        verdict(
            &verifying(json!({})),
            &scratch(&|object| object["spec"] = json!({ "type": "redis", "config": {} })),
        ),
        verdict(
            &verifying(json!({})),
            &scratch(&|object| object["spec"]["config"]["all_databases"] = json!(true)),
        ),
        verdict(&verifying(to("other", "scratch")), &objects()),
        verdict(&verifying(to("pg", "pg")), &objects()),
        verdict(
            &verifying(json!({ "transferImage": "example.com/rclone" })),
            &objects(),
        ),
    ];
    expect![[r"
        runs true, verification true, Unknown/NotVerifiedYet: no archive has been verified yet
        runs true, verification false, False/ReferenceNotFound: Database not found: scratch
        runs true, verification false, False/InvalidReference: Database scratch: a verification replaces this database's content; to allow it, set the annotation gobackup.io/scratch to true
        runs true, verification false, False/SecretNotFound: Secret not found: none
        runs true, verification false, False/InvalidReference: Database scratch: config.type: a dump of redis cannot be restored, only one of postgresql, mysql or sqlite; remove it from spec.verify.databases, and restore this one by hand
        runs true, verification false, False/InvalidReference: Database scratch: all_databases would replace a whole server; set config.database
        Invalid, verify.databases[0]: other is not in databaseRefs
        Invalid, verify.databases[0]: pg is in databaseRefs, and a verification replaces its content; name another database
        runs true, verification true, Unknown/NotVerifiedYet: no archive has been verified yet"]].assert_eq(&lines.join("\n"));
}

/// Returns true if the verification with this scratch database is refused because the parent dumps it.
fn is_refused(dumped: &Value, scratch: &Value) -> bool {
    let stored = archives(&[("2.tar", 19)]);
    let database = |name: &str, [type_, config]: [&Value; 2]| {
        let mut object = related("Database", name, json!({ "type": type_, "config": config }));
        object["metadata"]["annotations"] = json!({ "gobackup.io/scratch": "true" });
        object
    };
    let mut objects = objects();
    objects.retain(|object| {
        !["pg", "scratch"].contains(&object["metadata"]["name"].as_str().unwrap())
    });
    objects.push(database("pg", [&dumped["type"], &dumped["config"]]));
    objects.push(database("scratch", [&scratch["type"], &scratch["config"]]));
    let outcome = pass(&verifying(json!({})), &objects, &stored, None);
    let verified = condition(outcome.report(), "Verified");
    let is_refused = verified
        == "False/InvalidReference: Database scratch: it is the database of Database pg, which is dumped; name \
            another database";
    let is_made = outcome.child("verify").is_some();
    assert!(is_refused != is_made, "{verified}");
    is_refused
}

// The same database under another object or server name.
#[test]
fn no_verification_replaces_a_database_that_is_dumped() {
    let pg = |config: Value| json!({ "type": "postgresql", "config": config });
    let mysql = |config: Value| json!({ "type": "mysql", "config": config });
    let at = |host: &str| pg(json!({ "host": host, "database": "shop" }));
    let shop = || at("db");
    let namespace = "default";
    let table = [
        (
            shop(),
            pg(json!({ "host": "db", "database": "scratch" })),
            false,
        ),
        (shop(), at("other"), false),
        (shop(), at("db.other"), false),
        (
            shop(),
            pg(json!({ "host": "db", "port": 5433, "database": "shop" })),
            false,
        ),
        (
            shop(),
            mysql(json!({ "host": "db", "port": 5432, "database": "shop" })),
            false,
        ),
        (shop(), shop(), true),
        (
            shop(),
            pg(json!({ "host": "DB", "port": 5432, "database": "shop" })),
            true,
        ),
        (shop(), at(&format!("db.{namespace}")), true),
        (shop(), at(&format!("db.{namespace}.svc")), true),
        (
            at(&format!("db.{namespace}.svc.cluster.local.")),
            shop(),
            true,
        ),
        (
            pg(json!({ "host": "db", "all_databases": true })),
            pg(json!({ "host": "db", "database": "scratch" })),
            true,
        ),
        (
            mysql(json!({ "database": "shop" })),
            mysql(json!({ "host": "localhost", "database": "shop" })),
            true,
        ),
        (
            json!({ "type": "mariadb", "config": { "host": "db", "database": "shop" } }),
            mysql(json!({ "host": "db", "database": "shop" })),
            true,
        ),
    ];
    for (dumped, scratch, expected) in table {
        assert_eq!(
            is_refused(&dumped, &scratch),
            expected,
            "{dumped} {scratch}"
        );
    }
}

// An archive's name comes from a run's Pod.
#[test]
fn an_archive_outside_of_the_directory_is_not_verified() {
    let stored = archives(&[("../other/2.tar", 19)]);
    let outcome = pass(&verifying(json!({})), &objects(), &stored, None);
    assert!(outcome.child("verify").is_none());
    assert_eq!(
        condition(outcome.report(), "Verified"),
        "False/Invalid: file: ../other/2.tar has the part .."
    );
}
