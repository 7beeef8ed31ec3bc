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
        (json!({"imageRepository": "a/b", "clusterDomain": "c"}), ""),
        (
            json!({"clusterDomain": null}),
            "/clusterDomain: null is not of type \"string\"",
        ),
        (
            json!({"imageRepository": "a/b:1"}),
            "/imageRepository: \"a/b:1\" does not match",
        ),
        (
            json!({"images": {"tools": "a b"}}),
            "/images/tools: \"a b\" does not match",
        ),
        (json!({"tenants": {"images": ["A/b"]}}), ""),
        (
            json!({"tenants": {"images": ["a/B"]}}),
            "/tenants/images/0: \"a/B\" does not match",
        ),
        (json!({"monitoring": {"labels": {"release": "a"}}}), ""),
        (
            json!({"monitoring": {"labels": {"release": 1}}}),
            "/monitoring/labels/release: 1 is not of type \"string\"",
        ),
        (json!({"tenants": {"serviceTypes": ["NodePort"]}}), ""),
        (
            json!({"tenants": {"serviceTypes": ["None"]}}),
            "/tenants/serviceTypes/0: \"None\" is not one of",
        ),
    ];
    let reads = |value| serde_json::from_value::<Config>(value).is_ok();
    check_configurations(PLUGIN.manifest.config_schema.as_ref(), &verdicts, reads);
}
