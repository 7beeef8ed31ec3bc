//! Hostile component descriptions from users who may create Plugins but not grant: the host keeps
//! running and serves the others.

use std::time::{Duration, Instant};

use innkeeper_tests::{handmade, harmless, manifest::condition};
use serde_json::{Map, Value, json};

use crate::{
    plugin_resource::restricted_editor,
    plugins::{HEALTHY, NAME, PLUGIN, PluginSite},
};

/// Time limit until a Plugin's conditions name the cause.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Limit for the host's memory growth caused by the Plugins.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Returns a description whose configuration has this schema.
fn description(schema: &Value) -> Value {
    json!({
        "name": "bomb", "version": "1", "finalize": false, "readsOwnStatus": false, "crds": [], "children": [], "reads": [],
        "configSchema": schema,
        "parents": [{"apiVersion": "red.example/v1", "kind": "Bomb", "plural": "bombs", "scope": "Namespaced"}],
    })
}

/// A chain of references, in which each one evaluates all later ones again.
fn chain() -> Value {
    let definition = |number: usize| {
        let next = format!("#/$defs/a{}", number + 1);
        let schema = json!({"$ref": next, "unevaluatedProperties": false});
        (format!("a{number}"), schema)
    };
    let mut definitions: Map<String, Value> = (0..1500).map(definition).collect();
    definitions.insert("a1500".to_owned(), json!({"type": "object"}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

/// Patterns that each take megabytes when compiled.
fn patterns() -> Value {
    let part = |number: usize| {
        let pattern = format!("^\\w{{100}}a{number}$");
        json!({"properties": {"k": {"pattern": pattern}}})
    };
    json!({"type": "object", "allOf": (0..2000).map(part).collect::<Vec<_>>()})
}

/// The parsed nodes in these lists take a hundred times as much memory as the text.
fn lists() -> Value {
    Value::Array(vec![json!({"": 0}); 400_000])
}

#[test]
fn hostile_descriptions_without_grants_neither_stop_nor_fill_the_host() {
    let site = PluginSite::new();
    let editor = restricted_editor(&site.stage.plane);
    let mut host = site.stage.host_serving(&["plugins.innkeeper.dev"]);
    site.put("memcached");
    site.apply(&json!({}));
    site.wait_conditions_of(NAME, &host, &HEALTHY);
    let before = host.process().usage().unwrap().resident_bytes;

    let plugin = harmless::idle("idle.example.com");
    for (name, schema, path) in [
        ("chain", chain(), "config-schema.$defs: "),
        ("patterns", patterns(), "config-schema.allOf: "),
        ("lists", lists(), "config-schema: it has "),
    ] {
        let text = description(&schema).to_string();
        // Bytes that are no plugin, with the same description.
        for (kind, component) in [("plugin", &*plugin), ("bare", b"\0asm\x0d\0\x01\0")] {
            let name = format!("{name}-{kind}");
            let file = format!("{name}.wasm");
            site.put_file(&file, &handmade::described_as(component, text.as_bytes()));
            let started = Instant::now();
            let plugin = json!({
                "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind, "metadata": {"name": name},
                "spec": {"source": {"file": {"path": file}}},
            });
            editor.create(&plugin).unwrap();
            let waits = [
                "Compiled=False/CannotDescribe",
                "Granted=Unknown/NotReached",
            ];
            let plugin = site.wait_conditions_of(&name, &host, &waits);
            assert!(started.elapsed() < NAMED_WITHIN, "{:?}", started.elapsed());
            let message = condition(&plugin, "Compiled").unwrap();
            assert!(message.contains(path), "{message}");
        }
    }

    // The host checks a changed configuration and activates it.
    site.apply(&json!({"config": {"images": {"memcached": "memcached:1.6.1"}}}));
    site.wait_conditions_of(NAME, &host, &HEALTHY);
    let after = host.process().usage().unwrap().resident_bytes;
    assert!(
        after < before + GROWTH_BYTES_MAX,
        "{} MiB before, {} MiB after",
        before >> 20,
        after >> 20
    );
}
