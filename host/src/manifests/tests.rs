//! Manifests of a made-up plugin.

use std::io;

use expect_test::{expect, expect_file};
use innkeeper_model::{
    Access, ChildKind, Gvk, ParentKind, PluginName, ReadKind, ReadScope, Scope, Selector,
};

use super::*;
use crate::config::{self, Command};

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
        label_selector: Selector::default(),
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
        reads_own_status: false,
        config_schema: None,
    }
}

fn all_files() -> Vec<ManifestFile> {
    files_of(&BTreeMap::new())
}

fn files_of(grants: &BTreeMap<String, Map<String, Value>>) -> Vec<ManifestFile> {
    let pond = pond();
    let granted = Granted::new(&pond, grants).unwrap();
    files(&[granted], &setup(&[])).unwrap()
}

/// The first object of a file of the host.
fn of_host(template: host::Template, more: &[&str]) -> Value {
    let pond = pond();
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let mut file = host::file(template, &[granted], &setup(more)).unwrap();
    file.documents.remove(0)
}

fn setup(more: &[&str]) -> ManifestsArgs {
    let fixed = "innkeeper manifests --plugin pond.wasm --namespace inn --image innkeeper:1";
    let arguments = fixed.split(' ').chain(more.iter().copied());
    match config::read(arguments.map(Into::into)).unwrap().command {
        Command::Manifests(args) => args,
        other => panic!("{other:?}"),
    }
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
fn plugins_in_the_image_get_their_grants_from_a_mounted_file() {
    let manifest = pond();
    let granted = Granted::new(&manifest, &BTreeMap::new()).unwrap();
    let text = granted.file().unwrap();
    expect![[r#"
        # Plugin pond can run Pods of any image as the service account default of the namespace, at podSecurity: restricted, through Deployment.apps.
        # Plugin pond can read every Secret and ConfigMap of the namespaces of its children, by mounting them in Pods.
        # Plugin pond can redirect or block network traffic, through Service, NetworkPolicy.networking.k8s.io.
        # Plugin pond can read the metadata of all objects of Pod in the namespaces of its parents.
        # Plugin pond also asks for children of Role.rbac.authorization.k8s.io (a privileged kind).
        children:
        - group: ""
          kind: Secret
        - group: ""
          kind: Service
        - group: apps
          kind: Deployment
        - group: networking.k8s.io
          kind: NetworkPolicy
        parents:
        - group: example.com
          kind: Pond
        podSecurity: restricted
        reads:
        - access: hash
          group: ""
          kind: Secret
          scope: ParentNamespace
        - access: metadata
          group: ""
          kind: Pod
          scope: ParentNamespace
    "#]]
    .assert_eq(&text);
    // The printed file is read as the grants that it was made from.
    let Ok([Value::Object(given)]) = <[Value; 1]>::try_from(yaml::read(&text).unwrap()) else {
        panic!("{text}")
    };
    let again = Granted::new(&manifest, &BTreeMap::from([("pond".to_owned(), given)])).unwrap();
    assert_eq!(again.grants, granted.grants);
}

#[test]
fn the_deployment_mounts_the_grants_and_hands_them_over() {
    let manifest = pond();
    let granted = Granted::new(&manifest, &BTreeMap::new()).unwrap();
    let text = granted.file().unwrap();
    let files = all_files();
    let file = files
        .iter()
        .find(|file| file.path == "grants.yaml")
        .unwrap();
    assert_eq!(file.documents[0]["data"]["pond.yaml"], text);
    let name = &file.documents[0]["metadata"]["name"];
    let deployment = of_host(host::DEPLOYMENT, &[]);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args = container["args"].to_string();
    assert!(
        args.contains(r#""--grants","pond=/grants/pond.yaml""#),
        "{args}"
    );
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|one| one["configMap"]["name"] == *name);
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts
        .iter()
        .find(|one| one["mountPath"] == "/grants")
        .unwrap();
    assert_eq!(mount["name"], volume.unwrap()["name"]);
}

#[test]
fn plugin_resources_state_their_grants_themselves() {
    let pond = pond();
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let files = files(&[granted], &setup(&["--plugin-resources"])).unwrap();
    assert!(files.iter().all(|file| file.path != "grants.yaml"));
    let args = of_host(host::DEPLOYMENT, &["--plugin-resources"]).to_string();
    assert!(!args.contains("--grants"), "{args}");
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
    let files = files(&[granted], &setup(&[])).unwrap();
    let path = "crds/plugins.innkeeper.dev.yaml";
    let own: Vec<&ManifestFile> = files.iter().filter(|file| file.path == path).collect();
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
        - grants.yaml
        - deployment.yaml
        - metrics.yaml
        - network-policy.yaml
    "]]
    .assert_eq(&file("kustomization.yaml"));
}

#[test]
fn only_scrapers_reach_the_pod_and_only_at_its_admin_port() {
    let policy = &of_host(host::NETWORK_POLICY, &[])["spec"];
    let pod = &of_host(host::DEPLOYMENT, &[])["spec"]["template"];
    assert_eq!(
        policy["podSelector"]["matchLabels"],
        pod["metadata"]["labels"]
    );
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let port = &pod["spec"]["containers"][0]["ports"][0]["name"];
    let from = json!([{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]);
    assert_eq!(
        policy["ingress"],
        json!([{"from": from, "ports": [{"port": port}]}])
    );
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
    let deployment = of_host(host::DEPLOYMENT, &[]);
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
    let deployment = of_host(host::DEPLOYMENT, &[]);
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
    let service = of_host(host::METRICS, &[]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    let monitor = of_host(host::SERVICE_MONITOR, &[]);
    assert_eq!(
        monitor["spec"]["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
}

#[test]
fn what_most_clusters_do_not_know_is_not_applied() {
    let of_kind = |file: &ManifestFile, kind| {
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
    let deployment = of_host(host::DEPLOYMENT, &[]);
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

fn failure(args: &ManifestsArgs) -> (Exit, String) {
    let (mut stdin, mut stdout, mut stderr) = (io::empty(), Vec::new(), Vec::new());
    let mut streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let ended = run(args, &mut streams);
    let exit = streams.end(ended);
    (exit, String::from_utf8(stderr).unwrap())
}

#[test]
fn rejects_load_artifact() {
    let args = ManifestsArgs {
        plugins: vec!["/nowhere/pond.wasm".into()],
        ..setup(&[])
    };
    let (exit, message) = failure(&args);
    assert_eq!(exit, Exit::Usage);
    assert!(message.contains("/nowhere/pond.wasm"), "{message}");
}

#[test]
fn without_crds_there_are_no_rights_to_make_any() {
    let rights = |crds: &[&str]| {
        access::host(&setup(&[]), crds, &[])[1]["rules"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(rights(&[]) + 1, rights(&["ponds.example.com"]));
}

/// The objects of some kind as `namespace/name`.
fn of_kind(files: &[ManifestFile], kind: &str) -> Vec<String> {
    let documents = files.iter().flat_map(|file| &file.documents);
    let of_kind = documents.filter(|document| document["kind"] == kind);
    let text = |document: &Value| {
        let text = |field: &str| document["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name) = (text("namespace"), text("name"));
        format!(
            "{}/{}",
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        )
    };
    of_kind.map(text).collect()
}

const LIMITED: [&str; 2] = ["--namespaces", "a,b"];
const WITHOUT_CRDS: [&str; 4] = ["--namespaces", "a,b", "--crds", "ignore"];

#[test]
fn a_host_that_is_limited_to_namespaces_has_roles_in_them() {
    let pond = pond();
    let files = |arguments: &[&str]| {
        let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
        files(&[granted], &setup(arguments)).unwrap()
    };
    let all = files(&LIMITED);
    let roles = [
        "inn/innkeeper",
        "a/innkeeper-namespace",
        "b/innkeeper-namespace",
        "a/innkeeper-plugin-pond",
        "b/innkeeper-plugin-pond",
    ];
    assert_eq!(of_kind(&all, "Role"), roles);
    assert_eq!(of_kind(&all, "RoleBinding"), roles);
    assert_eq!(of_kind(&all, "ClusterRole"), ["/innkeeper"]);
    let all_of_it = all.iter().flat_map(|file| &file.documents);
    let allowed: Vec<&Value> = all_of_it
        .filter(|document| document["kind"] == "ClusterRole")
        .flat_map(|role| role["rules"].as_array().unwrap())
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .collect();
    assert_eq!(
        allowed,
        ["customresourcedefinitions", "customresourcedefinitions"]
    );

    let all = files(&WITHOUT_CRDS);
    assert_eq!(
        of_kind(&all, "ClusterRole"),
        [""; 0],
        "nothing is left for one"
    );
    assert_eq!(of_kind(&all, "ClusterRoleBinding"), [""; 0]);
    assert_eq!(of_kind(&all, "Role"), roles);
    let deployment = of_host(host::DEPLOYMENT, &WITHOUT_CRDS);
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(
        args.contains(r#""--namespaces","a,b","--crds","ignore","--lease-name","innkeeper""#),
        "{args}"
    );
}

#[test]
fn what_lives_in_no_namespace_is_all_that_a_limited_host_gets_everywhere() {
    let mut pond = pond();
    pond.reads.push(ReadKind {
        kind: Gvk::new("storage.k8s.io", "v1", "StorageClass"),
        access: Access::Metadata,
        scope: ReadScope::Cluster,
        label_selector: Selector::default(),
    });
    pond.parents.push(ParentKind {
        kind: Gvk::new("example.com", "v1", "Sea"),
        plural: "seas".to_owned(),
        scope: Scope::Cluster,
    });
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let files = files(&[granted], &setup(&WITHOUT_CRDS)).unwrap();
    let mut resources: Vec<String> = files
        .iter()
        .flat_map(|file| &file.documents)
        .filter(|document| document["kind"] == "ClusterRole")
        .flat_map(|role| role["rules"].as_array().unwrap())
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .map(|resource| resource.as_str().unwrap().to_owned())
        .collect();
    resources.sort();
    assert_eq!(
        resources,
        ["seas", "seas/finalizers", "seas/status", "storageclasses"]
    );
    // Events about cluster-scoped objects are in this namespace.
    assert!(of_kind(&files, "Role").contains(&"default/innkeeper-events".to_owned()));
}

#[test]
fn to_run_from_plugin_resources_takes_no_more_than_they_name() {
    let pond = pond();
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let resources = "--name red --plugin-resources --plugin-selector team=a --source-secret pull --source-config-map pond";
    let resources: Vec<&str> = resources.split(' ').collect();
    let setup = setup(&[&WITHOUT_CRDS[..], &resources].concat());
    let files = files(&[granted], &setup).unwrap();
    let rbac = files.iter().find(|file| file.path == "rbac.yaml").unwrap();
    let rules_of = |kind: &str| {
        let mut roles = rbac.documents.iter();
        let role = roles.find(|document| document["kind"] == kind).unwrap();
        role["rules"].clone()
    };
    assert_eq!(
        rules_of("ClusterRole"),
        json!([
            {
                "apiGroups": ["innkeeper.dev"], "resources": ["plugins"],
                "verbs": ["get", "list", "patch", "watch"],
            },
            {"apiGroups": ["innkeeper.dev"], "resources": ["plugins/status"], "verbs": ["patch"]},
            {"apiGroups": ["innkeeper.dev"], "resources": ["plugins/finalizers"], "verbs": ["update"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
        ])
    );
    let own = rules_of("Role").to_string();
    for name in ["pull", "pond", "red"] {
        assert!(
            own.contains(&format!(r#"["{name}"]"#)),
            "{name} is not in {own}"
        );
    }
    let deployment = host::file(host::DEPLOYMENT, &[], &setup).unwrap();
    let args =
        deployment.documents[0]["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(
        args.starts_with(r#"["run","--plugin-selector","team=a","#),
        "{args}"
    );
}

/// The file of roles of a plugin whose children are written as an account, for a host that sees `a` and `b`.
fn roles_with_account() -> ManifestFile {
    let pond = pond();
    let granted = Granted::new(&pond, &BTreeMap::new()).unwrap();
    let account = ["--plugin-resources", "--account", "pond=teams/pond-writer"];
    let setup = setup(&[&WITHOUT_CRDS[..], &account].concat());
    let files = files(&[granted], &setup).unwrap();
    let mut files = files.into_iter();
    files.find(|file| file.path == "rbac-pond.yaml").unwrap()
}

#[test]
fn a_plugin_with_an_account_writes_children_by_its_rights_and_not_by_the_hosts() {
    let rbac = roles_with_account();
    let verbs_of = |namespace: &str, role: &str, resource: &str| -> String {
        let named = |document: &&Value| {
            let metadata = &document["metadata"];
            document["kind"] == "Role"
                && metadata["namespace"] == namespace
                && metadata["name"] == role
        };
        let role = rbac.documents.iter().find(named).unwrap();
        let mut rules = role["rules"].as_array().unwrap().iter();
        let about = |rule: &&Value| {
            rule["resources"]
                .as_array()
                .unwrap()
                .contains(&json!(resource))
        };
        let verbs = rules.find(about).map(|rule| rule["verbs"].clone());
        verbs.unwrap_or_default().to_string()
    };
    let (host, writer) = ("innkeeper-plugin-pond", "innkeeper-plugin-pond-children");
    for namespace in ["a", "b"] {
        assert_eq!(
            verbs_of(namespace, host, "deployments"),
            r#"["get","list","watch"]"#
        );
        let verbs = r#"["create","delete","patch"]"#;
        assert_eq!(verbs_of(namespace, writer, "deployments"), verbs);
        assert_eq!(
            verbs_of(namespace, writer, "ponds/finalizers"),
            r#"["update"]"#
        );
        assert_eq!(verbs_of(namespace, writer, "ponds"), "null");
    }
    let role = "innkeeper-plugin-pond-account";
    let verbs = verbs_of("teams", role, "serviceaccounts");
    assert_eq!(verbs, r#"["get","impersonate"]"#);
    let documents = &rbac.documents;
    let account = documents
        .iter()
        .find(|one| one["kind"] == "ServiceAccount")
        .unwrap();
    assert_eq!(
        account["metadata"]["annotations"]["innkeeper.dev/plugins"],
        "pond"
    );
    let impersonating = documents
        .iter()
        .find(|one| one["kind"] == "Role" && one["metadata"]["name"] == role);
    let rules = &impersonating.unwrap()["rules"];
    assert_eq!(rules[0]["resourceNames"], json!(["pond-writer"]));
    assert_eq!(rules.as_array().unwrap().len(), 1);
    for binding in documents.iter().filter(|one| one["kind"] == "RoleBinding") {
        let to = if binding["metadata"]["name"] == writer {
            "pond-writer"
        } else {
            "innkeeper"
        };
        assert_eq!(binding["subjects"][0]["name"], to, "{binding:#}");
    }
}
