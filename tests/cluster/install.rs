//! The image and the chart: built, pushed, fetched, installed, upgraded and uninstalled as users do.
//!
//! There is no kubelet, so the test starts the Pod of the chart: see [`Pod`].

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use innkeeper_tests::{
    ControlPlane,
    admin::{self, ask_secure},
    eventually, eventually_for,
    helm::{self, IMAGE, NAMESPACE, RELEASE},
    manifest::{self, condition, condition_status, root},
    pod::{Image, Pod},
    process::path_from_env,
    registry::{Client, Registry},
    user::Kind,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    callers::token,
    compiled::CacheDirectory,
    plugins::{PLUGIN, marked},
    registries::{key_file, public_key},
    stage::Stage,
    suite::{GUESTS, Target, is_ready},
    web::Web,
};

/// The first version of the chart, packed by `helm package`.
const FIRST_CHART: &str = "tests/cluster/install/innkeeper-0.1.0.tgz";
const CHART: &str = "deploy/chart";
/// The changed values of the upgrade: more Pods, and the account that may read the metrics.
const CHANGED: &str =
    "replicas=3,metrics.readers[0].name=prometheus,metrics.readers[0].namespace=default";
const ACCOUNT: &str = "system:serviceaccount:innkeeper-system:innkeeper";
/// The digest in the examples.
const NO_DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
/// The largest allowed size of the unpacked image with the host of the tests. A release has at most 60 MB: the host of the
/// profile `dist` has a third less text.
const IMAGE_BYTES_MAX: u64 = 66 << 20;

/// A parent of each plugin.
const PARENTS: [Target<'static>; 4] = [
    ("cache.example.com/v1", "Memcached", "example-memcached"),
    ("example.com/v1", "Wordpress", "example-wordpress"),
    ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo"),
    ("gobackup.io/v1", "Backup", "example-backup"),
];

/// The image, as a user gets it: built, pushed, and fetched by another client.
fn image() -> &'static (Image, TempDir) {
    static IMAGE: OnceLock<(Image, TempDir)> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let built = directory.path().join("built");
        let mut script = Command::new(root().join("deploy/image/build"));
        let output = script.arg(&built).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let registry = Registry::start().unwrap();
        let reference = format!("{}/innkeeper:1", registry.address());
        let crane = Client::crane().unwrap();
        let path = built.to_str().unwrap();
        crane
            .run(&["push", path, &reference, "--insecure"])
            .unwrap();
        let fetched = directory.path().join("fetched");
        let to = format!("{}:1", fetched.display());
        let copy = [
            "copy",
            "--from-plain-http",
            &reference,
            "--to-oci-layout",
            &to,
        ];
        Client::oras().unwrap().run(&copy).unwrap();
        (Image::unpack(&fetched).unwrap(), directory)
    })
}

/// The regular files below a directory with their sizes.
fn files_of(directory: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            files_of(&entry.path(), found);
        } else {
            found.push((entry.path(), metadata.len()));
        }
    }
}

#[test]
fn the_image_is_small_and_holds_nothing_but_the_host_and_its_plugins() {
    let (image, _) = image();
    assert_eq!(image.user(), 65532);
    let mut files = Vec::new();
    files_of(image.root(), &mut files);
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes <= IMAGE_BYTES_MAX, "{bytes}: {files:#?}");
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut others: Vec<String> = files.iter().map(|(path, _)| name(path)).collect();
    others.retain(|name| ![".so", ".wasm"].iter().any(|part| name.contains(part)));
    others.sort();
    let expected = [
        "LICENSE",
        "ca-certificates.crt",
        "innkeeper",
        "nsswitch.conf",
        "passwd",
    ];
    assert_eq!(others, expected);
    let plugins = fs::read_dir(image.root().join("plugins")).unwrap();
    assert_eq!(plugins.count(), GUESTS.len());
}

/// A cluster with the chart, and the running Pod.
struct Site {
    stage: Stage,
    namespace: String,
}

impl Site {
    fn new() -> Self {
        let stage = Stage::full(Vec::new());
        let namespace = stage.namespace("installed");
        Self { stage, namespace }
    }

    fn plane(&self) -> &ControlPlane {
        &self.stage.plane
    }

