//! Bad and borderline parents and referenced objects: the schema's verdict or, after it, the plugin's.

use expect_test::{Expect, expect};
use innkeeper_guest_testing as testing;
use innkeeper_sdk::testing::TestRequest;

use super::*;

/// Returns the schema's verdict on an object; for parents also the plugin's, with these objects.
fn verdict(object: &Value, objects: &[Value]) -> String {
    let kind = object["kind"].as_str().unwrap();
    let admitted = match testing::admit(PLUGIN.schema(kind), object) {
        Ok(admitted) => admitted,
        Err(rejected) => return rejected,
    };
    if !matches!(kind, "Backup" | "CronBackup") {
        return "accepted".to_owned();
    }
    let request = TestRequest::new(&admitted.object).build();
    let answer = Plugin::reconcile(&request, &host(objects)).map(|answer| match answer {
        Answer::Keep(report) => {
            let ready = report.find_condition("Ready").unwrap();
            format!("kept, {}: {}", ready.reason, ready.message)
        }
        answer => {
            let status = answer.report().status.clone().unwrap();
            let codes: Vec<&str> = status["warnings"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|warning| warning["code"].as_str())
                .collect();
            match &codes[..] {
                [] => "accepted".to_owned(),
                codes => format!("accepted, {}", codes.join(", ")),
            }
        }
    });
    testing::verdict(&admitted, answer)
}

