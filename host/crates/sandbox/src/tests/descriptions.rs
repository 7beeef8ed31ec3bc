//! The rules for descriptions.

use serde_json::{Value, json};

use super::*;
use crate::testing::{Description, guest};

fn load(description: Description) -> Result<Described, Error> {
    Described::load(
        &ENGINE,
        &compiled(guest().describing(description)),
        &Limits::default(),
    )
}

fn check_refused(description: Description, problem: &str) {
    let error = load(description).err().unwrap();
    let Error::Manifest(source) = error else {
        panic!("{error}");
    };
    let mut text = source.to_string();
    if let Some(source) = std::error::Error::source(&source) {
        text = format!("{text}: {source}");
    }
    assert!(text.contains(problem), "{text}");
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Web", "plural": "webs"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": {
                    "type": "object",
                    "properties": {"conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                    }},
                }}}},
            }],
        },
    })
}

/// The CRD with one value exchanged, or taken out.
fn crd_with(path: &str, value: Option<Value>) -> Description {
    let mut crd = crd();
    let (object, key) = path.rsplit_once('/').unwrap();
    let object = crd.pointer_mut(object).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(object.insert(key.to_owned(), value)),
        None => drop(object.remove(key).unwrap()),
    }
    Description {
        crds: vec![crd.to_string()],
        ..Description::default()
    }
}

#[test]
fn takes_a_description() {
    let description = Description {
        crds: vec![crd().to_string()],
        ..Description::default()
    };
    let described = load(description).unwrap();
    let manifest = described.manifest();
    assert_eq!(manifest.name.as_str(), "web");
    assert_eq!(manifest.version, "1.2.3");
    assert_eq!(
        manifest.parents[0].kind,
        Gvk::new("example.com", "v1", "Web")
    );
    assert_eq!(manifest.parents[0].plural, "webs");
    assert_eq!(manifest.children[0].kind, Gvk::new("", "v1", "ConfigMap"));
    assert_eq!(manifest.crds.len(), 1);
}

#[test]
fn refuses_names() {
    let named = |name: &str| Description {
        name: name.to_owned(),
        ..Description::default()
    };
    for name in [
        "",
        "Web",
        "we\u{1b}b",
        "web\n",
        "we\u{202e}b",
        &"w".repeat(41),
    ] {
        check_refused(named(name), &format!("\"{name}\" is not a plugin name"));
    }
    let versioned = |version: &str| Description {
        version: version.to_owned(),
        ..Description::default()
    };
    for version in ["1", "1.2.3", "v1.2.3-rc.1+build.5", &"1".repeat(64)] {
        load(versioned(version)).unwrap();
    }
    let long = "1".repeat(100_000);
    for version in [
        "",
        "1\u{1b}[2J",
        "1\r\n2",
        "1\u{9b}",
        "1\u{202e}2",
        "1\u{200b}",
        &long,
    ] {
        let start = &version[..version.len().min(64)];
        check_refused(versioned(version), &format!("\"{start}\" is not a version"));
    }
    let of = |parts: [&str; 4]| Description {
        parents: vec![parts.map(str::to_owned)],
        ..Description::default()
    };
    check_refused(
        of(["example.com", "v1", "web", "webs"]),
        "invalid kind \"web\"",
    );
    check_refused(
        of(["example.com", "V1", "Web", "webs"]),
        "invalid version \"V1\"",
    );
    check_refused(
        of(["exa mple", "v1", "Web", "webs"]),
        "invalid group \"exa mple\"",
    );
    check_refused(
        of(["example.com", "v1", "Web", "Webs"]),
        "invalid plural \"Webs\"",
    );
    let child = |api_version: &str| Description {
        children: vec![[api_version, "Pod"].map(str::to_owned)],
        ..Description::default()
    };
    check_refused(child("/v1"), "one of the children has no valid apiVersion");
}

#[test]
fn refuses_lists() {
    let none = Description {
        parents: Vec::new(),
        ..Description::default()
    };
    check_refused(none, "no kind of parent");
    let pod = |version: &str| [version.to_owned(), "Pod".to_owned()];
    let twice = Description {
        children: vec![pod("v1"), pod("v2")],
        ..Description::default()
    };
    check_refused(twice, "Pod is named twice in children");
    let many = Description {
        children: vec![pod("v1"); 129],
        ..Description::default()
    };
    check_refused(many, "there are 129 children, at most 128");
}

#[test]
fn refuses_crds() {
    let version = "/spec/versions/0";
    let conditions =
        format!("{version}/schema/openAPIV3Schema/properties/status/properties/conditions");
    for (path, value, problem) in [
        (
            "/kind",
            Some(json!("Pod")),
            "not an apiextensions.k8s.io/v1",
        ),
        ("/metadata/name", Some(json!("x")), "\"webs.example.com\""),
        ("/spec/names/plural", Some(json!("web")), "web.example.com"),
        (
            "/spec/scope",
            Some(json!("Cluster")),
            "the scope Cluster, the plugin's parent has Namespaced",
        ),
        (
            "/spec/conversion",
            Some(json!({"strategy": "Webhook"})),
            "webhook",
        ),
        (
            &format!("{version}/name"),
            Some(json!("v2")),
            "does not serve example.com/v1 Web",
        ),
        (
            &format!("{version}/served"),
            Some(json!(false)),
            "does not serve example.com/v1 Web",
        ),
        (
            &format!("{version}/subresources"),
            None,
            "status subresource",
        ),
        (&conditions, None, "does not declare status.conditions"),
        (
            &format!("{conditions}/x-kubernetes-list-type"),
            None,
            "x-kubernetes-list-type: map",
        ),
    ] {
        check_refused(crd_with(path, value), problem);
    }
    let broken = Description {
        crds: vec!["[]".to_owned()],
        ..Description::default()
    };
    check_refused(broken, "crds[0]: this is a list");
}

#[test]
fn refuses_label_selectors_that_do_not_parse() {
    let with = |selector: &str| Description {
        reads: vec![["v1", "Secret", selector].map(str::to_owned)],
        ..Description::default()
    };
    load(with("app=web,tier in (a, b)")).unwrap();
    check_refused(
        with("app=web,tier in a"),
        "the read of v1 Secret has no valid label selector: \"app=web,tier in a\" is not a label selector: join",
    );
}

#[test]
fn refuses_schemas() {
    let with = |schema: &str| Description {
        config_schema: Some(schema.to_owned()),
        ..Description::default()
    };
    check_refused(with("{"), "config-schema: this is not JSON");
    check_refused(
        with(r##"{"properties": {"a": {"$ref": "#"}}}"##),
        "config-schema.properties.a.$ref: $ref is not accepted: state the schema in place of the reference",
    );
    // Refused before it is parsed.
    let long = format!("{{\"title\": \"{}\"}}", "a".repeat(128 << 10));
    check_refused(with(&long), "at most 131072 are accepted");
}

#[test]
fn a_plugin_that_cannot_describe_itself_is_refused() {
    let artifact = compiled(guest().doing_on_describe("(unreachable)"));
    let error = Described::load(&ENGINE, &artifact, &Limits::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Describe { .. }), "{error}");
}
