//! The rendered configuration, byte for byte.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::{
    catalog::Form,
    tests::{around, article, backup, configuration, reconcile, reconcile_with, related},
};

fn check(parent: &Value, objects: &[Value], expected: Expect) {
    let outcome = reconcile_with(parent, objects, &json!({ "scripts": true })).unwrap();
    expected.assert_eq(&configuration(&outcome));
}

fn check_database(type_: &str, config: Value, expected: Expect) {
    let mut objects = around();
    objects[0] = related("Database", "pg", json!({ "type": type_, "config": config }));
    let text = configuration(&reconcile(&backup(json!({})), &objects).unwrap());
    let (_, from) = text.split_once("databases:\n").unwrap();
    let (entry, _) = from.split_once("    storages:").unwrap();
    expected.assert_eq(&entry.replace("\n      ", "\n")[6..]);
}

fn check_storage(type_: &str, config: Value, expected: Expect) {
    let mut objects = around();
    objects[1] = related("Storage", "s", json!({ "type": type_, "config": config }));
    let text = configuration(&reconcile(&backup(json!({})), &objects).unwrap());
    let (_, from) = text.split_once("storages:\n").unwrap();
    let (entry, _) = from.split_once("    default_storage:").unwrap();
    expected.assert_eq(&entry.replace("\n      ", "\n")[6..]);
}

