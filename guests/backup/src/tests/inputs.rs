//! Missing and invalid input: errors in the parent, and errors in the objects that it references.

use innkeeper_sdk::testing::{TestRequest, definition_problems};

use super::*;

fn invalid(spec: Value) -> String {
    let fault = reconcile(&backup(spec), &around()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    let report = fault.report.expect("an invalid parent has a report");
    assert!(report.status.is_some() && !report.conditions.is_empty());
    fault.message
}

/// Returns `Ready` of an answer that keeps the children.
fn kept(parent: &Value, related: &[Value]) -> String {
    let outcome = reconcile(parent, related).unwrap();
    let Answer::Keep(report) = outcome else {
        panic!("children would change: {outcome:?}");
    };
    assert!(report.status.is_some());
    condition(&report, "Ready")
}

fn kept_with(kind: &str, type_: &str, config: Value) -> String {
    let mut objects = around();
    let name = if kind == "Database" { "pg" } else { "s" };
    let index = usize::from(kind == "Storage");
    objects[index] = related(kind, name, json!({ "type": type_, "config": config }));
    kept(&backup(json!({})), &objects)
}

fn volume(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path, "configMap": { "name": "files" } })
}

/// A webhook with these headers.
fn hook(headers: Value) -> Value {
    let url = json!({ "name": "keys", "key": "pg" });
    let config = json!({ "url_ref": url, "headers_ref": headers });
    json!({ "name": "hook", "type": "webhook", "config": config })
}

#[test]
fn errors_of_the_parent_are_invalid() {
    let old = json!([{ "apiGroup": "database.gobackup.io", "type": "MySQL", "name": "m" }]);
    let table = [
        (
            json!({ "storageRefs": [] }),
            "storageRefs: at least one is needed",
        ),
        (
            json!({ "databaseRefs": [] }),
            "databaseRefs or archive is needed",
        ),
        (
            json!({ "databaseRefs": [{ "name": "pg" }, { "name": "pg" }] }),
            "databaseRefs[1]: Database pg is referenced twice",
        ),
        (
            json!({ "databaseRefs": old }),
            "databaseRefs[0]: there is no kind MySQL in database.gobackup.io; use a Database",
        ),
        (
            json!({ "schedule": { "every": "7m" } }),
            "schedule.every: 7m cannot be expressed as a cron expression",
        ),
        (
            json!({ "compressWith": { "type": "rar" } }),
            "compressWith.type: rar is unknown to gobackup",
        ),
        (
            json!({ "encodeWith": { "password": "x" } }),
            "encodeWith: without type openssl nothing would be encrypted",
        ),
        (
            json!({ "encodeWith": { "type": "openssl" } }),
            "encodeWith: password or passwordRef is required",
        ),
        (
            json!({ "archive": { "includes": ["etc"] } }),
            "archive.includes: etc is not an absolute path inside a mount in spec.volumes",
        ),
        (
            json!({ "archive": { "includes": ["/data/../etc"] }, "volumes": [volume("data", "/data")] }),
            "archive.includes: /data/../etc is not an absolute path inside a mount in spec.volumes",
        ),
        (
            json!({ "volumes": [volume("data", "/data"), volume("data", "/more")] }),
            "volumes[1]: the name data is used twice",
        ),
        (
            json!({ "volumes": [volume("data", "/data"), volume("more", "/data/")] }),
            "volumes[1]: another volume or the run itself has the mountPath /data/",
        ),
        (
            json!({ "volumes": [volume("data", "/tmp")] }),
            "volumes[0]: another volume or the run itself has the mountPath /tmp",
        ),
        (
            json!({ "volumes": [volume("data", "/etc/gobackup")] }),
            "volumes[0]: another volume or the run itself has the mountPath /etc/gobackup",
        ),
        (
            json!({ "volumes": [volume("data", "/etc/gobackup/keys/")] }),
            "volumes[0]: another volume or the run itself has the mountPath /etc/gobackup/keys/",
        ),
    ];
    for (spec, message) in table {
        assert_eq!(invalid(spec), message);
    }
}

