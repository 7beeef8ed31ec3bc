//! Tenants who fill the host's cache with objects that carry a plugin's label.

use std::{fs, time::Duration};

use innkeeper_tests::{Host, admin, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    admin::scrape,
    moody::{API, MoodyFixture, NAME, config_map, good},
    stage::{Stage, is_applied, is_synced},
};

/// Data bytes per object. The API server accepts slightly more than 1 MiB.
const LARGE: usize = 900_000;

const OBJECTS: usize = 250;

/// Memory that these objects may cost at most.
const COST_MAX: u64 = 10 << 20;

fn fixture() -> MoodyFixture {
    let mut fixture = MoodyFixture::new(1);
    let arguments = admin::ARGUMENTS.map(str::to_owned);
    fixture.site.stage.options.arguments.extend(arguments);
    fixture
}

/// A large object with the plugin's label.
fn labelled(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"innkeeper.dev/plugin": NAME}},
        "data": {"text": "x".repeat(LARGE)},
    })
}

/// Returns a metric's value, summed over the series whose labels contain this text.
fn metric(host: &Host, name: &str, labels: &str) -> u64 {
    let metrics = scrape(&admin::address(host));
    let values = metrics.lines().filter_map(|line| {
        let (series, value) = line.split_once("} ")?;
        (series.starts_with(&format!("{name}{{")) && series.contains(labels))
            .then(|| value.parse::<f64>().ok())?
    });
    // The sum over an empty iterator is negative zero.
    format!("{:.0}", values.sum::<f64>() + 0.0).parse().unwrap()
}