#[test]
fn renders_the_article() {
    let (related, parent) = article();
    check(
        &parent,
        &related,
        expect![[r#"
            models:
              "example-backup":
                description: "This is an example BackupModel"
                before_script: "echo 'Starting backup'"
                after_script: "echo 'Backup completed'"
                compress_with:
                  type: "tar.gz"
                  filename_format: "2006.01.02.15.04.05-${ARCHIVE_ID}"
                encrypt_with:
                  type: "openssl"
                  args: "-aes-256-cbc"
                  base64: false
                  chiper: "aes-256-cbc"
                  password: |2-
                    ${ENC_PASSWORD}
                  salt: true
                databases:
                  "example-postgresql":
                    type: "postgresql"
                    after_script: "sh \"${DOLLAR}{HOME}/check-dump\" postgresql example-postgresql 'PostgreSQL example-postgresql'"
                    database: "my_database"
                    host: "postgres-service.default"
                    password: |2-
                      ${DB0_PASSWORD}
                    port: 5432
                    username: "postgres"
                storages:
                  "example-s3":
                    type: "s3"
                    access_key_id: |2-
                      ${ST0_ACCESS_KEY_ID}
                    bucket: "my-bucket"
                    force_path_style: false
                    keep: 5
                    max_retries: 3
                    path: "default/backup/example-backup"
                    region: "us-east-1"
                    secret_access_key: |2-
                      ${ST0_SECRET_ACCESS_KEY}
                    storage_class: ""
                    timeout: 30
                default_storage: "example-s3"
        "#]],
    );
}

#[test]
fn dots_in_names_and_names_that_meet_get_keys_of_their_own() {
    let mut objects = around();
    let mut dotted = objects[0].clone();
    dotted["metadata"]["name"] = json!("a.b");
    objects.push(dotted);
    objects.push(related("PostgreSQL", "pg", json!({ "database": "old" })));
    let refs = json!([
        { "name": "pg" }, { "name": "a.b" },
        { "apiGroup": "database.gobackup.io", "type": "postgresql", "name": "pg" },
    ]);
    check(
        &backup(json!({ "databaseRefs": refs })),
        &objects,
        expect![[r#"
            models:
              "nightly":
                compress_with:
                  type: "tar"
                  filename_format: "2006.01.02.15.04.05-${ARCHIVE_ID}"
                databases:
                  "a_b":
                    type: "postgresql"
                    after_script: "sh \"${DOLLAR}{HOME}/check-dump\" postgresql a_b 'Database a.b'"
                    database: "shop"
                    password: |2-
                      ${DB1_PASSWORD}
                    username: "u"
                  "pg":
                    type: "postgresql"
                    after_script: "sh \"${DOLLAR}{HOME}/check-dump\" postgresql pg 'Database pg'"
                    database: "shop"
                    password: |2-
                      ${DB0_PASSWORD}
                    username: "u"
                  "pg_2":
                    type: "postgresql"
                    after_script: "sh \"${DOLLAR}{HOME}/check-dump\" postgresql pg_2 'PostgreSQL pg'"
                    database: "old"
                    port: 5432
                storages:
                  "s":
                    type: "s3"
                    access_key_id: |2-
                      ${ST0_ACCESS_KEY_ID}
                    bucket: "b"
                    path: "default/backup/nightly"
                    secret_access_key: |2-
                      ${ST0_SECRET_ACCESS_KEY}
                default_storage: "s"
        "#]],
    );
}

#[test]
fn blocks_of_the_parent_win_as_a_whole() {
    let mut objects = around();
    let model = json!({
        "description": "of the model", "beforeScript": "echo $HOME",
        "compressWith": { "type": "tgz", "args": "-9" },
        "splitWith": { "chunkSize": "500m" },
    });
    objects.push(related("BackupModel", "m", model));
    let parent = backup(json!({
        "backupModelRef": { "name": "m" }, "compressWith": { "type": "zstd" }, "expandEnv": false,
    }));
    check(
        &parent,
        &objects,
        expect![[r#"
            models:
              "nightly":
                description: "of the model"
                before_script: "echo ${DOLLAR}HOME"
                compress_with:
                  type: "tar.zst"
                  filename_format: "2006.01.02.15.04.05-${ARCHIVE_ID}"
                split_with:
                  chunk_size: "500m"
                  numeric_suffixes: true
                  suffix_length: 3
                databases:
                  "pg":
                    type: "postgresql"
                    after_script: "sh \"${DOLLAR}{HOME}/check-dump\" postgresql pg 'Database pg'"
                    database: "shop"
                    password: |2-
                      ${DB0_PASSWORD}
                    username: "u"
                storages:
                  "s":
                    type: "s3"
                    access_key_id: |2-
                      ${ST0_ACCESS_KEY_ID}
                    bucket: "b"
                    path: "default/backup/nightly"
                    secret_access_key: |2-
                      ${ST0_SECRET_ACCESS_KEY}
                default_storage: "s"
        "#]],
    );
}

#[test]
fn translates_databases() {
    check_database(
        "mongodb",
        json!({ "oplog": true, "auth_db": "admin" }),
        expect![[r#"
            "pg":
              type: "mongodb"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" mongodb pg 'Database pg'"
              all_databases: true
              authdb: "admin"
              oplog: true
        "#]],
    );
    check_database(
        "mongodb",
        json!({ "database": "d", "oplog": true }),
        expect![[r#"
            "pg":
              type: "mongodb"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" mongodb pg 'Database pg'"
              database: "d"
        "#]],
    );
    check_database(
        "redis",
        json!({ "args_redis": "--tls" }),
        expect![[r#"
            "pg":
              type: "redis"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" redis pg 'Database pg'"
              args: "--tls"
              mode: "sync"
        "#]],
    );
    check_database(
        "redis",
        json!({ "copy": true }),
        expect![[r#"
            "pg":
              type: "redis"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" redis pg 'Database pg'"
              mode: "copy"
        "#]],
    );
    check_database(
        "influxdb",
        json!({ "host": "i", "token": "t", "bucket": "b", "port": 8087 }),
        expect![[r#"
            "pg":
              type: "influxdb2"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" influxdb2 pg 'Database pg'"
              bucket: "b"
              host: "http://i:8087"
              token: |2-
                ${DB0_TOKEN}
        "#]],
    );
    check_database(
        "etcd",
        json!({ "endpoints": ["https://e:2379", "f:2379"], "args": "--debug" }),
        expect![[r#"
            "pg":
              type: "etcd"
              after_script: "sh \"${DOLLAR}{HOME}/check-dump\" etcd pg 'Database pg'"
              args: "--debug --insecure-transport=false"
              endpoint: "e:2379"
        "#]],
    );
}

#[test]
fn translates_storages() {
    check_storage(
        "sftp",
        json!({ "host": "h", "username": "u", "private_key": "/data/id" }),
        expect![[r#"
            "s":
              type: "sftp"
              host: "h"
              path: "default/backup/nightly"
              private_key: "/data/id"
              username: "u"
        "#]],
    );
    check_storage(
        "gcs",
        json!({ "bucket": "b", "credentials": "{\n}", "keep": 3 }),
        expect![[r#"
            "s":
              type: "gcs"
              bucket: "b"
              credentials_file: "/etc/gobackup/keys/ST0_CREDENTIALS"
              keep: 3
              path: "default/backup/nightly"
        "#]],
    );
    check_storage(
        "azure",
        json!({ "bucket": "a", "tenant_id": "t", "client_id": "c", "client_secret": "s", "keep": 0 }),
        expect![[r#"
            "s":
              type: "azure"
              account: "a"
              client_id: "c"
              client_secret: |2-
                ${ST0_CLIENT_SECRET}
              path: "default/backup/nightly"
              tenant_id: "t"
        "#]],
    );
    check_storage(
        "minio",
        json!({ "bucket": "b", "access_key_id": "a", "secret_access_key": "s",
                "storage_class": "", "endpoint": "", "tls": true }),
        expect![[r#"
            "s":
              type: "minio"
              access_key_id: |2-
                ${ST0_ACCESS_KEY_ID}
              bucket: "b"
              path: "default/backup/nightly"
              secret_access_key: |2-
                ${ST0_SECRET_ACCESS_KEY}
              storage_class: ""
        "#]],
    );
}

/// Every notifier type with all keys; keys with a twin come from a Secret.
fn notifiers() -> Vec<Value> {
    crate::catalog::NOTIFIERS
        .types
        .iter()
        .map(|type_| {
            let config: serde_json::Map<String, Value> = type_
                .keys
                .iter()
                .map(|key| match key.form {
                    _ if key.has_twin() => (
                        format!("{}_ref", key.name),
                        json!({ "name": "keys", "key": "pg" }),
                    ),
                    Form::Flag => (key.name.to_owned(), json!(false)),
                    Form::Port => (key.name.to_owned(), json!(465)),
                    _ => (key.name.to_owned(), json!("x")),
                })
                .collect();
            json!({ "name": type_.name, "type": type_.name, "config": config })
        })
        .collect()
}

#[test]
fn renders_every_notifier() {
    let mut text = String::new();
    for notifier in notifiers() {
        let parent = backup(json!({ "notifiers": [notifier] }));
        let configuration = configuration(&reconcile(&parent, &around()).unwrap());
        let (_, entry) = configuration.split_once("    notifiers:\n").unwrap();
        let words: Vec<&str> = entry.split_whitespace().collect();
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    expect![[r#"
        "mail": type: "mail" from: "x" host: "x" on_failure: false on_success: false password: |2- ${NT0_PASSWORD} port: 465 tls: false to: "x" username: |2- ${NT0_USERNAME}
        "webhook": type: "webhook" method: "x" on_failure: false on_success: false url: |2- ${NT0_URL}
        "googlechat": type: "googlechat" method: "x" on_failure: false on_success: false url: |2- ${NT0_URL}
        "slack": type: "slack" on_failure: false on_success: false url: |2- ${NT0_URL}
        "discord": type: "discord" on_failure: false on_success: false url: |2- ${NT0_URL}
        "feishu": type: "feishu" on_failure: false on_success: false url: |2- ${NT0_URL}
        "dingtalk": type: "dingtalk" on_failure: false on_success: false url: |2- ${NT0_URL}
        "wxwork": type: "wxwork" on_failure: false on_success: false url: |2- ${NT0_URL}
        "healthchecks": type: "healthchecks" on_failure: false on_success: false url: |2- ${NT0_URL}
        "github": type: "github" on_failure: false on_success: false token: |2- ${NT0_TOKEN} url: |2- ${NT0_URL}
        "telegram": type: "telegram" chat_id: "x" endpoint: "x" message_thread_id: "x" on_failure: false on_success: false token: |2- ${NT0_TOKEN}
        "postmark": type: "postmark" from: "x" on_failure: false on_success: false to: "x" token: |2- ${NT0_TOKEN}
        "sendgrid": type: "sendgrid" from: "x" on_failure: false on_success: false to: "x" token: |2- ${NT0_TOKEN}
        "resend": type: "resend" from: "x" on_failure: false on_success: false to: "x" token: |2- ${NT0_TOKEN}
        "ses": type: "ses" access_key_id: |2- ${NT0_ACCESS_KEY_ID} from: "x" on_failure: false on_success: false region: "x" secret_access_key: |2- ${NT0_SECRET_ACCESS_KEY} to: "x" token: |2- ${NT0_TOKEN}
    "#]].assert_eq(&text);
}

#[test]
fn renders_the_headers_of_a_webhook() {
    let key = |key: &str| json!({ "name": "keys", "key": key });
    let config = json!({
        "url": "https://hooks.example.com/a", "on_success": false,
        "headers_ref": { "Authorization": key("pg"), "X-Id": key("id") },
    });
    let notifier = json!({ "name": "hook", "type": "webhook", "config": config });
    let parent = backup(json!({ "notifiers": [notifier] }));
    let outcome = reconcile(&parent, &around()).unwrap();
    let configuration = configuration(&outcome);
    let (_, entry) = configuration.split_once("    notifiers:\n").unwrap();
    expect![[r#"
        "hook":
          type: "webhook"
          on_success: false
          url: |2-
            ${NT0_URL}
          headers:
            "Authorization": |2-
              ${NT0_HEADER_0}
            "X-Id": |2-
              ${NT0_HEADER_1}
    "#]]
    .assert_eq(&entry.replace("\n      ", "\n")[6..]);
    let run = outcome.child("run").unwrap().object.to_string();
    assert!(
        run.contains("NT0_URL NT0_HEADER_0 NT0_HEADER_1")
            || run.contains("NT0_HEADER_0 NT0_HEADER_1 NT0_URL")
    );
}

#[test]
fn variables_in_texts_are_expanded_only_on_request() {
    let texts = |expand: bool| {
        let parent = backup(json!({ "description": "of $DAY", "expandEnv": expand }));
        let scripts = json!({ "scripts": true });
        let text = configuration(&reconcile_with(&parent, &around(), &scripts).unwrap());
        text.lines()
            .map(str::trim)
            .find(|line| line.starts_with("description"))
            .unwrap()
            .to_owned()
    };
    assert_eq!(texts(false), r#"description: "of ${DOLLAR}DAY""#);
    assert_eq!(texts(true), r#"description: "of $DAY""#);
}
