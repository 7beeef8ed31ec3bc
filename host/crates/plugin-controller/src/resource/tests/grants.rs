//! Grants in a spec and in a file, and the lines that propose missing ones.

use innkeeper_model::{ChildKind, Gvk, Manifest, ParentKind, PluginName, ReadKind, Scope, yaml};
use innkeeper_policy::PodSecurity;

use super::*;

#[test]
fn refuses_grants() {
    const PRIVILEGED: &str = "this kind gives power over the cluster or over others: write privileged: true if that is meant";
    for (list, entries, at, rule) in [
        (
            "parents",
            json!([{"group": "apps", "kind": "Deployment"}]),
            "[0]",
            "this kind is part of Kubernetes: write builtin: true if its objects are to be parents",
        ),
        (
            "parents",
            json!([{"kind": "Secret", "builtin": true, "privileged": true}]),
            "[0]",
            "a Secret is never a parent",
        ),
        (
            "parents",
            json!([{"kind": "Namespace", "builtin": true}]),
            "[0]",
            PRIVILEGED,
        ),
        (
            "crds",
            json!([{"group": "innkeeper.dev", "kind": "Plugin"}]),
            "[0]",
            PRIVILEGED,
        ),
        (
            "crds",
            json!([{"group": "apps", "kind": "Deployment"}]),
            "[0]",
            "kinds of Kubernetes itself have no CustomResourceDefinition",
        ),
        (
            "children",
            json!([{"kind": "ServiceAccount"}]),
            "[0]",
            PRIVILEGED,
        ),
        (
            "children",
            json!([{"group": "discovery.k8s.io", "kind": "EndpointSlice"}]),
            "[0]",
            PRIVILEGED,
        ),
        (
            "children",
            json!([{"kind": "Pod"}, {"kind": "Pod", "adopt": true}]),
            "[1]",
            r#"{"group":"","kind":"Pod"} is in the list twice"#,
        ),
        (
            "children",
            json!([{"group": "apps/v1", "kind": "x"}]),
            "[0].group",
            "must be an API group without a version, such as apps, or empty for the core group\n\
             spec.grants.children[0].kind: must be a kind in CamelCase, such as Deployment",
        ),
        (
            "reads",
            json!([{"kind": "Node", "access": "full", "scope": "Cluster"}]),
            "[0]",
            PRIVILEGED,
        ),
    ] {
        let field = format!("spec.grants.{list}{at}");
        check_refused([(json!({"grants": {list: entries}}), &field, rule)]);
    }
}

#[test]
fn refuses_reads_and_accounts() {
    const NAMESPACES: &str = "namespaces must name at least one namespace for scope: Namespaces, and be absent for any other scope";
    const NAMESPACE: &str = "must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit";
    let read = |more: Value| {
        let mut read = object(json!({"kind": "Pod", "access": "full"}));
        read.extend(object(more));
        json!({"grants": {"reads": [read]}})
    };
    check_refused([
        (
            read(json!({"access": "hash"})),
            "spec.grants.reads[0]",
            "access: hash is for Secrets and ConfigMaps; write full or metadata",
        ),
        (
            read(json!({"scope": "Namespaces"})),
            "spec.grants.reads[0]",
            NAMESPACES,
        ),
        (
            read(json!({"namespaces": ["a"]})),
            "spec.grants.reads[0]",
            NAMESPACES,
        ),
        (
            read(json!({"scope": "Namespaces", "namespaces": ["A"]})),
            "spec.grants.reads[0].namespaces",
            NAMESPACE,
        ),
    ]);
    let account = json!({"namespace": "a.b", "name": "x"});
    let field = "spec.grants.serviceAccountRef.namespace";
    let grants = json!({"grants": {"serviceAccountRef": account}});
    check_refused([(grants, field, NAMESPACE)]);
}

