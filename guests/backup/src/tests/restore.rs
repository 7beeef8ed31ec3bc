//! Restorations: the Job, the end, and verdicts on specs.

use std::{fmt::Write, slice};

use expect_test::expect;
use innkeeper_guest_testing::stored_status;
use innkeeper_sdk::testing::TestRequest;
use proptest::prelude::*;

use super::{
    outcomes::{claim, complete, failed, job, pod},
    tenants::owned_by_another,
    *,
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// Returns a `Restore` of the parent from [`backup`], with more fields.
pub(super) fn restore(spec: Value) -> Value {
    let usual = json!({ "backupRef": { "name": "nightly" }, "confirm": "pg" });
    let mut object = related("Restore", "back", usual);
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object["metadata"]["uid"] = json!(OWNER);
    object
}

/// Returns the parent from [`backup`] with two runs, of which the older one succeeded, and the objects around it.
pub(super) fn ran() -> Vec<Value> {
    let mut parent = backup(json!({}));
    let run = |name: &str, phase: &str, artifacts: Value| json!({ "jobName": name, "jobUID": name, "phase": phase, "artifacts": artifacts });
    let stored = json!([{ "storage": "s", "file": "2026.tar" }]);
    parent["status"] = json!({ "recentRuns": [
        run("b", "Failed", json!([])), run("a", "Succeeded", stored),
    ] });
    let mut objects = around();
    objects.push(parent);
    objects
}

fn pass(spec: Value, objects: &[Value], edit: impl FnOnce(TestRequest) -> TestRequest) -> Answer {
    let request = edit(TestRequest::new(&restore(spec))).build();
    Plugin::reconcile(&request, &host(objects)).unwrap()
}

fn first(spec: Value) -> Answer {
    pass(spec, &ran(), |request| request)
}

/// Returns a container's variables with their values or Secrets.
fn variables(container: &Value) -> Vec<String> {
    let variables = container["env"].as_array().unwrap().iter();
    let value = |variable: &Value| {
        if let Some(value) = variable["value"].as_str() {
            return value.to_owned();
        }
        let source = &variable["valueFrom"]["secretKeyRef"];
        format!("{}/{}", source["name"], source["key"]).replace('"', "")
    };
    variables
        .map(|variable| format!("{}={}", variable["name"].as_str().unwrap(), value(variable)))
        .collect()
}

#[test]
fn a_restore_is_one_job_that_fetches_the_newest_archive_of_the_parent() {
    let outcome = first(json!({}));
    assert_eq!(names(&outcome), ["Job/back-restore"]);
    let job = outcome.child("restore").unwrap();
    assert_eq!((job.apply, &job.after[..]), (ApplyPolicy::Always, &[][..]));
    let spec = &job.object["spec"];
    assert_eq!(spec["backoffLimit"], 0);
    let pod = &spec["template"]["spec"];
    let fetch = &pod["initContainers"][0];
    let restore = &pod["containers"][0];
    assert_eq!(fetch["image"], "rclone/rclone:1.70");
    assert_eq!(restore["image"], "huacnlee/gobackup:latest");
    for container in [fetch, restore] {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
        assert!(!container["args"][0].as_str().unwrap().contains("$("));
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    expect![[r"
        HOME=/home/gobackup
        TMPDIR=/tmp
        SECRETS=RCLONE_CONFIG_SRC_ACCESS_KEY_ID RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY
        FILE=2026.tar
        RCLONE_CONFIG_SRC_PROVIDER=AWS
        RCLONE_CONFIG_SRC_REGION=us-east-1
        RCLONE_CONFIG_SRC_TYPE=s3
        DIRECTORY=b/default/backup/nightly/
        RCLONE_CONFIG_SRC_ACCESS_KEY_ID=keys/id
        RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY=keys/key"]]
    .assert_eq(&variables(fetch).join("\n"));
    expect![[r"
        HOME=/home/gobackup
        TMPDIR=/tmp
        SECRETS=DB0_PASSWORD
        FILE=2026.tar
        DB0_PASSWORD=keys/pg"]]
    .assert_eq(&variables(restore).join("\n"));
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "False/Pending: the restoration has not started yet"
    );
    assert_eq!(
        outcome.report().status.as_ref().unwrap()["file"],
        "2026.tar"
    );
}

#[test]
fn a_restore_is_placed_beside_the_pods_that_use_its_volumes() {
    let run_with = json!({ "labelSelector": { "matchLabels": { "app": "shop" } } });
    let outcome = first(json!({ "runWith": run_with }));
    let pod = &outcome.child("restore").unwrap().object["spec"]["template"]["spec"];
    let pods = &pod["affinity"]["podAffinity"];
    assert_eq!(
        pods["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"],
        run_with["labelSelector"]
    );
}

#[test]
fn a_restore_leaves_the_notifiers_of_the_parent_alone() {
    let mut objects = ran();
    let config = json!({ "url_ref": { "name": "gone", "key": "chat" } });
    let notifier = json!({ "name": "chat", "type": "slack", "config": config });
    objects
        .iter_mut()
        .find(|object| object["kind"] == "Backup")
        .unwrap()["spec"]["notifiers"] = json!([notifier]);
    let outcome = pass(json!({}), &objects, |request| request);
    assert_eq!(names(&outcome), ["Job/back-restore"]);
}

#[test]
fn the_end_of_a_restore_is_final() {
    let first = first(json!({}));
    let object = Value::from(first.child("restore").unwrap().object.clone());
    let observed = |status: Value| {
        let mut job = job("back-restore", "j", OWNER, status);
        job["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
        job
    };
    let outcome = pass(json!({}), &ran(), |request| {
        request.child("restore", &observed(complete()))
    });
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "True/Restored: restored pg from 2026.tar"
    );
    assert!(outcome.report().find_condition("Stalled").is_none());
    let events = &outcome.report().events;
    let reasons: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["RestoreStarted", "RestoreSucceeded"]);
    let status = outcome.report().status.clone().unwrap();
    assert_eq!(status["restored"], json!(["pg"]));
    // Neither the Job's end nor the parent's starts it again.
    let later = pass(json!({}), &[], |request| request.status(&status));
    assert!(matches!(later, Answer::Keep(_)));
    assert_eq!(later.report().status.clone().unwrap(), status);

    let mut objects = ran();
    objects.push(pod("j", "psql: error: no such role"));
    objects[4]["metadata"]["labels"] = object["metadata"]["labels"].clone();
    objects[4]["status"]["containerStatuses"][0]["name"] = json!("restore");
    let outcome = pass(json!({}), &objects, |request| {
        request.child("restore", &observed(failed()))
    });
    let ready = condition(outcome.report(), "Ready");
    assert_eq!(ready, "False/RestoreFailed: psql: error: no such role");
    let stalled = condition(outcome.report(), "Stalled");
    assert_eq!(stalled, "True/RestoreFailed: psql: error: no such role");
}

#[test]
fn a_restore_without_its_job_has_failed() {
    let status = json!({ "phase": "Running", "jobName": "back-restore", "file": "2026.tar" });
    let outcome = pass(json!({}), &ran(), |request| request.status(&status));
    assert_eq!(
        condition(outcome.report(), "Succeeded"),
        "False/RestoreFailed: the Job was deleted before the plugin saw its end"
    );
}

/// The verdict on a spec, with these objects.
fn verdict(spec: &Value, objects: &[Value]) -> String {
    let object = restore(spec.clone());
    let admitted = match PLUGIN
        .schema("Restore")
        .admit(object.as_object().unwrap().clone())
    {
        Ok(admitted) => admitted,
        Err(rejection) => {
            let causes = rejection.causes().iter().map(ToString::to_string);
            return format!("rejected, {}", causes.collect::<Vec<_>>().join("; "));
        }
    };
    let request = TestRequest::new(&admitted.object).build();
    match Plugin::reconcile(&request, &host(objects)) {
        Ok(Answer::Keep(report)) => format!("kept, {}", condition(&report, "Ready")),
        Ok(_) => "accepted".to_owned(),
        Err(fault) => format!("{:?}, {}", fault.kind, fault.message),
    }
}

/// Returns the objects from [`ran`], with another PostgreSQL and a Redis.
fn targets() -> Vec<Value> {
    let mut objects = ran();
    let config = json!({ "database": "scratch", "host": "pg" });
    let spec = json!({ "type": "postgresql", "config": config });
    objects.push(related("Database", "scratch", spec));
    objects.push(related(
        "Database",
        "cache",
        json!({ "type": "redis", "config": {} }),
    ));
    objects.push(related(
        "Database",
        "lite",
        json!({ "type": "sqlite", "config": { "path": "/data/lite.db" } }),
    ));
    objects
}

/// Returns a restoration into the SQLite file, with a volume.
fn into_file(mount: &str, read_only: bool) -> Value {
    json!({
        "overrides": [{ "database": "pg", "databaseRef": { "name": "lite" } }], "confirm": "lite",
        "volumes": [{ "name": "v", "mountPath": mount, "readOnly": read_only, "configMap": { "name": "c" } }],
    })
}

#[test]
fn every_bad_restore_has_a_verdict() {
    let target = |path: &str, read_only: bool| {
        json!({
            "archive": { "targetPath": path }, "databases": [], "confirm": "",
            "volumes": [{
                "name": "v", "mountPath": "/data", "readOnly": read_only, "configMap": { "name": "c" },
            }],
        })
    };
    let other = |name: &str| json!({ "overrides": [{ "database": "pg", "databaseRef": { "name": name } }], "confirm": name });
    let specs = [
        json!({}),
        json!({ "confirm": null }),
        json!({ "confirm": "other" }),
        json!({ "backupRef": { "name": "none" } }),
        json!({ "backupRef": { "name": "nightly", "kind": "CronBackup" } }),
        json!({ "backupRef": { "name": "nightly", "kind": "Database" } }),
        json!({ "storage": "none" }),
        json!({ "file": "2025.tar" }),
        json!({ "file": "a/../../b" }),
        json!({ "file": "/etc/passwd" }),
        json!({ "databases": ["none"] }),
        json!({ "databases": [] }),
        json!({ "databases": [], "confirm": "" }),
        other("none"),
        other("scratch"),
        other("cache"),
        into_file("/data", false),
        into_file("/data", true),
        into_file("/elsewhere", false),
        target("/data/sub", false),
        target("/data", true),
        target("/data/../etc", false),
        target("/elsewhere", false),
        json!({ "activeDeadlineSeconds": 0 }),
        json!({ "transferImage": "" }),
    ];
    let objects = targets();
    let lines = specs
        .iter()
        .map(|spec| format!("{spec}: {}\n", verdict(spec, &objects)));
    expect![[r#"
        {}: accepted
        {"confirm":null}: Invalid, confirm: write "pg" to overwrite it
        {"confirm":"other"}: Invalid, confirm: write "pg" to overwrite it
        {"backupRef":{"name":"none"}}: kept, False/ReferenceNotFound: Backup not found: none
        {"backupRef":{"kind":"CronBackup","name":"nightly"}}: kept, False/ReferenceNotFound: CronBackup not found: nightly
        {"backupRef":{"kind":"Database","name":"nightly"}}: rejected, spec.backupRef.kind: "Database" is not one of "Backup" or "CronBackup"; the object: not all rules were checked: correct the other fields first
        {"storage":"none"}: kept, False/InvalidReference: storage: none is not in the storageRefs of Backup nightly
        {"file":"2025.tar"}: accepted
        {"file":"a/../../b"}: Invalid, file: a/../../b has the part ..
        {"file":"/etc/passwd"}: rejected, spec.file: "/etc/passwd" does not match "^[A-Za-z0-9][A-Za-z0-9._/-]*$"
        {"databases":["none"]}: kept, False/InvalidReference: databases: none is not in the databaseRefs of Backup nightly
        {"databases":[]}: Invalid, databases or archive: there is nothing to restore
        {"confirm":"","databases":[]}: Invalid, databases or archive: there is nothing to restore
        {"confirm":"none","overrides":[{"database":"pg","databaseRef":{"name":"none"}}]}: kept, False/ReferenceNotFound: Database not found: none
        {"confirm":"scratch","overrides":[{"database":"pg","databaseRef":{"name":"scratch"}}]}: accepted
        {"confirm":"cache","overrides":[{"database":"pg","databaseRef":{"name":"cache"}}]}: kept, False/InvalidReference: Database cache: config.type: a dump of redis cannot be restored, only one of postgresql, mysql or sqlite; list the others in spec.databases, and restore this one by hand
        {"confirm":"lite","overrides":[{"database":"pg","databaseRef":{"name":"lite"}}],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":false}]}: accepted
        {"confirm":"lite","overrides":[{"database":"pg","databaseRef":{"name":"lite"}}],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":true}]}: kept, False/InvalidReference: Database lite: config.path is not inside a mount in spec.volumes with readOnly: false
        {"confirm":"lite","overrides":[{"database":"pg","databaseRef":{"name":"lite"}}],"volumes":[{"configMap":{"name":"c"},"mountPath":"/elsewhere","name":"v","readOnly":false}]}: kept, False/InvalidReference: Database lite: config.path is not inside a mount in spec.volumes with readOnly: false
        {"archive":{"targetPath":"/data/sub"},"confirm":"","databases":[],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":false}]}: accepted
        {"archive":{"targetPath":"/data"},"confirm":"","databases":[],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":true}]}: Invalid, archive.targetPath: /data is not inside a mount in spec.volumes with readOnly: false
        {"archive":{"targetPath":"/data/../etc"},"confirm":"","databases":[],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":false}]}: Invalid, archive.targetPath: /data/../etc is not inside a mount in spec.volumes with readOnly: false
        {"archive":{"targetPath":"/elsewhere"},"confirm":"","databases":[],"volumes":[{"configMap":{"name":"c"},"mountPath":"/data","name":"v","readOnly":false}]}: Invalid, archive.targetPath: /elsewhere is not inside a mount in spec.volumes with readOnly: false
        {"activeDeadlineSeconds":0}: rejected, spec.activeDeadlineSeconds: 0 is less than the minimum of 1
        {"transferImage":""}: rejected, spec.transferImage: "" is shorter than 1 character
    "#]].assert_eq(&lines.collect::<String>());
}

#[test]
fn a_restore_waits_for_the_first_archive_of_the_parent() {
    let mut objects = around();
    objects.push(backup(json!({})));
    expect!["kept, False/FileNotFound: Backup nightly has no successful run with an archive in s; set spec.file"]
        .assert_eq(&verdict(&json!({}), &objects));
}

/// Storages by their types.
pub(super) fn storages() -> Vec<(&'static str, Value)> {
    let key = |key: &str| json!({ "name": "keys", "key": key });
    let s3 = |further: Value| {
        let mut config = json!({ "bucket": "b", "path": "/p/", "access_key_id_ref": key("id"), "secret_access_key_ref": key("key") });
        for (key, value) in further.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    vec![
        (
            "s3",
            s3(json!({ "endpoint": "http://m:9000", "force_path_style": true })),
        ),
        (
            "minio",
            s3(json!({ "endpoint": "http://m:9000", "region": "eu" })),
        ),
        ("r2", s3(json!({ "account_id": "a" }))),
        ("b2", s3(json!({}))),
        (
            "sftp",
            json!({ "host": "h", "port": 2222, "username": "u", "path": "archives", "password_ref": key("pg") }),
        ),
        (
            "scp",
            json!({ "host": "h", "username_ref": key("id"), "path": "/a", "private_key_ref": key("key"), "passphrase_ref": key("pg") }),
        ),
        (
            "ftp",
            json!({ "host": "h", "username": "u", "password_ref": key("pg"), "tls": true }),
        ),
        (
            "ftp",
            json!({ "host": "h", "username": "u", "password_ref": key("pg"), "tls": true, "explicit_tls": true }),
        ),
        (
            "ftp",
            json!({ "host": "h", "username": "u", "password_ref": key("pg"), "tls": false, "explicit_tls": true }),
        ),
        (
            "webdav",
            json!({ "root": "http://h", "username": "u", "password_ref": key("pg") }),
        ),
        (
            "gcs",
            json!({ "bucket": "b", "credentials_ref": key("key") }),
        ),
        (
            "azure",
            json!({ "bucket": "a", "tenant_id": "t", "client_id": "c", "client_secret_ref": key("key") }),
        ),
        ("local", json!({ "path": "/backups" })),
    ]
}

#[test]
fn a_storage_becomes_a_remote_of_rclone() {
    let mut lines = String::new();
    for (type_, config) in storages() {
        let mut objects = ran();
        objects[1] = related("Storage", "s", json!({ "type": type_, "config": config }));
        objects.push(claim("nightly-gobackup-local"));
        let outcome = pass(json!({}), &objects, |request| request);
        lines.push_str(type_);
        lines.push(':');
        let Some(job) = outcome.child("restore") else {
            writeln!(lines, " {}", condition(outcome.report(), "Ready")).unwrap();
            continue;
        };
        let pod = &job.object["spec"]["template"]["spec"];
        let fetch = &pod["initContainers"][0];
        for variable in variables(fetch).split_off(2) {
            lines.push(' ');
            lines.push_str(&variable.replace("RCLONE_CONFIG_SRC_", "~"));
        }
        for mount in fetch["volumeMounts"].as_array().unwrap().iter().skip(3) {
            write!(lines, " {}={}", mount["name"], mount["mountPath"]).unwrap();
        }
        lines.push('\n');
    }
    expect![[r#"
        s3: SECRETS=~ACCESS_KEY_ID ~SECRET_ACCESS_KEY FILE=2026.tar ~ENDPOINT=http://m:9000 ~FORCE_PATH_STYLE=true ~PROVIDER=Other ~TYPE=s3 DIRECTORY=b/p/default/backup/nightly/ ~ACCESS_KEY_ID=keys/id ~SECRET_ACCESS_KEY=keys/key
        minio: SECRETS=~ACCESS_KEY_ID ~SECRET_ACCESS_KEY FILE=2026.tar ~ENDPOINT=http://m:9000 ~PROVIDER=Minio ~REGION=eu ~TYPE=s3 DIRECTORY=b/p/default/backup/nightly/ ~ACCESS_KEY_ID=keys/id ~SECRET_ACCESS_KEY=keys/key
        r2: SECRETS=~ACCESS_KEY_ID ~SECRET_ACCESS_KEY FILE=2026.tar ~ENDPOINT=https://a.r2.cloudflarestorage.com ~PROVIDER=Cloudflare ~TYPE=s3 DIRECTORY=b/p/default/backup/nightly/ ~ACCESS_KEY_ID=keys/id ~SECRET_ACCESS_KEY=keys/key
        b2: False/InvalidReference: Storage s: config.endpoint is required to restore from this type of storage
        sftp: SECRETS=FETCH_PASS FILE=2026.tar ~HOST=h ~PORT=2222 ~TYPE=sftp ~USER=u DIRECTORY=archives/default/backup/nightly/ FETCH_PASS=keys/pg
        scp: SECRETS=FETCH_KEY_FILE_PASS /etc/gobackup/keys/ST0_PRIVATE_KEY ~USER FILE=2026.tar ~HOST=h ~TYPE=sftp DIRECTORY=/a/default/backup/nightly/ FETCH_KEY_FILE_PASS=keys/pg ~KEY_FILE=/etc/gobackup/keys/ST0_PRIVATE_KEY ~USER=keys/id "keys"="/etc/gobackup/keys"
        ftp: SECRETS=FETCH_PASS FILE=2026.tar ~HOST=h ~TLS=true ~TYPE=ftp ~USER=u DIRECTORY=default_backup_nightly/ FETCH_PASS=keys/pg
        ftp: SECRETS=FETCH_PASS FILE=2026.tar ~HOST=h ~TLS=true ~TYPE=ftp ~USER=u DIRECTORY=default_backup_nightly/ FETCH_PASS=keys/pg
        ftp: SECRETS=FETCH_PASS FILE=2026.tar ~EXPLICIT_TLS=true ~HOST=h ~TLS=false ~TYPE=ftp ~USER=u DIRECTORY=default_backup_nightly/ FETCH_PASS=keys/pg
        webdav: SECRETS=FETCH_PASS FILE=2026.tar ~TYPE=webdav ~URL=http://h ~USER=u ~VENDOR=other DIRECTORY=default/backup/nightly/ FETCH_PASS=keys/pg
        gcs: SECRETS=/etc/gobackup/keys/ST0_CREDENTIALS FILE=2026.tar ~TYPE=google cloud storage DIRECTORY=b/default/backup/nightly/ ~SERVICE_ACCOUNT_FILE=/etc/gobackup/keys/ST0_CREDENTIALS "keys"="/etc/gobackup/keys"
        azure: SECRETS=~CLIENT_SECRET FILE=2026.tar ~ACCOUNT=a ~CLIENT_ID=c ~TENANT=t ~TYPE=azureblob DIRECTORY=gobackup/default/backup/nightly/ ~CLIENT_SECRET=keys/key
        local: SECRETS= FILE=2026.tar ~TYPE=local DIRECTORY=/backups/default/backup/nightly/ "local"="/backups"
    "#]].assert_eq(&lines);
}

/// Restores files from a local storage of a backup with these fields.
fn from_local(path: &str, parent: Value, more: &[Value], limits: &Value) -> Result<Answer, Fault> {
    let mut objects = ran();
    let config = json!({ "path": path });
    objects[1] = related("Storage", "s", json!({ "type": "local", "config": config }));
    let last = objects.len() - 1;
    let status = objects[last]["status"].clone();
    objects[last] = backup(parent);
    objects[last]["status"] = status;
    objects.extend_from_slice(more);
    let target = json!({ "name": "out", "mountPath": "/out", "readOnly": false, "persistentVolumeClaim": { "claimName": "out" } });
    objects.push(claim("out"));
    let spec = json!({ "databases": [], "confirm": "", "archive": { "targetPath": "/out" }, "volumes": [target] });
    let config = json!({ "tenants": limits });
    let request = TestRequest::new(&restore(spec)).config(&config).build();
    Plugin::reconcile(&request, &host(&objects))
}

/// The stored backup may be one that the plugin refuses, so the volumes are checked again where a Restore mounts them.
#[test]
fn a_restore_mounts_no_volume_that_its_backup_may_not_mount() {
    let volume = |source: Value| {
        let mut volume = json!({ "name": "v", "mountPath": "/v" });
        for (key, value) in source.as_object().unwrap() {
            volume[key] = value.clone();
        }
        json!({ "volumes": [volume] })
    };
    let nfs = json!({ "nfs": { "server": "s", "path": "/" } });
    let host_path = json!({ "hostPath": { "path": "/etc" } });
    let programs = json!({ "configMap": { "name": "c" }, "mountPath": "/usr/local/bin" });
    let open = json!({ "hostVolumes": true, "scripts": true });
    for (path, parent) in [
        ("/v/a", volume(nfs)),
        ("/v/a", volume(host_path)),
        ("/usr/local/bin/a", volume(programs)),
        ("/usr/bin", json!({})),
    ] {
        let claims = [claim("nightly-gobackup-local")];
        let run = |limits: &Value| from_local(path, parent.clone(), &claims, limits);
        let refused = match run(&json!({})) {
            Ok(outcome) => {
                assert_eq!(names(&outcome), [""; 0]);
                condition(outcome.report(), "Ready")
            }
            Err(fault) => fault.message,
        };
        assert!(refused.contains("tenants."), "{path}: {refused}");
        assert_eq!(names(&run(&open).unwrap()), ["Job/back-restore"], "{path}");
    }
}

#[test]
fn the_volume_of_archives_has_a_name_that_the_api_server_takes() {
    let claimed = json!({ "claimName": "shelf" });
    let volume =
        json!({ "name": "v".repeat(50), "mountPath": "/v", "persistentVolumeClaim": claimed });
    let parent = json!({ "volumes": [volume] });
    let outcome = from_local("/v/a", parent, &[claim("shelf")], &json!({})).unwrap();
    let pod = &outcome.child("restore").unwrap().object["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|volume| volume["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let volumes = names(&pod["volumes"]);
    assert!(volumes.iter().any(|name| name.contains(&"v".repeat(50))));
    for name in &volumes {
        assert!(name.len() <= 63, "{name} has {} characters", name.len());
    }
    for name in names(&pod["initContainers"][0]["volumeMounts"]) {
        assert!(volumes.contains(&name), "{name}");
    }
}

// The backup's account may have the role that can read the storage.
#[test]
fn a_restore_has_the_account_of_its_backup_if_it_may_name_it() {
    let mut objects = ran();
    let config = json!({ "bucket": "b" });
    objects[1] = related("Storage", "s", json!({ "type": "gcs", "config": config }));
    objects[3]["spec"]["serviceAccountName"] = json!("archivist");
    for (listed, expected) in [
        (json!(["archivist"]), json!("archivist")),
        (json!(["other"]), Value::Null),
        (json!([]), Value::Null),
    ] {
        let tenants = json!({ "tenants": { "serviceAccounts": listed } });
        let outcome = pass(json!({}), &objects, |request| request.config(&tenants));
        let pod = &outcome.child("restore").unwrap().object["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], expected, "{listed}");
        assert_eq!(pod["automountServiceAccountToken"], false);
    }
}

#[test]
fn a_restore_mounts_no_claim_of_another_parent() {
    let local = |name: &str| json!({ "localVolume": { "claimName": name } });
    let retained = |kind: &str| {
        let mut object = owned_by_another(claim("nightly-gobackup-local"));
        let parent = format!("gobackup.io/{kind}/default/nightly u");
        object["metadata"]["annotations"] = json!({ "innkeeper.dev/retained-for": parent });
        object
    };
    let shared = |with: &str| {
        let mut object = owned_by_another(claim("shop"));
        object["metadata"]["annotations"] = json!({ "innkeeper.dev/shared-with": with });
        object
    };
    let job = "Job/back-restore";
    let refused = "ReferenceNotAllowed";
    for (parent, found, expected) in [
        (json!({}), retained("Backup"), job),
        (json!({}), retained("CronBackup"), refused),
        (local("shop"), claim("shop"), job),
        (local("shop"), owned_by_another(claim("shop")), refused),
        (local("shop"), shared("Backup/nightly"), job),
        (local("shop"), shared("Restore/back"), job),
        (local("shop"), shared("Backup/other"), refused),
    ] {
        let outcome = from_local("/x", parent, slice::from_ref(&found), &json!({})).unwrap();
        let ready = condition(outcome.report(), "Ready");
        if expected == refused {
            assert!(ready.contains(expected), "{found}: {ready}");
            assert_eq!(names(&outcome), [""; 0], "{found}");
            continue;
        }
        assert_eq!(names(&outcome), [expected], "{found}: {ready}");
        let object = &outcome.child("restore").unwrap().object["spec"]["template"]["spec"];
        let local = object["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|volume| volume["name"] == "local")
            .unwrap();
        assert_eq!(local["persistentVolumeClaim"]["readOnly"], true);
    }
}

fn any_restore() -> impl Strategy<Value = (Value, Vec<Value>)> {
    let usual = (prop::sample::select(storages()), any::<[bool; 3]>());
    usual.prop_map(|((type_, mut config), [has_files, is_placed, is_latest])| {
        // The plugin only knows some types' endpoints.
        if type_ == "b2" {
            config["endpoint"] = json!("https://b2");
        }
        let mut objects = ran();
        objects[1] = related("Storage", "s", json!({ "type": type_, "config": config }));
        objects.push(claim("nightly-gobackup-local"));
        let mut spec = json!({ "file": if is_latest { "latest" } else { "2025.tar" } });
        if has_files {
            spec["archive"] = json!({ "targetPath": "/out" });
            spec["volumes"] = json!([{
                "name": "out", "mountPath": "/out", "readOnly": false, "configMap": { "name": "c" },
            }]);
        }
        if is_placed {
            let labels = json!({ "disk": "ssd", "a": "b" });
            spec["podTemplate"] = json!({ "spec": { "nodeSelector": labels } });
        }
        (spec, objects)
    })
}

proptest! {
    #[test]
    fn an_answer_for_a_restore_is_a_fixed_point_in_any_order((spec, objects) in any_restore()) {
        let first = pass(spec.clone(), &objects, |request| request);
        let object = Value::from(first.child("restore").unwrap().object.clone());
        let mut observed = job("back-restore", "r", OWNER, complete());
        observed["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
        let next = |answer: &Answer| {
            TestRequest::new(&restore(spec.clone())).child("restore", &observed).status(&stored_status(answer)).build()
        };
        let second = Plugin::reconcile(&next(&first), &host(&objects)).unwrap();
        let request = next(&second);
        PLUGIN.check_order(&request, || host(&objects));
        let third = Plugin::reconcile(&request, &host(&objects)).unwrap();
        prop_assert_eq!(second.children(), third.children());
        prop_assert_eq!(&second.report().status, &third.report().status);
        prop_assert_eq!(&second.report().conditions, &third.report().conditions);
        prop_assert_eq!(&third.report().events, &[]);
        let child = second.child("restore").unwrap();
        prop_assert_eq!(child.apply, ApplyPolicy::Hold);
        prop_assert_eq!(Value::from(child.object.clone()), object);
    }
}

/// Returns a `PostgreSQL` and an `S3` with the names of the other database and storage.
fn both_generations() -> Vec<Value> {
    let mut objects = ran();
    let config = json!({ "host": "legacy", "database": "shop", "username": "u" });
    objects.push(related("PostgreSQL", "pg", config));
    objects.push(related(
        "S3",
        "s",
        json!({ "bucket": "b", "accessKeyID": "i", "secretAccessKey": "k" }),
    ));
    let spec = &mut objects[3]["spec"];
    spec["databaseRefs"] = json!([
        { "name": "pg" }, { "apiGroup": "database.gobackup.io", "type": "PostgreSQL", "name": "pg" },
    ]);
    spec["storageRefs"] = json!([
        { "name": "s" }, { "apiGroup": "storage.gobackup.io", "type": "S3", "name": "s" },
    ]);
    objects
}

#[test]
fn a_name_of_two_kinds_is_never_confirmed_once() {
    let meet = |field: &str, kinds: &str| {
        format!(
            "False/InvalidReference: {field} is the name of {kinds}; give one of the objects another name"
        )
    };
    let confirm =
        "False/Invalid: confirm: write \"Database pg,PostgreSQL pg\" to overwrite it".to_owned();
    let databases = "Database pg and PostgreSQL pg";
    let old = json!({ "apiGroup": "database.gobackup.io", "type": "PostgreSQL", "name": "pg" });
    for (spec, expected) in [
        (json!({}), confirm.clone()),
        (json!({ "confirm": "pg,pg" }), confirm),
        (
            json!({ "databases": ["pg"] }),
            meet("databases: pg", databases),
        ),
        (
            json!({ "overrides": [{ "database": "pg", "databaseRef": old }] }),
            meet("overrides: pg", databases),
        ),
        (
            json!({ "storage": "s", "confirm": "Database pg,PostgreSQL pg" }),
            meet("storage: s", "Storage s and S3 s"),
        ),
        (
            json!({ "confirm": "Database pg,PostgreSQL pg" }),
            String::new(),
        ),
    ] {
        let request = TestRequest::new(&restore(spec.clone())).build();
        let answer = Plugin::reconcile(&request, &host(&both_generations()));
        let verdict = match &answer {
            Ok(outcome) if outcome.child("restore").is_some() => String::new(),
            Ok(outcome) => condition(outcome.report(), "Ready"),
            Err(fault) => condition(fault.report.as_ref().unwrap(), "Ready"),
        };
        assert_eq!(verdict, expected, "{spec}");
    }
}

// Two dumps of one parent go into databases with the same name.
#[test]
fn targets_of_one_name_are_confirmed_with_their_kinds() {
    let mut objects = ran();
    let config = json!({ "host": "legacy", "database": "shop", "username": "u" });
    objects.push(related("PostgreSQL", "pg", config));
    let mut other = postgresql();
    other["metadata"]["name"] = json!("other");
    objects.push(other);
    objects[3]["spec"]["databaseRefs"] = json!([{ "name": "pg" }, { "name": "other" }]);
    let old = json!({ "apiGroup": "database.gobackup.io", "type": "PostgreSQL", "name": "pg" });
    let spec = json!({ "overrides": [{ "database": "other", "databaseRef": old }] });
    let request = TestRequest::new(&restore(spec)).build();
    let fault = Plugin::reconcile(&request, &host(&objects)).unwrap_err();
    assert!(
        fault.message.contains("\"Database pg,PostgreSQL pg\""),
        "{fault:?}"
    );
}

// GitOps tools and restored namespaces apply a manifest again.
#[test]
fn a_restore_that_is_applied_again_needs_the_time_of_the_last_one() {
    let time = "2026-08-20T03:00:00Z";
    let again = format!("pg after {time}");
    for (name, uid, confirm, is_made) in [
        ("back", "another", "pg", false),
        ("back", "another", again.as_str(), true),
        ("back", OWNER, "pg", true),
        ("earlier", "another", "pg", true),
        ("earlier", "another", again.as_str(), false),
    ] {
        let mut objects = ran();
        objects[3]["status"]["restores"] = json!([{ "name": name, "uid": uid, "time": time }]);
        let request = TestRequest::new(&restore(json!({ "confirm": confirm }))).build();
        match Plugin::reconcile(&request, &host(&objects)) {
            Ok(outcome) => assert_eq!(outcome.child("restore").is_some(), is_made),
            Err(fault) => {
                assert!(!is_made, "{fault:?}");
                assert!(fault.message.starts_with("confirm: "), "{fault:?}");
            }
        }
    }
}

#[test]
fn a_parent_records_the_restores_that_started() {
    let started = |name: &str, uid: &str, of: &str, time: Option<&str>| {
        let mut object = restore(json!({ "backupRef": { "name": of } }));
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(uid);
        if let Some(time) = time {
            object["status"] = json!({ "jobName": name, "startTime": time });
        }
        object
    };
    let mut objects = around();
    objects.extend([
        started("a", "2", "nightly", Some("2026-08-20T03:00:00Z")),
        started("b", "3", "nightly", None),
        started("c", "4", "other", Some("2026-08-20T03:00:00Z")),
    ]);
    let record =
        |name: &str, uid: &str, time: &str| json!({ "name": name, "uid": uid, "time": time });
    let stored = json!({ "restores": [
        record("a", "1", "2026-08-19T03:00:00Z"), record("gone", "0", "2026-08-18T03:00:00Z"),
    ] });
    let request = TestRequest::new(&backup(json!({}))).status(&stored).build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    let status = outcome.report().status.as_ref().unwrap();
    let expected = json!([
        record("a", "2", "2026-08-20T03:00:00Z"),
        record("gone", "0", "2026-08-18T03:00:00Z"),
    ]);
    assert_eq!(status["restores"], expected);
}