    fn helm(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.plane().kubeconfig();
        let target = [
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        helm::run(&[arguments, &target].concat()).unwrap()
    }

    /// Starts the Pod of the installed Deployment.
    fn pod(&self) -> Pod {
        let kind = Kind::new("apps/v1", "Deployment", NAMESPACE);
        let deployment = self.plane().user().get(kind, RELEASE).unwrap().unwrap();
        Pod::start(self.plane(), &image().0, &deployment).unwrap()
    }

    #[track_caller]
    fn wait_serving(&self, pod: &mut Pod, name: &str) {
        // Four components are compiled one after another.
        eventually_for(Duration::from_mins(3), &format!("{name} is served"), || {
            let plugin = self.plane().user().get(PLUGIN, name).unwrap();
            let plugin = plugin.unwrap_or_default();
            let ended = pod.process().try_wait().unwrap();
            assert_eq!(ended, None, "{}", pod.log().unwrap());
            match condition(&plugin, "Serving") {
                Some(text) if text.starts_with("True/") => Ok(()),
                _ => Err(format!("{:#}\n{}", plugin["status"], pod.log().unwrap())),
            }
        });
    }

    #[track_caller]
    fn wait_ready(&self, pod: &Pod, parent: Target<'_>, check: impl Fn(&Value) -> bool) {
        eventually(&format!("{parent:?} is Ready"), || {
            let found = self.stage.find(&self.namespace, parent).unwrap_or_default();
            if is_ready(&found) && check(&found) {
                return Ok(());
            }
            Err(format!("{:#}\n{}", found["status"], pod.log().unwrap()))
        });
    }

    /// The UIDs of all Plugins, parents and children, by kind and name.
    fn uids(&self) -> Vec<String> {
        let user = self.plane().user();
        let mut all = user.list(PLUGIN, "").unwrap();
        all.extend(user.everything(&self.namespace).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_kept = |object: &&Value| {
            // Pods, their Endpoints and so on belong to the controllers of Kubernetes.
            object["kind"] == "Plugin"
                || PARENTS.iter().any(|(_, kind, _)| object["kind"] == *kind)
                || object["metadata"]["labels"]["innkeeper.dev/plugin"].is_string()
        };
        let mut uids: Vec<String> = all
            .iter()
            .filter(is_kept)
            .map(|object| {
                let metadata = &object["metadata"];
                [&object["kind"], &metadata["name"], &metadata["uid"]]
                    .map(text)
                    .join(" ")
            })
            .collect();
        uids.sort();
        uids
    }

    /// Checks that an account of `metrics.readers` can read the metrics of the Pod.
    #[track_caller]
    fn check_metrics(&self, pod: &Pod) {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"},
        });
        self.stage.apply_new("default", &account);
        let token = token(self.plane(), ("default", "prometheus"));
        let address = admin::address_in(|| pod.log());
        let read = |token: Option<&str>| ask_secure(&address, "GET", "/metrics", token).unwrap();
        assert_eq!(read(None).status, 401);
        eventually("the metrics are readable", || {
            let answer = read(Some(&token));
            if answer.status == 200 && answer.body.contains("rest_client_requests_total") {
                return Ok(());
            }
            Err(format!("{answer:?}\n{}", pod.log().unwrap()))
        });
    }

    /// Checks that the API server refused no request of the host.
    #[track_caller]
    fn check_allowed(&self) {
        let mut requests = self.plane().audit().all_requests_since(0).unwrap();
        requests.retain(|request| request.user == ACCOUNT);
        assert!(requests.len() > 100, "the host asked for little");
        requests.retain(|request| request.code == 403);
        assert!(requests.is_empty(), "{requests:#?}");
    }
}

#[track_caller]
fn stop(mut pod: Pod) {
    pod.process().signal(Signal::TERM).unwrap();
    let status = pod.process().wait_for(Duration::from_secs(30)).unwrap();
    assert!(status.success(), "{status}: {}", pod.log().unwrap());
}