fn manifest() -> Manifest {
    let child = |api_version: &str, kind: &str, required| ChildKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        required,
        ready_condition: None,
        never_deleted: false,
    };
    let read = |kind: &str, access, scope, selector: Option<&str>| ReadKind {
        kind: Gvk::new("", "v1", kind),
        access,
        scope,
        label_selector: parse_selector(selector.unwrap_or_default()).unwrap(),
    };
    Manifest {
        name: PluginName::new("memcached").unwrap(),
        version: "1".to_owned(),
        parents: vec![ParentKind {
            kind: Gvk::new("cache.example.com", "v1", "Memcached"),
            plural: "memcacheds".to_owned(),
            scope: Scope::Namespaced,
        }],
        crds: vec![object(json!({
            "spec": {"group": "gobackup.io", "names": {"kind": "Database"}},
        }))],
        children: vec![
            child("apps/v1", "Deployment", true),
            child("v1", "Namespace", true),
            child("monitoring.coreos.com/v1", "ServiceMonitor", false),
        ],
        reads: vec![
            read("Secret", Access::Full, ReadScope::ParentNamespace, None),
            read(
                "Node",
                Access::Metadata,
                ReadScope::Cluster,
                Some("role in (a,b)"),
            ),
        ],
        finalize: false,
        reads_own_status: false,
        config_schema: None,
    }
}

