//! The installed CRDs for Plugins and for parents, and the Events about Plugins.

use anyhow::{Result, ensure};
use innkeeper_tests::{
    Host,
    admin::{self, address, ask},
    eventually, manifest,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    admin::wait_ready,
    plugins::{HEALTHY, PARENT, PluginSite},
    stage::{Stage, is_synced},
    suite::Target,
};

const EVENT: Kind<'static> = Kind {
    api_version: "events.k8s.io/v1",
    kind: "Event",
    namespace: Some("default"),
};

/// Returns each Event's type and reason.
fn events(site: &PluginSite, name: &str) -> Vec<(String, String)> {
    let events = site.stage.plane.user().list(EVENT, "").unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = |event: &&Value| event["regarding"]["name"] == name;
    let pair = |event: &Value| (text(&event["type"]), text(&event["reason"]));
    events.iter().filter(about).map(pair).collect()
}

/// With an older CRD, the API server would drop new fields from specs, and reject every status with a
/// new field.
#[test]
fn a_host_serves_no_plugins_with_an_older_definition() {
    let mut site = PluginSite::new();
    let arguments = admin::ARGUMENTS.map(str::to_owned);
    site.stage.options.arguments.extend(arguments);
    let mut older = manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap();
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    older[0]
        .pointer_mut(status)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("version")
        .unwrap();
    site.stage.plane.user().apply(&older[0]).unwrap();
    let host = site.stage.host();
    let address = address(&host);
    site.put("memcached");
    site.apply_as("cache", &json!({}));
    let refused = [
        "Ready=False/CrdOutdated",
        "Serving=False/NotLoaded",
        "Degraded=True/CrdOutdated",
    ];
    let plugin = site.wait_conditions_of("cache", &host, &refused);
    let message = manifest::condition(&plugin, "Ready").unwrap();
    assert!(message.contains("lacks status.version"), "{message}");
    let (code, ready) = ask(&address, "GET", "/readyz", "").unwrap();
    assert_eq!(code, 503, "{ready}");
    assert!(ready.contains("[-]plugin-resources failed: "), "{ready}");
    let log = host.log().unwrap();
    let warnings = log.matches("Plugins are not served");
    assert_eq!(warnings.count(), 1, "{log}");

    site.define();
    site.wait_conditions_of("cache", &host, &HEALTHY);
    wait_ready(&address);
    eventually("the Events are written", || -> Result<()> {
        let events = events(&site, "cache");
        for (kind, reason) in [("Warning", "CrdOutdated"), ("Normal", "Ready")] {
            let is = |event: &&(String, String)| event.0 == kind && event.1 == reason;
            ensure!(events.iter().filter(is).count() == 1, "{events:?}");
        }
        Ok(())
    });
}

#[track_caller]
fn wait_logged(host: &Host, line: &str) {
    eventually(&format!("the host logs {line}"), || {
        let log = host.log().unwrap_or_default();
        if log.contains(line) { Ok(()) } else { Err(log) }
    });
}

/// The host reinstalls a parent CRD that a user deleted, or reports it if the Plugin says `Ignore`.
#[test]
fn a_deleted_definition_is_installed_again_unless_the_plugin_leaves_it_to_others() {
    const CRD: &str = "memcacheds.cache.example.com";
    const DEFINITION: Target<'static> =
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD);

    let site = PluginSite::new();
    let stage = &site.stage;
    let host = site.start();
    wait_logged(&host, "serving no plugin yet: apply a Plugin");
    site.apply_as("cache", &json!({}));
    site.wait_conditions_of("cache", &host, &HEALTHY);
    stage.wait_served(&host, &[CRD]);
    let before = stage.get("", DEFINITION)["metadata"]["uid"].clone();
    stage.delete("", DEFINITION);
    stage.wait(&host, "", DEFINITION, |crd| {
        let uid = &crd["metadata"]["uid"];
        uid.is_string() && *uid != before
    });
    stage.wait_served(&host, &[CRD]);
    site.wait_conditions_of("cache", &host, &HEALTHY);
    let namespace = &site.namespace;
    stage.apply_example(namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, namespace, PARENT, |parent| {
        is_synced(parent, "True", "Applied")
    });

    site.apply_as("cache", &json!({"crds": "Ignore"}));
    site.wait_conditions_of("cache", &host, &HEALTHY);
    stage.delete("", DEFINITION);
    let missing = [
        "Serving=False/ParentNotServed",
        "Ready=False/ParentNotServed",
    ];
    let plugin = site.wait_conditions_of("cache", &host, &missing);
    let ready = manifest::condition(&plugin, "Ready").unwrap();
    assert!(
        ready.contains("the cluster no longer serves cache.example.com/v1 Memcached"),
        "{ready}"
    );
    // A host with a kubeconfig has no lease.
    wait_logged(&host, "writing without a lease: a second host");
    Stage::stop(host);
}
