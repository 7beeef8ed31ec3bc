//! The configuration schema, as the host checks it.

use innkeeper_guest_testing::check_configurations;
use serde_json::json;

use super::PLUGIN;
use crate::config::Config;

#[test]
fn the_host_accepts_the_configurations_that_the_plugin_reads() {
    let verdicts = [
        (
            json!({"tenants": {"images": ["a/", "b"], "references": "namespace"}}),
            "",
        ),
        (
            json!({"tenants": {"references": "all"}}),
            "/tenants/references: \"all\" is not one of",
        ),
        (
            json!({"images": {"mysql": "mysql:8.4", "wordpress": "r:5000/a/b:1"}}),
            "",
        ),
        (
            json!({"images": {"mysql": "mysql:"}}),
            "/images/mysql: \"mysql:\" does not match",
        ),
        (
            json!({"images": {"wordpress": ""}}),
            "/images/wordpress: \"\" does not match",
        ),
        (
            json!({"tenants": {"images": ["a/b:1"]}}),
            "/tenants/images/0: \"a/b:1\" does not match",
        ),
        (json!({"ingressClassName": "nginx"}), ""),
        (json!({"ingressClassName": null}), ""),
        (
            json!({"ingressClassName": 1}),
            "/ingressClassName: 1 is not of types",
        ),
        (
            json!({"tenants": {"serviceTypes": ["NodePort", "LoadBalancer"]}}),
            "",
        ),
        (
            json!({"tenants": {"serviceTypes": ["ExternalName"]}}),
            "/tenants/serviceTypes/0: \"ExternalName\" is not one of",
        ),
        (json!({"tenants": {"podMetadata": {"labels": ["a/"]}}}), ""),
        (
            json!({"tenants": {"scripts": 1}}),
            "/tenants/scripts: 1 is not of type \"boolean\"",
        ),
    ];
    let reads = |value| serde_json::from_value::<Config>(value).is_ok();
    check_configurations(PLUGIN.manifest.config_schema.as_ref(), &verdicts, reads);
}

#[test]
fn images_are_references_and_repositories() {
    let digest = format!("@sha256:{}", "a".repeat(64));
    // A text, whether it is an image reference, and whether it is a repository entry.
    let table = [
        ("mysql", true, true),
        ("library/mysql", true, true),
        ("registry.example.com:5000/team/app", true, true),
        ("[2001:db8::5]:5000/app", true, true),
        ("Registry.example.com/app", true, true),
        ("a__b/c-d.e", true, true),
        ("mysql:8.4", true, false),
        (&*format!("mysql{digest}"), true, false),
        (&*format!("mysql:8.4{digest}"), true, false),
        ("team/", false, true),
        ("registry.example.com/", false, true),
        ("registry.example.com:5000/", false, true),
        ("registry.example.com/team/", false, true),
        ("", false, false),
        ("/", false, false),
        ("*", false, false),
        (" mysql", false, false),
        ("mysql ", false, false),
        ("mysql\n", false, false),
        ("a b", false, false),
        ("mysql:", false, false),
        ("mysql@", false, false),
        ("mysql@sha256:zz", false, false),
        ("MySQL", false, false),
        ("https://registry.example.com/", false, false),
        ("https://registry.example.com/app", false, false),
        ("registry.example.com//", false, false),
        ("a:1:2", false, false),
        ("$(IMAGE)", false, false),
    ];
    let schema = PLUGIN.manifest.config_schema.as_ref().unwrap();
    for (text, is_reference, is_repository) in table {
        for (value, is_right) in [
            (json!({ "images": { "mysql": text } }), is_reference),
            (json!({ "images": { "wordpress": text } }), is_reference),
            (json!({ "tenants": { "images": [text] } }), is_repository),
        ] {
            let problems = innkeeper_crd::config::problems(schema, &value).unwrap();
            assert_eq!(problems.is_empty(), is_right, "{value}: {problems:?}");
        }
    }
}