#[test]
fn missing_grants_are_lines_to_add() {
    let manifest = manifest();
    let text = lines(&Grants::default().assess(&manifest)).unwrap();
    expect![[r#"
        The plugin is not active without more grants. Add to spec.grants:
        children:
        - group: apps
          kind: Deployment
        - group: ""
          kind: Namespace
          privileged: true
        parents:
        - group: cache.example.com
          kind: Memcached

        The plugin runs with fewer grants than it asks for. Add to spec.grants:
        children:
        - group: monitoring.coreos.com
          kind: ServiceMonitor
        crds:
        - group: gobackup.io
          kind: Database
        reads:
        - access: full
          group: ""
          kind: Secret
          scope: ParentNamespace
        - access: metadata
          group: ""
          kind: Node
          labelSelector: role in (a,b)
          privileged: true
          scope: Cluster
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_lines_grant_all_that_is_missing() {
    let manifest = manifest();
    let text = lines(&Grants::default().assess(&manifest)).unwrap();
    let mut grants: Map<String, Value> = Map::new();
    for part in text.split("Add to spec.grants:\n").skip(1) {
        let part = part.split("\nThe plugin").next().unwrap();
        for (list, entries) in object(yaml::read(part).unwrap().remove(0)) {
            grants
                .entry(list)
                .or_insert_with(|| json!([]))
                .as_array_mut()
                .unwrap()
                .extend(entries.as_array().unwrap().iter().cloned());
        }
    }
    let granted = grants_of_file(&grants).unwrap();
    let assessment = granted.assess(&manifest);
    assert_eq!(lines(&assessment), None, "{assessment:?}");
    assert_eq!(granted.reads_for(&manifest), manifest.reads);
}

/// The list of children is keyed by kind, so a second entry for the kind is rejected.
#[test]
fn a_missing_depth_belongs_into_the_entry_that_exists() {
    let mut manifest = manifest();
    manifest.children.truncate(2);
    manifest.children[0].kind = manifest.parents[0].kind.clone();
    manifest.reads.clear();
    manifest.crds.clear();
    let own = json!([{"group": "cache.example.com", "kind": "Memcached"}]);
    let mut namespaces = own.as_array().unwrap().clone();
    namespaces.push(json!({"kind": "Namespace", "privileged": true}));
    let text = |children: Value| {
        let grants = object(json!({"parents": own, "children": children}));
        lines(&grants_of_file(&grants).unwrap().assess(&manifest)).unwrap()
    };
    expect!["The plugin runs with fewer grants than it asks for. Set in the entry of spec.grants.children for Memcached.cache.example.com: depth: 1."].assert_eq(&text(json!(namespaces)));
    let both = text(own.clone());
    assert!(
        both.contains("Add to spec.grants:\nchildren:\n- group: \"\""),
        "{both}"
    );
    assert!(
        both.contains("Memcached.cache.example.com: depth: 1."),
        "{both}"
    );
}

#[test]
fn a_secret_as_a_parent_is_never_granted() {
    let mut manifest = manifest();
    manifest.parents[0].kind = Gvk::new("", "v1", "Secret");
    manifest.children.clear();
    manifest.reads.clear();
    manifest.crds.clear();
    let text = lines(&Grants::default().assess(&manifest)).unwrap();
    expect!["The plugin is not active without more grants. It asks for parents of Secret (never granted)."].assert_eq(&text);
}

#[test]
fn definitions_that_are_not_installed_need_no_grant() {
    let ignoring = spec_with(json!({"crds": "Ignore"}));
    let terms = |spec: &Value| declare(resource("x", spec)).unwrap().terms;
    let lacks_crd = |terms: Terms| {
        lines(&terms.assess(&manifest()))
            .unwrap()
            .contains("gobackup.io")
    };
    assert!(lacks_crd(terms(&spec_with(json!({})))));
    assert!(!lacks_crd(terms(&ignoring)));
}

#[test]
fn grants_of_a_file_are_those_of_a_spec() {
    let grants = object(full_spec()["grants"].clone());
    let in_spec = declare(resource("x", &full_spec())).unwrap().terms.grants;
    let mut of_file = grants.clone();
    of_file.remove("serviceAccountRef");
    assert_eq!(grants_of_file(&of_file).unwrap(), in_spec);
    assert_eq!(grants_of_file(&Map::new()).unwrap(), no_grants());

    for (grants, expected) in [
        (
            grants,
            expect![
                "the grants name serviceAccountRef, which only a Plugin resource may: leave it out"
            ],
        ),
        (
            object(json!({"parent": []})),
            expect![[r#"the grants hold "parent", which does not exist: leave it out"#]],
        ),
        (
            object(json!({"children": [{"kind": "Pod", "privilege": true}]})),
            expect![[
                r#"the grants hold "children[0].privilege", which does not exist: leave it out"#
            ]],
        ),
        (
            object(json!({"children": [{"kind": "Node"}], "reads": [{"kind": "Pod"}]})),
            expect!["the grants break rules: reads[0].access: is required"],
        ),
        (
            object(json!({"children": {"kind": "Pod"}})),
            expect![[r#"the grants break rules: children: {} is not of type "array""#]],
        ),
    ] {
        let error = grants_of_file(&grants).unwrap_err();
        expected.assert_eq(&chain(&error));
    }
}

#[test]
fn grants_are_written_as_they_are_read() {
    let stored = object(json!({
        "parents": [
            {"group": "apps", "kind": "Deployment", "builtin": true},
            {"group": "example.com", "kind": "Pond"},
            {"group": "innkeeper.dev", "kind": "Plugin", "privileged": true},
        ],
        "crds": [{"group": "example.com", "kind": "Lake"}],
        "children": [
            {"group": "", "kind": "Node", "privileged": true},
            {"group": "", "kind": "Pod", "adopt": true},
        ],
        "reads": [
            {"group": "", "kind": "Secret", "access": "hash", "scope": "Namespaces", "namespaces": ["a", "b"]},
            {"group": "", "kind": "Pod", "access": "metadata", "scope": "Cluster", "labelSelector": "a=b"},
            {"group": "", "kind": "Node", "access": "full", "scope": "ParentNamespace", "privileged": true},
        ],
        "podSecurity": "baseline",
        "serviceAccounts": ["builder", "web.app"],
        "systemNamespaces": ["kube-system"],
    }));
    let grants = grants_of_file(&stored).unwrap();
    assert_eq!(file_of_grants(&grants), stored);
    assert_eq!(file_of_grants(&no_grants()), Map::new());
    // Without a kind that makes Pods, the level says nothing.
    let config_map = object(json!({"children": [{"group": "", "kind": "ConfigMap"}]}));
    let grants = grants_of_file(&config_map).unwrap();
    assert_eq!(grants.pod_security, PodSecurity::Restricted);
    assert_eq!(file_of_grants(&grants), config_map);
}

#[test]
fn names_and_levels_in_grants_are_checked() {
    for (grants, expected) in [
        (json!({"podSecurity": "strict"}), "podSecurity"),
        (json!({"serviceAccounts": ["A"]}), "serviceAccounts"),
        (
            json!({"systemNamespaces": ["kube.system"]}),
            "systemNamespaces",
        ),
    ] {
        let error = grants_of_file(&object(grants)).unwrap_err();
        assert!(chain(&error).contains(expected), "{}", chain(&error));
    }
}

#[test]
fn proposed_and_requested_grants_can_be_written_and_read() {
    let manifest = manifest();
    for grants in [Grants::requested(&manifest), Grants::proposed(&manifest)] {
        assert_eq!(grants_of_file(&file_of_grants(&grants)).unwrap(), grants);
    }
}
