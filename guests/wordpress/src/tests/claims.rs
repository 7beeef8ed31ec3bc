//! Data outlives the parent, and claims are never pruned.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{claim, condition, events, first, host, parent, pass, pass_with, running, secret};

fn request_of(outcome: &Answer, key: &str) -> Value {
    outcome.child(key).unwrap().object["spec"]["resources"]["requests"]["storage"].clone()
}

#[test]
fn claims_state_the_declaration() {
    let spec = json!({ "code": { "persistentVolumeClaim": {
        "size": 5_000_000_000_i64, "storageClassName": "fast", "accessModes": ["ReadWriteMany"],
        "dataSource": { "kind": "PersistentVolumeClaim", "name": "old", "apiGroup": null },
    } } });
    let host = host().object(&claim("old", "1Gi", &["ReadWriteMany"]));
    let outcome = pass_with(&TestRequest::new(&parent("shop", &spec)), &host);
    assert_eq!(
        outcome.child("code-claim").unwrap().object["spec"],
        json!({
            "accessModes": ["ReadWriteMany"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "5000000000" } },
            "dataSource": { "kind": "PersistentVolumeClaim", "name": "old" },
        })
    );
    let database = &outcome.child("db-claim").unwrap().object;
    assert_eq!(
        database["metadata"]["annotations"]["example.com/database-flavor"],
        "MySQL"
    );
    assert_eq!(request_of(&outcome, "db-claim"), "10Gi");
}

#[test]
fn a_larger_claim_stays_as_large_as_it_is() {
    for (observed, stated) in [("20Gi", "20Gi"), ("5Gi", "10Gi"), ("10240Mi", "10Gi")] {
        let request = TestRequest::new(&parent("shop", &json!({})))
            .retained("db-secret", &secret("shop-mysql", &["password"]))
            .retained(
                "db-claim",
                &claim("shop-mysql", observed, &["ReadWriteOnce"]),
            );
        assert_eq!(request_of(&pass(&request), "db-claim"), stated);
    }
}

#[test]
fn the_policy_reaches_every_claim_and_secret_held_ones_too() {
    for (policy, removal) in [
        ("Retain", RemovalPolicy::Retain),
        ("Delete", RemovalPolicy::Delete),
    ] {
        let spec = json!({ "deletionPolicy": policy });
        for outcome in [first(&spec), pass(&running(&parent("shop", &spec)))] {
            for child in outcome.children() {
                let is_data = ["Secret", "PersistentVolumeClaim"].contains(&child.kind());
                let expected = if is_data {
                    removal
                } else {
                    RemovalPolicy::Delete
                };
                assert_eq!(child.removal, expected, "{}", child.key);
            }
        }
    }
}

#[test]
fn a_claim_that_is_not_needed_any_more_is_held() {
    let request = running(&parent("shop", &json!({})));
    let observed = pass(&request);
    let spec = json!({
        "database": { "external": { "host": "db", "credentialsSecretRef": { "name": "mine" } } },
        "code": { "persistentVolumeClaim": { "existingClaim": "old" } },
    });
    let moved = TestRequest::new(&parent("shop", &spec))
        .answered(&observed)
        .retained("db-secret", &secret("shop-mysql", &["password"]))
        .retained(
            "media-claim",
            &claim("shop-media", "1Gi", &["ReadWriteOnce"]),
        );
    let host = host()
        .object(&secret("mine", &["username", "password"]))
        .object(&claim("old", "1Gi", &["ReadWriteOnce"]));
    let outcome = pass_with(&moved, &host);
    let held_keys: Vec<String> = outcome
        .children()
        .iter()
        .filter(|child| child.apply == ApplyPolicy::Hold)
        .map(Child::kind_and_name)
        .collect();
    assert_eq!(
        held_keys,
        [
            "Secret/shop-mysql",
            "PersistentVolumeClaim/shop-code",
            "PersistentVolumeClaim/shop-media",
            "PersistentVolumeClaim/shop-mysql",
        ]
    );
    assert!(outcome.child("db").is_none());
}