#[test]
fn errors_of_notifiers_and_of_the_placement_are_invalid() {
    let table = [
        (
            json!({ "notifiers": [{ "name": "chat", "type": "slack", "config": {} }] }),
            "notifiers: chat: config.url is required",
        ),
        (
            json!({ "notifiers": [hook(json!({})), hook(json!({}))] }),
            "notifiers: the name hook is used twice",
        ),
        (
            json!({ "notifiers": [hook(json!({ "X Y": { "name": "keys", "key": "pg" } }))] }),
            "notifiers: hook: config.headers_ref: \"X Y\" is not a header name: use letters, digits, \
             '-' and '_'",
        ),
        (
            json!({ "runWith": { "labelSelector": { "matchLabels": { "app": "a b" } } } }),
            "spec.runWith.labelSelector.matchLabels.app: \"a b\" is not a label value: write at most 63 \
             letters, digits, '-', '_' or '.', or nothing",
        ),
        (
            json!({ "podTemplate": { "spec": { "nodeSelector": { "a b": "c" } } } }),
            "spec.podTemplate.spec.nodeSelector: \"a b\" is not a label key: write at most 63 letters, \
             digits, '-', '_' or '.', after a DNS name and a slash if need be",
        ),
    ];
    for (spec, message) in table {
        assert_eq!(invalid(spec), message);
    }
}

#[test]
fn waits_for_missing_objects() {
    let parent = backup(json!({ "backupModelRef": { "name": "model" } }));
    assert_eq!(
        kept(&parent, &[]),
        "False/ReferenceNotFound: BackupModel not found: model; Database not found: pg; \
         Storage not found: s"
    );
    let objects = around();
    let parent = backup(json!({}));
    assert_eq!(
        kept(&parent, &objects[..2]),
        "False/SecretNotFound: Secret not found: keys"
    );
    let poor = [
        objects[0].clone(),
        objects[1].clone(),
        secret("keys", &["id", "key"]),
    ];
    assert_eq!(
        kept(&parent, &poor),
        "False/SecretIncomplete: Secret keys lacks the key pg"
    );
}

#[test]
fn a_kind_that_is_not_installed_is_missing_too() {
    let fake = host(&around()).not_served("gobackup.io/v1", "Database");
    let request = TestRequest::new(&backup(json!({}))).build();
    let outcome = Plugin::reconcile(&request, &fake).unwrap();
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "False/ReferenceNotFound: Database not found: pg (the kind is not installed)"
    );
}

#[test]
fn a_read_that_is_not_granted_is_tried_again() {
    let fake = host(&around()).not_granted("gobackup.io/v1", "Storage");
    let request = TestRequest::new(&backup(json!({}))).build();
    let fault = Plugin::reconcile(&request, &fake).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Retry);
    assert!(fault.message.contains("Storage"));
    assert!(fault.report.is_none());
}

#[test]
fn a_database_that_cannot_be_rendered_is_not_the_parents_fault() {
    let table = [
        (
            "postgresql",
            json!({}),
            "Database pg: config.database is required unless config.all_databases is true",
        ),
        (
            "mysql",
            json!({ "database": "d", "password": "a b" }),
            "Database pg: config.password contains white space, which gobackup cannot pass on",
        ),
        (
            "postgresql",
            json!({ "database": "d", "username": "a --file=/v" }),
            "Database pg: config.username contains white space, which gobackup cannot pass on",
        ),
        (
            "postgresql",
            json!({ "database": "d", "username": "-d" }),
            "Database pg: config.username begins with a dash, as an option does",
        ),
        (
            "sqlite",
            json!({ "path": "/v/db .shell\u{b}id" }),
            "Database pg: config.path contains white space, which gobackup cannot pass on",
        ),
        (
            "postgresql",
            json!({ "database": "d", "compress": "best" }),
            "Database pg: config.compress must be gzip, lz4 or zstd, or one of them with a colon and its detail",
        ),
        (
            "postgresql",
            json!({ "database": "d", "compress": "gzip-9" }),
            "Database pg: config.compress must be gzip, lz4 or zstd, or one of them with a colon and its detail",
        ),
        (
            "mongodb",
            json!({ "exclude_tables_prefix": ["tmp"] }),
            "Database pg: config.exclude_tables_prefix needs config.database, and config.all_databases not to be true",
        ),
    ];
    for (type_, config, message) in table {
        let expected = format!("False/InvalidReference: {message}");
        assert_eq!(kept_with("Database", type_, config), expected);
    }
}

