//! Plugin variants in `examples/plugins/variants`, on a cluster with the chart.

use std::{fs, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use innkeeper_tests::{
    eventually,
    helm::{IMAGE, NAMESPACE, RELEASE},
    manifest::{self, condition, condition_status, root},
    pod::Pod,
    process::path_from_env,
    registry::{Client, Registry, key_file},
};
use serde_json::{Value, json};

use super::{ACCOUNT, CHART, PARENTS, Site, stop};
use crate::{
    compiled::CacheDirectory,
    plugins::{PLUGIN, marked},
    registries::public_key,
    web::Web,
};

/// The examples' digest.
const NO_DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Variants of the memcached Plugin, with the cluster and the servers that they name.
struct Variants {
    pod: Pod,
    site: Site,
    registry: Registry,
    web: Web,
    /// Digests of the component in the registry and of the one on the web server.
    digest: String,
    other_digest: String,
}

impl Variants {
    fn new() -> Self {
        let site = Site::new();
        let sources = [
            "--create-namespace",
            "--set",
            "sourceConfigMaps={memcached},extraArgs={--allow-local-sources}",
        ];
        site.helm(&[&["install", RELEASE, CHART][..], &IMAGE, &sources].concat());
        let pod = site.pod();
        for object in manifest::load("examples/plugins/memcached.yaml").unwrap() {
            site.stage.apply_new("", &object);
        }
        let component = path_from_env("INNKEEPER_GUESTS")
            .unwrap()
            .join("memcached.wasm");
        let file = component.to_str().unwrap();
        let packed = Command::new("gzip")
            .args(["--best", "--stdout", file])
            .output()
            .unwrap();
        let packed = STANDARD.encode(packed.stdout);
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memcached"},
            "binaryData": {"plugin.wasm": packed},
        });
        site.stage.apply_new(NAMESPACE, &config_map);

        let registry = Registry::start().unwrap();
        let cache = CacheDirectory::warm();
        let client = Client::innkeeper()
            .unwrap()
            .with("INNKEEPER_CACHE_DIR", cache.path().to_str().unwrap());
        let reference = format!("{}/plugins/memcached", registry.address());
        let run = |command: &[&str], tag: &str, more: &[&str]| {
            let reference = format!("{reference}:{tag}");
            let common = [&*reference, "--insecure", "--output", "json"];
            let printed = client.run(&[command, &common, more].concat()).unwrap();
            serde_json::from_str::<Value>(&printed).unwrap()
        };
        let push = |file: &str, tag| {
            let pushed = run(&["push", file], tag, &[]);
            pushed["digest"].as_str().unwrap().to_owned()
        };
        let digest = push(file, "0.1.0");
        run(&["sign"], "0.1.0", &["--key", &key_file("p256.key")]);
        // Bytes that the host does not have yet, or it would not ask the server.
        let other = marked(&fs::read(file).unwrap());
        let other_digest = push(&client.put("other.wasm", &other).unwrap(), "other");
        Self {
            pod,
            site,
            web: Web::start(other),
            registry,
            digest,
            other_digest,
        }
    }

    /// Applies an example, and waits until the Plugin serves it.
    #[track_caller]
    fn serve(&self, name: &str) {
        let path = root().join(format!("examples/plugins/variants/{name}.yaml"));
        let mut text = fs::read_to_string(path).unwrap();
        let digest = match name {
            "web-server" => &self.other_digest,
            _ => &self.digest,
        };
        for (place, here) in [
            (NO_DIGEST, &**digest),
            ("registry.example", self.registry.address()),
            ("https://plugins.example/memcached.wasm", &self.web.url()),
        ] {
            text = text.replace(place, here);
        }
        for mut object in manifest::parse(&text).unwrap() {
            if let Some(oci) = object.pointer_mut("/spec/source/oci") {
                oci["insecure"] = json!(true);
                object["spec"]["verify"]["keys"] = json!([public_key("p256.pub")]);
            }
            self.site.stage.apply_new("", &object);
        }
        eventually(&format!("{name} is served"), || {
            let plugin = self
                .site
                .plane()
                .user()
                .get(PLUGIN, "memcached")
                .unwrap()
                .unwrap_or_default();
            let is_seen =
                plugin["status"]["observedGeneration"] == plugin["metadata"]["generation"];
            if is_seen && condition_status(&plugin, "Ready") == "True" {
                return Ok(());
            }
            Err(format!(
                "{:#}\n{}",
                plugin["status"],
                self.pod.log().unwrap()
            ))
        });
    }

    /// Changes the parent, and waits until the host has applied the change.
    #[track_caller]
    fn check_reconciles(&self, processes: u32) {
        let site = &self.site;
        let parent = PARENTS[0];
        site.stage.merge(
            &site.namespace,
            parent,
            &json!({"spec": {"size": processes}}),
        );
        let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == processes;
        site.wait_ready(&self.pod, parent, is_resized);
    }
}

/// Each variant in `examples/plugins/variants`, one after another.
#[test]
fn every_variant_of_a_plugin_serves_with_the_roles_of_the_chart() {
    let variants = Variants::new();
    let site = &variants.site;
    variants.serve("registry");
    assert!(!variants.registry.asked().unwrap().is_empty());
    let example = "examples/memcached/01-article.yaml";
    site.stage.apply_example(&site.namespace, example);
    variants.check_reconciles(1);
    variants.serve("web-server");
    assert!(variants.web.asked() > 0);
    variants.check_reconciles(2);
    variants.serve("config-map");
    variants.check_reconciles(1);
    variants.serve("gated");
    variants.check_reconciles(2);

    variants.serve("namespaces");
    let parent = PARENTS[0];
    eventually("the parent is not selected", || {
        let object = site.stage.get(&site.namespace, parent);
        match condition(&object, "Synced") {
            Some(text) if text.starts_with("Unknown/NotSelected") => Ok(()),
            _ => Err(format!(
                "{:#}\n{}",
                object["status"],
                variants.pod.log().unwrap()
            )),
        }
    });
    let namespaces = ("v1", "Namespace", &*site.namespace);
    let label = json!({"metadata": {"labels": {"team": "cache"}}});
    site.stage.merge("", namespaces, &label);
    variants.check_reconciles(2);

    let writer = "system:serviceaccount:innkeeper-system:memcached-writer";
    let mark = site.plane().audit().mark().unwrap();
    variants.serve("account");
    variants.check_reconciles(1);
    let requests = site.plane().audit().all_requests_since(mark).unwrap();
    let mut writers = requests
        .iter()
        .filter(|request| request.user == ACCOUNT && request.resource == "deployments.apps")
        .filter(|request| request.verb == "patch");
    assert!(writers.any(|request| request.impersonated.as_deref() == Some(writer)));
    site.check_allowed();
    stop(variants.pod);
}
