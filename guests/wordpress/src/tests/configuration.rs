//! The schema of the configuration, as the host checks it.

use innkeeper_guest_testing::check_configurations;
use serde_json::json;

use super::manifest;
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
    check_configurations(manifest().config_schema.as_ref(), &verdicts, reads);
}
