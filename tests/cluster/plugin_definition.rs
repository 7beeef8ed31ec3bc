//! The installed definition of the Plugin resource, and the Events about Plugins.

use anyhow::{Result, ensure};
use innkeeper_tests::{
    admin::{self, address, ask},
    eventually, manifest,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    admin::wait_ready,
    plugins::{HEALTHY, PluginSite},
};

const EVENT: Kind<'static> = Kind {
    api_version: "events.k8s.io/v1",
    kind: "Event",
    namespace: Some("default"),
};

/// Returns type and reason of each Event about a Plugin.
fn events(site: &PluginSite, name: &str) -> Vec<(String, String)> {
    let events = site.stage.plane.user().list(EVENT, "").unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = |event: &&Value| event["regarding"]["name"] == name;
    let pair = |event: &Value| (text(&event["type"]), text(&event["reason"]));
    events.iter().filter(about).map(pair).collect()
}

/// The API server would drop fields of specs, and refuse every status with a new field.
#[test]
fn a_host_serves_no_plugins_with_an_older_definition() {
    let mut site = PluginSite::new();
    let arguments = admin::ARGUMENTS.map(str::to_owned);
    site.stage.options.arguments.extend(arguments);
    let mut older = manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap();
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let fields = older[0].pointer_mut(status).unwrap();
    fields.as_object_mut().unwrap().remove("version").unwrap();
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
    let said = log.matches("Plugins are not served").count();
    assert_eq!(said, 1, "{log}");

    site.define();
    site.wait_conditions_of("cache", &host, &HEALTHY);
    wait_ready(&address);
    eventually("the Events are written", || -> Result<()> {
        let found = events(&site, "cache");
        for (kind, reason) in [("Warning", "CrdOutdated"), ("Normal", "Ready")] {
            let is = |event: &&(String, String)| event.0 == kind && event.1 == reason;
            ensure!(found.iter().filter(is).count() == 1, "{found:?}");
        }
        Ok(())
    });
}
