//! The image and the chart: built, pushed, fetched, installed, upgraded and uninstalled as users do
//! it.
//!
//! There is no kubelet, so the test starts the chart's Pod: see [`Pod`].

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use innkeeper_tests::{
    ControlPlane,
    admin::{self, ask_secure},
    eventually, eventually_for,
    helm::{self, IMAGE, NAMESPACE, RELEASE},
    manifest::{self, condition, is_ready, root},
    pod::{Image, Pod},
    process::{is_full, path_from_env},
    registry::{Client, Registry},
    user::Kind,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    callers::token,
    plugins::PLUGIN,
    stage::Stage,
    suite::{GUESTS, Target},
};

mod variants;

const CHART: &str = "deploy/chart";
/// Values changed by the upgrade: more Pods, and the account that may read the metrics.
const CHANGED: &str =
    "replicas=3,metrics.readers[0].name=prometheus,metrics.readers[0].namespace=default";
/// JSON pointer to the status fields in the Plugin CRD.
const STATUS_FIELDS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
const ACCOUNT: &str = "system:serviceaccount:innkeeper-system:innkeeper";
/// Size limit for the unpacked image with the tests' host. A release image has at most 60 MB, which
/// the release test checks: the `dist` profile's host has a third less text.
const IMAGE_BYTES_MAX: u64 = 70 << 20;

/// One parent per plugin.
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
        let output = Command::new(root().join("deploy/image/build"))
            .arg(&built)
            .output()
            .unwrap();
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

/// Regular files below a directory, with their sizes.
fn collect_files(directory: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            collect_files(&entry.path(), files);
        } else {
            files.push((entry.path(), metadata.len()));
        }
    }
}

