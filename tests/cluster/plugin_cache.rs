//! The cache directory: Plugins without grants do not fill it, and unused code is removed.

use std::{fs, path::Path};

use innkeeper_tests::{
    Host, eventually, handmade, harmless, manifest::condition, process::path_from_env,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::plugins::{HEALTHY, PLUGIN, PluginSite, cache_grants};

const NAME: &str = "cache";

/// A site with an empty cache directory.
struct CacheFixture {
    host: Host,
    site: PluginSite,
    /// Keeps the directory until the end of the test.
    _directory: TempDir,
}

impl CacheFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut site = PluginSite::new();
        site.stage.options.cache = Some(directory.path().join("cache"));
        site.define();
        let host = site.stage.host_serving(&["plugins.innkeeper.dev"]);
        Self {
            host,
            site,
            _directory: directory,
        }
    }

    /// Applies a Plugin with these grants, which the host fetches every ten seconds.
    fn apply(&self, grants: &Value) {
        let source = json!({
            "file": {"path": "plugin.wasm"}, "pullPolicy": "Always", "pullInterval": "10s",
        });
        let more = json!({"source": source, "grants": grants});
        self.site.apply_as(NAME, &more);
    }

    /// Replaces the component, and waits until the host has fetched it.
    fn replace(&self, bytes: &[u8]) {
        let fetched = || {
            self.host
                .log()
                .unwrap_or_default()
                .matches("fetched a plugin")
                .count()
        };
        let before = fetched();
        self.site.put_bytes(bytes);
        // The next fetch may still return the old bytes.
        eventually("the other bytes are fetched", || match fetched() {
            count if count >= before + 2 => Ok(()),
            count => Err(format!("{count} fetches, {before} before")),
        });
    }

    #[track_caller]
    fn wait(&self, expected: &[&str]) -> Value {
        self.site.wait_conditions_of(NAME, &self.host, expected)
    }

    /// Returns the cache directory's file names with this extension.
    fn files(&self, extension: &str) -> Vec<String> {
        let cache = self.site.stage.options.cache.as_deref().unwrap();
        fs::read_dir(cache)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                Path::new(name)
                    .extension()
                    .is_some_and(|suffix| suffix == extension)
            })
            .collect()
    }
}

fn memcached() -> Vec<u8> {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    fs::read(guests.join("memcached.wasm")).unwrap()
}

/// Otherwise a user who may write Plugins, but not grants, could fill the disk and keep the compiler
/// busy.
#[test]
fn an_ungranted_plugin_that_changes_at_every_pull_is_not_compiled() {
    let fixture = CacheFixture::new();
    let guest = memcached();
    fixture.site.put_bytes(&guest);
    fixture.apply(&json!({}));
    let waits = [
        "Fetched=True/Fetched",
        "Compiled=Unknown/NotReached",
        "Described=True/Described",
        "Granted=False/NotGranted",
    ];
    for mark in 0..3 {
        let plugin = fixture.wait(&waits);
        let message = condition(&plugin, "Granted").unwrap();
        assert!(message.contains("kind: Memcached"), "{message}");
        fixture.replace(&harmless::marked(&guest, mark));
        for extension in ["cwasm", "wasm", "refused"] {
            assert_eq!(fixture.files(extension), [""; 0]);
        }
    }

    // Without an embedded description, even the parent kinds are unknown.
    fixture.replace(&harmless::idle("idle.example.com"));
    let plugin = fixture.wait(&["Compiled=False/NotGranted", "Described=Unknown/NotReached"]);
    let message = condition(&plugin, "Compiled").unwrap();
    let remedy =
        "add the parents to spec.grants.parents, or build the component with innkeeper build";
    assert!(message.contains(remedy), "{message}");
    assert_eq!(fixture.files("cwasm"), [""; 0]);

    // The plugin starts after a change to the grants alone.
    fixture.replace(&guest);
    fixture.wait(&waits);
    fixture.apply(&cache_grants());
    fixture.wait(&HEALTHY);
    assert_eq!(fixture.files("cwasm").len(), 1);
}

/// The next fetch removes the code of a component that did not become a revision.
#[test]
fn a_component_that_cannot_describe_itself_leaves_nothing_on_disk() {
    let fixture = CacheFixture::new();
    let guest = memcached();
    fixture.site.put_bytes(&guest);
    fixture.apply(&cache_grants());
    fixture.wait(&HEALTHY);
    let active = fixture.files("cwasm");
    let faulty = handmade::breaks_down_in_describe();
    for mark in 0..3 {
        fixture.replace(&harmless::marked(&faulty, mark));
        fixture.wait(&["Described=False/CannotDescribe", "Serving=True/Serving"]);
        let code = fixture.files("cwasm");
        assert!(code.contains(&active[0]) && code.len() <= 2, "{code:?}");
    }
    fixture.replace(&guest);
    fixture.wait(&HEALTHY);
    assert_eq!(fixture.files("cwasm"), active);
}

#[test]
fn compiled_code_goes_with_the_last_plugin_that_needs_it() {
    let fixture = CacheFixture::new();
    fixture.site.put_bytes(&memcached());
    fixture.apply(&cache_grants());
    fixture.wait(&HEALTHY);
    let other = "younger";
    fixture.site.apply_as(other, &json!({"crds": "Ignore"}));
    let taken = ["Compiled=True/Compiled", "Serving=False/ParentTaken"];
    fixture
        .site
        .wait_conditions_of(other, &fixture.host, &taken);
    let code = fixture.files("cwasm");
    assert_eq!(code.len(), 1, "both have the same component");

    let user = fixture.site.stage.plane.user();
    user.delete(PLUGIN, NAME).unwrap();
    fixture
        .site
        .wait_conditions_of(other, &fixture.host, &HEALTHY);
    assert_eq!(fixture.files("cwasm"), code);
    user.delete(PLUGIN, other).unwrap();
    eventually("no file is left", || {
        let files = ["cwasm", "sum", "wasm"].map(|extension| fixture.files(extension));
        files
            .iter()
            .all(Vec::is_empty)
            .then_some(())
            .ok_or_else(|| format!("{files:?}"))
    });
}
