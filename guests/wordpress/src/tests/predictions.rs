//! The parts of new and changed children that predicted reports depend on: none that the API server or the host adds.

use expect_test::expect;
use innkeeper_sdk::{
    prelude::*,
    testing::{TestRequest, predicted_parts},
};
use serde_json::{Value, json};

use super::{PLUGIN, host, parent, pass, pass_with, running, secret, workloads};
use crate::Plugin;

/// A request without some of the answer's children.
fn answered_without(parent: &Value, answer: &Answer, key: &str) -> TestRequest {
    let children = answer.children().iter().filter(|child| child.key != key);
    let answer = Desired::new().children(children.cloned());
    TestRequest::new(parent).answered(&answer.into())
}

#[track_caller]
fn assert_parts(request: TestRequest, expected: &[&str]) {
    let host = host().object(&secret("mine", &["username", "password"]));
    let parts = predicted_parts(&request.build(), &host, Plugin::reconcile);
    assert_eq!(parts.unwrap(), expected);
}

#[test]
fn reports_on_a_new_database_depend_on_stated_parts() {
    let expected = [
        "db-claim/metadata/annotations/example.com~1database-image",
        "db-claim/metadata/annotations/example.com~1declared-size",
        "db-claim/spec/accessModes",
        "db-claim/spec/resources/requests/storage",
        "db-service/metadata/annotations/innkeeper-sdk~1template-hash",
    ];
    let managed = json!({ "credentialsSecretRef": { "name": "mine" } });
    let spec = json!({ "database": { "managed": managed } });
    assert_parts(TestRequest::new(&parent("shop", &spec)), &expected);
    let generated = secret("shop-mysql", &["username", "password"]);
    let request = TestRequest::new(&parent("shop", &json!({}))).retained("db-secret", &generated);
    assert_parts(request, &expected);
}

#[test]
fn reports_on_a_new_site_depend_on_stated_parts() {
    let external = json!({ "host": "db", "credentialsSecretRef": { "name": "mine" } });
    let parent = parent("shop", &json!({ "database": { "external": external } }));
    let host = host().object(&secret("mine", &["username", "password"]));
    let first = pass_with(&TestRequest::new(&parent), &host);
    assert_parts(
        answered_without(&parent, &first, "web"),
        &[
            "web/metadata/annotations/innkeeper-sdk~1template-hash",
            "web/metadata/generation",
            "web/spec/replicas",
            "web/spec/template/metadata/annotations/example.com~1credentials-hash",
            "web/spec/template/metadata/annotations/example.com~1secret-hash",
            "web/spec/template/spec/containers/0/image",
            "web/spec/template/spec/containers/0/name",
            "web/status",
        ],
    );
}

#[test]
fn reports_on_an_edited_site_depend_on_its_template() {
    let shown = workloads(&pass(&running(&parent("shop", &json!({})))), 1, 1);
    let edited = parent("shop", &json!({ "image": "wordpress:6.9" }));
    let request = TestRequest::new(&edited)
        .retained("db-secret", &secret("shop-mysql", &["password"]))
        .retained("salts", &secret("shop-wp", &["AUTH_KEY"]))
        .answered(&shown);
    assert_parts(
        request,
        &[
            "web/metadata/annotations/innkeeper-sdk~1template-hash",
            "web/metadata/generation",
            "web/spec/replicas",
            "web/spec/template",
            "web/spec/template/metadata/annotations/example.com~1credentials-hash",
            "web/spec/template/metadata/annotations/example.com~1restart-trigger",
            "web/spec/template/metadata/annotations/example.com~1secret-hash",
            "web/spec/template/spec/containers/0/image",
            "web/spec/template/spec/containers/0/name",
            "web/status",
        ],
    );
}

#[test]
fn no_report_is_predicted_from_new_random_passwords() {
    let request = TestRequest::new(&parent("shop", &json!({}))).build();
    assert_eq!(predicted_parts(&request, &host(), Plugin::reconcile), None);
}

#[test]
fn reports_on_new_examples_are_predicted() {
    expect![[r"
        01-article.yaml Wordpress: 3 made, 1 saved
        02-secret.yaml Wordpress: 2 made, 1 saved
        03-two-sites.yaml Wordpress: 3 made, 1 saved
        03-two-sites.yaml Wordpress: 3 made, 1 saved
    "]]
    .assert_eq(&PLUGIN.example_calls("wordpress", host()));
}
