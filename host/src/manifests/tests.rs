//! Manifests of a made-up plugin.

use expect_test::{expect, expect_file};

use super::*;
use crate::model::{Access, ChildKind, Gvk, ParentKind, ReadKind, ReadScope, Scope};

fn pond() -> Manifest {
    let child = |api_version: &str, kind: &str| ChildKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        required: true,
        ready_condition: None,
    };
    let read = |api_version: &str, kind: &str, access| ReadKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        access,
        scope: ReadScope::ParentNamespace,
        label_selector: None,
    };
    let Value::Object(crd) = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ponds.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Pond", "plural": "ponds"},
            "scope": "Namespaced",
        },
    }) else {
        panic!("an object")
    };
    Manifest {
        name: PluginName::new("pond").unwrap(),
        version: "1".to_owned(),
        parents: vec![ParentKind {
            kind: Gvk::new("example.com", "v1", "Pond"),
            plural: "ponds".to_owned(),
            scope: Scope::Namespaced,
        }],
        crds: vec![crd],
        children: vec![
            child("v1", "Secret"),
            child("v1", "Service"),
            child("apps/v1", "Deployment"),
            child("networking.k8s.io/v1", "NetworkPolicy"),
            // Privileged: a plugin given as a file gets none of it.
            child("rbac.authorization.k8s.io/v1", "Role"),
        ],
        reads: vec![
            read("v1", "Secret", Access::Hash),
            read("v1", "Pod", Access::Metadata),
        ],
        finalize: true,
        config_schema: None,
    }
}

fn all_files() -> Vec<File> {
    files_of(&BTreeMap::new())
}

fn files_of(grants: &BTreeMap<String, Map<String, Value>>) -> Vec<File> {
    let pond = pond();
    let granted = Granted::new(&pond, grants).unwrap();
    files(&[granted], "inn", "innkeeper:1")
}

fn file(path: &str) -> String {
    let files = all_files();
    let file = files.into_iter().find(|file| file.path == path).unwrap();
    yaml::write(&file.documents).unwrap()
}

#[test]
fn a_plugin_gets_what_it_asks_for_and_no_more() {
    expect_file!["tests/rbac-pond.yaml"].assert_eq(&file("rbac-pond.yaml"));
}

#[test]
fn a_plugin_gets_what_it_is_granted_and_no_more() {
    let Value::Object(grants) = json!({
        "parents": [{"group": "example.com", "kind": "Pond"}],
        "children": [
            {"kind": "Service"},
            {"group": "rbac.authorization.k8s.io", "kind": "Role", "privileged": true},
            {"group": "apps", "kind": "StatefulSet"},
        ],
    }) else {
        panic!("an object")
    };
    let files = files_of(&BTreeMap::from([("pond".to_owned(), grants)]));
    let rbac = files.iter().find(|file| file.path == "rbac-pond.yaml");
    let rules = rbac.unwrap().documents[0]["rules"].as_array().unwrap();
    let resources: Vec<&str> = rules
        .iter()
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .filter_map(Value::as_str)
        .collect();
    let expected = [
        "services",
        "ponds",
        "ponds/finalizers",
        "ponds/status",
        "roles",
    ];
    let expected: BTreeSet<&str> = expected.into();
    assert_eq!(resources.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_definition_of_plugins_is_the_hosts() {
    let Value::Object(crd) = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "plugins.innkeeper.dev"},
    }) else {
        panic!("an object")
    };
    let mut pond = pond();
    pond.crds.push(crd);
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let files = files(&[granted], "inn", "innkeeper:1");
    let path = "crds/plugins.innkeeper.dev.yaml";
    let own: Vec<&File> = files.iter().filter(|file| file.path == path).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].documents[0]["spec"]["names"]["kind"], "Plugin");
}

#[test]
fn the_host_gets_what_it_needs() {
    expect_file!["tests/rbac.yaml"].assert_eq(&file("rbac.yaml"));
}