#[test]
fn a_storage_that_cannot_be_rendered_is_not_the_parents_fault() {
    let table = [
        (
            "s3",
            json!({ "bucket": "b" }),
            "Storage s: config.access_key_id is required: gobackup does not use ambient credentials",
        ),
        (
            "minio",
            json!({ "access_key_id": "a", "secret_access_key": "b" }),
            "Storage s: config.bucket is required",
        ),
        (
            "local",
            json!({ "path": "here" }),
            "Storage s: config.path must be absolute",
        ),
        (
            "sftp",
            json!({ "host": "h", "username": "u" }),
            "Storage s: config.password or config.private_key is required",
        ),
    ];
    for (type_, config, message) in table {
        let expected = format!("False/InvalidReference: {message}");
        assert_eq!(kept_with("Storage", type_, config), expected);
    }
}

// The API server would reject the Job.
#[test]
fn a_path_of_a_local_storage_is_its_own() {
    let local = |name: &str, path: &str| {
        let config = json!({ "path": path });
        related(
            "Storage",
            name,
            json!({ "type": "local", "config": config }),
        )
    };
    let refs = json!([{ "name": "s" }, { "name": "t" }]);
    let scripts = json!({ "scripts": true });
    let ready = |first: &str, second: &str| {
        let mut objects = around();
        objects[1] = local("s", first);
        objects.push(local("t", second));
        let parent = backup(json!({ "storageRefs": refs }));
        let outcome = reconcile_with(&parent, &objects, &scripts).unwrap();
        condition(outcome.report(), "Ready")
    };
    let refused = |name: &str, path: &str| {
        format!(
            "False/InvalidReference: Storage {name}: config.path: another storage or the run itself has the \
             path {path}"
        )
    };
    assert_eq!(ready("/a", "/a/"), refused("t", "/a/"));
    assert_eq!(ready("/work", "/a"), refused("s", "/work"));
    assert!(ready("/a", "/b").starts_with("False/Pending"));
}

#[test]
fn pg_dumpall_dumps_all_tables() {
    let mut objects = around();
    let config =
        json!({ "username": "u", "all_databases": true, "tables": ["a"], "exclude_tables": [] });
    objects[0]["spec"]["config"] = config;
    let outcome = reconcile(&backup(json!({})), &objects).unwrap();
    assert!(!configuration(&outcome).contains("tables"));
    let status = outcome.report().status.as_ref().unwrap();
    let expected = json!([{
        "code": "FieldIgnored",
        "message": "Database pg: config.tables is left out: pg_dumpall dumps all tables",
    }]);
    assert_eq!(status["warnings"], expected);
}

#[test]
fn an_error_in_the_model_is_not_the_parents_fault() {
    let model = related(
        "BackupModel",
        "m",
        json!({ "compressWith": { "type": "rar" } }),
    );
    let mut objects = around();
    objects.push(model);
    let parent = backup(json!({ "backupModelRef": { "name": "m" } }));
    assert_eq!(
        kept(&parent, &objects),
        "False/InvalidReference: BackupModel m: compressWith.type: rar is unknown to gobackup"
    );
}

#[test]
fn notifiers_of_the_model_and_their_secrets_are_checked() {
    let notifier = |config: Value| json!([{ "name": "chat", "type": "slack", "config": config }]);
    let parent = backup(json!({ "backupModelRef": { "name": "m" } }));
    let ready = |config: Value| {
        let mut objects = around();
        let spec = json!({ "notifiers": notifier(config) });
        objects.push(related("BackupModel", "m", spec));
        condition(reconcile(&parent, &objects).unwrap().report(), "Ready")
    };
    assert_eq!(
        ready(json!({})),
        "False/InvalidReference: BackupModel m: notifiers: chat: config.url is required"
    );
    assert_eq!(
        ready(json!({ "url_ref": { "name": "hooks", "key": "chat" } })),
        "False/SecretNotFound: Secret not found: hooks"
    );
    assert_eq!(
        ready(json!({ "url_ref": { "name": "keys", "key": "chat" } })),
        "False/SecretIncomplete: Secret keys lacks the key chat"
    );
    // The parent's own list counts as a whole.
    let mut objects = around();
    objects.push(related(
        "BackupModel",
        "m",
        json!({ "notifiers": notifier(json!({})) }),
    ));
    let own = backup(json!({ "backupModelRef": { "name": "m" }, "notifiers": [] }));
    assert!(!configuration(&reconcile(&own, &objects).unwrap()).contains("notifiers"));
}

