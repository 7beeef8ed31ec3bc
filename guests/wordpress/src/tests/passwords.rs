//! Passwords are only in Secrets, and the Secrets outlive everything.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{
    claim, condition, container, events, first, host, parent, pass, pass_with, pod, running,
    running_with, secret,
};

use crate::children::SALT_KEYS;

const MYSQL_KEYS: [&str; 3] = ["root-password", "username", "password"];

#[test]
fn a_given_password_is_in_its_secret_and_nowhere_else() {
    for spelling in ["sqlrootpassword", "sqlRootPassword"] {
        let parent = parent("shop", &json!({ spelling: "hunter2-hunter2" }));
        let request = TestRequest::new(&parent).build();
        let host = host();
        let outcome = crate::Plugin::reconcile(&request, &host).unwrap();
        for child in outcome.children() {
            let holds = child.object.to_string().contains("hunter2");
            assert_eq!(holds, child.key == "db-secret", "{}", child.key);
        }
        assert!(!format!("{:?}", outcome.report()).contains("hunter2"));
        assert_eq!(host.log_lines(), []);
        let secret = outcome.child("db-secret").unwrap();
        let generated: Vec<&str> = secret
            .generate
            .iter()
            .map(|entry| entry.key.as_str())
            .collect();
        assert_eq!(generated, ["password"]);
        assert_eq!(
            condition(&outcome, "PlaintextPassword"),
            "PlaintextPassword=True/PasswordInSpec: the root password is in clear text in the \
             spec; remove it, the Secret shop-mysql keeps it"
        );
    }
}

#[test]
fn passwords_and_salts_are_made_by_the_host_once() {
    let outcome = first(&json!({}));
    let generated = |key: &str| -> Vec<(String, u32)> {
        let child = outcome.child(key).unwrap();
        assert_eq!(child.apply, ApplyPolicy::Once);
        assert_eq!(child.readiness, Readiness::NotReady);
        assert_eq!(child.removal, RemovalPolicy::Retain);
        child
            .generate
            .iter()
            .map(|entry| (entry.key.clone(), entry.length))
            .collect()
    };
    let passwords = [
        ("password".to_owned(), 32),
        ("root-password".to_owned(), 32),
    ];
    assert_eq!(generated("db-secret"), passwords);
    let salts = generated("salts");
    assert_eq!(salts.len(), 8);
    assert!(salts.iter().all(|(_, length)| *length == 64));
    let alphabet = &outcome.child("salts").unwrap().generate[0].alphabet;
    assert!(
        alphabet
            .chars()
            .all(|c| c.is_ascii_graphic() && !"'\"\\`$".contains(c))
    );
    assert_eq!(alphabet.len(), 94 - 5);
}

#[test]
fn existing_secrets_are_held_also_those_of_a_user() {
    let parent = parent("shop", &json!({}));
    let observed = TestRequest::new(&parent)
        .retained("db-secret", &secret("shop-mysql", &MYSQL_KEYS))
        .retained("salts", &secret("shop-wp", &SALT_KEYS));
    let prepared = host()
        .object(&secret("shop-mysql", &MYSQL_KEYS))
        .object(&secret("shop-wp", &SALT_KEYS));
    for outcome in [
        pass(&observed),
        pass_with(&TestRequest::new(&parent), &prepared),
    ] {
        for key in ["db-secret", "salts"] {
            let child = outcome.child(key).unwrap();
            assert_eq!(child.apply, ApplyPolicy::Hold);
            assert_eq!(child.readiness, Readiness::Ready);
            assert_eq!(child.object.get("data"), None);
            assert_eq!(child.object.get("stringData"), None);
            assert_eq!(child.generate, []);
        }
        assert!(events(&outcome).contains(&"Normal CredentialsReused".to_owned()));
    }
}

#[test]
fn a_password_without_effect_is_an_event() {
    let parent = parent("shop", &json!({ "sqlrootpassword": "abc" }));
    let host = host().object(&secret("shop-mysql", &MYSQL_KEYS));
    let outcome = pass_with(&TestRequest::new(&parent), &host);
    assert!(events(&outcome).contains(&"Warning CredentialsReused".to_owned()));
}

