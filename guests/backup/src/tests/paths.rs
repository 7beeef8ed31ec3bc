//! Archive paths: the storage's own, then the configuration's and the parent's.

use std::fmt::Write;

use expect_test::expect;
use innkeeper_crd::Schema;
use innkeeper_guest_testing as testing;
use innkeeper_sdk::testing::TestRequest;
use proptest::prelude::*;

use super::{
    outcomes::claim,
    restore::{ran, restore, storages},
    run::Shell,
    script::check_size_on_shelf,
    *,
};

/// Runs a parent's pass with this path in the configuration.
fn pass(parent: &Value, objects: &[Value], path: &str) -> Answer {
    let request = TestRequest::new(parent).config(&json!({ "storagePath": path }));
    Plugin::reconcile(&request.build(), &host(objects)).unwrap()
}

/// Returns the storage `s` in gobackup's configuration.
fn stored(outcome: &Answer, model: &str) -> Value {
    let text = configuration(outcome);
    let mut parsed: Value = serde_saphyr::from_str(&text).unwrap();
    parsed["models"][model]["storages"]["s"].take()
}

/// Returns the path of the storage `s` in gobackup's configuration.
fn path(outcome: &Answer, model: &str) -> String {
    let storage = stored(outcome, model);
    storage["path"].as_str().unwrap_or_default().to_owned()
}

fn pod(outcome: &Answer, key: &str) -> Value {
    let child = outcome
        .child(key)
        .unwrap_or_else(|| panic!("no {key}: {:?}", outcome.report()));
    child.object["spec"]["template"]["spec"].clone()
}

/// The directory from which a Restore or a verification fetches.
fn fetched(outcome: &Answer, key: &str) -> String {
    let container = &pod(outcome, key)["initContainers"][0];
    let directory = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .find(|variable| variable["name"] == "DIRECTORY")
        .unwrap();
    directory["value"].as_str().unwrap().to_owned()
}

/// Returns the parent from [`backup`] with a path in the reference, if it is not empty.
fn with_path(path: &str) -> Value {
    let mut parent = backup(json!({}));
    if !path.is_empty() {
        parent["spec"]["storageRefs"][0]["path"] = json!(path);
    }
    parent
}

/// Returns the objects from [`ran`] with another storage and a path in the parent's reference.
fn ran_with(storage: &Value, path: &str) -> Vec<Value> {
    let mut objects = ran();
    objects[1] = storage.clone();
    objects[3]["spec"] = with_path(path)["spec"].clone();
    objects.push(claim("nightly-gobackup-local"));
    objects
}

/// Returns the types from [`storages`] with an endpoint, and one row for each other S3-like type.
fn types() -> Vec<(String, Value)> {
    let mut rows: Vec<(String, Value)> = storages()
        .into_iter()
        .map(|(type_, config)| (type_.to_owned(), config))
        .collect();
    let (_, like) = rows[0].clone();
    for type_ in [
        "oss", "spaces", "cos", "us3", "kodo", "bos", "obs", "tos", "upyun",
    ] {
        rows.push((type_.to_owned(), like.clone()));
    }
    for (type_, config) in &mut rows {
        if type_ == "b2" {
            config["endpoint"] = json!("http://m:9000");
        }
    }
    rows
}

// gobackup stores the list of archives, which it needs to delete them, beside them, and names it after the parent
// alone.
#[test]
fn parents_of_one_name_in_two_namespaces_have_places_of_their_own() {
    let places = |template: &str| {
        ["red", "blue"].map(|namespace| {
            let mut objects = around();
            let mut parent = backup(json!({}));
            for object in objects.iter_mut().chain([&mut parent]) {
                object["metadata"]["namespace"] = json!(namespace);
            }
            path(&pass(&parent, &objects, template), "nightly")
        })
    };
    let [red, blue] = places("");
    assert_eq!((red.as_str(), blue.as_str()), ("", ""));
    let [red, blue] = places("{namespace}/{name}");
    assert_eq!(
        (red.as_str(), blue.as_str()),
        ("red/nightly", "blue/nightly")
    );
    let [red, _] = places("cluster-1/{namespace}/{kind}/{name}");
    assert_eq!(red, "cluster-1/red/backup/nightly");
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    assert_eq!(path(&outcome, "nightly"), "default/backup/nightly");
    let mut cron = backup(json!({ "schedule": { "cron": "@daily" } }));
    cron["kind"] = json!("CronBackup");
    let outcome = pass(&cron, &around(), "{namespace}/{kind}/{name}");
    assert_eq!(path(&outcome, "nightly"), "default/cronbackup/nightly");
}