/// Compares one line for each parent spec, with the objects from [`around`].
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs.iter().map(|spec| {
        let verdict = verdict(&backup(spec.clone()), &around());
        format!("{spec}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// Compares one line for each configuration of a referenced object, with the verdict on a parent that names it.
#[track_caller]
fn check_related(kind: &str, table: &[(&str, Value)], expected: &Expect) {
    let lines = table.iter().map(|(type_, config)| {
        let name = if kind == "Database" { "pg" } else { "s" };
        let object = related(kind, name, json!({ "type": type_, "config": config }));
        let own = verdict(&object, &[]);
        let mut objects = around();
        objects[usize::from(kind == "Storage")] = object;
        let verdict = match &*own {
            "accepted" => verdict(&backup(json!({})), &objects),
            _ => own,
        };
        format!("{type_} {config}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn a_parent_is_at_most_256_kib_large() {
    testing::check_parent_size(|env| verdict(&backup(json!({ "env": env })), &around()));
}

#[test]
fn references_stand_in_one_place() {
    let refs = json!([{ "name": "pg" }]);
    let mut both = backup(json!({}));
    both["databaseRefs"] = refs.clone();
    let mut storages = backup(json!({}));
    storages["storageRefs"] = json!([{ "name": "s" }]);
    let mut model = backup(json!({ "backupModelRef": { "name": "m" } }));
    model["backupModelRef"] = json!({ "name": "m" });
    let mut beside = backup(json!({}));
    beside["spec"]
        .as_object_mut()
        .unwrap()
        .remove("databaseRefs");
    beside["databaseRefs"] = refs;
    let mut schedules = backup(json!({ "schedule": { "cron": "@daily" } }));
    schedules["backupModelRef"] = json!({ "schedule": { "cron": "@daily" } });
    let verdicts =
        [both, storages, model, beside, schedules].map(|parent| verdict(&parent, &around()));
    expect![[r"
        rejected, the object: databaseRefs: give it beside spec or inside spec, not both
        rejected, the object: storageRefs: give it beside spec or inside spec, not both
        rejected, the object: backupModelRef: give it beside spec or inside spec, not both
        accepted
        rejected, the object: schedule: give it in spec or in backupModelRef, not both"]]
    .assert_eq(&verdicts.join("\n"));
}

#[test]
fn names_leave_room_for_those_of_children() {
    let verdicts = [50, 51].map(|length| {
        let mut parent = backup(json!({}));
        parent["metadata"]["name"] = json!("a".repeat(length));
        verdict(&parent, &around())
    });
    expect![[r"
        accepted
        rejected, the object: metadata.name must be at most 50 characters"]]
    .assert_eq(&verdicts.join("\n"));
}

#[test]
fn schedules_are_expressions_of_five_fields_or_macros() {
    let schedule = |schedule: Value| json!({ "schedule": schedule });
    check(
        &[
            schedule(json!({ "cron": "0 2 * * *" })),
            schedule(json!({ "cron": "@daily-random" })),
            schedule(json!({ "cron": "0 2 * * *", "every": "day" })),
            schedule(json!({ "cron": "*/5 * * * * *" })),
            schedule(json!({ "cron": "TZ=UTC 0 2 * * *" })),
            schedule(json!({ "cron": "every day" })),
            schedule(json!({ "cron": "0 25 * * *" })),
            schedule(json!({ "every": "15m" })),
            schedule(json!({ "every": "7m" })),
            schedule(json!({ "every": "3day" })),
            schedule(json!({ "every": "day", "at": "25:00" })),
            schedule(json!({ "cron": "@daily", "concurrencyPolicy": "Never" })),
            schedule(json!({ "cron": "@daily", "successfulJobsHistoryLimit": -1 })),
        ],
        &expect![[r#"
            {"schedule":{"cron":"0 2 * * *"}}: accepted
            {"schedule":{"cron":"@daily-random"}}: accepted
            {"schedule":{"cron":"0 2 * * *","every":"day"}}: rejected, spec.schedule: schedule: set cron, or every with an optional at, not both
            {"schedule":{"cron":"*/5 * * * * *"}}: rejected, spec.schedule.cron: cron must have 5 fields or be an @ macro
            {"schedule":{"cron":"TZ=UTC 0 2 * * *"}}: rejected, spec.schedule.cron: cron must have 5 fields or be an @ macro
            {"schedule":{"cron":"every day"}}: rejected, spec.schedule.cron: cron must have 5 fields or be an @ macro
            {"schedule":{"cron":"0 25 * * *"}}: Invalid, schedule.cron: 25 is not between 0 and 23
            {"schedule":{"every":"15m"}}: accepted
            {"schedule":{"every":"7m"}}: Invalid, schedule.every: 7m cannot be expressed as a cron expression
            {"schedule":{"every":"3day"}}: Invalid, schedule.every: 3day cannot be expressed as a cron expression
            {"schedule":{"at":"25:00","every":"day"}}: Invalid, schedule.at: 25:00 is not a time of day, HH:MM
            {"schedule":{"concurrencyPolicy":"Never","cron":"@daily"}}: rejected, spec.schedule.concurrencyPolicy: "Never" is not one of "Allow", "Forbid" or "Replace"
            {"schedule":{"cron":"@daily","successfulJobsHistoryLimit":-1}}: rejected, spec.schedule.successfulJobsHistoryLimit: -1 is less than the minimum of 0
        "#]],
    );
    let mut cron = backup(json!({}));
    cron["kind"] = json!("CronBackup");
    let without = verdict(&cron, &around());
    cron["spec"]["schedule"] = json!({ "cron": "@daily" });
    let with = verdict(&cron, &around());
    expect![[r"
        rejected, the object: schedule: a CronBackup needs one; set spec.schedule, or use a Backup, which runs once
        accepted"]]
    .assert_eq(&format!("{without}\n{with}"));
}

#[test]
fn a_parent_names_what_to_store_and_where() {
    let old = json!([{ "apiGroup": "database.gobackup.io", "type": "MySQL", "name": "m" }]);
    let typeless = json!([{ "apiGroup": "database.gobackup.io", "name": "m" }]);
    let other = json!([{ "apiGroup": "example.com", "type": "Any", "name": "m" }]);
    check(
        &[
            json!({ "storageRefs": [] }),
            json!({ "databaseRefs": [] }),
            json!({ "databaseRefs": [{ "name": "pg" }, { "name": "pg" }] }),
            json!({ "databaseRefs": [{ "name": "" }] }),
            json!({ "databaseRefs": [{ "name": "pg", "type": "mysql" }] }),
            json!({ "databaseRefs": [{ "name": "none" }] }),
            json!({ "databaseRefs": old }),
            json!({ "databaseRefs": typeless }),
            json!({ "databaseRefs": other }),
            json!({ "storageRefs": [{ "name": "s", "keep": -1 }] }),
            json!({ "defaultStorage": "none" }),
            json!({ "backupModelRef": { "name": "none" } }),
        ],
        &expect![[r#"
            {"storageRefs":[]}: Invalid, storageRefs: at least one is needed
            {"databaseRefs":[]}: Invalid, databaseRefs or archive is needed
            {"databaseRefs":[{"name":"pg"},{"name":"pg"}]}: Invalid, databaseRefs[1]: Database pg is referenced twice
            {"databaseRefs":[{"name":""}]}: rejected, spec.databaseRefs[0].name: "" is shorter than 1 character
            {"databaseRefs":[{"name":"pg","type":"mysql"}]}: accepted, RefTypeMismatch
            {"databaseRefs":[{"name":"none"}]}: kept, ReferenceNotFound: Database not found: none
            {"databaseRefs":[{"apiGroup":"database.gobackup.io","name":"m","type":"MySQL"}]}: Invalid, databaseRefs[0]: there is no kind MySQL in database.gobackup.io; use a Database
            {"databaseRefs":[{"apiGroup":"database.gobackup.io","name":"m"}]}: Invalid, databaseRefs[0]: database.gobackup.io needs the type PostgreSQL; set it, or use a Database
            {"databaseRefs":[{"apiGroup":"example.com","name":"m","type":"Any"}]}: Invalid, databaseRefs[0]: there is no kind Any in example.com; use a Database
            {"storageRefs":[{"keep":-1,"name":"s"}]}: rejected, spec.storageRefs[0].keep: -1 is less than the minimum of 0
            {"defaultStorage":"none"}: Invalid, defaultStorage: none is not in storageRefs
            {"backupModelRef":{"name":"none"}}: kept, ReferenceNotFound: BackupModel not found: none
        "#]],
    );
}

#[test]
fn a_path_of_a_storage_stays_below_it() {
    let verdict = |path: &str| {
        let parent = backup(json!({ "storageRefs": [{ "name": "s", "path": path }] }));
        verdict(&parent, &around())
    };
    let longest = "a".repeat(253);
    for path in ["shop", "shop/nightly", "a.b/C_1/x-2", "_", &longest] {
        assert_eq!(verdict(path), "accepted", "{path}");
    }
    let refused = "rejected, spec.storageRefs[0].path: path must be relative: parts of letters, digits, '.', '_' and '-' \
                   with single slashes between them, none of which begins with '.' or '-'; for example shop/nightly";
    for path in [
        "",
        "/shop",
        "shop/",
        "shop//nightly",
        ".",
        "..",
        "../other",
        "shop/../../other",
        "shop/..",
        ".gobackup-state",
        "-p",
        "shop/-p",
        "a b",
        "a;b",
        "$(id)",
        "${HOME}",
        "{name}",
        "a\n",
        "\u{e4}",
    ] {
        assert_eq!(verdict(path), refused, "{path}");
    }
    assert_eq!(
        verdict(&"a".repeat(254)),
        "rejected, spec.storageRefs[0].path: the value is longer than 253 characters"
    );
}

#[test]
fn settings_of_archives_are_those_of_gobackup() {
    let key = json!({ "name": "keys", "key": "id" });
    check(
        &[
            json!({ "compressWith": { "type": "rar" } }),
            json!({ "compressWith": { "type": "gzip" } }),
            json!({ "compressWith": { "type": "taZ" } }),
            json!({ "encodeWith": { "password": "x" } }),
            json!({ "encodeWith": { "type": "gpg", "password": "x" } }),
            json!({ "encodeWith": { "type": "openssl" } }),
            json!({ "encodeWith": { "type": "openssl", "password": "x" } }),
            json!({ "encodeWith": { "type": "openssl", "password": "x", "passwordRef": key } }),
            json!({ "encodeWith": { "type": "openssl", "passwordRef": { "name": "keys", "key": "no" } } }),
            json!({ "splitWith": { "chunkSize": "" } }),
            json!({ "splitWith": { "chunkSize": "1m", "suffixLength": 17 } }),
            json!({ "splitWith": { "chunkSize": "1.5G" } }),
            json!({ "splitWith": { "chunkSize": "500mb" } }),
            json!({ "splitWith": { "chunkSize": "5B" } }),
            json!({ "splitWith": { "chunkSize": "0m" } }),
            json!({ "splitWith": { "chunkSize": "500mB" } }),
            json!({ "splitWith": { "chunkSize": "9223372036854775807" } }),
            json!({ "splitWith": { "chunkSize": "9223372036854775808" } }),
            json!({ "archive": { "includes": [] } }),
            json!({ "archive": { "includes": ["etc"] } }),
            json!({ "archive": { "includes": ["/data/x"] } }),
        ],
        &expect![[r#"
            {"compressWith":{"type":"rar"}}: Invalid, compressWith.type: rar is unknown to gobackup
            {"compressWith":{"type":"gzip"}}: accepted
            {"compressWith":{"type":"taZ"}}: accepted, TypeNotInImage
            {"encodeWith":{"password":"x"}}: Invalid, encodeWith: without type openssl nothing would be encrypted
            {"encodeWith":{"password":"x","type":"gpg"}}: Invalid, encodeWith.type: gpg is unknown to gobackup
            {"encodeWith":{"type":"openssl"}}: Invalid, encodeWith: password or passwordRef is required
            {"encodeWith":{"password":"x","type":"openssl"}}: accepted, ClearTextCredential
            {"encodeWith":{"password":"x","passwordRef":{"key":"id","name":"keys"},"type":"openssl"}}: rejected, spec.encodeWith: encodeWith: set either password or passwordRef
            {"encodeWith":{"passwordRef":{"key":"no","name":"keys"},"type":"openssl"}}: kept, SecretIncomplete: Secret keys lacks the key no
            {"splitWith":{"chunkSize":""}}: rejected, spec.splitWith.chunkSize: "" is shorter than 1 character
            {"splitWith":{"chunkSize":"1m","suffixLength":17}}: rejected, spec.splitWith.suffixLength: 17 is greater than the maximum of 16
            {"splitWith":{"chunkSize":"1.5G"}}: Invalid, splitWith.chunkSize: 1.5G is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"splitWith":{"chunkSize":"500mb"}}: Invalid, splitWith.chunkSize: 500mb is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"splitWith":{"chunkSize":"5B"}}: Invalid, splitWith.chunkSize: 5B is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"splitWith":{"chunkSize":"0m"}}: Invalid, splitWith.chunkSize: 0m is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"splitWith":{"chunkSize":"500mB"}}: accepted
            {"splitWith":{"chunkSize":"9223372036854775807"}}: accepted
            {"splitWith":{"chunkSize":"9223372036854775808"}}: Invalid, splitWith.chunkSize: 9223372036854775808 is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"archive":{"includes":[]}}: rejected, spec.archive.includes: [] has less than 1 item
            {"archive":{"includes":["etc"]}}: Invalid, archive.includes: etc is not an absolute path inside a mount in spec.volumes
            {"archive":{"includes":["/data/x"]}}: Invalid, archive.includes: /data/x is not an absolute path inside a mount in spec.volumes
        "#]],
    );
}

#[test]
fn a_run_has_limits() {
    let volume = |further: Value| {
        let mut volume = json!({ "name": "v", "mountPath": "/v", "configMap": { "name": "c" } });
        for (key, value) in further.as_object().unwrap() {
            volume[key] = value.clone();
        }
        json!({ "volumes": [volume] })
    };
    let user = |user: Value| json!({ "securityContext": user });
    check(
        &[
            json!({ "env": [{ "name": "DB0_PASSWORD", "value": "x" }] }),
            json!({ "env": [{ "name": "ARCHIVE_ID", "value": "x" }] }),
            json!({ "env": [{ "name": "APP_X", "value": "x" }] }),
            volume(json!({})),
            volume(json!({ "name": "A" })),
            volume(json!({ "mountPath": "v" })),
            volume(json!({ "mountPath": "/home/gobackup" })),
            volume(json!({ "secret": { "secretName": "keys" } })),
            user(json!({ "runAsUser": 33 })),
            user(json!({ "runAsUser": 0 })),
            user(json!({ "runAsUser": "www-data" })),
            user(json!({ "supplementalGroups": [-1] })),
            json!({ "work": { "storageClassName": "fast" } }),
            json!({ "backoffLimit": -1 }),
            json!({ "activeDeadlineSeconds": 0 }),
            json!({ "image": "" }),
            json!({ "image": "gobackup:" }),
            json!({ "imagePullPolicy": "Sometimes" }),
            json!({ "podTemplate": { "metadata": { "labels": { "a b": "x" } } } }),
            json!({ "unknown": true }),
        ],
        &expect![[r#"
            {"env":[{"name":"DB0_PASSWORD","value":"x"}]}: rejected, spec.env[0]: env: the name DB0_PASSWORD is reserved for the run; use another name
            {"env":[{"name":"ARCHIVE_ID","value":"x"}]}: rejected, spec.env[0]: env: the name ARCHIVE_ID is reserved for the run; use another name
            {"env":[{"name":"APP_X","value":"x"}]}: accepted
            {"volumes":[{"configMap":{"name":"c"},"mountPath":"/v","name":"v"}]}: accepted
            {"volumes":[{"configMap":{"name":"c"},"mountPath":"/v","name":"A"}]}: rejected, spec.volumes[0].name: "A" does not match "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"volumes":[{"configMap":{"name":"c"},"mountPath":"v","name":"v"}]}: rejected, spec.volumes[0].mountPath: "v" does not match "^/[^:]+$"; spec.volumes[0].mountPath: "v" is shorter than 2 characters
            {"volumes":[{"configMap":{"name":"c"},"mountPath":"/home/gobackup","name":"v"}]}: Invalid, volumes[0]: another volume or the run itself has the mountPath /home/gobackup
            {"volumes":[{"configMap":{"name":"c"},"mountPath":"/v","name":"v","secret":{"secretName":"keys"}}]}: rejected, spec.volumes[0]: volumes: set exactly one of persistentVolumeClaim, configMap, secret, nfs, hostPath
            {"securityContext":{"runAsUser":33}}: accepted
            {"securityContext":{"runAsUser":0}}: rejected, spec.securityContext.runAsUser: 0 is less than the minimum of 1
            {"securityContext":{"runAsUser":"www-data"}}: rejected, spec.securityContext.runAsUser: "www-data" is not of type "integer"
            {"securityContext":{"supplementalGroups":[-1]}}: rejected, spec.securityContext.supplementalGroups[0]: -1 is less than the minimum of 0
            {"work":{"storageClassName":"fast"}}: rejected, spec.work: work: a storageClassName needs a size
            {"backoffLimit":-1}: rejected, spec.backoffLimit: -1 is less than the minimum of 0
            {"activeDeadlineSeconds":0}: rejected, spec.activeDeadlineSeconds: 0 is less than the minimum of 1
            {"image":""}: rejected, spec.image: "" is shorter than 1 character
            {"image":"gobackup:"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"imagePullPolicy":"Sometimes"}: rejected, spec.imagePullPolicy: "Sometimes" is not one of "Always", "IfNotPresent" or "Never"
            {"podTemplate":{"metadata":{"labels":{"a b":"x"}}}}: Invalid, spec.podTemplate.metadata.labels: "a b" is not a label key: write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be
            {"unknown":true}: accepted without spec.unknown
        "#]],
    );
}

#[test]
fn databases_are_checked_before_a_run() {
    let key = json!({ "name": "keys", "key": "id" });
    check_related(
        "Database",
        &[
            ("postgres", json!({ "database": "d" })),
            ("postgresql", json!({})),
            ("postgresql", json!({ "database": "d" })),
            (
                "postgresql",
                json!({ "all_databases": true, "username": "a;b" }),
            ),
            ("postgresql", json!({ "database": "d", "username": "a b" })),
            ("postgresql", json!({ "database": "d", "username": "-a" })),
            ("postgresql", json!({ "database": "d", "port": 0 })),
            ("mysql", json!({ "database": "d", "oplog": true })),
            ("mysql", json!({ "database": "d", "password": "a b" })),
            ("mysql", json!({ "database": "d", "password": "pa$$word" })),
            (
                "mysql",
                json!({ "database": "d", "password": "p", "password_ref": key }),
            ),
            (
                "mysql",
                json!({ "database": "d", "username": "u", "username_ref": key }),
            ),
            ("mysql", json!({ "all_databases": true, "tables": ["a"] })),
            (
                "mysql",
                json!({ "database": "d", "password_ref": { "name": "none", "key": "id" } }),
            ),
            ("mongodb", json!({ "database": "d", "oplog": true })),
            ("redis", json!({ "mode": "move" })),
            ("redis", json!({ "mode": "copy" })),
            ("influxdb", json!({ "host": "h", "token": "t" })),
            ("etcd", json!({})),
            ("sqlite", json!({ "path": "/v/a b.db" })),
            ("firebird", json!({})),
            ("firebird", json!({ "database": "d" })),
            (
                "postgresql",
                json!({ "all_databases": true, "compress": "gzip" }),
            ),
        ],
        &expect![[r#"
            postgres {"database":"d"}: rejected, spec.type: "postgres" is not one of "postgresql", "mysql" or 9 other candidates
            postgresql {}: kept, InvalidReference: Database pg: config.database is required unless config.all_databases is true
            postgresql {"database":"d"}: accepted, UsernameMissing
            postgresql {"all_databases":true,"username":"a;b"}: kept, InvalidReference: Database pg: config.username contains a character that pg_dumpall's shell would act on
            postgresql {"database":"d","username":"a b"}: kept, InvalidReference: Database pg: config.username contains white space, which gobackup cannot pass on
            postgresql {"database":"d","username":"-a"}: kept, InvalidReference: Database pg: config.username begins with a dash, as an option does
            postgresql {"database":"d","port":0}: rejected, spec.config.port: 0 is less than the minimum of 1
            mysql {"database":"d","oplog":true}: rejected, spec: config.oplog is only valid when spec.type is mongodb; remove it
            mysql {"database":"d","password":"a b"}: kept, InvalidReference: Database pg: config.password contains white space, which gobackup cannot pass on
            mysql {"database":"d","password":"pa$$word"}: accepted, ClearTextCredential
            mysql {"database":"d","password":"p","password_ref":{"key":"id","name":"keys"}}: rejected, spec.config: set either config.password or config.password_ref
            mysql {"database":"d","username":"u","username_ref":{"key":"id","name":"keys"}}: rejected, spec.config: set either config.username or config.username_ref
            mysql {"all_databases":true,"tables":["a"]}: kept, InvalidReference: Database pg: config.all_databases cannot be used with config.tables or config.exclude_tables
            mysql {"database":"d","password_ref":{"key":"id","name":"none"}}: kept, SecretNotFound: Secret not found: none
            mongodb {"database":"d","oplog":true}: accepted, OplogNeedsAllDatabases
            redis {"mode":"move"}: rejected, spec.config.mode: "move" is not one of "copy" or "sync"
            redis {"mode":"copy"}: accepted, RedisCopyNeedsVolume
            influxdb {"host":"h","token":"t"}: kept, InvalidReference: Database pg: config.bucket is required unless config.bucket_id is given or config.all_databases is true
            etcd {}: kept, InvalidReference: Database pg: config.endpoint is required
            sqlite {"path":"/v/a b.db"}: kept, InvalidReference: Database pg: config.path contains white space, which gobackup cannot pass on
            firebird {}: kept, InvalidReference: Database pg: config.database is required
            firebird {"database":"d"}: accepted, TypeNotInImage
            postgresql {"all_databases":true,"compress":"gzip"}: accepted, FieldIgnored, UsernameMissing
        "#]],
    );
}

#[test]
fn the_user_name_of_postgresql_has_no_default_in_a_run() {
    let key = json!({ "name": "keys", "key": "id" });
    check_related(
        "Database",
        &[
            ("postgresql", json!({ "database": "d" })),
            ("postgresql", json!({ "database": "d", "username": "u" })),
            (
                "postgresql",
                json!({ "database": "d", "username_ref": key }),
            ),
            ("postgresql", json!({ "database": "d", "args": "-U u" })),
        ],
        &expect![[r#"
            postgresql {"database":"d"}: accepted, UsernameMissing
            postgresql {"database":"d","username":"u"}: accepted
            postgresql {"database":"d","username_ref":{"key":"id","name":"keys"}}: accepted
            postgresql {"args":"-U u","database":"d"}: accepted
        "#]],
    );
}

/// Returns the keys of an S3-like storage, with more settings.
fn keys(mut further: Value) -> Value {
    further["access_key_id"] = "a".into();
    further["secret_access_key"] = "b".into();
    further
}

#[test]
fn storages_are_checked_before_a_run() {
    check_related(
        "Storage",
        &[
            ("tape", json!({})),
            ("s3", json!({ "bucket": "b" })),
            ("s3", keys(json!({}))),
            ("s3", keys(json!({ "bucket": "b" }))),
            ("s3", keys(json!({ "bucket": "b", "keep": -1 }))),
            (
                "s3",
                keys(json!({ "bucket": "b", "access_key_id_ref": { "name": "k", "key": "i" } })),
            ),
            ("r2", keys(json!({ "bucket": "b" }))),
            ("kodo", keys(json!({ "bucket": "b", "keep": 5 }))),
            ("us3", keys(json!({ "bucket": "b", "keep": 5 }))),
            (
                "kodo",
                keys(json!({ "bucket": "b", "keep": 5, "storage_class": "STANDARD" })),
            ),
            (
                "gcs",
                json!({ "bucket": "b", "credentials": "{}", "keep": 5 }),
            ),
            ("azure", json!({ "account": "a" })),
            ("ftp", json!({ "host": "h", "username": "u" })),
            ("sftp", json!({ "host": "h", "username": "u" })),
            (
                "scp",
                json!({ "host": "h", "username": "u", "password": "p" }),
            ),
            ("webdav", json!({})),
            ("local", json!({ "path": "here" })),
            ("local", json!({ "path": "/usr/bin" })),
        ],
        &expect![[r#"
            tape {}: rejected, spec.type: "tape" is not one of "local", "ftp" or 18 other candidates
            s3 {"bucket":"b"}: kept, InvalidReference: Storage s: config.access_key_id is required: gobackup does not use ambient credentials
            s3 {"access_key_id":"a","secret_access_key":"b"}: kept, InvalidReference: Storage s: config.bucket is required
            s3 {"access_key_id":"a","bucket":"b","secret_access_key":"b"}: accepted, ClearTextCredential, ClearTextCredential
            s3 {"access_key_id":"a","bucket":"b","keep":-1,"secret_access_key":"b"}: rejected, spec.config.keep: -1 is less than the minimum of 0
            s3 {"access_key_id":"a","access_key_id_ref":{"key":"i","name":"k"},"bucket":"b","secret_access_key":"b"}: rejected, spec.config: set either config.access_key_id or config.access_key_id_ref
            r2 {"access_key_id":"a","bucket":"b","secret_access_key":"b"}: kept, InvalidReference: Storage s: config.account_id is required unless config.endpoint is given
            kodo {"access_key_id":"a","bucket":"b","keep":5,"secret_access_key":"b"}: accepted, ClearTextCredential, ClearTextCredential, RetentionNotKept
            us3 {"access_key_id":"a","bucket":"b","keep":5,"secret_access_key":"b"}: accepted, ClearTextCredential, ClearTextCredential, RetentionNotKept
            kodo {"access_key_id":"a","bucket":"b","keep":5,"secret_access_key":"b","storage_class":"STANDARD"}: accepted, ClearTextCredential, ClearTextCredential
            gcs {"bucket":"b","credentials":"{}","keep":5}: accepted, ClearTextCredential, RetentionNotKept
            azure {"account":"a"}: kept, InvalidReference: Storage s: config.tenant_id is required
            ftp {"host":"h","username":"u"}: kept, InvalidReference: Storage s: config.password is required
            sftp {"host":"h","username":"u"}: kept, InvalidReference: Storage s: config.password or config.private_key is required
            scp {"host":"h","password":"p","username":"u"}: accepted, ClearTextCredential
            webdav {}: kept, InvalidReference: Storage s: config.root is required
            local {"path":"here"}: kept, InvalidReference: Storage s: config.path must be absolute
            local {"path":"/usr/bin"}: kept, InvalidReference: Storage s: config.path: a mount at /usr/bin can replace programs or settings in /usr, and tenants.scripts of the plugin's configuration is off
        "#]],
    );
    let sftp = json!({ "host": "h", "username": "u", "password": "p", "keep": 5 });
    let mut objects = around();
    objects[1] = related("Storage", "s", json!({ "type": "sftp", "config": sftp }));
    let parent = backup(json!({ "state": { "mode": "Ephemeral" } }));
    expect!["accepted, ClearTextCredential, RetentionNotKept"]
        .assert_eq(&verdict(&parent, &objects));
}

#[test]
fn keys_that_only_other_types_have_are_rejected() {
    let key = json!({ "name": "keys", "key": "id" });
    check_related(
        "Storage",
        &[
            (
                "ftp",
                json!({ "host": "h", "username": "u", "password_ref": key, "tls": true }),
            ),
            ("sftp", json!({ "host": "h", "username": "u", "tls": true })),
            ("s3", keys(json!({ "bucket": "b", "explicit_tls": false }))),
            (
                "webdav",
                json!({ "root": "http://h", "no_check_certificate": true }),
            ),
            (
                "minio",
                json!({ "bucket": "b", "access_key_id_ref": key, "secret_access_key_ref": key, "endpoint": "http://h", "token_ref": key }),
            ),
            ("gcs", json!({ "bucket": "b", "token": "t" })),
            ("local", json!({ "path": "/backups", "token_ref": key })),
            ("local", json!({ "path": "/backups", "bucket": "b" })),
        ],
        &expect![[r#"
            ftp {"host":"h","password_ref":{"key":"id","name":"keys"},"tls":true,"username":"u"}: accepted
            sftp {"host":"h","tls":true,"username":"u"}: rejected, spec: config.tls is only valid when spec.type is ftp; remove it
            s3 {"access_key_id":"a","bucket":"b","explicit_tls":false,"secret_access_key":"b"}: rejected, spec: config.explicit_tls is only valid when spec.type is ftp; remove it
            webdav {"no_check_certificate":true,"root":"http://h"}: rejected, spec: config.no_check_certificate is only valid when spec.type is ftp; remove it
            minio {"access_key_id_ref":{"key":"id","name":"keys"},"bucket":"b","endpoint":"http://h","secret_access_key_ref":{"key":"id","name":"keys"},"token_ref":{"key":"id","name":"keys"}}: accepted
            gcs {"bucket":"b","token":"t"}: rejected, spec: config.token is only valid when spec.type is s3, oss, r2, spaces, b2, cos, us3, kodo, bos, minio, obs, tos, upyun; remove it
            local {"path":"/backups","token_ref":{"key":"id","name":"keys"}}: rejected, spec: config.token_ref is only valid when spec.type is s3, oss, r2, spaces, b2, cos, us3, kodo, bos, minio, obs, tos, upyun; remove it
            local {"bucket":"b","path":"/backups"}: accepted, FieldIgnored
        "#]],
    );
}

#[test]
fn notifiers_have_a_type_and_one_source_of_each_credential() {
    let notifier = |type_: &str, config: Value| json!({ "notifiers": [{ "name": "n", "type": type_, "config": config }] });
    let key = json!({ "name": "keys", "key": "pg" });
    check(
        &[
            notifier("pager", json!({})),
            notifier("slack", json!({})),
            notifier("slack", json!({ "url": "https://h/a" })),
            notifier("slack", json!({ "url_ref": key })),
            notifier("slack", json!({ "url": "https://h/a", "url_ref": key })),
            notifier(
                "slack",
                json!({ "url_ref": { "name": "gone", "key": "a" } }),
            ),
            notifier(
                "slack",
                json!({ "url_ref": key, "headers_ref": { "A": key } }),
            ),
            notifier("mail", json!({ "host": "h", "to": "t" })),
            json!({ "notifiers": [{ "name": "A.b", "type": "slack", "config": { "url_ref": key } }] }),
        ],
        &expect![[r#"
            {"notifiers":[{"config":{},"name":"n","type":"pager"}]}: rejected, spec.notifiers[0].type: "pager" is not one of "mail", "webhook" or 13 other candidates
            {"notifiers":[{"config":{},"name":"n","type":"slack"}]}: Invalid, notifiers: n: config.url is required
            {"notifiers":[{"config":{"url":"https://h/a"},"name":"n","type":"slack"}]}: accepted, ClearTextCredential
            {"notifiers":[{"config":{"url_ref":{"key":"pg","name":"keys"}},"name":"n","type":"slack"}]}: accepted
            {"notifiers":[{"config":{"url":"https://h/a","url_ref":{"key":"pg","name":"keys"}},"name":"n","type":"slack"}]}: rejected, spec.notifiers[0].config: set either config.url or config.url_ref
            {"notifiers":[{"config":{"url_ref":{"key":"a","name":"gone"}},"name":"n","type":"slack"}]}: kept, SecretNotFound: Secret not found: gone
            {"notifiers":[{"config":{"headers_ref":{"A":{"key":"pg","name":"keys"}},"url_ref":{"key":"pg","name":"keys"}},"name":"n","type":"slack"}]}: accepted, FieldIgnored
            {"notifiers":[{"config":{"host":"h","to":"t"},"name":"n","type":"mail"}]}: Invalid, notifiers: n: config.username is required
            {"notifiers":[{"config":{"url_ref":{"key":"pg","name":"keys"}},"name":"A.b","type":"slack"}]}: rejected, spec.notifiers[0].name: "A.b" does not match "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
        "#]],
    );
}

#[test]
fn a_run_is_placed_beside_labelled_pods() {
    let with = |selector: Value| json!({ "runWith": { "labelSelector": selector } });
    let placed = |spec: Value| json!({ "podTemplate": { "spec": spec } });
    check(
        &[
            with(json!({})),
            with(json!({ "matchLabels": {} })),
            with(json!({ "matchLabels": { "app": "shop" } })),
            with(json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] })),
            with(json!({ "matchLabels": { "app": "a b" } })),
            placed(json!({ "nodeSelector": { "disk": "ssd" } })),
            placed(json!({ "tolerations": [{ "operator": "Exists" }] })),
            placed(json!({ "priorityClassName": "" })),
            placed(json!({ "priorityClassName": "system-node-critical" })),
        ],
        &expect![[r#"
            {"runWith":{"labelSelector":{}}}: rejected, spec.runWith: runWith: labelSelector must name a label of the Pods that use the volumes
            {"runWith":{"labelSelector":{"matchLabels":{}}}}: rejected, spec.runWith: runWith: labelSelector must name a label of the Pods that use the volumes
            {"runWith":{"labelSelector":{"matchLabels":{"app":"shop"}}}}: accepted
            {"runWith":{"labelSelector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}}: accepted
            {"runWith":{"labelSelector":{"matchLabels":{"app":"a b"}}}}: Invalid, spec.runWith.labelSelector.matchLabels.app: "a b" is not a label value: write at most 63 letters, digits, '-', '_' or '.', or nothing
            {"podTemplate":{"spec":{"nodeSelector":{"disk":"ssd"}}}}: accepted
            {"podTemplate":{"spec":{"tolerations":[{"operator":"Exists"}]}}}: Invalid, spec.podTemplate.spec.tolerations: tenants.tolerations of the plugin's configuration does not list *
            {"podTemplate":{"spec":{"priorityClassName":""}}}: rejected, spec.podTemplate.spec.priorityClassName: "" is shorter than 1 character
            {"podTemplate":{"spec":{"priorityClassName":"system-node-critical"}}}: Invalid, spec.podTemplate.spec.priorityClassName: tenants.priorityClasses of the plugin's configuration does not list system-node-critical
        "#]],
    );
}