// A pass may see the generated Secret before the first report is stored, for example after a crash.
#[test]
fn a_secret_is_reused_only_if_the_parent_is_younger() {
    let created = |object: &Value, time: &str| {
        let mut object = object.clone();
        object["metadata"]["creationTimestamp"] = json!(time);
        object
    };
    let spec = json!({ "sqlrootpassword": "abc" });
    let parent = created(&parent("shop", &spec), "2026-01-01T00:00:09Z");
    let reused = |request: TestRequest| {
        events(&pass(&request)).contains(&"Warning CredentialsReused".to_owned())
    };
    let secret = secret("shop-mysql", &MYSQL_KEYS);
    for (time, is_reused) in [
        ("2026-01-01T00:00:08Z", true),
        ("2026-01-01T00:00:09Z", false),
        ("2026-01-01T00:00:10Z", false),
    ] {
        let secret = created(&secret, time);
        let request = TestRequest::new(&parent);
        let retained = request.clone().retained("db-secret", &secret);
        assert_eq!(reused(retained), is_reused, "{time}");
        // A Secret that is deleted with the parent was created for it.
        assert!(!reused(request.child("db-secret", &secret)), "{time}");
    }
}

#[test]
fn data_without_its_passwords_never_gets_new_ones() {
    let request = TestRequest::new(&parent("shop", &json!({})))
        .retained("db-claim", &claim("shop-mysql", "10Gi", &["ReadWriteOnce"]));
    let outcome = pass(&request);
    assert!(outcome.child("db-secret").is_none());
    assert!(outcome.child("db-claim").is_some());
    let lost = "CredentialsLost: the database holds data, but Secret shop-mysql with its passwords \
                is gone";
    assert_eq!(
        condition(&outcome, "DatabaseReady"),
        format!("DatabaseReady=False/{lost}")
    );
    assert_eq!(
        condition(&outcome, "Degraded"),
        format!("Degraded=True/{lost}")
    );

    // Once the user restores it, it is used and everything continues.
    let host = host().object(&secret("shop-mysql", &MYSQL_KEYS));
    let outcome = pass_with(&request, &host);
    assert_eq!(outcome.child("db-secret").unwrap().apply, ApplyPolicy::Hold);
    assert!(condition(&outcome, "Degraded").starts_with("Degraded=False"));
}

// The generated Secret has never existed, so new Pods could not start.
#[test]
fn workloads_stay_when_the_passwords_of_their_data_are_named_no_more() {
    let spec = json!({ "database": { "managed": { "credentialsSecretRef": { "name": "mine" } } } });
    let named = parent("shop", &spec);
    let mine = host().object(&secret("mine", &MYSQL_KEYS));
    let before = pass_with(&running_with(&named, &mine), &mine);
    for references in ["shared", "namespace"] {
        let config = json!({ "tenants": { "references": references } });
        let request = TestRequest::new(&parent("shop", &json!({})))
            .answered(&super::workloads(&before, 1, 1))
            .config(&config);
        let outcome = pass_with(&request, &mine);
        assert!(matches!(outcome, Answer::Keep(_)), "{references}");
        let lost = "the database holds data, but there is no Secret shop-mysql with its passwords: set \
                    database.managed.credentialsSecretRef again, or create Secret shop-mysql with the \
                    passwords of the data";
        assert_eq!(
            condition(&outcome, "Ready"),
            format!("Ready=False/CredentialsLost: changes wait: {lost}")
        );
        assert_eq!(
            condition(&outcome, "Degraded"),
            format!("Degraded=True/CredentialsLost: {lost}")
        );

        // Once the Secret with the generated name has the passwords, everything continues.
        let both = host()
            .object(&secret("mine", &MYSQL_KEYS))
            .object(&secret("shop-mysql", &MYSQL_KEYS));
        let outcome = pass_with(&request, &both);
        let environment = container(&outcome, "db")["env"].to_string();
        assert!(environment.contains("shop-mysql"), "{environment}");
    }
}

