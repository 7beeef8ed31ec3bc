//! Properties of each parent that the definition admits.

use std::collections::BTreeSet;

use innkeeper_sdk::{
    prelude::*,
    testing::{FakeHost, TestRequest},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{claim, parent, pass_with, running_with, secret, workloads};

/// A host with all objects that the parents below name.
fn host() -> FakeHost {
    let keys = ["root-password", "username", "password"];
    let objects = [
        secret("s", &keys),
        secret("tls", &["tls.crt", "tls.key"]),
        claim("old", "1Gi", &["ReadWriteMany"]),
    ];
    super::host().objects(objects)
}

fn pass(request: &TestRequest) -> Outcome {
    pass_with(request, &host())
}

fn running(parent: &Value) -> TestRequest {
    running_with(parent, &host())
}

/// One of these values, or nothing, under a key.
fn field(key: &'static str, values: Vec<Value>) -> impl Strategy<Value = Option<(String, Value)>> {
    prop::option::of(prop::sample::select(values))
        .prop_map(move |value| value.map(|value| (key.to_owned(), value)))
}

fn spec() -> impl Strategy<Value = Value> {
    let external = json!({ "external": { "host": "db", "credentialsSecretRef": { "name": "s" } } });
    let managed = json!({ "managed": { "config": "[mysqld]", "storage": { "size": "3Gi" } } });
    let own = json!({ "managed": { "credentialsSecretRef": { "name": "s" } } });
    let code = |claim: Value| json!({ "persistentVolumeClaim": claim });
    let fields: Vec<BoxedStrategy<Option<(String, Value)>>> = vec![
        field("sqlrootpassword", vec![json!("abc")]).boxed(),
        field("replicas", vec![json!(0), json!(1), json!(3)]).boxed(),
        field("containerPort", vec![json!(8080)]).boxed(),
        field("phpConfig", vec![json!(""), json!("a = 1")]).boxed(),
        field("configExtra", vec![json!(""), json!("$(x")]).boxed(),
        field("deletionPolicy", vec![json!("Retain"), json!("Delete")]).boxed(),
        field("env", vec![json!([{ "name": "A", "value": "1" }])]).boxed(),
        field("envFrom", vec![json!([{ "secretRef": { "name": "s" } }])]).boxed(),
        field("database", vec![external, managed, own]).boxed(),
        field("tlsSecretRef", vec![json!("tls")]).boxed(),
        field(
            "routes",
            vec![json!([{ "domain": "a.org" }, { "domain": "a.org", "path": "/x/" }])],
        )
        .boxed(),
        field(
            "code",
            vec![
                code(json!({ "existingClaim": "old" })),
                code(json!({ "accessModes": ["ReadWriteMany"] })),
            ],
        )
        .boxed(),
        field(
            "podDisruptionBudget",
            vec![json!({ "enabled": true, "maxUnavailable": 1 })],
        )
        .boxed(),
    ];
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>()))
}

/// Names that satisfy the rules on names, chosen to look like each other's children.
fn name() -> impl Strategy<Value = String> {
    "(a|shop)(-(a|wp|php|code|mysql-code|mysql-wp)){0,2}".prop_map(|name| name)
}

fn identities(outcome: &Outcome) -> BTreeSet<String> {
    outcome
        .children()
        .iter()
        .map(Child::kind_and_name)
        .collect()
}

/// Every selector of an answer.
fn selectors(outcome: &Outcome) -> Vec<Value> {
    let children = outcome.children().iter();
    children
        .filter_map(|child| {
            let selector = child.object["spec"].get("selector")?;
            Some(selector.get("matchLabels").unwrap_or(selector).clone())
        })
        .collect()
}

fn is_matched(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().unwrap();
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_second_answer_changes_nothing(spec in spec()) {
        let parent = parent("shop", &spec);
        let request = running(&parent);
        let once = pass(&request);
        let web = once.child("web").unwrap().object["spec"]["replicas"].as_i64().unwrap();
        let twice = pass(&request.answered(&workloads(&once, web, 1)));
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_answer_leaves_out_data(before in spec(), after in spec()) {
        let observed = running(&parent("shop", &before));
        let outcome = pass(&observed);
        let mut request = TestRequest::new(&parent("shop", &after));
        for child in outcome.children() {
            // Secrets are held by now, so the answer alone does not show them.
            if child.apply == ApplyPolicy::Hold && child.kind() == "Secret" {
                request = request.retained(&child.key, &child.object);
            }
        }
        let request = request.answered(&outcome).build();
        let is_data = |it: &&Observed| ["Secret", "PersistentVolumeClaim"].contains(&it.kind());
        let Ok(next) = crate::Plugin::reconcile(&request, &host()) else {
            // An invalid parent changes no child at all.
            return Ok(());
        };
        let stated = identities(&next);
        for child in request.children.iter().filter(is_data) {
            let identity = format!("{}/{}", child.kind(), child.name());
            prop_assert!(stated.contains(&identity), "{identity} is left out");
        }
    }

    #[test]
    fn two_parents_share_nothing(left in (name(), spec()), right in (name(), spec())) {
        prop_assume!(left.0 != right.0);
        let answer = |(name, spec): &(String, Value)| pass(&running(&parent(name, spec)));
        let (left, right) = (answer(&left), answer(&right));
        let shared: Vec<String> =
            identities(&left).intersection(&identities(&right)).cloned().collect();
        prop_assert_eq!(shared, Vec::<String>::new());
        for (mine, theirs) in [(&left, &right), (&right, &left)] {
            for key in ["web", "db"] {
                let Some(child) = theirs.child(key) else { continue };
                let labels = &child.object["spec"]["template"]["metadata"]["labels"];
                for selector in selectors(mine) {
                    prop_assert!(!is_matched(&selector, labels));
                }
            }
        }
    }

    #[test]
    fn keys_are_unique_and_name_only_what_is_there(spec in spec()) {
        let parent = parent("shop", &spec);
        for outcome in [pass(&TestRequest::new(&parent)), pass(&running(&parent))] {
            let keys: BTreeSet<&str> = outcome.children().iter().map(|it| it.key.as_str()).collect();
            prop_assert_eq!(keys.len(), outcome.children().len());
            for child in outcome.children() {
                prop_assert!(child.after.iter().all(|key| keys.contains(key.as_str())));
            }
        }
    }
}
