//! Loads that crash the host are delayed, without delaying other Plugins or a changed spec.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use innkeeper_tests::{Host, eventually, harmless, manifest::condition};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    plugins::{HEALTHY, PLUGIN, PluginSite},
    stage::Stage,
    web::Web,
};

const NAME: &str = "poisoned";
const GROUP: &str = "poisoned.example.com";

/// Another Plugin, from a file.
const HARMLESS: &str = "harmless";
const HARMLESS_GROUP: &str = "harmless.example.com";

/// A site whose hosts share a cache directory, with a Plugin that never finishes loading.
struct CrashFixture {
    site: PluginSite,
    directory: TempDir,
    /// Never accepts: connections wait in the backlog without an answer.
    server: TcpListener,
}

impl CrashFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut site = PluginSite::new();
        let options = &mut site.stage.options;
        options.cache = Some(directory.path().join("cache"));
        options.arguments.push("--allow-local-sources".to_owned());
        site.define();
        for group in [GROUP, HARMLESS_GROUP] {
            site.stage.apply_new("", &harmless::definition(group));
        }
        site.put_bytes(&harmless::idle(HARMLESS_GROUP));
        let fixture = Self {
            site,
            directory,
            server: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        fixture.apply(&fixture.held_url(), &json!({}));
        fixture
    }

    fn held_url(&self) -> String {
        format!("http://{}/plugin.wasm", self.server.local_addr().unwrap())
    }

    fn apply(&self, url: &str, limits: &Value) {
        let source = json!({"http": {"url": url}});
        let more = json!({"source": source, "grants": grants(GROUP), "limits": limits});
        self.site.apply_as(NAME, &more);
    }

    fn apply_harmless(&self) {
        let more = json!({"grants": grants(HARMLESS_GROUP)});
        self.site.apply_as(HARMLESS, &more);
    }

    #[track_caller]
    fn wait_harmless(&self, host: &Host) {
        self.site.wait_conditions_of(HARMLESS, host, &HEALTHY);
    }

    /// Returns how often each unfinished load has begun.
    fn begun(&self) -> Vec<i64> {
        marks(&self.directory.path().join("cache"))
            .iter()
            .flat_map(|mark| mark["loads"].as_array().unwrap())
            .map(|load| load["begun"].as_i64().unwrap())
            .collect()
    }

    /// Waits until the host loads only the poisoned Plugin, for the `times`-th time in a row.
    #[track_caller]
    fn wait_begun(&self, host: &Host, times: i64) {
        self.wait_marks(host, &[times]);
    }

    /// Waits for these marks. The conditions are not enough: a harmless load may be under way while they
    /// are still from an earlier host.
    #[track_caller]
    fn wait_marks(&self, host: &Host, expected: &[i64]) {
        eventually(&format!("the loads have begun {expected:?} times"), || {
            let begun = self.begun();
            if begun == expected {
                return Ok(());
            }
            Err(format!("{begun:?}\n{}", host.log().unwrap_or_default()))
        });
    }
}

fn grants(group: &str) -> Value {
    json!({
        "parents": [{"group": group, "kind": "Idle"}], "children": [{"kind": "ConfigMap"}],
    })
}

/// Returns the marks in a cache directory.
fn marks(cache: &Path) -> Vec<Value> {
    // A mark may be removed at any moment.
    mark_files(cache)
        .filter_map(|path| fs::read(path).ok())
        .map(|text| serde_json::from_slice(&text).unwrap())
        .collect()
}

fn mark_files(cache: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().starts_with("mark-"))
        .map(|file| file.path())
}

/// Removes the marks in a cache directory, so that earlier crashes do not delay a load.
pub(crate) fn forget_ends(cache: &Path) {
    for path in mark_files(cache) {
        fs::remove_file(path).unwrap();
    }
}

/// Without the delay, a component that crashes the host would crash it at every start, and all other
/// plugins with it.
#[test]
fn a_plugin_that_ends_the_host_twice_waits_while_others_are_served() {
    let fixture = CrashFixture::new();
    let site = &fixture.site;
    let host = site.stage.host();
    fixture.wait_begun(&host, 1);
    // The harmless Plugin may be loading at the first kill.
    fixture.apply_harmless();
    Stage::kill(host);
    // A single crash causes no delay.
    let host = site.stage.host();
    fixture.wait_begun(&host, 2);
    Stage::kill(host);

    let host = site.stage.host();
    let plugin = site.wait_conditions_of(
        NAME,
        &host,
        &["Fetched=False/HostEnded", "Serving=False/NotLoaded"],
    );
    let message = condition(&plugin, "Fetched").unwrap();
    for part in [
        "ended 2 times in a row",
        "follows 1 min",
        "delete the Plugin",
    ] {
        assert!(message.contains(part), "{message}");
    }
    fixture.wait_harmless(&host);
    fixture.wait_marks(&host, &[2]);

    // The host loads a changed spec at once, even with the same component.
    fixture.apply(&fixture.held_url(), &json!({"children": 7}));
    fixture.wait_begun(&host, 1);
    // A regular stop does not count as a crash.
    Stage::stop(host);
    assert_eq!(fixture.begun(), [0; 0]);
    let host = site.stage.host();
    fixture.wait_begun(&host, 1);
    let web = Web::start(harmless::idle(GROUP));
    fixture.apply(&web.url(), &json!({}));
    site.wait_conditions_of(NAME, &host, &HEALTHY);
    fixture.wait_harmless(&host);
    fixture.wait_marks(&host, &[]);
    Stage::stop(host);
}

/// Otherwise the marks of Plugins that were deleted while no host ran would stay for ever.
#[test]
fn marks_of_deleted_plugins_are_removed() {
    let fixture = CrashFixture::new();
    let site = &fixture.site;
    let host = site.stage.host();
    fixture.wait_begun(&host, 1);
    Stage::kill(host);
    site.stage.plane.user().delete(PLUGIN, NAME).unwrap();
    assert_eq!(fixture.begun(), [1]);
    let host = site.stage.host();
    fixture.apply_harmless();
    fixture.wait_harmless(&host);
    fixture.wait_marks(&host, &[]);
    Stage::stop(host);
}