/// Waits until the host has seen this many labelled ConfigMaps.
#[track_caller]
fn wait_seen(host: &Host, number: usize) {
    eventually("the host has seen the objects", || {
        let count = metric(host, "innkeeper_watch_objects", r#"kind="ConfigMap""#);
        if count >= u64::try_from(number).unwrap() {
            return Ok(());
        }
        Err(format!("{count} objects"))
    });
}

/// Returns the host's memory before tenants fill it, and restarts the peak measurement.
fn measure(host: &mut Host) -> u64 {
    let process = host.process();
    drop(fs::write(format!("/proc/{}/clear_refs", process.id()), "5"));
    process.usage().unwrap().resident_bytes
}

/// Waits until the host's memory is at most `COST_MAX` above an earlier value.
#[track_caller]
fn check_cost(host: &mut Host, before: u64) {
    eventually("the host has freed its memory", || {
        let now = host.process().usage().unwrap().resident_bytes;
        if now < before + COST_MAX {
            return Ok(());
        }
        Err(format!("{before} bytes before, {now} bytes now"))
    });
}

#[test]
fn labelled_objects_of_a_tenant_cost_next_to_nothing() {
    let fixture = fixture();
    let stage = &fixture.site.stage;
    let mut host = fixture.start();
    stage.settle(Duration::from_secs(2));
    let before = measure(&mut host);
    let tenant = stage.namespace("tenant");
    for number in 0..OBJECTS {
        let mut object = labelled(&format!("filler-{number}"));
        object["metadata"]["namespace"] = json!(tenant);
        stage.plane.user().create(&object).unwrap();
    }
    wait_seen(&host, OBJECTS);
    check_cost(&mut host, before);
    let peak = host.process().usage().unwrap().resident_max_bytes;
    assert!(
        peak < before + 2 * COST_MAX,
        "{before} bytes before, {peak} at most"
    );

    // The host serves parents beside these objects.
    let parent =
        json!({"apiVersion": API, "kind": "Moody", "metadata": {"name": "beside"}, "spec": {}});
    stage.apply_new(&tenant, &parent);
    stage.wait(&host, &tenant, (API, "Moody", "beside"), is_applied);
    fixture.check_reconciles(&host, "later");

    // A host that lists these objects holds only one at a time.
    Stage::stop(host);
    let mut host = stage.host();
    fixture.wait_healthy(&host);
    wait_seen(&host, OBJECTS);
    fixture.check_reconciles(&host, "after the restart");
    check_cost(&mut host, before);
    let usage = host.process().usage().unwrap();
    println!(
        "{before} bytes before, {peak} at most, {} after a restart, {} at most",
        usage.resident_bytes, usage.resident_max_bytes
    );
    assert!(
        usage.resident_max_bytes < before + 4 * COST_MAX,
        "{usage:?}"
    );
}

/// Owner references that name a Moody as the controller.
fn owned_by(owner: &Value) -> Value {
    json!([{
        "apiVersion": API, "kind": "Moody", "name": owner["metadata"]["name"], "controller": true,
        "uid": owner["metadata"]["uid"],
    }])
}

/// Counts the ConfigMaps in a namespace that have the plugin's label.
fn count_labelled(stage: &Stage, namespace: &str) -> usize {
    let kind = Kind::new("v1", "ConfigMap", namespace);
    stage
        .plane
        .user()
        .list(kind, "innkeeper.dev/plugin=moody")
        .unwrap()
        .len()
}

#[test]
fn a_full_namespace_stops_its_own_parents_until_it_shrinks() {
    let fixture = fixture();
    let stage = &fixture.site.stage;
    let host = fixture.start();
    let mut limited = good("one");
    limited["limits"] = json!({"bytesPerNamespace": "4Mi"});
    fixture.apply(&limited);
    let tenant = stage.namespace("tenant");
    let parent = (API, "Moody", "filled");
    let object =
        json!({"apiVersion": API, "kind": "Moody", "metadata": {"name": "filled"}, "spec": {}});
    stage.apply_new(&tenant, &object);
    stage.wait(&host, &tenant, parent, is_applied);
    let child = stage.get(&tenant, config_map("filled"));
    Stage::stop(host);

    // The tenant's objects name the parent as their owner: 9 MB, while the cache holds 5 MiB.
    let owner = stage.get(&tenant, parent);
    for number in 0..10 {
        let mut object = labelled(&format!("filler-{number}"));
        object["metadata"]["namespace"] = json!(tenant);
        object["metadata"]["ownerReferences"] = owned_by(&owner);
        stage.plane.user().create(&object).unwrap();
    }
    let host = stage.host();
    let full = |parent: &Value| is_synced(parent, "False", "NamespaceCacheFull");
    let stopped = stage.wait(&host, &tenant, parent, full);
    let message = condition(&stopped, "Synced").unwrap();
    for part in [
        "v1 ConfigMap",
        "5242880 bytes",
        "bytesPerNamespace",
        &tenant,
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let plugin = eventually("the Plugin has the condition", || {
        let plugin = fixture.site.plugin_of(NAME);
        match condition(&plugin, "CacheFull") {
            Some(text) if text.starts_with("True/NamespaceCacheFull:") => Ok(text),
            other => Err(format!("{other:?}")),
        }
    });
    assert!(plugin.contains(&tenant), "{plugin}");
    assert_eq!(metric(&host, "innkeeper_plugin_full_namespaces", NAME), 1);

    // The host serves other namespaces and deletes none of the parent's children.
    fixture.check_reconciles(&host, "beside");
    let now = stage.get(&tenant, config_map("filled"));
    assert_eq!(now["metadata"]["uid"], child["metadata"]["uid"]);
    let fillers = || count_labelled(stage, &tenant) - 1;
    assert_eq!(fillers(), 10);

    for number in 0..6 {
        let name = format!("filler-{number}");
        stage.delete(&tenant, config_map(&name));
    }
    stage.wait(&host, &tenant, parent, is_applied);
    let now = stage.get(&tenant, config_map("filled"));
    assert_eq!(now["metadata"]["uid"], child["metadata"]["uid"]);
    // The plugin does not want the remaining objects, which only pretend to be its children.
    eventually("the rest is pruned", || match fillers() {
        0 => Ok(()),
        left => Err(format!("{left} left")),
    });
    eventually("the metric falls", || {
        match metric(&host, "innkeeper_plugin_full_namespaces", NAME) {
            0 => Ok(()),
            full => Err(format!("{full} namespaces")),
        }
    });
    eventually("the condition ends", || {
        let plugin = fixture.site.plugin_of(NAME);
        condition(&plugin, "CacheFull").map_or(Ok(()), Err)
    });
}