#[test]
fn the_image_is_small_and_holds_nothing_but_the_host_and_its_plugins() {
    let (image, _) = image();
    assert_eq!(image.user(), 65532);
    let mut files = Vec::new();
    collect_files(image.root(), &mut files);
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
        Self::on(&[])
    }

    /// Starts a control plane with these arguments.
    fn on(arguments: &[&str]) -> Self {
        let stage = Stage::with(Vec::new(), arguments);
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

    /// Installs a chart, the shipped Plugins and one example for each.
    fn install(&self, chart: &str) -> Pod {
        let create = ["--create-namespace"];
        self.helm(&[&["install", RELEASE, chart][..], &IMAGE, &create].concat());
        let mut pod = self.pod();
        for guest in GUESTS {
            for object in manifest::load(&format!("examples/plugins/{guest}.yaml")).unwrap() {
                self.stage.apply_new("", &object);
            }
        }
        for guest in GUESTS {
            self.wait_serving(&mut pod, guest);
        }
        self.stage.restart_collector();
        for guest in GUESTS {
            let example = format!("examples/{guest}/01-article.yaml");
            self.stage.apply_example(&self.namespace, &example);
        }
        for parent in PARENTS {
            self.wait_ready(&pod, parent, |_| true);
        }
        self.check_allowed();
        pod
    }

    /// Starts the Pod from the installed Deployment.
    fn pod(&self) -> Pod {
        let kind = Kind::new("apps/v1", "Deployment", NAMESPACE);
        let deployment = self.plane().user().get(kind, RELEASE).unwrap().unwrap();
        Pod::start(self.plane(), &image().0, &deployment).unwrap()
    }

    #[track_caller]
    fn wait_serving(&self, pod: &mut Pod, name: &str) {
        // Four components are compiled one after another.
        eventually_for(Duration::from_mins(3), &format!("{name} is served"), || {
            let plugin = self
                .plane()
                .user()
                .get(PLUGIN, name)
                .unwrap()
                .unwrap_or_default();
            let exit = pod.process().try_wait().unwrap();
            assert_eq!(exit, None, "{}", pod.log().unwrap());
            match condition(&plugin, "Serving") {
                Some(text) if text.starts_with("True/") => Ok(()),
                _ => Err(format!("{:#}\n{}", plugin["status"], pod.log().unwrap())),
            }
        });
    }

    #[track_caller]
    fn wait_ready(&self, pod: &Pod, parent: Target<'_>, check: impl Fn(&Value) -> bool) {
        eventually(&format!("{parent:?} is Ready"), || {
            let object = self.stage.find(&self.namespace, parent).unwrap_or_default();
            if is_ready(&object) && check(&object) {
                return Ok(());
            }
            Err(format!("{:#}\n{}", object["status"], pod.log().unwrap()))
        });
    }

    /// UIDs of all Plugins, parents and children, by kind and name.
    fn uids(&self) -> Vec<String> {
        let user = self.plane().user();
        let mut all = user.list(PLUGIN, "").unwrap();
        all.extend(user.everything(&self.namespace).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_kept = |object: &&Value| {
            // Pods, Endpoints and so on belong to Kubernetes controllers.
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

    /// Checks that an account in `metrics.readers` can read the Pod's metrics.
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

    /// Checks that the API server refused none of the host's requests.
    #[track_caller]
    fn check_allowed(&self) {
        let mut requests = self.plane().audit().all_requests_since(0).unwrap();
        requests.retain(|request| request.user == ACCOUNT);
        assert!(requests.len() > 50, "the host asked for little");
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

/// An installation's life: from the first chart to the newest, and to none.
#[test]
fn plugins_parents_and_children_outlive_upgrade_and_uninstall() {
    let site = Site::new();
    let pod = site.install(CHART);
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

    // After a reinstall, the host finds them.
    site.helm(&[&["install", RELEASE, CHART][..], &IMAGE].concat());
    let pod = site.pod();
    let smaller = json!({"spec": {"size": 2}});
    site.stage.merge(&site.namespace, memcached, &smaller);
    let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == 2;
    site.wait_ready(&pod, memcached, is_resized);
    assert_eq!(site.uids(), before);
    stop(pod);

    // The compiler gets half the memory, and the message names the value to raise.
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

/// Copies the chart, without one Plugin status field and one rule in the host's role, as an older
/// chart.
fn older_chart(directory: &Path) -> PathBuf {
    let chart = directory.join("chart");
    let status = Command::new("cp")
        .arg("--recursive")
        .arg(root().join(CHART))
        .arg(&chart)
        .status()
        .unwrap();
    assert!(status.success());
    let path = chart.join("files/plugins.innkeeper.dev.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let mut definition = manifest::parse(&text).unwrap().remove(0);
    definition
        .pointer_mut(STATUS_FIELDS)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("usage")
        .unwrap();
    // JSON is YAML.
    fs::write(path, definition.to_string()).unwrap();
    let path = chart.join("templates/rbac.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let rule = "  resources: [namespaces]\n  verbs: [get, list, watch]\n";
    assert_eq!(text.matches(rule).count(), 1, "{text}");
    let other = "  resources: [namespaces]\n  verbs: [get]\n";
    fs::write(path, text.replace(rule, other)).unwrap();
    chart
}

/// The newest chart replaces an older chart's Plugin CRD and roles. No host runs here.
#[test]
fn an_upgrade_of_the_chart_upgrades_the_definition_and_the_roles() {
    let directory = tempfile::tempdir().unwrap();
    let older = older_chart(directory.path());
    let site = Site::on(&["--api-only"]);
    let user = site.plane().user();
    let definition = || {
        let kind = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        user.get(kind, "plugins.innkeeper.dev").unwrap().unwrap()
    };
    let has_field = |definition: &Value| {
        definition
            .pointer(STATUS_FIELDS)
            .unwrap()
            .get("usage")
            .is_some()
    };
    let has_rule = || {
        let kind = Kind::cluster("rbac.authorization.k8s.io/v1", "ClusterRole");
        let role = user.get(kind, RELEASE).unwrap().unwrap();
        let rules = role["rules"].as_array().unwrap();
        let expected = json!({
            "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"],
        });
        rules.contains(&expected)
    };
    let create = ["--create-namespace"];
    let older = older.to_str().unwrap();
    let install_notes = site.helm(&[&["install", RELEASE, older][..], &IMAGE, &create].concat());
    let before = definition();
    assert!(!has_field(&before), "{before:#}");
    assert!(!has_rule());

    let upgrade = || site.helm(&[&["upgrade", RELEASE, CHART][..], &IMAGE].concat());
    let notes = upgrade();
    let after = definition();
    assert!(has_field(&after), "{after:#}");
    assert!(has_rule());
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);

    // `--create-namespace` creates a namespace without labels.
    let label = "pod-security.kubernetes.io/enforce";
    let command = format!("kubectl label namespace {NAMESPACE} {label}=restricted");
    for notes in [install_notes, notes] {
        assert!(notes.contains(&command), "{notes}");
    }
    let labels = json!({"metadata": {"labels": {label: "restricted"}}});
    user.merge(Kind::cluster("v1", "Namespace"), NAMESPACE, &labels)
        .unwrap();
    let notes = upgrade();
    assert!(!notes.contains("kubectl label"), "{notes}");
}

/// On the oldest Kubernetes that the chart allows, with a host that watches, applies and prunes
/// there. Only in `tests/full`, which builds it.
#[test]
fn the_oldest_kubernetes_serves_the_newest_chart() {
    if !is_full() {
        return;
    }
    let oldest = path_from_env("INNKEEPER_OLDEST_KUBERNETES").unwrap();
    let site = Site::on(&["--kubernetes", oldest.to_str().unwrap()]);
    let user = site.plane().user();
    let version = user.block_on(user.client().apiserver_version()).unwrap();
    assert_eq!(version.minor, "30", "{version:?}");
    let pod = site.install(CHART);
    let memcached = PARENTS[0];
    let larger = json!({"spec": {"size": 5}});
    site.stage.merge(&site.namespace, memcached, &larger);
    let is_resized = |parent: &Value| parent["status"]["readyReplicas"] == 5;
    site.wait_ready(&pod, memcached, is_resized);
    site.check_allowed();
    stop(pod);
}
