//! Limits for users who create parents.

use innkeeper_sdk::testing::TestRequest;

use super::{outcomes::claim, *};

fn check_refused(spec: Value, tenants: &Value, message: &str) {
    let fault = reconcile(&backup(spec.clone()), &around()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.message, message);
    reconcile_with(&backup(spec), &around(), tenants).expect("the configuration allows it");
}

#[test]
fn directories_of_the_node_and_of_servers() {
    let on = json!({ "hostVolumes": true });
    for source in [
        json!({ "hostPath": { "path": "/etc" } }),
        json!({ "nfs": { "server": "10.0.0.1", "path": "/" } }),
    ] {
        let mut volume = source;
        volume["name"] = json!("disk");
        volume["mountPath"] = json!("/disk");
        check_refused(
            json!({ "volumes": [volume] }),
            &on,
            "spec.volumes: disk is a hostPath or NFS volume, and \
             tenants.hostVolumes of the plugin's configuration is off",
        );
    }
}

#[test]
fn service_accounts() {
    check_refused(
        json!({ "serviceAccountName": "admin" }),
        &json!({ "serviceAccounts": ["admin"] }),
        "spec.serviceAccountName: tenants.serviceAccounts of the plugin's configuration does not list \
         admin",
    );
}

#[test]
fn images_outside_the_list() {
    let parent = backup(json!({ "image": "evil/gobackup:1" }));
    let tenants = json!({ "images": ["huacnlee/gobackup"] });
    let fault = reconcile_with(&parent, &around(), &tenants).unwrap_err();
    assert_eq!(
        fault.message,
        "spec.image: image evil/gobackup:1 is outside the repositories that the plugin's configuration \
         allows: huacnlee/gobackup",
    );
    reconcile(&parent, &around()).expect("an empty list allows any image");
    reconcile_with(&backup(json!({})), &around(), &tenants).expect("the default is not limited");
}

#[test]
fn labels_and_annotations_that_other_controllers_obey() {
    let template = |metadata: Value| json!({ "podTemplate": { "metadata": metadata } });
    check_refused(
        template(json!({ "labels": { "azure.workload.identity/use": "true" } })),
        &json!({ "podMetadata": { "labels": ["azure.workload.identity/use"] } }),
        "spec.podTemplate.metadata.labels: tenants.podMetadata.labels of the plugin's configuration does \
         not list azure.workload.identity/use",
    );
    check_refused(
        template(json!({ "annotations": { "sidecar.istio.io/inject": "true" } })),
        &json!({ "podMetadata": { "annotations": ["sidecar.istio.io/"] } }),
        "spec.podTemplate.metadata.annotations: tenants.podMetadata.annotations of the plugin's \
         configuration does not list sidecar.istio.io/inject",
    );
}

#[test]
fn taints_and_priorities() {
    let placed = |spec: Value| json!({ "podTemplate": { "spec": spec } });
    let path = "spec.podTemplate.spec";
    let keys = json!([{ "key": "example.com/backup", "operator": "Exists" }]);
    check_refused(
        placed(json!({ "tolerations": keys })),
        &json!({ "tolerations": ["example.com/"] }),
        &format!(
            "{path}.tolerations: tenants.tolerations of the plugin's configuration does not list \
             example.com/backup"
        ),
    );
    check_refused(
        placed(json!({ "tolerations": [{ "operator": "Exists" }] })),
        &json!({ "tolerations": ["*"] }),
        &format!(
            "{path}.tolerations: tenants.tolerations of the plugin's configuration does not list *"
        ),
    );
    check_refused(
        placed(json!({ "priorityClassName": "high" })),
        &json!({ "priorityClasses": ["high"] }),
        &format!(
            "{path}.priorityClassName: tenants.priorityClasses of the plugin's configuration does not list \
             high"
        ),
    );
}

