//! Manifests for a made-up plugin.

use clap::Parser as _;
use expect_test::{expect, expect_file};
use innkeeper_model::{
    Access, ChildKind, Gvk, ParentKind, PluginName, ReadKind, ReadScope, Scope, Selector,
    foreign::is_deceptive, yaml,
};

use super::*;
use crate::tests::captured;

fn pond() -> Manifest {
    let child = |api_version: &str, kind: &str| ChildKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        required: true,
        ready_condition: None,
        never_deleted: false,
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
            // Privileged: a plugin file gets none of it.
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

fn documents_of(given: &Manifest, grants: Option<Value>, more: &[&str]) -> Vec<Document> {
    let grants = grants.map(|grants| match grants {
        Value::Object(grants) => (given.name.to_string(), grants),
        other => panic!("{other}"),
    });
    let source = json!({"file": {"path": "pond.wasm"}});
    let granted = Granted::new(given, &source, &grants.into_iter().collect()).unwrap();
    documents(&[granted], &setup(more))
}

fn text_of(documents: &[Document]) -> String {
    output(documents).unwrap().as_str().to_owned()
}

#[test]
fn hostile_definitions_are_printed_with_escapes() {
    const TEXT: &str = "a\u{1b}[2J\r\nkind: Forged\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";

    let mut manifest = pond();
    manifest.crds[0]["metadata"]["annotations"] = json!({ TEXT: TEXT });
    let text = text_of(&documents_of(&manifest, None, &[]));
    let deceives = |c: char| is_deceptive(c) && c != '\n';
    assert!(!text.contains(deceives), "{text:?}");
    assert!(!text.contains("\nkind: Forged"), "{text}");
    let read = yaml::read(&text).unwrap();
    assert_eq!(read[0]["metadata"]["annotations"][TEXT], TEXT);
}

/// The resources in all rules for a kind's roles.
fn resources(documents: &[Document], kind: &str) -> BTreeSet<String> {
    documents
        .iter()
        .filter(|document| document.object["kind"] == kind)
        .flat_map(|role| role.object["rules"].as_array().unwrap())
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .map(|resource| resource.as_str().unwrap().to_owned())
        .collect()
}

fn setup(more: &[&str]) -> ManifestsArgs {
    let arguments = "manifests pond.wasm --namespace inn"
        .split(' ')
        .chain(more.iter().copied());
    let Manifests { args } = Manifests::try_parse_from(arguments).unwrap();
    args.check().unwrap();
    args
}

/// A program with this command alone.
#[derive(clap::Parser)]
struct Manifests {
    #[command(flatten)]
    args: ManifestsArgs,
}

#[test]
fn a_plugin_gets_what_it_asks_for_and_no_more() {
    let documents = documents_of(&pond(), None, &[]);
    expect_file!["tests/pond.yaml"].assert_eq(&text_of(&documents));
}

#[test]
fn a_plugin_gets_what_it_is_granted_and_no_more() {
    let grants = json!({
        "parents": [{"group": "example.com", "kind": "Pond"}],
        "children": [
            {"kind": "Service"},
            {"group": "rbac.authorization.k8s.io", "kind": "Role", "privileged": true},
            {"group": "apps", "kind": "StatefulSet"},
        ],
    });
    let documents = documents_of(&pond(), Some(grants), &[]);
    let expected = [
        "customresourcedefinitions",
        "ponds",
        "ponds/finalizers",
        "ponds/status",
        "roles",
        "services",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(resources(&documents, "ClusterRole"), expected);
}

#[test]
fn the_role_is_aggregated_by_its_host_and_bound_by_no_other_object() {
    let documents = documents_of(&pond(), None, &["--name", "red"]);
    assert_eq!(
        names_of_kind(&documents, "ClusterRole"),
        ["/red-plugin-pond"]
    );
    assert_eq!(names_of_kind(&documents, "ClusterRoleBinding"), [""; 0]);
    let mut roles = documents
        .iter()
        .filter(|document| document.object["kind"] == "ClusterRole");
    let labels = &roles.next().unwrap().object["metadata"]["labels"];
    assert_eq!(labels["innkeeper.dev/aggregate-to"], "red");
}

#[test]
fn the_values_of_secrets_and_kinds_of_kubernetes_are_comments_with_their_reason() {
    let mut pond = pond();
    pond.reads[0].access = Access::Full;
    pond.parents.push(ParentKind {
        kind: Gvk::new("apps", "v1", "DaemonSet"),
        plural: "daemonsets".to_owned(),
        scope: Scope::Namespaced,
    });
    let documents = documents_of(&pond, None, &[]);
    let comments = documents.last().unwrap().comments.join("\n");
    for part in [
        "Not granted: it shows the values of Secrets. To grant it, add this to reads of spec.grants",
        "- access: full\n  group: \"\"\n  kind: Secret",
        "Not granted: its parents are objects of Kubernetes itself. To grant it, add this to parents",
        "- builtin: true\n  group: apps\n  kind: DaemonSet",
        "Not granted: it is a privileged kind, with which a plugin has power over the cluster or over others. To grant it, add this to children",
    ] {
        assert!(comments.contains(part), "{part} is not in:\n{comments}");
    }
    assert!(!resources(&documents, "ClusterRole").contains("daemonsets"));
}

#[test]
fn the_printed_grants_are_read_as_they_were_made() {
    let manifest = pond();
    let source = Value::Null;
    let granted = Granted::new(&manifest, &source, &BTreeMap::new()).unwrap();
    let text = text_of(&[granted.file()]);
    expect![[r#"
        # Plugin pond can run Pods with any image as the namespace's service account default, at podSecurity: restricted, through Deployment.apps.
        # Plugin pond can read every Secret and ConfigMap in its children's namespaces, by mounting them in Pods.
        # Plugin pond can redirect or block network traffic, through Service, NetworkPolicy.networking.k8s.io.
        # Plugin pond can create settings and credentials that Pods and other controllers read, through Secret.
        # Plugin pond can define and change kinds for the whole cluster: Pond.example.com.
        # Plugin pond can read the metadata of all objects of Pod in its parents' namespaces.
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
    // The printed file must parse to the same grants.
    let Ok([Value::Object(given)]) = <[Value; 1]>::try_from(yaml::read(&text).unwrap()) else {
        panic!("{text}")
    };
    let again = BTreeMap::from([("pond".to_owned(), given)]);
    let again = Granted::new(&manifest, &source, &again).unwrap();
    assert_eq!(again.grants, granted.grants);
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
    let documents = documents_of(&pond, None, &[]);
    let definitions = names_of_kind(&documents, "CustomResourceDefinition");
    assert_eq!(definitions, ["/ponds.example.com"]);
    assert!(!text_of(&documents).contains("plugins.innkeeper.dev"));
}

#[test]
fn nothing_is_allowed_by_a_wildcard() {
    for document in documents_of(&pond(), None, &[]) {
        let rules = document.object["rules"].to_string();
        assert!(!rules.contains('*'), "{rules}");
    }
}

#[test]
fn rejects_load_artifact() {
    let args = ManifestsArgs {
        plugins: vec![Inspected::File("/nowhere/pond.wasm".into())],
        ..setup(&[])
    };
    let (exit, _, message) = captured(b"", |streams| run(&args, streams));
    assert_eq!(exit, Exit::Usage);
    assert!(message.contains("/nowhere/pond.wasm"), "{message}");
}

/// A kind's objects as `namespace/name`.
fn names_of_kind(documents: &[Document], kind: &str) -> Vec<String> {
    let objects = documents
        .iter()
        .map(|document| &document.object)
        .filter(|object| object["kind"] == kind);
    let text = |object: &Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        format!("{}/{}", text("namespace"), text("name"))
    };
    objects.map(text).collect()
}

const LIMITED: [&str; 2] = ["--namespaces", "a,b"];
const WITHOUT_CRDS: [&str; 4] = ["--namespaces", "a,b", "--crds", "ignore"];

#[test]
fn a_host_that_is_limited_to_namespaces_has_roles_in_them() {
    let documents = documents_of(&pond(), None, &LIMITED);
    let roles = ["a/innkeeper-plugin-pond", "b/innkeeper-plugin-pond"];
    assert_eq!(names_of_kind(&documents, "Role"), roles);
    assert_eq!(names_of_kind(&documents, "RoleBinding"), roles);
    let everywhere = resources(&documents, "ClusterRole");
    let definitions = "customresourcedefinitions".to_owned();
    assert_eq!(everywhere, BTreeSet::from([definitions]));

    let documents = documents_of(&pond(), None, &WITHOUT_CRDS);
    assert_eq!(names_of_kind(&documents, "ClusterRole"), [""; 0]);
    assert_eq!(names_of_kind(&documents, "ClusterRoleBinding"), [""; 0]);
    assert_eq!(names_of_kind(&documents, "Role"), roles);
    assert_eq!(documents.last().unwrap().object["spec"]["crds"], "Ignore");
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
    let documents = documents_of(&pond, None, &WITHOUT_CRDS);
    let expected: BTreeSet<String> = ["seas", "seas/finalizers", "seas/status", "storageclasses"]
        .map(str::to_owned)
        .into();
    assert_eq!(resources(&documents, "ClusterRole"), expected);
    // Events about cluster-scoped objects are in this namespace.
    let events = "default/innkeeper-events".to_owned();
    assert!(names_of_kind(&documents, "Role").contains(&events));
}

/// Returns the verbs that a Role allows for a resource, as JSON.
fn verbs(rbac: &[Value], namespace: &str, role: &str, resource: &str) -> String {
    let role = rbac
        .iter()
        .find(|document| {
            let metadata = &document["metadata"];
            document["kind"] == "Role"
                && metadata["namespace"] == namespace
                && metadata["name"] == role
        })
        .unwrap();
    let about_resource = role["rules"].as_array().unwrap().iter().find(|rule| {
        rule["resources"]
            .as_array()
            .unwrap()
            .contains(&json!(resource))
    });
    about_resource.map_or_else(|| "null".to_owned(), |rule| rule["verbs"].to_string())
}

#[test]
fn a_plugin_with_an_account_writes_children_by_its_rights_and_not_by_the_hosts() {
    let account = ["--account", "pond=teams/pond-writer"];
    let rbac = documents_of(&pond(), None, &[&WITHOUT_CRDS[..], &account].concat());
    let rbac: Vec<Value> = rbac.into_iter().map(|document| document.object).collect();
    let plugin = rbac.last().unwrap();
    assert_eq!(
        plugin["spec"]["grants"]["serviceAccountRef"],
        json!({"namespace": "teams", "name": "pond-writer"})
    );
    let verbs_of = |namespace, role, resource| verbs(&rbac, namespace, role, resource);
    let host = "innkeeper-plugin-pond";
    let writer = "innkeeper-plugin-pond-children";
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
    assert_eq!(
        verbs_of("teams", role, "serviceaccounts"),
        r#"["get","impersonate"]"#
    );
    let documents = &rbac;
    let account = documents
        .iter()
        .find(|object| object["kind"] == "ServiceAccount")
        .unwrap();
    assert_eq!(
        account["metadata"]["annotations"]["innkeeper.dev/plugins"],
        "pond"
    );
    let impersonating = documents
        .iter()
        .find(|object| object["kind"] == "Role" && object["metadata"]["name"] == role);
    let rules = &impersonating.unwrap()["rules"];
    assert_eq!(rules[0]["resourceNames"], json!(["pond-writer"]));
    assert_eq!(rules.as_array().unwrap().len(), 1);
    for binding in documents
        .iter()
        .filter(|object| object["kind"] == "RoleBinding")
    {
        let to = if binding["metadata"]["name"] == writer {
            "pond-writer"
        } else {
            "innkeeper"
        };
        assert_eq!(binding["subjects"][0]["name"], to, "{binding:#}");
    }
}
