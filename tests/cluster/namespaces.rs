//! A host that is limited to namespaces, and a host that writes children as service accounts. Both
//! have only the permissions from the chart and from `innkeeper manifests`.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use innkeeper_tests::{
    Host, HostOptions, Request, eventually, helm,
    manifest::{self, condition, is_ready},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    plugins::{PLUGIN, cache_grants},
    sharing::{plugin, wait_serving},
    stage::{Stage, is_synced, lines},
    suite::Target,
};

const HOST_NAMESPACE: &str = "innkeeper-system";
pub(crate) const ACCOUNT: &str = "system:serviceaccount:innkeeper-system:innkeeper";
const CACHE: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "example-memcached");
const BACKUP: Target<'static> = ("gobackup.io/v1", "Backup", "example-backup");
const CRDS: [&str; 5] = [
    "memcacheds.cache.example.com",
    "backups.gobackup.io",
    "cronbackups.gobackup.io",
    "restores.gobackup.io",
    "storages.gobackup.io",
];

const LIMITED: [&str; 2] = ["--namespaces", "a,b"];
const VALUES: [&str; 2] = ["--set", "namespaces={a,b}"];

/// The Deployment's arguments for leader election.
const ELECTED: [&str; 3] = ["--leader-elect", "--lease-name", "innkeeper"];

/// Returns true for requests for a namespaced kind.
fn is_namespaced(request: &Request) -> bool {
    let everywhere = [
        "customresourcedefinitions.",
        "plugins.innkeeper.dev",
        "namespaces",
    ];
    !everywhere
        .iter()
        .any(|name| request.resource.starts_with(name))
}

/// The chart values for a host with two plugin files.
const FILES: &str = r#"pluginFiles={"memcached":{},"backup":{}}"#;

/// A cluster with the chart's objects (except the Deployment), the output of
/// `innkeeper manifests`, and the host's credentials.
struct LimitedSite {
    stage: Stage,
    kubeconfig: PathBuf,
    applied: Vec<Value>,
}

impl LimitedSite {
    /// `values` go to helm, and `arguments` to `innkeeper manifests`.
    fn new(guests: &[&str], namespaces: &[&str], values: &[&str], arguments: &[&str]) -> Self {
        let stage = Stage::full(HostOptions::with_guests(guests).unwrap().plugins);
        for name in namespaces {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            });
            stage.plane.user().apply(&namespace).unwrap();
        }
        let applied = apply_manifests(&stage, values, arguments);
        let kubeconfig = account_kubeconfig(&stage, HOST_NAMESPACE);
        Self {
            stage,
            kubeconfig,
            applied,
        }
    }

    fn host(&self, arguments: &[&str]) -> Host {
        let mut options = self.stage.options.clone();
        // The chart's roles are for a host with a lease.
        let arguments = arguments.iter().chain(&ELECTED);
        options.arguments = arguments.map(|text| (*text).to_owned()).collect();
        Host::start(&self.kubeconfig, &options).unwrap()
    }

    fn count(&self, kind: &str) -> usize {
        self.applied
            .iter()
            .filter(|object| object["kind"] == kind)
            .count()
    }

    fn make_parents(&self, namespaces: &[&str]) {
        for namespace in namespaces {
            for guest in ["memcached", "backup"] {
                let path = format!("examples/{guest}/01-article.yaml");
                for mut object in manifest::load(&path).unwrap() {
                    object["metadata"]["namespace"] = json!(namespace);
                    // The API server may not serve a new CRD yet.
                    eventually("the API server accepts the example", || {
                        self.stage.plane.user().apply(&object).map(drop)
                    });
                }
            }
        }
    }

    #[track_caller]
    fn check_parents(&self, host: &Host, seen: &[&str], unseen: &str) {
        for namespace in seen {
            for parent in [CACHE, BACKUP] {
                self.stage.wait(host, namespace, parent, is_ready);
            }
        }
        for parent in [CACHE, BACKUP] {
            let parent = self.stage.get(unseen, parent);
            assert_eq!(parent["status"], Value::Null, "{parent:#}");
            assert_eq!(parent["metadata"]["finalizers"], Value::Null);
        }
        let children = Kind::new("apps/v1", "Deployment", unseen);
        assert!(
            self.stage
                .plane
                .user()
                .list(children, "")
                .unwrap()
                .is_empty()
        );
    }

    /// All requests from the host since the start.
    fn requests(&self) -> Vec<Request> {
        self.stage
            .plane
            .audit()
            .all_requests_since(0)
            .unwrap()
            .into_iter()
            .filter(|request| request.user == ACCOUNT)
            .collect()
    }

    /// Checks that the API server refused no request, and that the host read namespaced kinds only
    /// in these namespaces.
    #[track_caller]
    fn check_requests(&self, namespaces: &[&str]) {
        let requests = self.requests();
        let refused: Vec<&Request> = requests
            .iter()
            .filter(|request| request.code == 403)
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let mut watched = 0;
        let mut wide = Vec::new();
        for request in &requests {
            let is_read = ["list", "watch"].contains(&&*request.verb);
            if is_read && is_namespaced(request) {
                watched += 1;
                if !namespaces.contains(&&*request.namespace) {
                    wide.push(request);
                }
            }
        }
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(watched > 0, "the host read nothing: {requests:#?}");
    }
}