#[test]
fn variables_that_run_code_or_read_files() {
    let off = "tenants.scripts of the plugin's configuration is off";
    for name in [
        "BASH_ENV",
        "ETCDCTL_CACERT",
        "GNUPGHOME",
        "GSS_MECH_CONFIG",
        "GZIP",
        "KRB5_CONFIG",
        "LD_PRELOAD",
        "LIBMYSQL_PLUGIN_DIR",
        "MARIADB_PLUGIN_DIR",
        "MYSQL_DEBUG",
        "MYSQL_HOME",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "PATH",
        "PGOPTIONS",
        "PGPASSFILE",
        "PGSERVICEFILE",
        "PGSSLKEY",
        "PSQLRC",
        "RCLONE_SFTP_SSH",
        "REDISCLI_RCFILE",
        "SASL_PATH",
        "SQLITE_HISTORY",
        "SSH_ASKPASS",
        "TAR_OPTIONS",
        "XZ_OPT",
    ] {
        check_refused(
            json!({ "env": [{ "name": name, "value": "/v/x" }] }),
            &json!({ "scripts": true }),
            &format!(
                "spec.env: {name} is not among the variables that run no code and read no file, and {off}"
            ),
        );
    }
    let flags = json!({ "configMapRef": { "name": "flags", "optional": true } });
    check_refused(
        json!({ "envFrom": [flags] }),
        &json!({ "scripts": true }),
        &format!(
            "spec.envFrom: variables with the prefix \"\" can be others than those that run no code and read no \
             file, and {off}; set the prefix APP_, or name each variable in env"
        ),
    );
    check_refused(
        json!({ "expandEnv": true }),
        &json!({ "scripts": true }),
        &format!(
            "spec.expandEnv: a variable of several lines adds settings to the configuration, scripts too, \
             and {off}"
        ),
    );
}

#[test]
fn variables_of_config_maps_need_no_grant_beyond_the_manifest() {
    let flags = json!({ "prefix": "APP_", "configMapRef": { "name": "flags" } });
    let outcome = reconcile(&backup(json!({ "envFrom": [flags] })), &around()).unwrap();
    assert!(outcome.child("run").is_some());
}

#[test]
fn mounts_over_programs() {
    let off = "tenants.scripts of the plugin's configuration is off";
    for (path, directory) in [
        ("/", "/bin"),
        ("/usr/local/bin", "/usr"),
        ("/etc/app", "/etc"),
        ("/work/dumps", "/work"),
        ("/home", "/home/gobackup"),
        ("/var/lib/gobackup/cycler", "/var/lib/gobackup"),
    ] {
        let volume = json!({ "name": "v", "mountPath": path, "configMap": { "name": "evil" } });
        check_refused(
            json!({ "volumes": [volume] }),
            &json!({ "scripts": true }),
            &format!(
                "spec.volumes: a mount at {path} can replace programs or settings in {directory}, and {off}"
            ),
        );
    }
    let mut objects = around();
    objects[1] = related(
        "Storage",
        "s",
        json!({ "type": "local", "config": { "path": "/usr/bin" } }),
    );
    let outcome = reconcile(&backup(json!({})), &objects).unwrap();
    assert_eq!(
        condition(outcome.report(), "Ready"),
        format!(
            "False/InvalidReference: Storage s: config.path: a mount at /usr/bin can replace programs or \
             settings in /usr, and {off}"
        ),
    );
    assert_eq!(outcome.children(), []);
    let scripts = json!({ "scripts": true });
    let outcome = reconcile_with(&backup(json!({})), &objects, &scripts).unwrap();
    assert!(outcome.child("run").is_some());
}

#[test]
fn arguments_of_tar_are_left_out() {
    let spec =
        json!({ "compressWith": { "type": "tgz", "args": "--checkpoint-action=exec=/v/x" } });
    let outcome = reconcile(&backup(spec.clone()), &around()).unwrap();
    let text = configuration(&outcome);
    assert!(!text.contains("/v"), "{text}");
    let scripts = json!({ "scripts": true });
    let outcome = reconcile_with(&backup(spec), &around(), &scripts).unwrap();
    assert!(configuration(&outcome).contains("checkpoint-action"));
    // gobackup writes them between the file option and the file name.
    let status = outcome.report().status.as_ref().unwrap();
    assert!(
        status["warnings"]
            .to_string()
            .contains("CompressArgsBroken")
    );
}