#[test]
fn a_secret_of_the_user_is_read_and_never_made() {
    let spec = json!({ "database": { "managed": {
        "credentialsSecretRef": { "name": "mine", "passwordKey": "pass" },
    } } });
    let request = TestRequest::new(&parent("shop", &spec));
    let missing = pass(&request);
    assert!(missing.child("db-secret").is_none());
    assert_eq!(
        condition(&missing, "DatabaseReady"),
        "DatabaseReady=False/SecretNotFound: Secret not found: mine"
    );
    let incomplete = host().object(&secret("mine", &["root-password", "username"]));
    assert_eq!(
        condition(&pass_with(&request, &incomplete), "Degraded"),
        "Degraded=True/SecretIncomplete: Secret mine lacks the key pass"
    );
    let complete = host().object(&secret("mine", &["root-password", "username", "pass"]));
    let outcome = pass_with(&request, &complete);
    assert!(condition(&outcome, "Degraded").starts_with("Degraded=False"));
    let password = &container(&outcome, "web")["env"][3];
    assert_eq!(
        *password,
        json!({ "name": "WORDPRESS_DB_PASSWORD",
                "valueFrom": { "secretKeyRef": { "name": "mine", "key": "pass" } } })
    );
}

fn annotation(outcome: &Answer, key: &str) -> Value {
    pod(outcome, "web")["metadata"]["annotations"][key].clone()
}

const CREDENTIALS_HASH: &str = "example.com/credentials-hash";
const SECRET_HASH: &str = "example.com/secret-hash";

#[test]
fn changed_external_credentials_replace_the_pods() {
    let spec = json!({ "database": { "external": {
        "host": "db", "credentialsSecretRef": { "name": "mine" },
    } } });
    let parent = parent("shop", &spec);
    let before = host().object(&secret("mine", &["username", "password"]));
    let mut changed = secret("mine", &["username", "password"]);
    changed["data"]["password"] = json!("b3RoZXI=");
    let after = host().object(&changed);
    let request = running_with(&parent, &before);
    let old = annotation(&pass_with(&request, &before), CREDENTIALS_HASH);
    let outcome = pass_with(&request, &after);
    assert_ne!(annotation(&outcome, CREDENTIALS_HASH), old);
    assert!(events(&outcome).contains(&"Normal CredentialsRotated".to_owned()));
    // A missing Secret restarts nothing.
    let namespace = json!({ "tenants": { "references": "namespace" } });
    let after = pass(&request.config(&namespace));
    assert_eq!(annotation(&after, CREDENTIALS_HASH), old);
}

#[test]
fn changed_credentials_of_a_managed_database_keep_the_pods() {
    let spec = json!({ "database": { "managed": { "credentialsSecretRef": { "name": "mine" } } } });
    let parent = parent("shop", &spec);
    let before = host().object(&secret("mine", &MYSQL_KEYS));
    let mut changed = secret("mine", &MYSQL_KEYS);
    changed["data"]["password"] = json!("b3RoZXI=");
    let request = running_with(&parent, &before);
    let old = annotation(&pass_with(&request, &before), CREDENTIALS_HASH);
    assert!(old.is_string());
    let changed = host().object(&changed);
    let outcome = pass_with(&request, &changed);
    assert_eq!(annotation(&outcome, CREDENTIALS_HASH), old);
    assert_eq!(
        condition(&outcome, "CredentialsChanged"),
        "CredentialsChanged=True/SecretChanged: Secret mine has changed since the site started: set the same passwords in the database, then set the annotation \
         example.com/restart-trigger to another value"
    );
    assert!(events(&outcome).contains(&"Warning CredentialsChanged".to_owned()));

    // The annotation restarts the Pods, which then have the new passwords.
    let mut restarted = parent;
    restarted["metadata"]["annotations"] = json!({ "example.com/restart-trigger": "1" });
    let request = TestRequest::new(&restarted).answered(&super::workloads(&outcome, 1, 1));
    let outcome = pass_with(&request, &changed);
    assert_ne!(annotation(&outcome, CREDENTIALS_HASH), old);
    let report = outcome.report();
    assert_eq!(report.find_condition("CredentialsChanged"), None);
    assert!(events(&outcome).contains(&"Normal CredentialsRotated".to_owned()));
}