#[test]
fn a_restore_and_a_verification_read_each_type_where_its_runs_write() {
    let mut lines = String::new();
    for (type_, config) in types() {
        let storage = related("Storage", "s", json!({ "type": type_, "config": config }));
        write!(lines, "{type_}:").unwrap();
        for (own, template) in [
            ("", ""),
            ("shop", ""),
            ("", "{namespace}/{name}"),
            ("a/b", "x/{kind}/{name}"),
        ] {
            let objects = ran_with(&storage, own);
            let written = path(&pass(&with_path(own), &objects, template), "nightly");
            let config = json!({ "storagePath": template });
            let request = TestRequest::new(&restore(json!({})))
                .config(&config)
                .build();
            let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
            let read = fetched(&outcome, "restore");

            let mut verifying = objects[3].clone();
            verifying["spec"]["verify"] = json!({});
            let request = TestRequest::new(&verifying)
                .status(&verifying["status"])
                .config(&config);
            let outcome = Plugin::reconcile(&request.build(), &host(&objects)).unwrap();
            assert_eq!(fetched(&outcome, "verify"), read, "{type_}");
            write!(lines, " {written} {read},").unwrap();
        }
        lines.push('\n');
    }
    expect![[r"
        s3: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        minio: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        r2: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        b2: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        sftp: archives archives/, archives/shop archives/shop/, archives/default/nightly archives/default/nightly/, archives/x/backup/nightly/a/b archives/x/backup/nightly/a/b/,
        scp: /a /a/, /a/shop /a/shop/, /a/default/nightly /a/default/nightly/, /a/x/backup/nightly/a/b /a/x/backup/nightly/a/b/,
        ftp:  , shop shop/, default_nightly default_nightly/, x_backup_nightly_a_b x_backup_nightly_a_b/,
        ftp:  , shop shop/, default_nightly default_nightly/, x_backup_nightly_a_b x_backup_nightly_a_b/,
        ftp:  , shop shop/, default_nightly default_nightly/, x_backup_nightly_a_b x_backup_nightly_a_b/,
        webdav:  , shop shop/, default/nightly default/nightly/, x/backup/nightly/a/b x/backup/nightly/a/b/,
        gcs:  b/, shop b/shop/, default/nightly b/default/nightly/, x/backup/nightly/a/b b/x/backup/nightly/a/b/,
        azure: . gobackup/, shop gobackup/shop/, default/nightly gobackup/default/nightly/, x/backup/nightly/a/b gobackup/x/backup/nightly/a/b/,
        local: /backups /backups/, /backups/shop /backups/shop/, /backups/default/nightly /backups/default/nightly/, /backups/x/backup/nightly/a/b /backups/x/backup/nightly/a/b/,
        oss: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        spaces: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        cos: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        us3: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        kodo: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        bos: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        obs: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        tos: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
        upyun: /p/ b/p/, /p/shop b/p/shop/, /p/default/nightly b/p/default/nightly/, /p/x/backup/nightly/a/b b/p/x/backup/nightly/a/b/,
    "]].assert_eq(&lines);
}

// gobackup joins path and archive name, and rclone cannot name an object with a leading slash.
#[test]
fn an_object_of_gcs_or_azure_has_no_slash_at_its_start() {
    let mut lines = String::new();
    let rows = storages().into_iter();
    for (type_, mut config) in rows.filter(|(type_, _)| matches!(*type_, "gcs" | "azure")) {
        for given in ["", "/", "/p", "//p/", "p"] {
            config["path"] = json!(given);
            let storage = related("Storage", "s", json!({ "type": type_, "config": config }));
            let objects = ran_with(&storage, "");
            let written = stored(&pass(&with_path(""), &objects, ""), "nightly");
            let request = TestRequest::new(&restore(json!({})))
                .config(&json!({ "storagePath": "" }))
                .build();
            let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
            let read = fetched(&outcome, "restore");
            writeln!(lines, "{type_} {given:?}: {} {read}", written["path"]).unwrap();
        }
    }
    expect![[r#"
        gcs "": null b/
        gcs "/": null b/
        gcs "/p": "p" b/p/
        gcs "//p/": "p/" b/p/
        gcs "p": "p" b/p/
        azure "": "." gobackup/
        azure "/": "." gobackup/
        azure "/p": "p" gobackup/p/
        azure "//p/": "p/" gobackup/p/
        azure "p": "p" gobackup/p/
    "#]]
    .assert_eq(&lines);
}

#[test]
fn a_storage_of_the_first_generation_has_paths_too() {
    let spec = json!({ "bucket": "b", "path": "/p", "accessKeyID": "a", "secretAccessKey": "k" });
    let mut objects = around();
    objects[1] = related("S3", "s", spec);
    let reference =
        json!({ "apiGroup": "storage.gobackup.io", "type": "S3", "name": "s", "path": "shop" });
    let parent = backup(json!({ "storageRefs": [reference] }));
    let outcome = pass(&parent, &objects, "{name}");
    assert_eq!(path(&outcome, "nightly"), "/p/nightly/shop");
}

// A claim that two parents name has one directory for each storage, with a path for each parent.
#[test]
fn local_archives_lie_below_the_mount_of_their_claim() {
    let config = json!({ "path": "/backups/", "keep": 2 });
    let storage = related("Storage", "s", json!({ "type": "local", "config": config }));
    let objects = ran_with(&storage, "shop");
    let template = "{namespace}/{name}";
    let outcome = pass(&with_path("shop"), &objects, template);
    assert_eq!(path(&outcome, "nightly"), "/backups/default/nightly/shop");
    let config = json!({ "storagePath": template });
    let request = TestRequest::new(&restore(json!({})))
        .config(&config)
        .build();
    let back = Plugin::reconcile(&request, &host(&objects)).unwrap();
    assert_eq!(fetched(&back, "restore"), "/backups/default/nightly/shop/");
    let run = pod(&outcome, "run")["containers"][0].clone();
    for container in [&run, &pod(&back, "restore")["initContainers"][0]] {
        let mount = container["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|mount| mount["name"] == "local")
            .unwrap();
        assert_eq!(
            (&mount["mountPath"], &mount["subPath"]),
            (&json!("/backups/"), &json!("s"))
        );
    }

    // A parent's volume at the deeper path has them.
    let volume = json!({
        "name": "v", "mountPath": "/backups/default", "readOnly": false, "configMap": { "name": "c" },
    });
    let mut parent = with_path("shop");
    parent["spec"]["volumes"] = json!([volume]);
    let outcome = pass(&parent, &objects, template);
    assert!(outcome.child("local").is_none());
}

#[test]
fn the_size_of_a_local_archive_is_that_of_the_file_below_the_path() {
    let mut objects = around();
    let config = json!({ "path": "/data" });
    objects[1] = related("Storage", "s", json!({ "type": "local", "config": config }));
    let outcome = pass(&with_path("shelf"), &objects, "");
    check_size_on_shelf(Shell::Own, &outcome);
}

// Credentials may be valid for a part of the bucket only.
#[test]
fn a_probe_stores_its_archive_below_the_path_of_the_configuration() {
    let mut storage = s3();
    storage["spec"]["probe"] = json!({});
    storage["spec"]["config"]["path"] = json!("/p");
    let mut hashes = std::collections::BTreeSet::new();
    for (template, expected) in [
        ("", "/p"),
        ("{namespace}/{kind}/{name}", "/p/default/storage/s"),
    ] {
        let outcome = pass(&storage, &around(), template);
        assert_eq!(path(&outcome, "probe__s"), expected);
        hashes
            .insert(outcome.child("probe").unwrap().object["metadata"]["annotations"].to_string());
    }
    // A path change makes a probe due.
    assert_eq!(hashes.len(), 2);
}

#[test]
fn a_dump_has_no_path() {
    let databases = json!([{ "name": "pg", "path": "shop" }]);
    let scratch = json!({ "databases": [{ "database": "pg", "databaseRef": { "name": "t", "path": "shop" } }] });
    let parent = backup(json!({ "databaseRefs": databases, "verify": scratch }));
    let admitted = testing::admit(PLUGIN.schema("Backup"), &parent).unwrap();
    assert_eq!(
        admitted.object["spec"]["databaseRefs"],
        json!([{ "name": "pg" }])
    );
    assert!(!json!(admitted.object).to_string().contains("shop"));
}

const TEMPLATES: [&str; 21] = [
    "",
    "shop",
    "{namespace}",
    "{namespace}/{kind}/{name}",
    "c-1.x/{namespace}_{name}",
    "x{name}y",
    "/x",
    "x/",
    "a//b",
    "..",
    "a/..",
    "../{name}",
    "{namespace}/.x",
    "-x",
    "a/-x",
    "a b",
    "$x",
    "{nmae}",
    "{{name}}",
    "{name",
    "é",
];

#[test]
fn the_path_of_the_configuration_stays_below_a_storage() {
    let config = PLUGIN.manifest.config_schema.as_ref().unwrap();
    let field = &config["properties"]["storagePath"];
    assert_eq!(config["additionalProperties"], false);
    assert_eq!(
        (&field["default"], &field["maxLength"]),
        (&json!("{namespace}/{kind}/{name}"), &json!(253))
    );
    let spec = json!({ "type": "object", "properties": { "path": {
        "type": "string", "pattern": field["pattern"],
    } } });
    let root = json!({ "type": "object", "properties": { "spec": spec } });
    let version = json!({ "name": "v1", "served": true, "schema": { "openAPIV3Schema": root } });
    let crd = json!({ "spec": {
        "group": "gobackup.io", "names": { "kind": "Backup" }, "scope": "Namespaced", "versions": [version],
    } });
    let schema = Schema::new(crd.as_object().unwrap(), "v1").unwrap();
    let verdicts = TEMPLATES.map(|path| {
        let mut object = backup(json!({}));
        object["spec"] = json!({ "path": path });
        let verdict = match testing::admit(&schema, &object) {
            Ok(_) => "admitted",
            Err(_) => "rejected",
        };
        format!("{path:?}: {verdict}\n")
    });
    expect![[r#"
        "": admitted
        "shop": admitted
        "{namespace}": admitted
        "{namespace}/{kind}/{name}": admitted
        "c-1.x/{namespace}_{name}": admitted
        "x{name}y": admitted
        "/x": rejected
        "x/": rejected
        "a//b": rejected
        "..": rejected
        "a/..": rejected
        "../{name}": rejected
        "{namespace}/.x": rejected
        "-x": rejected
        "a/-x": rejected
        "a b": rejected
        "$x": rejected
        "{nmae}": rejected
        "{{name}}": rejected
        "{name": rejected
        "é": rejected
    "#]]
    .assert_eq(&verdicts.concat());
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?"
}

fn part() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_][A-Za-z0-9_.-]{0,6}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,6}){0,2}"
}

proptest! {
    /// Two parents share no place, whatever the storage is and whatever their own paths are.
    #[test]
    fn parents_share_no_place(
        row in 0..types().len(),
        own in prop::option::of(part()),
        names in prop::array::uniform4(name()),
    ) {
        let (type_, config) = &types()[row];
        let storage = related("Storage", "s", json!({ "type": type_, "config": config }));
        let [first, second] = [&names[..2], &names[2..]].map(|names| {
            let mut objects = around();
            objects[1] = storage.clone();
            let mut parent = with_path(own.as_deref().unwrap_or_default());
            for object in objects.iter_mut().chain([&mut parent]) {
                object["metadata"]["namespace"] = json!(names[0]);
            }
            parent["metadata"]["name"] = json!(names[1]);
            let outcome = pass(&parent, &objects, "{namespace}/{name}");
            path(&outcome, &names[1].replace('.', "_"))
        });
        let root = config["path"].as_str().unwrap_or_default().trim_end_matches('/');
        let (sign, own) = match type_.as_str() {
            "ftp" => ("_", own.map(|part| part.replace('/', "_"))),
            _ => ("/", own),
        };
        for (path, names) in [(&first, &names[..2]), (&second, &names[2..])] {
            let below = path.strip_prefix(root).unwrap().trim_start_matches('/');
            let expected = names.iter().map(String::as_str).chain(own.as_deref());
            prop_assert_eq!(below, expected.collect::<Vec<_>>().join(sign));
            prop_assert!(path.split('/').all(|part| part != ".." && part != "."));
        }
        prop_assert_eq!(first == second, names[..2] == names[2..]);
    }
}