/// The life of an installation: from the first chart to the newest, and to none.
#[test]
fn plugins_parents_and_children_outlive_upgrade_and_uninstall() {
    let site = Site::new();
    let create = ["--create-namespace"];
    site.helm(&[&["install", RELEASE, FIRST_CHART][..], &IMAGE, &create].concat());
    let mut pod = site.pod();
    for guest in GUESTS {
        for object in manifest::load(&format!("examples/plugins/{guest}.yaml")).unwrap() {
            site.stage.apply_new("", &object);
        }
    }
    for guest in GUESTS {
        site.wait_serving(&mut pod, guest);
    }
    site.stage.restart_collector();
    for guest in GUESTS {
        let example = format!("examples/{guest}/01-article.yaml");
        site.stage.apply_example(&site.namespace, &example);
    }
    for parent in PARENTS {
        site.wait_ready(&pod, parent, |_| true);
    }
    site.check_allowed();
    let before = site.uids();
    assert!(before.len() > 16, "{before:#?}");

    site.helm(&[&["upgrade", RELEASE, CHART, "--set", CHANGED][..], &IMAGE].concat());
    stop(pod);
    let pod = site.pod();
    site.check_metrics(&pod);
    let memcached = PARENTS[0];
    let larger = json!({"spec": {"size": 5}});
    site.stage.merge(&site.namespace, memcached, &larger);
    let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == 5;
    site.wait_ready(&pod, memcached, is_resized);
    assert_eq!(site.uids(), before);
    site.check_allowed();

    site.helm(&["uninstall", RELEASE, "--wait"]);
    stop(pod);
    let deployments = Kind::new("apps/v1", "Deployment", NAMESPACE);
    assert_eq!(
        site.plane().user().list(deployments, "").unwrap(),
        [Value::Null; 0]
    );
    assert_eq!(site.uids(), before);

    // Installed again, the host finds them.
    site.helm(&[&["install", RELEASE, CHART][..], &IMAGE].concat());
    let pod = site.pod();
    let smaller = json!({"spec": {"size": 2}});
    site.stage.merge(&site.namespace, memcached, &smaller);
    let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == 2;
    site.wait_ready(&pod, memcached, is_resized);
    assert_eq!(site.uids(), before);
    stop(pod);

    // The compiler gets half of the memory, and the message names the value to raise.
    let small = ["--set", "resources.limits.memory=256Mi"];
    site.helm(&[&["upgrade", RELEASE, CHART][..], &IMAGE, &small].concat());
    let pod = site.pod();
    eventually("a plugin is too large for the Pod", || {
        let plugins = site.plane().user().list(PLUGIN, "").unwrap();
        let text = json!(plugins).to_string();
        let remedy = "raise resources.limits.memory of the host above 256 MiB";
        if text.contains(remedy) {
            return Ok(());
        }
        Err(format!("{text}\n{}", pod.log().unwrap()))
    });
    assert_eq!(site.uids(), before);
    stop(pod);
}

/// The variants of the Plugin memcached; the cluster and the servers that they name.
struct Variants {
    site: Site,
    pod: Pod,
    registry: Registry,
    web: Web,
    /// The digest of the component in the registry, and that of the one on the web server.
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
        let component = path_from_env("INNKEEPER_GUESTS").unwrap();
        let component = component.join("memcached.wasm");
        let file = component.to_str().unwrap();
        let mut gzip = Command::new("gzip");
        let packed = gzip.args(["--best", "--stdout", file]).output().unwrap();
        let packed = STANDARD.encode(packed.stdout);
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memcached"},
            "binaryData": {"plugin.wasm": packed},
        });
        site.stage.apply_new(NAMESPACE, &config_map);

        let registry = Registry::start().unwrap();
        let cache = CacheDirectory::warm();
        let cache = cache.path().to_str().unwrap();
        let client = Client::innkeeper().unwrap();
        let client = client.with("INNKEEPER_CACHE_DIR", cache);
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
            site,
            pod,
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
            let plugin = self.site.plane().user().get(PLUGIN, "memcached").unwrap();
            let plugin = plugin.unwrap_or_default();
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

    /// Changes the parent, and waits until the change has arrived.
    #[track_caller]
    fn check_reconciles(&self, processes: u32) {
        let (site, parent) = (&self.site, PARENTS[0]);
        site.stage.merge(
            &site.namespace,
            parent,
            &json!({"spec": {"size": processes}}),
        );
        let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == processes;
        site.wait_ready(&self.pod, parent, is_resized);
    }
}

/// Each variant of a Plugin in `examples/plugins/variants`, one after another.
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
        let found = site.stage.get(&site.namespace, parent);
        match condition(&found, "Synced") {
            Some(text) if text.starts_with("Unknown/NotSelected") => Ok(()),
            _ => Err(format!(
                "{:#}\n{}",
                found["status"],
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