#[test]
fn a_site_that_returns_to_a_managed_database_has_its_passwords() {
    let host = host().object(&secret("mine", &["username", "password"]));
    let managed = parent("shop", &json!({}));
    let first = running_with(&managed, &host);
    let before = pass_with(&first, &host);
    let external = json!({ "host": "db", "credentialsSecretRef": { "name": "mine" } });
    let external = parent("shop", &json!({ "database": { "external": external } }));
    let there = TestRequest::new(&external)
        .answered(&super::workloads(&before, 1, 1))
        .retained("db-secret", &secret("shop-mysql", &MYSQL_KEYS));
    let away = pass_with(&there, &host);
    let back = TestRequest::new(&managed)
        .answered(&super::workloads(&away, 1, 1))
        .retained("db-secret", &secret("shop-mysql", &MYSQL_KEYS));
    assert_ne!(
        annotation(&pass_with(&back, &host), CREDENTIALS_HASH),
        annotation(&away, CREDENTIALS_HASH)
    );
}

#[test]
fn named_secrets_and_config_maps_are_hashed_unless_missing() {
    let spec = json!({
        "env": [{ "name": "APP_KEY", "valueFrom": { "secretKeyRef": { "name": "api", "key": "k" } } }],
        "envFrom": [{ "prefix": "APP_", "configMapRef": { "name": "flags", "optional": true } }],
    });
    let parent = parent("shop", &spec);
    let before = host().object(&secret("api", &["k"]));
    let flags = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "flags", "namespace": "default" }, "data": { "a": "b" },
    });
    let request = running_with(&parent, &before);
    let old = annotation(&pass_with(&request, &before), SECRET_HASH);
    let more = host().object(&secret("api", &["k"])).object(&flags);
    assert_ne!(annotation(&pass_with(&request, &more), SECRET_HASH), old);

    let namespace = json!({ "tenants": { "references": "namespace" } });
    let after = pass(&request.clone().config(&namespace));
    assert_eq!(annotation(&after, SECRET_HASH), old);
    assert_eq!(
        condition(&after, "Degraded"),
        "Degraded=True/SecretNotFound: Secret not found: api"
    );
    let required =
        json!({ "envFrom": [{ "prefix": "APP_", "configMapRef": { "name": "flags" } }] });
    assert_eq!(
        condition(&first(&required), "Degraded"),
        "Degraded=True/ConfigMapNotFound: ConfigMap not found: flags"
    );
    let there = host().object(&flags);
    let required = TestRequest::new(&super::parent("shop", &required));
    assert!(condition(&pass_with(&required, &there), "Degraded").starts_with("Degraded=False"));
    let lacking = pass_with(&request, &host().object(&secret("api", &["other"])));
    assert_eq!(
        condition(&lacking, "Degraded"),
        "Degraded=True/SecretIncomplete: Secret api lacks the key k"
    );
}

#[test]
fn a_deleted_salts_secret_is_made_anew_and_restarts_only_when_it_is_there() {
    let parent = parent("shop", &json!({}));
    let request = running(&parent);
    let old = annotation(&pass(&request), SECRET_HASH);
    // The same children without the salts.
    let without = pass(&TestRequest::new(&parent));
    let children: Vec<Child> = super::workloads(&pass(&request), 1, 1)
        .children()
        .iter()
        .filter(|child| child.key != "salts")
        .cloned()
        .collect();
    let mut request = TestRequest::new(&parent)
        .retained("db-secret", &secret("shop-mysql", &MYSQL_KEYS))
        .answered(&Answer::from(Desired::new().children(children)));
    let outcome = pass(&request);
    assert_eq!(outcome.child("salts"), without.child("salts"));
    assert_eq!(annotation(&outcome, SECRET_HASH), old);
    request = request.retained("salts", &secret("shop-wp", &SALT_KEYS));
    assert_ne!(annotation(&pass(&request), SECRET_HASH), old);
}
