//! Unusable input in a cluster: the host reports fault, location and remedy once, and all other
//! plugins keep working.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use innkeeper_tests::{
    Host, HostOptions, eventually, manifest, process::path_from_env, user::Kind,
};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_applied, lines},
    suite::Target,
};

const MEMCACHED: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");
const WORDPRESS: Target<'static> = ("example.com/v1", "Wordpress", "example-wordpress");
const UNRULY: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "parent");
const MEMCACHEDS: &str = "memcacheds.cache.example.com";
const WORDPRESSES: &str = "wordpresses.example.com";
const ETCDCLUSTERS: &str = "etcdclusters.etcd.ydzs.io";

const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Longer than the host takes for a pending write.
const QUIET: Duration = Duration::from_secs(3);

fn stage(guests: &[&str]) -> Stage {
    Stage::api_only(HostOptions::with_guests(guests).unwrap().plugins)
}

/// Log lines that contain all these parts.
fn log_lines(host: &Host, parts: &[&str]) -> Vec<String> {
    let log = host.log().unwrap();
    let holds = |line: &&str| parts.iter().all(|part| line.contains(part));
    log.lines().filter(holds).map(str::to_owned).collect()
}

#[track_caller]
fn wait_log_line(host: &Host, parts: &[&str]) -> String {
    eventually(&format!("the host logs {parts:?}"), || {
        log_lines(host, parts)
            .pop()
            .ok_or_else(|| host.log().unwrap_or_default())
    })
}