#[test]
fn a_schedule_continues_until_a_broken_reference_is_repaired() {
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let first = reconcile(&parent, &around()).unwrap();
    let status = first.report().status.clone().unwrap();
    let request = TestRequest::new(&parent)
        .answered(&first)
        .status(&status)
        .build();
    let fake = host(&around()[1..]);
    let outcome = Plugin::reconcile(&request, &fake).unwrap();
    assert!(matches!(outcome, Answer::Keep(_)));
    let later = outcome.report().status.clone().unwrap();
    for field in ["effectiveSchedule", "nextRun", "configHash"] {
        assert_eq!(later[field], status[field]);
    }
    let repaired = Plugin::reconcile(&request, &host(&around())).unwrap();
    assert_eq!(names(&repaired), names(&first));
}

#[test]
fn warns_about_settings_that_may_not_have_the_intended_effect() {
    let config = json!({
        "database": "d", "password": "pa$$word", "tables": ["a"],
    });
    let mut objects = around();
    objects[0] = related(
        "Database",
        "pg",
        json!({ "type": "mariadb", "config": config }),
    );
    let refs = json!([{ "name": "pg", "type": "mysql" }]);
    let outcome = reconcile(&backup(json!({ "databaseRefs": refs })), &objects).unwrap();
    let status = outcome.report().status.as_ref().unwrap();
    let codes: Vec<&str> = status["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap())
        .collect();
    assert_eq!(
        codes,
        [
            "ClearTextCredential",
            "FieldIgnored",
            "MariaDBNeedsDataDir",
            "RefTypeMismatch"
        ]
    );
    let reasons: Vec<&str> = outcome
        .report()
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    assert_eq!(reasons, codes);
}

// libpq asks the system for the user's name, and no user in the image has the run's ID.
#[test]
fn a_missing_user_name_of_postgresql_is_a_warning_where_the_run_has_none() {
    let codes = |spec: Value| {
        let mut objects = around();
        objects[0]["spec"]["config"]
            .as_object_mut()
            .unwrap()
            .remove("username");
        let status = reconcile(&backup(spec), &objects)
            .unwrap()
            .report()
            .status
            .clone()
            .unwrap();
        status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning["code"] == "UsernameMissing")
    };
    assert!(codes(json!({})));
    assert!(!codes(json!({ "image": "example.com/gobackup:1" })));
    assert!(!codes(json!({ "securityContext": { "runAsUser": 1000 } })));
    assert!(!codes(
        json!({ "env": [{ "name": "PGUSER", "value": "u" }] })
    ));
}

#[test]
fn definitions_describe_every_field_and_have_no_default_in_the_status() {
    let problems = definition_problems(&Plugin::describe());
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn schemas_follow_the_table_of_types() {
    let manifest = Plugin::describe();
    assert_eq!(manifest.crds.len(), 8);
    let crd = |kind: &str| {
        manifest
            .crds
            .iter()
            .find(|crd| crd["spec"]["names"]["kind"] == kind)
            .expect("the definition is there")
    };
    let root = |kind: &str| &crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &root("Database")["properties"]["spec"];
    assert_eq!(
        spec["properties"]["type"]["enum"].as_array().unwrap().len(),
        11
    );
    assert!(
        spec["properties"]["config"]["properties"]
            .get("password_ref")
            .is_some()
    );
    let rules = spec["x-kubernetes-validations"].to_string();
    assert!(rules.contains("config.oplog is only valid when spec.type is mongodb"));
    for kind in ["Backup", "CronBackup"] {
        let root = root(kind);
        assert!(root.get("required").is_none());
        assert!(root["properties"].get("databaseRefs").is_some());
        let text = root.to_string();
        assert!(text.contains("databaseRefs: give it beside spec or inside spec, not both"));
        assert_eq!(
            text.contains("schedule: a CronBackup needs one"),
            kind == "CronBackup"
        );
    }
    assert!(
        crd("Backup")["spec"]["versions"][0]["subresources"]
            .get("status")
            .is_some()
    );
    assert!(
        crd("CronBackup")["spec"]["versions"][0]["subresources"]
            .get("status")
            .is_some()
    );
}