#[test]
fn everything_is_in_the_kustomization() {
    expect![[r"
        apiVersion: kustomize.config.k8s.io/v1beta1
        kind: Kustomization
        resources:
        - namespace.yaml
        - crds/plugins.innkeeper.dev.yaml
        - crds/ponds.example.com.yaml
        - grant-policy.yaml
        - rbac.yaml
        - rbac-pond.yaml
        - deployment.yaml
        - metrics.yaml
    "]]
    .assert_eq(&file("kustomization.yaml"));
}

#[test]
fn custom_resources_carry_the_label_of_their_plugin() {
    expect![[r"
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata:
          labels:
            innkeeper.dev/plugin: pond
          name: ponds.example.com
        spec:
          group: example.com
          names:
            kind: Pond
            plural: ponds
          scope: Namespaced
    "]]
    .assert_eq(&file("crds/ponds.example.com.yaml"));
}

#[test]
fn nothing_is_allowed_by_a_wildcard() {
    for file in all_files() {
        if !file.path.starts_with("rbac") {
            continue;
        }
        let text = yaml::write(&file.documents).unwrap();
        assert!(!text.contains('*'), "{}: {text}", file.path);
    }
}

#[test]
fn the_pod_is_restricted() {
    let deployment = host::deployment("inn", "innkeeper:1");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}));
}

#[test]
fn o1_the_pod_is_asked_where_the_host_answers() {
    let deployment = host::deployment("inn", "innkeeper:1");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let port = &container["ports"][0];
    let address = format!("0.0.0.0:{}", port["containerPort"]);
    let args = container["args"].as_array().unwrap();
    assert!(args.contains(&json!(address)), "{args:?}");
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        let asked = &container[probe]["httpGet"];
        assert_eq!(*asked, json!({"path": path, "port": port["name"]}));
    }
    let service = host::metrics_service("inn");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    let monitor = host::service_monitor("inn");
    assert_eq!(
        monitor["spec"]["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
}

#[test]
fn what_most_clusters_do_not_know_is_not_applied() {
    let of_kind = |file: &File, kind| {
        file.documents
            .iter()
            .any(|document| document["kind"] == kind)
    };
    for file in all_files() {
        if of_kind(&file, "ServiceMonitor") {
            assert!(!file.is_applied, "{}", file.path);
        }
    }
}

#[test]
fn l2_two_pods_take_turns_and_each_says_its_name_in_the_lease() {
    let deployment = host::deployment("inn", "innkeeper:1");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let name = json!({
        "name": "INNKEEPER_LEASE_IDENTITY",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
    });
    assert!(env.as_array().unwrap().contains(&name), "{env}");
}

#[test]
fn files_of_plugins_that_are_gone_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut all = all_files();
    write_files(directory.path(), &all).unwrap();
    fs::write(directory.path().join("README.md"), "by hand").unwrap();
    all.retain(|file| !file.path.starts_with("crds/"));
    write_files(directory.path(), &all).unwrap();
    assert!(
        !directory
            .path()
            .join("crds/ponds.example.com.yaml")
            .exists()
    );
    assert!(directory.path().join("README.md").exists());
    assert!(directory.path().join("rbac-pond.yaml").exists());
}

fn failure(args: &ManifestsSettings) -> (Exit, String) {
    let (mut stdin, mut stdout, mut stderr) = (io::empty(), Vec::new(), Vec::new());
    let mut streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let exit = run(args, &mut streams);
    (exit, String::from_utf8(stderr).unwrap())
}

fn args(plugin: &str, namespace: &str) -> ManifestsSettings {
    ManifestsSettings {
        plugins: vec![plugin.into()],
        grants: BTreeMap::new(),
        namespace: namespace.to_owned(),
        image: "innkeeper:1".to_owned(),
        out: None,
    }
}

#[test]
fn rejects_namespace() {
    let (exit, message) = failure(&args("pond.wasm", "Inn"));
    assert_eq!(exit, Exit::BadUse);
    assert!(
        message.contains("\"Inn\" is not the name of a namespace"),
        "{message}"
    );
}

#[test]
fn rejects_load_artifact() {
    let (exit, message) = failure(&args("/nowhere/pond.wasm", "inn"));
    assert_eq!(exit, Exit::BadUse);
    assert!(message.contains("/nowhere/pond.wasm"), "{message}");
}

#[test]
fn without_crds_there_are_no_rights_to_make_any() {
    let rights = |crds: &[&str]| {
        access::host("inn", crds)[1]["rules"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(rights(&[]) + 1, rights(&["ponds.example.com"]));
}
