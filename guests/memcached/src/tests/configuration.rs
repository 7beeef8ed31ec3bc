//! The configuration schema, as the host checks it.

use innkeeper_guest_testing::check_configurations;
use serde_json::json;

use super::PLUGIN;
use crate::config::Config;

#[test]
fn the_host_accepts_the_configurations_that_the_plugin_reads() {
    let verdicts = [
        (
            json!({"tenants": {"images": ["a/", "b"], "extraArgs": ["-e"]}}),
            "",
        ),
        (
            json!({"tenants": {"references": "namespace"}}),
            "'references' was unexpected",
        ),
        (
            json!({"assignUser": false, "images": {"memcached": "a:1"}}),
            "",
        ),
        (
            json!({"assignUser": "no"}),
            "/assignUser: \"no\" is not of type \"boolean\"",
        ),
        (json!({"tenants": {"serviceAnnotations": ["a/"]}}), ""),
        (
            json!({"images": {"memcached": "memcached:"}}),
            "/images/memcached: \"memcached:\" does not match",
        ),
        (
            json!({"tenants": {"images": ["a/b:1"]}}),
            "/tenants/images/0: \"a/b:1\" does not match",
        ),
    ];
    let reads = |value| serde_json::from_value::<Config>(value).is_ok();
    check_configurations(PLUGIN.manifest.config_schema.as_ref(), &verdicts, reads);
}