#[test]
fn a_connection_string_is_no_database() {
    for database in [
        "sslkey=/v/x.so:k dbname=shop",
        "postgres://h/shop",
        "postgresql://h/shop",
    ] {
        let mut objects = around();
        objects[0]["spec"]["config"]["database"] = json!(database);
        let outcome = reconcile(&backup(json!({})), &objects).unwrap();
        assert_eq!(
            condition(outcome.report(), "Ready"),
            "False/InvalidReference: Database pg: config.database is a connection string; name the \
             database alone",
        );
        assert_eq!(outcome.children(), []);
    }
}

#[test]
fn texts_for_the_shell_of_pg_dumpall() {
    let ready = |key: &str, value: &str| {
        let mut objects = around();
        objects[0]["spec"]["config"] = json!({ "all_databases": true, key: value });
        let outcome = reconcile(&backup(json!({})), &objects).unwrap();
        (
            condition(outcome.report(), "Ready"),
            outcome.children().len(),
        )
    };
    for (key, value) in [
        ("host", "db;/v/x"),
        ("username", "$(/v/x)"),
        ("args", "--no-owner --role=a;id"),
    ] {
        let expected = format!(
            "False/InvalidReference: Database pg: config.{key} contains a character that pg_dumpall's shell would act on"
        );
        assert_eq!(ready(key, value), (expected, 0));
    }
    assert_eq!(ready("args", "--no-owner --exclude-database=a_b").1, 2);
    assert_eq!(ready("password", "a;b").1, 2);
}

#[test]
fn values_that_are_options() {
    let mut objects = around();
    let config = json!({ "database": "shop", "tables": ["a", "--plugin-dir=/v"] });
    objects[0] = related(
        "Database",
        "pg",
        json!({ "type": "mysql", "config": config }),
    );
    let outcome = reconcile(&backup(json!({})), &objects).unwrap();
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "False/InvalidReference: Database pg: config.tables begins with a dash, as an option does",
    );
    assert_eq!(outcome.children(), []);
}

#[test]
fn refused_scripts_do_not_run_and_cause_a_warning() {
    let (related, parent) = article();
    let outcome = reconcile(&parent, &related).unwrap();
    let text = configuration(&outcome);
    assert!(!text.contains("echo"), "{text}");
    let status = outcome.report().status.as_ref().unwrap();
    let warning = status["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|warning| warning["code"] == "ScriptNotAllowed")
        .map(|warning| warning["message"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(
        warning,
        [
            "beforeScript, afterScript: not run, because tenants.scripts of the plugin's configuration is off"
        ],
    );
    let scripts = json!({ "scripts": true });
    let outcome = reconcile_with(&parent, &related, &scripts).unwrap();
    assert!(configuration(&outcome).contains("before_script"));
}

#[test]
fn scripts_of_databases_do_not_run_either() {
    let mut objects = around();
    for key in ["before_script", "after_script", "on_exit"] {
        objects[0]["spec"]["config"][key] = json!("sh /data/x");
    }
    let outcome = reconcile(&backup(json!({})), &objects).unwrap();
    assert!(!configuration(&outcome).contains("/data/x"));
    let status = outcome.report().status.as_ref().unwrap();
    let warning = "Database pg: config.after_script, Database pg: config.before_script, Database pg: \
                   config.on_exit: not run, because tenants.scripts of the plugin's configuration is \
                   off";
    let warnings = status["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|stored| stored["message"] == warning),
        "{warnings:?}"
    );
    let scripts = json!({ "scripts": true });
    let outcome = reconcile_with(&backup(json!({})), &objects, &scripts).unwrap();
    assert!(configuration(&outcome).contains("/data/x"));
}

/// An object that the host made for another parent.
pub(super) fn owned_by_another(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "example.com/v1", "kind": "Wordpress", "name": "b", "uid": "b" }]);
    object
}