#[test]
fn an_existing_claim_is_mounted_and_reported_while_it_is_missing() {
    let spec = json!({ "code": { "persistentVolumeClaim": { "existingClaim": "old" } } });
    let request = TestRequest::new(&parent("shop", &spec));
    let missing = pass(&request);
    assert_eq!(
        condition(&missing, "Degraded"),
        "Degraded=True/ClaimNotFound: claim not found: old"
    );
    let host = host().object(&claim("old", "1Gi", &["ReadWriteOnce"]));
    let outcome = pass_with(&request, &host);
    assert!(condition(&outcome, "Degraded").starts_with("Degraded=False"));
    assert!(outcome.child("code-claim").is_none());
    let volumes = &super::pod(&outcome, "web")["spec"]["volumes"];
    assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "old");
}

#[test]
fn data_that_is_deleted_with_the_parent_is_reported() {
    let spec = json!({ "code": { "persistentVolumeClaim": { "existingClaim": "old" } } });
    let mut old = claim("old", "1Gi", &["ReadWriteOnce"]);
    old["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Wordpress", "name": "shop",
        "uid": "00000000-0000-4000-8000-000000000001",
    }]);
    let request = TestRequest::new(&parent("shop", &spec))
        .child("db-secret", &secret("shop-mysql", &["password"]));
    let outcome = pass_with(&request, &host().object(&old));
    assert_eq!(
        condition(&outcome, "DataPersistent"),
        "DataPersistent=False/OwnedData: PersistentVolumeClaim/old, Secret/shop-mysql have an ownerReference and are deleted with the parent"
    );
    assert!(events(&outcome).contains(&"Warning OwnedData".to_owned()));

    let outcome = pass(&running(&parent(
        "shop",
        &json!({ "deletionPolicy": "Delete" }),
    )));
    assert_eq!(
        condition(&outcome, "DataPersistent"),
        "DataPersistent=True/Persistent: data outlives the pods"
    );
}

#[test]
fn claims_and_secrets_of_a_former_parent_are_used_again() {
    let request = running(&parent("shop", &json!({})));
    let former: Vec<Child> = pass(&request)
        .children()
        .iter()
        .filter(|child| child.kind() == "PersistentVolumeClaim")
        .cloned()
        .collect();
    let next = TestRequest::new(&parent("shop", &json!({})))
        .answered(&Answer::from(Desired::new().children(former)))
        .retained(
            "db-secret",
            &secret("shop-mysql", &["root-password", "username", "password"]),
        )
        .retained("salts", &secret("shop-wp", &crate::children::SALT_KEYS));
    let outcome = pass(&next);
    assert_eq!(outcome.child("db-secret").unwrap().apply, ApplyPolicy::Hold);
    assert_eq!(outcome.child("salts").unwrap().apply, ApplyPolicy::Hold);
    assert!(condition(&outcome, "Degraded").starts_with("Degraded=False"));
    assert_eq!(
        outcome.report().status.as_ref().unwrap()["retained"],
        json!([
            "PersistentVolumeClaim/shop-code",
            "PersistentVolumeClaim/shop-mysql",
            "Secret/shop-mysql",
            "Secret/shop-wp",
        ])
    );
}

#[test]
fn the_claim_of_the_database_is_none_for_the_files() {
    let spec = json!({ "code": { "persistentVolumeClaim": { "existingClaim": "shop-mysql" } } });
    let own = claim("shop-mysql", "10Gi", &["ReadWriteMany"]);
    let host = host().object(&own);
    let request = TestRequest::new(&parent("shop", &spec)).build();
    let refused = crate::Plugin::reconcile(&request, &host).unwrap_err();
    assert_eq!(
        refused.message,
        "spec.code.persistentVolumeClaim.existingClaim: claim shop-mysql is that of the site's database: name another"
    );
}