#[test]
fn rejected_credentials_end_the_host_with_a_remedy() {
    let stage = stage(&["memcached"]);
    let text = fs::read_to_string(stage.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = manifest::parse(&text).unwrap().remove(0);
    kubeconfig["users"] = json!([{ "name": "stranger", "user": { "token": "not a token" } }]);
    kubeconfig["contexts"][0]["context"]["user"] = json!("stranger");
    let path = stage.plane.directory().join("kubeconfig-stranger");
    fs::write(&path, kubeconfig.to_string()).unwrap();

    let mut host = Host::start(&path, &stage.options).unwrap();
    let (status, log) = host.wait_exit(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("error: "), "{log}");
    for part in ["refuses the credentials", "401", "--context"] {
        assert!(last.contains(part), "{log}");
    }
}

#[test]
fn a_host_that_starts_before_its_api_server_waits_and_logs_it_once() {
    let stage = stage(&["memcached"]);
    let control = |arguments: &[&str]| stage.plane.control(arguments).unwrap();
    control(&["stop", "apiserver"]);
    let host = stage.host();
    wait_log_line(&host, &["using the cluster", "https://127.0.0.1:"]);
    wait_log_line(&host, &["waiting for the API server", "refused"]);
    thread::sleep(QUIET);
    control(&["start", "apiserver"]);
    stage.wait_served(&host, &[MEMCACHEDS]);
    wait_log_line(&host, &["the API server answers"]);
    // One line for each state: down, possibly starting, up.
    let mut waited: Vec<String> = log_lines(&host, &["waiting for the API server"]);
    for line in &mut waited {
        *line = line.split_once("error").unwrap().1.to_owned();
    }
    let count = waited.len();
    waited.dedup();
    assert_eq!(waited.len(), count, "{}", host.log().unwrap());
    assert!(count <= 4, "{}", host.log().unwrap());

    // A later outage is also logged once, however many watches it ends.
    control(&["stop", "apiserver"]);
    eventually("the host notices the outage", || {
        match log_lines(&host, &["waiting for the API server"]).len() {
            now if now > count => Ok(()),
            _ => Err(host.log().unwrap()),
        }
    });
    thread::sleep(QUIET);
    assert_eq!(log_lines(&host, &["failed to watch"]), Vec::<String>::new());
    control(&["start", "apiserver"]);
    eventually("the host reconnects", || {
        match log_lines(&host, &["the API server answers"]).len() {
            0 | 1 => Err(host.log().unwrap()),
            _ => Ok(()),
        }
    });
}

#[test]
fn a_second_plugin_of_the_same_name_is_refused_and_all_others_are_served() {
    let mut stage = stage(&["memcached", "wordpress"]);
    let copy = stage.plane.directory().join("copy.wasm");
    fs::copy(&stage.options.plugins[0], &copy).unwrap();
    stage.options.plugins.insert(1, copy);
    let host = stage.host_serving(&[MEMCACHEDS, WORDPRESSES]);
    let namespace = stage.namespace("name-taken");
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    stage.apply_example(&namespace, "examples/wordpress/01-article.yaml");
    stage.wait(&host, &namespace, WORDPRESS, is_applied);
    let refusals = log_lines(&host, &["plugin is not served"]);
    assert_eq!(refusals.len(), 1, "{}", host.log().unwrap());
    for part in [
        "copy.wasm",
        "memcached.wasm",
        "a plugin named memcached",
        "a name of its own",
    ] {
        assert!(refusals[0].contains(part), "{}", refusals[0]);
    }
}

/// Copies a guest under another name with the same length; nothing else distinguishes the two
/// plugins.
fn copy_renamed(stage: &Stage, guest: &Path, from: &str, to: &str) -> PathBuf {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(guest).unwrap();
    let mut at = 0;
    while let Some(offset) = bytes[at..]
        .windows(from.len())
        .position(|window| window == from.as_bytes())
    {
        bytes[at + offset..][..to.len()].copy_from_slice(to.as_bytes());
        at += offset + to.len();
    }
    assert!(at > 0, "{from} is not in {}", guest.display());
    let path = stage.plane.directory().join(format!("{to}.wasm"));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_second_plugin_for_a_parent_kind_is_refused_with_the_name_of_the_first() {
    let mut stage = stage(&["memcached"]);
    let first = path_from_env("INNKEEPER_TEST_GUESTS")
        .unwrap()
        .join("unruly.wasm");
    let second = copy_renamed(&stage, &first, "unruly", "untidy");
    stage.options.plugins.insert(0, second);
    stage.options.plugins.insert(0, first);
    let host = stage.host_serving(&["unrulies.test.innkeeper.dev", MEMCACHEDS]);
    let namespace = stage.namespace("parent-taken");
    let parent = json!({
        "apiVersion": UNRULY.0, "kind": UNRULY.1, "metadata": { "name": UNRULY.2 },
        "spec": { "behaviour": "good" },
    });
    stage.apply(&namespace, &parent);
    stage.wait(&host, &namespace, UNRULY, is_applied);
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    let refusals = log_lines(&host, &["plugin is not served"]);
    assert_eq!(refusals.len(), 1, "{}", host.log().unwrap());
    for part in [
        "untidy.wasm",
        "belongs to plugin unruly, which comes first, so untidy is not active",
    ] {
        assert!(refusals[0].contains(part), "{}", refusals[0]);
    }
}

/// A CRD that a plugin ships.
fn definition(stage: &Stage, name: &str) -> Value {
    stage
        .manifests(&[])
        .into_iter()
        .find(|object| object["metadata"]["name"] == name && object["kind"] == CRD.1)
        .unwrap()
}

fn crd_writes(stage: &Stage, mark: usize) -> Vec<String> {
    lines(&stage.writes_since(mark))
        .into_iter()
        .filter(|line| line.contains("customresourcedefinitions"))
        .collect()
}

#[test]
fn a_crd_that_must_not_change_delays_only_its_own_plugin() {
    let stage = stage(&["memcached", "wordpress", "etcd"]);
    // One CRD has a field that the plugin does not know; the host did not install the other one.
    let mut wider = definition(&stage, MEMCACHEDS);
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    wider.pointer_mut(spec).unwrap()["colour"] = json!({ "type": "string" });
    let mut foreign = definition(&stage, WORDPRESSES);
    foreign["metadata"]["labels"] = json!({});
    let user = stage.plane.user();
    user.apply(&wider).unwrap();
    user.apply(&foreign).unwrap();
    let mark = stage.mark();

    let host = stage.host_serving(&[ETCDCLUSTERS]);
    let narrower = wait_log_line(&host, &["plugin is not served", MEMCACHEDS]);
    for part in [
        "memcached.wasm",
        "would become narrower (v1 spec.colour is dropped)",
        "innkeeper manifests",
    ] {
        assert!(narrower.contains(part), "{narrower}");
    }
    let taken = wait_log_line(&host, &["plugin is not served", WORDPRESSES]);
    for part in [
        "wordpress.wasm",
        "was not installed by innkeeper",
        "kubectl label --overwrite crd wordpresses.example.com innkeeper.dev/plugin=wordpress",
    ] {
        assert!(taken.contains(part), "{taken}");
    }
    thread::sleep(QUIET);
    let written =
        format!("patch customresourcedefinitions.apiextensions.k8s.io {ETCDCLUSTERS} 201");
    assert_eq!(crd_writes(&stage, mark), [written]);
    let refusals = log_lines(&host, &["plugin is not served"]);
    assert_eq!(refusals.len(), 2, "{}", host.log().unwrap());

    // Once both are repaired, the host serves their plugins without a restart.
    user.apply(&definition(&stage, MEMCACHEDS)).unwrap();
    let label = json!({ "metadata": { "labels": { "innkeeper.dev/plugin": "wordpress" } } });
    user.merge(Kind::cluster(CRD.0, CRD.1), WORDPRESSES, &label)
        .unwrap();
    let namespace = stage.namespace("mended");
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.apply_example(&namespace, "examples/wordpress/01-article.yaml");
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    stage.wait(&host, &namespace, WORDPRESS, is_applied);
}