pub(crate) fn apply_manifests(stage: &Stage, values: &[&str], arguments: &[&str]) -> Vec<Value> {
    let create = ["--set", "namespace.create=true"];
    let objects: Vec<Value> = helm::objects(&[&create[..], values].concat())
        .unwrap()
        .into_iter()
        .chain(stage.manifests(arguments))
        .filter(|object| object["kind"] != "Deployment")
        .collect();
    for object in &objects {
        // The API server may not serve the Plugin kind yet.
        stage.apply_new("", object);
    }
    objects
}

/// Writes a kubeconfig with a token for the host's service account in a namespace.
pub(crate) fn account_kubeconfig(stage: &Stage, namespace: &str) -> PathBuf {
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "--kubeconfig"])
        .arg(stage.plane.kubeconfig())
        .args(["create", "token", "innkeeper", "--namespace", namespace])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let token = String::from_utf8(output.stdout).unwrap();
    let text = fs::read_to_string(stage.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = manifest::parse(&text).unwrap().remove(0);
    kubeconfig["users"] = json!([{"name": "account", "user": {"token": token.trim()}}]);
    kubeconfig["contexts"][0]["context"]["user"] = json!("account");
    let path = stage
        .plane
        .directory()
        .join(format!("kubeconfig-{namespace}"));
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

#[test]
fn a_host_with_roles_in_two_namespaces_serves_and_reads_only_these() {
    let site = LimitedSite::new(
        &["memcached", "backup"],
        &["a", "b", "c"],
        &["--set", "namespaces={a,b}", "--set-json", FILES],
        &LIMITED,
    );
    // Only the CRDs that the host watches, the CRDs that it installs for each of two plugins, and the
    // metrics readers need cluster roles.
    assert_eq!(site.count("ClusterRole"), 4);
    let host = site.host(&LIMITED);
    site.stage.wait_served(&host, &CRDS);
    site.stage.restart_collector();
    site.make_parents(&["a", "b", "c"]);
    site.check_parents(&host, &["a", "b"], "c");

    // The host sees and repairs a change in one namespace without touching the other.
    let before = site.stage.get("b", DEPLOYMENT);
    site.stage.delete("a", DEPLOYMENT);
    site.stage.wait(&host, "a", DEPLOYMENT, |deployment| {
        *deployment != Value::Null && deployment["metadata"]["deletionTimestamp"].is_null()
    });
    site.stage.wait(&host, "a", CACHE, is_ready);
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    assert_eq!(uid(&site.stage.get("b", DEPLOYMENT)), uid(&before));

    // The lease is in the host's namespace, and events are in their parents' namespaces.
    let leases = Kind::new("coordination.k8s.io/v1", "Lease", HOST_NAMESPACE);
    let leases = site.stage.plane.user().list(leases, "").unwrap();
    let names: Vec<&Value> = leases
        .iter()
        .map(|lease| &lease["metadata"]["name"])
        .collect();
    assert_eq!(names, ["innkeeper"]);
    for event in site
        .requests()
        .iter()
        .filter(|request| request.resource == "events.events.k8s.io")
    {
        assert!(["a", "b"].contains(&&*event.namespace), "{event:?}");
    }
    site.check_requests(&["a", "b"]);

    // After a restart there is nothing to write.
    site.stage.settle(Duration::from_secs(2));
    Stage::stop(host);
    let mark = site.stage.mark();
    let host = site.host(&LIMITED);
    eventually("both plugins serve again", || match host.log().unwrap() {
        log if log.matches("serving plugin").count() == 2 => Ok(()),
        log => Err(log),
    });
    site.stage.settle(Duration::from_secs(2));
    let writes = lines(&site.stage.writes_since(mark));
    assert!(writes.is_empty(), "{writes:#?}");
    site.check_parents(&host, &["a", "b"], "c");
    site.check_requests(&["a", "b"]);
}

#[test]
fn a_host_whose_crds_are_installed_needs_no_cluster_role() {
    let arguments = ["--namespaces", "a,b", "--crds", "ignore"];
    let limited = [
        "--set",
        "namespaces={a,b},pluginCrds=Ignore,metrics.secure=false",
    ];
    let values = [&limited[..], &["--set-json", FILES]].concat();
    let guests = ["memcached", "backup"];
    let site = LimitedSite::new(&guests, &["a", "b", "c"], &values, &arguments);
    assert_eq!(
        site.count("ClusterRole") + site.count("ClusterRoleBinding"),
        0
    );
    assert!(
        site.count("CustomResourceDefinition") > 3,
        "the administrator has installed the CRDs"
    );
    let host = site.host(&arguments);
    site.stage.wait_served(&host, &CRDS);
    site.stage.restart_collector();
    site.make_parents(&["a", "b", "c"]);
    site.check_parents(&host, &["a", "b"], "c");
    site.check_requests(&["a", "b"]);
    let everywhere: Vec<Request> = site
        .requests()
        .into_iter()
        .filter(|request| request.namespace.is_empty())
        .collect();
    assert!(everywhere.is_empty(), "{everywhere:#?}");
}

/// Returns the exit code and the log from a host that cannot start.
#[track_caller]
fn refusal(mut host: Host) -> (Option<i32>, String) {
    let code = host
        .process()
        .wait_for(Duration::from_secs(30))
        .unwrap()
        .code();
    (code, host.log().unwrap())
}

#[test]
fn a_missing_namespace_is_reported_with_a_remedy() {
    // A host with Plugin resources may read namespaces.
    let values = [&VALUES[..], &["--set-json", FILES]].concat();
    let site = LimitedSite::new(&["memcached"], &["a", "b"], &values, &LIMITED);
    // Only an administrator learns from the API server that the namespace does not exist; an
    // account without a Role there learns that access is forbidden.
    let (code, log) = refusal(site.host(&["--namespaces", "a,missing"]));
    assert_eq!(code, Some(2), "{log}");
    for part in [
        "may not read the namespace missing",
        "create it",
        "innkeeper manifests --namespaces",
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    let mut options = site.stage.options.clone();
    options.arguments = ["--namespaces", "a,missing"].map(str::to_owned).into();
    let host = Host::start(&site.stage.plane.kubeconfig(), &options).unwrap();
    let (code, log) = refusal(host);
    assert_eq!(code, Some(2), "{log}");
    for part in [
        "there is no namespace missing",
        "create it",
        "or remove it from the flag",
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    for (namespaces, part) in [
        ("a,a", "it has a twice: name each namespace once"),
        ("a,", "it has an empty name: write it as a,b"),
        ("A", "\"A\" is not a name: use at most 63"),
    ] {
        let (code, log) = refusal(site.host(&["--namespaces", namespaces]));
        assert_eq!(code, Some(2), "{log}");
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

const WRITER: &str = "system:serviceaccount:teams:writer";

fn is_child_write(request: &Request) -> bool {
    let is_write = ["create", "patch", "delete"].contains(&&*request.verb);
    let children = [
        "deployments.apps",
        "services",
        "poddisruptionbudgets.policy",
    ];
    is_write && children.contains(&&*request.resource)
}

/// A cluster with a Plugin that writes children as a service account, and a host that has no
/// permissions for these children.
fn site_with_account() -> (LimitedSite, Host) {
    let mut site = LimitedSite::new(
        &["memcached"],
        &["a", "teams"],
        &["--set", "namespaces={a}"],
        &["--namespaces", "a", "--account", "memcached=teams/writer"],
    );
    site.stage.options.plugins.clear();
    let guests = path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let host = site.host(&["--namespaces", "a", "--source-dir", &guests]);
    (site, host)
}

#[test]
fn children_are_written_as_the_account_of_a_plugin_with_only_its_rights() {
    let (site, host) = site_with_account();
    let stage = &site.stage;
    let user = stage.plane.user();
    let accounts = Kind::new("v1", "ServiceAccount", "teams");
    let naming = |plugins: &str| {
        let annotations = json!({"metadata": {"annotations": {"innkeeper.dev/plugins": plugins}}});
        user.merge(accounts, "writer", &annotations).unwrap();
    };
    naming("another");
    let mut grants = cache_grants();
    grants["serviceAccountRef"] = json!({"namespace": "teams", "name": "writer"});
    stage.apply_new("", &plugin("memcached", "memcached", &grants, "red"));
    eventually("the account of another Plugin is refused", || {
        let plugin = user.get(PLUGIN, "memcached").unwrap().unwrap_or_default();
        match condition(&plugin, "Serving") {
            Some(text) if text.starts_with("False/AccountNotForPlugin: ") => Ok(()),
            _ => Err(format!("{:#}\n{}", plugin["status"], host.log().unwrap())),
        }
    });
    naming("another, memcached");
    wait_serving(stage, &host, "memcached");
    stage.restart_collector();
    stage.apply_example("a", "examples/memcached/01-article.yaml");
    stage.wait(&host, "a", CACHE, is_ready);
    site.check_requests(&["a"]);
    let requests = site.requests();
    assert!(requests.iter().any(is_child_write), "{requests:#?}");
    for request in &requests {
        let expected = is_child_write(request).then_some(WRITER);
        assert_eq!(request.impersonated.as_deref(), expected, "{request:#?}");
    }

    // Once the account loses permissions, the API server refuses these writes, and the host does
    // not fall back to its own.
    let bindings = Kind::new("rbac.authorization.k8s.io/v1", "RoleBinding", "a");
    let name = "innkeeper-plugin-memcached-children";
    let binding = user.get(bindings, name).unwrap().unwrap();
    user.delete(bindings, name).unwrap();
    stage.merge("a", CACHE, &json!({"spec": {"size": 5}}));
    stage.wait(&host, "a", CACHE, |parent| {
        let synced = condition(parent, "Synced").unwrap_or_default();
        synced.starts_with("False/") && synced.contains(WRITER) && synced.contains("cannot patch")
    });
    assert_ne!(stage.get("a", DEPLOYMENT)["spec"]["replicas"], 5);
    let requests = site.requests();
    let refused: Vec<&Request> = requests
        .iter()
        .filter(|request| request.code == 403)
        .collect();
    assert!(!refused.is_empty());
    for request in &refused {
        assert_eq!(
            request.impersonated.as_deref(),
            Some(WRITER),
            "{request:#?}"
        );
    }

    // With the binding back, the account writes again.
    let again = json!({
        "apiVersion": binding["apiVersion"], "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "a"},
        "roleRef": binding["roleRef"], "subjects": binding["subjects"],
    });
    user.apply(&again).unwrap();
    stage.merge("a", CACHE, &json!({"spec": {"size": 4}}));
    stage.wait(&host, "a", CACHE, |parent| {
        parent["status"]["readyReplicas"] == 4 && is_ready(parent)
    });
}

/// Grants or revokes the host's permission to read namespaces.
fn allow_namespaces(site: &LimitedSite, allowed: bool) {
    let user = site.stage.plane.user();
    let kind = Kind::cluster("rbac.authorization.k8s.io/v1", "ClusterRole");
    let is_role = |object: &&Value| {
        object["kind"] == "ClusterRole" && object["metadata"]["name"] == "innkeeper"
    };
    let role = site.applied.iter().find(is_role).unwrap();
    let all_rules = role["rules"].as_array().unwrap();
    let rules: Vec<&Value> = all_rules
        .iter()
        .filter(|rule| allowed || rule["resources"] != json!(["namespaces"]))
        .collect();
    assert_eq!(rules.len() < all_rules.len(), !allowed);
    user.merge(kind, "innkeeper", &json!({"rules": rules}))
        .unwrap();
}

#[test]
fn parents_are_selected_by_namespace_labels_if_the_host_may_read_namespaces() {
    let mut site = LimitedSite::new(&["memcached"], &["a", "b"], &VALUES, &LIMITED);
    site.stage.options.plugins.clear();
    let guests = path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let start = || site.host(&["--namespaces", "a,b", "--source-dir", &guests]);
    let stage = &site.stage;
    let user = stage.plane.user();
    let team = json!({"metadata": {"labels": {"team": "red"}}});
    user.merge(Kind::cluster("v1", "Namespace"), "a", &team)
        .unwrap();
    let mut chosen = plugin("memcached", "memcached", &cache_grants(), "red");
    chosen["spec"]["parents"] = json!({"namespaceSelector": {"matchLabels": {"team": "red"}}});
    let host = start();
    stage.apply_new("", &chosen);
    wait_serving(stage, &host, "memcached");
    stage.restart_collector();
    for namespace in ["b", "a"] {
        stage.apply_example(namespace, "examples/memcached/01-article.yaml");
    }
    stage.wait(&host, "a", CACHE, is_ready);
    assert_eq!(stage.get("b", CACHE)["status"], Value::Null);
    site.check_requests(&["a", "b"]);
    Stage::stop(host);

    // A host that may not read namespaces reconciles no parent, and the parents report the reason.
    allow_namespaces(&site, false);
    let host = start();
    let waits = |parent: &Value| is_synced(parent, "Unknown", "WaitingForCache");
    let parent = stage.wait(&host, "a", CACHE, waits);
    let message = condition(&parent, "Synced").unwrap();
    for part in ["v1 Namespace", "namespaceSelector", "get, list and watch"] {
        assert!(message.contains(part), "{message}");
    }
    let mark = stage.mark();
    stage.merge("a", CACHE, &json!({"spec": {"size": 4}}));
    stage.settle(Duration::from_secs(2));
    let written = lines(&stage.writes_since(mark));
    let is_child_write = |line: &&String| line.contains("deployments");
    assert_eq!(written.iter().find(is_child_write), None);
    allow_namespaces(&site, true);
    stage.wait(&host, "a", DEPLOYMENT, |deployment| {
        deployment["spec"]["replicas"] == 4
    });
    stage.wait(&host, "a", CACHE, is_ready);
    Stage::stop(host);
}
