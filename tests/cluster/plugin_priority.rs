//! Priority between plugins for the same parent kind: plugin files come first, then the oldest Plugin.

use std::{thread::sleep, time::Duration};

use innkeeper_tests::{
    Host,
    manifest::{condition, is_ready},
    process::path_from_env,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    moody,
    plugins::{HEALTHY, PLUGIN, PluginSite, cache_grants},
    stage::{Stage, lines},
    suite::Target,
};

const PARENT: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "example-memcached");
const CRD: &str = "memcacheds.cache.example.com";
const TAKEN: [&str; 2] = ["Serving=False/ParentTaken", "Degraded=True/ParentTaken"];
const OLDER: &str = "the-elder";
const YOUNGER: &str = "junior";

impl PluginSite {
    /// Waits until the parent's children belong to a plugin, and returns the Deployment's UID.
    #[track_caller]
    fn wait_made_by(&self, host: &Host, plugin: &str) -> Value {
        self.stage
            .wait(host, &self.namespace, DEPLOYMENT, |deployment| {
                deployment["metadata"]["labels"]["innkeeper.dev/plugin"] == plugin
            });
        self.stage.wait(host, &self.namespace, PARENT, is_ready);
        self.stage.get(&self.namespace, DEPLOYMENT)["metadata"]["uid"].clone()
    }

    fn serving(&self, name: &str) -> String {
        condition(&self.plugin_of(name), "Serving").unwrap_or_default()
    }
}

/// Waits for the next second, because priority depends on creation times in whole seconds.
pub(crate) fn next_second() {
    let before = Timestamp::now().as_second();
    while Timestamp::now().as_second() == before {
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_oldest_of_several_plugins_for_the_same_parents_is_active() {
    let site = PluginSite::new();
    site.define();
    site.put("memcached");
    let host = site.stage.host_serving(&["plugins.innkeeper.dev"]);

    // The older Plugin lacks grants, and must not block the younger one.
    site.apply_as(OLDER, &json!({"grants": {}, "crds": "Ignore"}));
    site.wait_conditions_of(OLDER, &host, &["Granted=False/NotGranted"]);
    next_second();
    site.apply_as(YOUNGER, &json!({}));
    site.wait_conditions_of(YOUNGER, &host, &HEALTHY);
    site.stage.wait_served(&host, &[CRD]);
    site.stage.restart_collector();
    site.stage
        .apply_example(&site.namespace, "examples/memcached/01-article.yaml");
    let uid = site.wait_made_by(&host, YOUNGER);

    // Once the older Plugin has grants, it takes over the younger one's children.
    let granted = json!({"grants": cache_grants(), "crds": "Ignore"});
    site.apply_as(OLDER, &granted);
    site.wait_conditions_of(OLDER, &host, &HEALTHY);
    site.wait_conditions_of(YOUNGER, &host, &TAKEN);
    let message = site.serving(YOUNGER);
    let expected = format!("Memcached.cache.example.com belongs to plugin {OLDER}");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(site.wait_made_by(&host, OLDER), uid);

    // After a restart, the order in which the host reads the Plugins must not matter.
    let mark = site.stage.settle(Duration::from_secs(2));
    Stage::stop(host);
    let host = site.stage.host();
    site.wait_conditions_of(OLDER, &host, &HEALTHY);
    site.wait_conditions_of(YOUNGER, &host, &TAKEN);
    site.stage.settle(Duration::from_secs(2));
    let written: Vec<String> = lines(&site.stage.writes_since(mark))
        .into_iter()
        .filter(|line| !line.contains("plugins.innkeeper.dev"))
        .collect();
    assert_eq!(written, Vec::<String>::new());

    site.stage.plane.user().delete(PLUGIN, OLDER).unwrap();
    site.wait_conditions_of(YOUNGER, &host, &HEALTHY);
    assert_eq!(site.wait_made_by(&host, YOUNGER), uid);
    Stage::stop(host);
}

#[test]
fn plugins_are_served_beside_plugin_files_which_have_priority() {
    const FILE: &str = "memcached";
    const MOODY: Target<'static> = (moody::API, "Moody", "calm");

    let mut site = PluginSite::new();
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let options = &mut site.stage.options;
    options.plugins = vec![guests.join(format!("{FILE}.wasm"))];
    options.arguments.push("--plugin-resources".to_owned());
    site.define();
    site.put(FILE);
    let host = site.stage.host_serving(&[CRD]);
    site.stage.restart_collector();
    site.stage
        .apply_example(&site.namespace, "examples/memcached/01-article.yaml");
    site.wait_made_by(&host, FILE);

    site.apply_as(YOUNGER, &json!({"crds": "Ignore"}));
    site.wait_conditions_of(YOUNGER, &host, &TAKEN);
    site.apply_as(FILE, &json!({}));
    site.wait_conditions_of(FILE, &host, &["Serving=False/NameTaken"]);
    let message = site.serving(FILE);
    assert!(message.contains("rename the Plugin"), "{message}");

    // A Plugin for other parents is served.
    site.put_bytes(&moody::guest("moody"));
    let granted = json!({
        "grants": {
            "parents": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
            "children": [{"kind": "ConfigMap"}, {"kind": "Secret"}],
        },
        "config": {"mood": "good", "says": "both"},
    });
    site.apply_as("moody", &granted);
    site.wait_conditions_of("moody", &host, &HEALTHY);
    site.stage
        .wait_served(&host, &["moodies.test.innkeeper.dev"]);
    let (api_version, kind, name) = MOODY;
    let parent = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {},
    });
    site.stage.apply_new(&site.namespace, &parent);
    site.stage
        .wait(&host, &site.namespace, moody::config_map(name), |child| {
            child["data"]["says"] == "both"
        });

    // Deleting Plugins that do not serve does not affect the plugin file's children.
    let mark = site.stage.settle(Duration::from_secs(1));
    for name in [FILE, YOUNGER] {
        site.stage.plane.user().delete(PLUGIN, name).unwrap();
    }
    site.stage.settle(Duration::from_secs(2));
    let written = lines(&site.stage.writes_since(mark));
    assert_eq!(written, Vec::<String>::new());
    site.stage
        .merge(&site.namespace, PARENT, &json!({"spec": {"size": 2}}));
    site.stage
        .wait(&host, &site.namespace, DEPLOYMENT, |deployment| {
            deployment["spec"]["replicas"] == 2
        });
    Stage::stop(host);
}
