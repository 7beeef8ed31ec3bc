//! The configuration's schema, as the host checks it.

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
            json!({"images": {"gobackup": "huacnlee/gobackup:"}}),
            "/images/gobackup: \"huacnlee/gobackup:\" does not match",
        ),
        (
            json!({"tenants": {"images": ["a/b@sha256:zz"]}}),
            "/tenants/images/0: \"a/b@sha256:zz\" does not match",
        ),
        (json!({"storagePath": "{namespace}/{name}"}), ""),
        (
            json!({"storagePath": "../a"}),
            "/storagePath: \"../a\" does not match",
        ),
        (
            json!({"storagePath": "a".repeat(254)}),
            "is longer than 253 characters",
        ),
        (json!({"imagePullSecrets": [{"name": "a"}]}), ""),
        (json!({"defaultResources": null}), ""),
        (
            json!({"defaultResources": {"requests": {"cpu": "100m", "memory": 1}}}),
            "",
        ),
        (
            json!({"defaultResources": {"requests": {"cpu": true}}}),
            "/defaultResources/requests/cpu: true is not of types",
        ),
        (
            json!({"tenants": {"hostVolumes": true, "scripts": true}}),
            "",
        ),
    ];
    let reads = |value| serde_json::from_value::<Config>(value).is_ok();
    check_configurations(PLUGIN.manifest.config_schema.as_ref(), &verdicts, reads);
}