fn check_reference(spec: Value, kind: &str, object: Value) {
    let parent = backup(spec);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let with = |object: Value| {
        let mut objects = around();
        objects.retain(|object| object["metadata"]["name"] != *name);
        objects.push(object);
        objects
    };
    reconcile(&parent, &with(object.clone())).expect("an object of no parent is free");
    let taken = owned_by_another(object);
    let outcome = reconcile(&parent, &with(taken.clone())).unwrap();
    let expected = format!(
        "False/ReferenceNotAllowed: {kind} {name} belongs to another parent: annotate it with \
         innkeeper.dev/shared-with: Backup.gobackup.io/nightly, or name another"
    );
    assert_eq!(condition(outcome.report(), "Ready"), expected);
    assert_eq!(outcome.children(), []);
    let scope = json!({ "references": "namespace" });
    let outcome = reconcile_with(&parent, &with(taken.clone()), &scope).unwrap();
    assert!(!outcome.children().is_empty());
    for name in ["Backup/nightly", "Backup.gobackup.io/nightly"] {
        let mut shared = taken.clone();
        shared["metadata"]["annotations"] = json!({ "innkeeper.dev/shared-with": name });
        let outcome = reconcile(&parent, &with(shared)).unwrap();
        assert!(!outcome.children().is_empty());
    }
}

#[test]
fn secrets_of_other_parents() {
    let env =
        json!([{ "name": "APP_A", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }]);
    let volume = json!([{ "name": "v", "mountPath": "/v", "secret": { "secretName": "x" } }]);
    for spec in [
        json!({ "env": env }),
        json!({ "envFrom": [{ "prefix": "APP_", "secretRef": { "name": "x" } }] }),
        json!({ "volumes": volume }),
        json!({ "imagePullSecrets": [{ "name": "x" }] }),
    ] {
        check_reference(spec, "Secret", secret("x", &["k"]));
    }
    check_reference(json!({}), "Secret", secret("keys", &["pg", "id", "key"]));
}

#[test]
fn claims_of_other_parents() {
    let volume = json!([{
        "name": "v", "mountPath": "/v", "persistentVolumeClaim": { "claimName": "x" },
    }]);
    for spec in [
        json!({ "volumes": volume }),
        json!({ "state": { "mode": "Volume", "claimName": "x" } }),
        json!({ "localVolume": { "claimName": "x" } }),
    ] {
        check_reference(spec, "claim", claim("x"));
    }
}

#[test]
fn a_suspended_schedule_stops_although_a_reference_is_refused() {
    let cron_backup = |suspend: bool| {
        let mut parent = backup(json!({
            "schedule": { "cron": "0 3 * * *" }, "suspend": suspend,
        }));
        parent["spec"]["imagePullSecrets"] = json!([{ "name": "x" }]);
        parent
    };
    let mut objects = around();
    objects.push(secret("x", &["k"]));
    let before = reconcile(&cron_backup(false), &objects).unwrap();
    let next = |suspend: bool, objects: &[Value], before: &Answer| {
        let request = TestRequest::new(&cron_backup(suspend)).answered(before);
        Plugin::reconcile(&request.build(), &host(objects)).unwrap()
    };
    let taken = owned_by_another(objects[3].clone());
    for (problem, reason) in [
        (Some(taken), "ReferenceNotAllowed"),
        (None, "SecretNotFound"),
    ] {
        let mut objects = around();
        objects.extend(problem);
        let active = next(false, &objects, &before);
        assert!(matches!(active, Answer::Keep(_)));
        let stopped = next(true, &objects, &before);
        let ready = condition(stopped.report(), "Ready");
        assert!(ready.starts_with(&format!("False/{reason}")), "{ready}");
        let schedule = stopped.child("schedule").unwrap();
        let mut expected = before.child("schedule").unwrap().object["spec"].clone();
        expected["suspend"] = json!(true);
        assert_eq!(schedule.apply, ApplyPolicy::Always);
        assert_eq!(schedule.object["spec"], expected);
        let before_names: Vec<_> = names(&before);
        let mut stated = names(&stopped);
        stated.sort_by_key(|name| before_names.iter().position(|other| other == name));
        assert_eq!(stated, before_names);
        let others = stopped
            .children()
            .iter()
            .filter(|child| child.key != "schedule");
        for child in others {
            assert_eq!(child.apply, ApplyPolicy::Hold);
        }
        let request = TestRequest::new(&cron_backup(true)).answered(&before);
        let again = Plugin::reconcile(&request.answered(&stopped).build(), &host(&objects));
        assert!(matches!(again.unwrap(), Answer::Keep(_)));
    }
}

