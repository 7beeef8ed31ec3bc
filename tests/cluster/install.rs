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

use innkeeper_tests::{
    ControlPlane, eventually, eventually_for,
    helm::{self, IMAGE, NAMESPACE, RELEASE},
    manifest::{self, condition, root},
    pod::{Image, Pod},
    registry::{Client, Registry},
    user::Kind,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    plugins::PLUGIN,
    stage::Stage,
    suite::{GUESTS, Target, is_ready},
};

/// The first version of the chart, packed by `helm package`.
const FIRST_CHART: &str = "tests/cluster/install/innkeeper-0.1.0.tgz";
const CHART: &str = "deploy/chart";
const ACCOUNT: &str = "system:serviceaccount:innkeeper-system:innkeeper";
/// The largest allowed size of the unpacked image.
const IMAGE_BYTES_MAX: u64 = 60 << 20;

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

    site.helm(
        &[
            &["upgrade", RELEASE, CHART, "--set", "replicas=3"][..],
            &IMAGE,
        ]
        .concat(),
    );
    stop(pod);
    let pod = site.pod();
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
