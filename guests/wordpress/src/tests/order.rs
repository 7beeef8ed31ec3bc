//! The children's order: first the database, then the site; no child is removed later.

use std::time::Duration;

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::json;

use super::{condition, first, parent, pass, pass_with, running, secret, workloads};

/// An answer's keys in order, each with the keys that it waits for.
fn keys(outcome: &Answer) -> Vec<String> {
    outcome
        .children()
        .iter()
        .map(|child| {
            format!(
                "{} {} after [{}]",
                child.key,
                child.kind_and_name(),
                child.after.join(" ")
            )
        })
        .collect()
}

#[test]
fn the_article_makes_a_database_and_a_site_that_waits_for_it() {
    let outcome = first(&json!({ "sqlrootpassword": "abc" }));
    expect_test::expect![[r"
        db-secret Secret/shop-mysql after []
        db-claim PersistentVolumeClaim/shop-mysql after [db-secret]
        db-service Service/shop-mysql after []
        db StatefulSet/shop-mysql after [db-secret db-claim db-service]
        salts Secret/shop-wp after [db]
        code-claim PersistentVolumeClaim/shop-code after [db]
        web Deployment/shop after [db salts code-claim]
        web-service Service/shop after [db]"]]
    .assert_eq(&keys(&outcome).join("\n"));
    assert_eq!(outcome.report().requeue, Some(Duration::from_secs(5)));
    assert_eq!(
        condition(&outcome, "Progressing"),
        "Progressing=True/WaitingForDatabase: waiting for the database shop-mysql"
    );
}

#[test]
fn every_feature_has_its_children_and_switched_off_they_leave_no_trace() {
    let spec = json!({
        "phpConfig": "memory_limit = 1G",
        "database": { "managed": { "config": "[mysqld]" } },
        "routes": [{ "domain": "shop.org" }],
        "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 },
    });
    let on = keys(&first(&spec));
    for child in [
        "db-config ConfigMap/shop-mysql after []",
        "db StatefulSet/shop-mysql after [db-secret db-claim db-config db-service]",
        "php-config ConfigMap/shop-php after [db]",
        "web Deployment/shop after [db salts code-claim php-config]",
        "ingress Ingress/shop after [db web-service]",
        "pdb PodDisruptionBudget/shop after [web]",
    ] {
        assert!(on.contains(&child.to_owned()), "{child} in {on:?}");
    }
    let off = json!({
        "podDisruptionBudget": { "enabled": false, "maxUnavailable": 1 },
        "database": { "managed": {} },
    });
    assert_eq!(first(&off), first(&json!({})));
}

#[test]
fn a_ready_database_ends_the_waiting() {
    let parent = parent("shop", &json!({}));
    let start = TestRequest::new(&parent);
    let outcome = pass(&start);
    let database: Vec<Child> = workloads(&outcome, 0, 1)
        .children()
        .iter()
        .filter(|child| child.key.starts_with("db"))
        .cloned()
        .collect();
    let outcome = pass(&start.answered(&Answer::from(Desired::new().children(database))));
    assert_eq!(outcome.report().requeue, None);
    assert_eq!(
        condition(&outcome, "DatabaseReady"),
        "DatabaseReady=True/DatabaseReady: the database is ready"
    );
    assert_eq!(
        condition(&outcome, "Available"),
        "Available=False/Unavailable: 0 of 1 replicas are ready"
    );
}

#[test]
fn an_outage_of_the_database_takes_nothing_away() {
    let running = running(&parent("shop", &json!({})));
    let up = pass(&running);
    let outage = running.answered(&workloads(&up, 1, 0));
    let down = pass(&outage);
    assert_eq!(keys(&down), keys(&up));
    assert_eq!(down.report().requeue, None);
    assert_eq!(
        condition(&down, "DatabaseReady"),
        "DatabaseReady=False/DatabaseUnavailable: the database shop-mysql is not ready"
    );
    assert_eq!(
        condition(&down, "Ready"),
        "Ready=False/NotReady: the database shop-mysql is not ready"
    );
}

#[test]
fn nothing_waits_for_an_external_database() {
    let spec = json!({ "database": { "external": {
        "host": "db.example.org", "credentialsSecretRef": { "name": "access" },
    } } });
    let request = TestRequest::new(&parent("shop", &spec));
    let host = super::host().object(&secret("access", &["username", "password"]));
    let outcome = pass_with(&request, &host);
    expect_test::expect![[r"
        salts Secret/shop-wp after []
        code-claim PersistentVolumeClaim/shop-code after []
        web Deployment/shop after [salts code-claim]
        web-service Service/shop after []"]]
    .assert_eq(&keys(&outcome).join("\n"));
    assert_eq!(outcome.report().requeue, None);
    assert_eq!(
        condition(&outcome, "DatabaseReady"),
        "DatabaseReady=Unknown/ExternalDatabaseUnverified: no replica of the site has reached \
         db.example.org yet"
    );
}
