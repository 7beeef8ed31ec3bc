//! Limits of the right to create a parent.

use super::*;

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
            "spec.volumes: disk is a directory of the node or of an NFS server, and \
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
fn scripts_do_not_run_and_a_warning_says_so() {
    let (related, parent) = article();
    let outcome = reconcile(&parent, &related).unwrap();
    assert!(!configuration(&outcome).contains("_script"));
    let status = outcome.report().status.as_ref().unwrap();
    let warnings = status["warnings"].as_array().unwrap().iter();
    let warning = warnings
        .filter(|it| it["code"] == "ScriptNotAllowed")
        .map(|it| it["message"].as_str().unwrap().to_owned())
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
        warnings.iter().any(|it| it["message"] == warning),
        "{warnings:?}"
    );
    let scripts = json!({ "scripts": true });
    let outcome = reconcile_with(&backup(json!({})), &objects, &scripts).unwrap();
    assert!(configuration(&outcome).contains("/data/x"));
}

/// An object that the host made for another parent.
fn of_another(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "example.com/v1", "kind": "Wordpress", "name": "b", "uid": "b" }]);
    object
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
    })
}

fn check_reference(spec: Value, kind: &str, object: Value) {
    let parent = backup(spec);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let with = |object: Value| {
        let mut objects = around();
        objects.retain(|it| it["metadata"]["name"] != *name);
        objects.push(object);
        objects
    };
    reconcile(&parent, &with(object.clone())).expect("an object of no parent is free");
    let taken = of_another(object);
    let outcome = reconcile(&parent, &with(taken.clone())).unwrap();
    let expected = format!(
        "False/ReferenceNotAllowed: {kind} {name} belongs to another parent: annotate it with \
         innkeeper.dev/shared-with: Backup/nightly, or name another"
    );
    assert_eq!(condition(outcome.report(), "Ready"), expected);
    assert_eq!(outcome.children(), []);
    let scope = json!({ "references": "namespace" });
    let outcome = reconcile_with(&parent, &with(taken.clone()), &scope).unwrap();
    assert!(!outcome.children().is_empty());
    let mut shared = taken;
    shared["metadata"]["annotations"] = json!({ "innkeeper.dev/shared-with": "Backup/nightly" });
    let outcome = reconcile(&parent, &with(shared)).unwrap();
    assert!(!outcome.children().is_empty());
}

#[test]
fn secrets_of_other_parents() {
    let env =
        json!([{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }]);
    let volume = json!([{ "name": "v", "mountPath": "/v", "secret": { "secretName": "x" } }]);
    for spec in [
        json!({ "env": env }),
        json!({ "envFrom": [{ "secretRef": { "name": "x" } }] }),
        json!({ "volumes": volume }),
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
fn nothing_runs_before_the_objects_exist() {
    let volume = |source: Value| {
        let mut volume = json!({ "name": "v", "mountPath": "/v" });
        volume["persistentVolumeClaim"] = source["claim"].clone();
        volume["secret"] = source["secret"].clone();
        json!({ "volumes": [volume] })
    };
    let optional = json!({ "name": "x", "key": "k", "optional": true });
    let env = json!([{ "name": "A", "valueFrom": { "secretKeyRef": optional } }]);
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
    ] {
        let outcome = reconcile(&backup(spec), &around()).unwrap();
        assert_eq!(condition(outcome.report(), "Ready"), expected);
        assert_eq!(outcome.children(), []);
    }
}
