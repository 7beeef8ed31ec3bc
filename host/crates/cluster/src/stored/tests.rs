use expect_test::expect;

use super::*;
use crate::hash_values;

fn shape(form: Access) -> Shape {
    Shape {
        kind: Gvk::new("", "v1", "Secret"),
        form,
        managers: Some(Arc::new(BTreeSet::from([Arc::from("elsewhere")]))),
        hash_key: Some(HashKey::new([7_u8; 32])),
    }
}

const SECRET: &str = r#"{"metadata":{"name":"a","namespace":"demo","uid":"u-1","resourceVersion":"12","generation":3,"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":null,"labels":{"app":"x","innkeeper.dev/plugin":"p"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":\"leak\"}","innkeeper.dev/retained-for":"g/K/demo/w","note":"a\"b"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-0"},{"apiVersion":"g/v1","kind":"K","name":"w","uid":"u-9","controller":true}],"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:data":{}}},{"manager":"innkeeper:p","operation":"Apply","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}},{"manager":"elsewhere","operation":"Update","subresource":"status","fieldsV1":{}}]},"data":{"k":"dg=="},"type":"Opaque"}"#;

#[test]
fn keeps_the_object_as_guests_see_it() {
    let stored = keep(SECRET, &shape(Access::Full)).unwrap();
    expect![[r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"demo","uid":"u-1","generation":3,"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":null,"labels":{"app":"x","innkeeper.dev/plugin":"p"},"annotations":{"innkeeper.dev/retained-for":"g/K/demo/w","note":"a\"b"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-0"},{"apiVersion":"g/v1","kind":"K","name":"w","uid":"u-9","controller":true}]},"data":{"k":"dg=="},"type":"Opaque"}"#]]
        .assert_eq(&stored.json);
    expect![[r#"[{"manager":"innkeeper:p","operation":"Apply","fieldsV1":{"f:data":{"f:k":{}}}},{"manager":"elsewhere","operation":"Update","subresource":"status","fieldsV1":{}}]"#]]
        .assert_eq(stored.managed.as_deref().unwrap());
    assert_eq!(stored.version, ResourceVersion(12));
    assert_eq!(stored.controller, Some(Uid("u-9".into())));
    assert_eq!(stored.retained_for, None, "not the host's annotation");
    assert!(!stored.deleting, "null is no timestamp");
    assert!(stored.has_generation);
    let mut labels = Vec::new();
    stored.each_label(|name, value| labels.push(format!("{name}={value}")));
    assert_eq!(labels, ["app=x", "innkeeper.dev/plugin=p"]);
}

#[test]
fn a_hash_tells_nothing_and_differs_by_place() {
    let stored = keep(SECRET, &shape(Access::Hash)).unwrap();
    assert!(!stored.json.contains("dg=="));
    expect![[r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"demo","uid":"u-1","generation":3,"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":null,"labels":{"app":"x","innkeeper.dev/plugin":"p"},"annotations":{"innkeeper.dev/retained-for":"g/K/demo/w","note":"a\"b"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-0"},{"apiVersion":"g/v1","kind":"K","name":"w","uid":"u-9","controller":true}]},"type":"Opaque","data":{"k":"hmac-sha256:320efed5"}}"#]]
    .assert_eq(&shorten(&stored.json));
    for (here, there) in [
        (r#""name":"a""#, r#""name":"b""#),
        (r#""namespace":"demo""#, r#""namespace":"there""#),
        // The next object with the same name: otherwise a user who once knew the value could confirm it.
        (r#""uid":"u-1""#, r#""uid":"u-2""#),
        (r#"{"k":"#, r#"{"l":"#),
    ] {
        let other = keep(&SECRET.replace(here, there), &shape(Access::Hash)).unwrap();
        assert_ne!(hash_of(&stored.json), hash_of(&other.json), "{there}");
    }

    let mut other_key = shape(Access::Hash);
    other_key.hash_key = Some(HashKey::new([8_u8; 32]));
    let other = keep(SECRET, &other_key).unwrap();
    assert_ne!(hash_of(&stored.json), hash_of(&other.json));
}

/// A dump has hashes, and a cache from the dump must equal the cluster's cache.
#[test]
fn hashes_of_a_secret_stay_as_they_are() {
    let stored = keep(SECRET, &shape(Access::Hash)).unwrap();
    let mut dumped = serde_json::from_str(SECRET).unwrap();
    hash_values(&mut dumped, &HashKey::new([7_u8; 32]));
    assert!(!dumped.to_string().contains("dg=="), "{dumped}");
    assert!(!dumped.to_string().contains("leak"), "{dumped}");
    let again = keep(&dumped.to_string(), &shape(Access::Hash)).unwrap();
    assert_eq!(hash_of(&again.json), hash_of(&stored.json));

    // A value of another kind may look like one.
    let mut other = shape(Access::Hash);
    other.kind = Gvk::new("", "v1", "ConfigMap");
    let other = keep(&dumped.to_string(), &other).unwrap();
    assert_ne!(hash_of(&other.json), hash_of(&stored.json));
}

#[test]
fn projections_equal_the_kept_form() {
    let full = keep(SECRET, &shape(Access::Full)).unwrap();
    for form in [Access::Full, Access::Hash, Access::Metadata] {
        let stored = keep(SECRET, &shape(form)).unwrap();
        assert_eq!(
            project(&full, Access::Full, &shape(form)).unwrap(),
            stored.json
        );
    }
    let hash = keep(SECRET, &shape(Access::Hash)).unwrap();
    let metadata = keep(SECRET, &shape(Access::Metadata)).unwrap();
    assert_eq!(
        project(&hash, Access::Hash, &shape(Access::Metadata)).unwrap(),
        metadata.json
    );
}

#[test]
fn rejects_text_that_is_not_a_stored_object() {
    for (text, problem) in [
        ("[]", "failed to parse an object"),
        (r#"{"metadata":{}"#, "failed to parse an object"),
        ("{}", "an object has no metadata"),
        (
            r#"{"metadata":{"uid":"u"}}"#,
            "an object has no metadata.name",
        ),
        (
            r#"{"metadata":{"name":"a"}}"#,
            "an object has no metadata.uid",
        ),
        (
            r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"x"}}"#,
            "\"x\" is not a resourceVersion",
        ),
    ] {
        let error = keep(text, &shape(Access::Full)).unwrap_err();
        assert_eq!(error.to_string(), problem, "{text}");
    }
    let mut keyless = shape(Access::Hash);
    keyless.hash_key = None;
    assert!(matches!(keep(SECRET, &keyless), Err(Malformed::NoHashKey)));
}

fn hash_of(json: &str) -> &str {
    json.split("hmac-sha256:").nth(1).unwrap()
}

/// Cuts hashes to eight digits.
fn shorten(json: &str) -> String {
    let at = json.find("hmac-sha256:").unwrap() + 12;
    format!("{}{}", &json[..at + 8], &json[at + 64..])
}

#[test]
fn an_object_of_another_kind_or_place_than_asked_for_is_refused() {
    let requested = Gvk::new("", "v1", "ConfigMap");
    let check = |list: Option<&str>, head: &str, place| {
        let text = format!(
            r#"{{{head} "metadata": {{"namespace": "demo", "name": "a", "uid": "u", "resourceVersion": "1"}}}}"#
        );
        let refused = check_requested(
            &serde_json::from_str(&text).unwrap(),
            list,
            &requested,
            place,
        );
        refused.map_err(|refused| refused.to_string()).err()
    };
    let here = (Some("demo"), Some("a"));
    let of_kind = r#""apiVersion": "v1", "kind": "ConfigMap","#;
    let metadata = r#""apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata","#;
    for (list, head) in [
        (None, of_kind),
        (None, metadata),
        (None, ""),
        (Some("ConfigMapList"), ""),
        (Some("PartialObjectMetadataList"), ""),
    ] {
        assert_eq!(check(list, head, here), None, "{list:?} {head}");
        assert_eq!(check(list, head, (None, None)), None, "{list:?} {head}");
    }
    for (list, head, place) in [
        (None, of_kind, (Some("other"), Some("a"))),
        (None, of_kind, (Some("demo"), Some("b"))),
        (None, r#""apiVersion": "v1", "kind": "Secret","#, here),
        (
            None,
            r#""apiVersion": "example.com/v1", "kind": "ConfigMap","#,
            here,
        ),
        (Some("SecretList"), "", here),
    ] {
        assert!(
            check(list, head, place).is_some(),
            "{list:?} {head} {place:?}"
        );
    }
    assert_eq!(
        check(Some("SecretList"), "", here).unwrap(),
        "the API server answered with Secret demo/a instead of v1 ConfigMap demo/a"
    );
    let huge = format!(r#""kind": "{}","#, "x".repeat(10_000));
    assert!(check(None, &huge, here).unwrap().len() < 400);
}
