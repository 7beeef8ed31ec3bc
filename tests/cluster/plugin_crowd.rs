//! Many Plugins without grants, which any Plugin author can create, neither delay other Plugins nor
//! add metrics.

use std::{
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, admin, eventually_for, harmless, process::is_full};
use serde_json::{Value, json};

use crate::{
    plugins::{HEALTHY, PLUGIN, PluginSite},
    stage::{Stage, wait_logged},
    web::Web,
};

/// Limits a host's metric series, whatever the number of Plugins without grants.
const SERIES_MAX: usize = 2000;

/// The time in which a granted Plugin has its conditions.
const GRANTED_WITHIN: Duration = Duration::from_secs(5);

/// The time in which all Plugins have their conditions.
const ALL_WITHIN: Duration = Duration::from_mins(5);

/// The name sorts last in every list.
const GRANTED: &str = "zz-granted";
const GROUP: &str = "idle.example.com";

fn count() -> usize {
    if is_full() { 3000 } else { 600 }
}

/// Creates Plugins without grants: a third has a component, a third a server that does not answer,
/// and a third a missing file.
fn make_crowd(site: &PluginSite, url: &str) {
    const THREADS: usize = 4;

    thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                for number in (first..count()).step_by(THREADS) {
                    let source = match number % 3 {
                        0 => json!({"file": {"path": "plugin.wasm"}}),
                        1 => json!({"http": {"url": format!("{url}?{number}")}}),
                        _ => json!({"file": {"path": "none.wasm"}}),
                    };
                    let plugin = json!({
                        "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
                        "metadata": {"name": format!("poor-{number:04}")},
                        "spec": {"source": source},
                    });
                    site.stage.apply_new("", &plugin);
                }
            });
        }
    });
}

/// Applies the only Plugin with grants.
fn apply_granted(site: &PluginSite, limits: &Value) {
    let parents = json!([{"group": GROUP, "kind": "Idle"}]);
    let grants = json!({"parents": parents, "children": [{"kind": "ConfigMap"}]});
    site.apply_as(GRANTED, &json!({"grants": grants, "limits": limits}));
}

fn scrape(host: &Host) -> String {
    admin::scrape(&admin::address(host)).unwrap()
}

/// Otherwise an author who cannot write grants could delay everyone, and fill Prometheus's memory.
#[test]
fn a_crowd_of_plugins_without_grants_costs_the_others_neither_time_nor_metrics() {
    let mut site = PluginSite::new();
    let options = &mut site.stage.options;
    options.arguments.push("--allow-local-sources".to_owned());
    options
        .arguments
        .extend(["--admin-address", "127.0.0.1:0"].map(str::to_owned));
    site.define();
    site.stage.apply_new("", &harmless::definition(GROUP));
    site.put_bytes(&harmless::idle(GROUP));
    let silent = Web::start_held(Vec::new());
    make_crowd(&site, &silent.url());

    let host = site.stage.host();
    wait_logged(&host, "the host serves Plugins", "serving Plugins");
    // The others now wait for their first passes.
    let begin = Instant::now();
    apply_granted(&site, &json!({}));
    site.wait_conditions_of(GRANTED, &host, &HEALTHY);
    let first = begin.elapsed();
    let begin = Instant::now();
    apply_granted(&site, &json!({"children": 7}));
    site.wait_conditions_of(GRANTED, &host, &HEALTHY);
    let edited = begin.elapsed();
    let counted = format!("innkeeper_plugins_without_grants {}", count());
    let begin = Instant::now();
    eventually_for(ALL_WITHIN, "every Plugin has had a pass", || {
        let text = scrape(&host);
        if text.lines().any(|line| line == counted) {
            return Ok(());
        }
        let line = text
            .lines()
            .find(|line| line.starts_with("innkeeper_plugins_w"));
        Err(line.unwrap_or_default().to_owned())
    });
    let all = begin.elapsed();
    let text = scrape(&host);
    let is_sample = |line: &&str| !line.starts_with('#');
    let series = text.lines().filter(is_sample).count();
    println!(
        "{} Plugins without grants: {series} series; a granted one ready after {first:?}, edited after {edited:?}, all after {all:?}",
        count()
    );
    assert!(series < SERIES_MAX, "{series}");
    assert!(!text.contains("poor-"), "{text}");
    assert!(
        first < GRANTED_WITHIN && edited < GRANTED_WITHIN,
        "{first:?} {edited:?}"
    );
    let granted =
        format!("innkeeper_plugin_condition{{plugin=\"{GRANTED}\",condition=\"Ready\"}} 1");
    assert!(text.contains(&granted), "{text}");
    Stage::stop(host);

    // A restarted host lists them all at once.
    let host = site.stage.host();
    let granted = format!("\"plugin\":\"{GRANTED}\"");
    let begin = Instant::now();
    eventually_for(Duration::from_mins(1), "the granted Plugin serves", || {
        let log = host.log().unwrap();
        let is_it = |line: &str| {
            line.contains("resumed the last active revision") && line.contains(&granted)
        };
        if log.lines().any(is_it) {
            Ok(())
        } else {
            Err(log)
        }
    });
    println!("a granted one serves {:?} after a restart", begin.elapsed());
    Stage::stop(host);
}