#[test]
fn a_suspended_schedule_stops_although_the_parent_is_invalid() {
    let schedule = |suspend: bool, compression: &str| {
        TestRequest::new(&backup(json!({
            "schedule": { "cron": "0 3 * * *" }, "suspend": suspend,
            "compressWith": { "type": compression },
        })))
    };
    let pass =
        |request: &TestRequest| Plugin::reconcile(&request.clone().build(), &host(&around()));
    let before = pass(&schedule(false, "gzip")).unwrap();
    let message = "compressWith.type: rar is unknown to gobackup";
    let active = pass(&schedule(false, "rar").answered(&before)).unwrap_err();
    assert_eq!(active.message, message);
    let suspended = schedule(true, "rar").answered(&before);
    let stopped = pass(&suspended).unwrap();
    let mut expected = before.child("schedule").unwrap().object["spec"].clone();
    expected["suspend"] = json!(true);
    assert_eq!(stopped.child("schedule").unwrap().object["spec"], expected);
    assert_eq!(stopped.children().len(), before.children().len());
    let refused = pass(&suspended.answered(&stopped)).unwrap_err();
    assert_eq!(
        (refused.kind, &*refused.message),
        (FaultKind::Invalid, message)
    );
}

#[test]
fn nothing_runs_before_the_objects_exist() {
    let volume = |source: Value| {
        let mut volume = json!({ "name": "v", "mountPath": "/v" });
        volume["persistentVolumeClaim"] = source["claim"].clone();
        volume["secret"] = source["secret"].clone();
        json!({ "volumes": [volume] })
    };
    let optional = json!({ "name": "x", "key": "k", "optional": true });
    let env = json!([{ "name": "APP_A", "valueFrom": { "secretKeyRef": optional } }]);
    for (spec, expected) in [
        (
            json!({ "env": env }),
            "False/SecretNotFound: Secret not found: x",
        ),
        (
            volume(json!({ "claim": { "claimName": "x" } })),
            "False/ClaimNotFound: PersistentVolumeClaim not found: x",
        ),
        (
            volume(json!({ "secret": { "secretName": "x" } })),
            "False/SecretNotFound: Secret not found: x",
        ),
        (
            json!({ "imagePullSecrets": [{ "name": "x" }] }),
            "False/SecretNotFound: Secret not found: x",
        ),
    ] {
        let outcome = reconcile(&backup(spec), &around()).unwrap();
        assert_eq!(condition(outcome.report(), "Ready"), expected);
        assert_eq!(outcome.children(), []);
    }
}

/// A Backup and a CronBackup with the same name have the same claims, and a retained claim outlives the parent.
#[test]
fn claims_of_another_kind_of_parent_with_the_same_name() {
    let local = json!({ "type": "local", "config": { "path": "/x" } });
    let spec = json!({ "schedule": { "cron": "0 2 * * *" }, "state": { "mode": "Volume" } });
    for name in ["nightly-gobackup-local", "nightly-gobackup-state"] {
        for (kind, is_own) in [("Backup", true), ("CronBackup", false)] {
            let mut retained = owned_by_another(claim(name));
            let parent = format!("gobackup.io/{kind}/default/nightly u");
            retained["metadata"]["annotations"] = json!({ "innkeeper.dev/retained-for": parent });
            let mut objects = around();
            objects[1] = related("Storage", "s", local.clone());
            objects.push(retained);
            let outcome = reconcile(&backup(spec.clone()), &objects).unwrap();
            let ready = condition(outcome.report(), "Ready");
            assert_eq!(outcome.child("schedule").is_some(), is_own, "{ready}");
            assert_eq!(ready.contains("ReferenceNotAllowed"), !is_own, "{ready}");
        }
    }
}
