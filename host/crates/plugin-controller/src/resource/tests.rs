//! The Plugin resource: its definition, its declaration, and the specs that both the API server and the host reject.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use innkeeper_model::{
    Access, ChildKind, GroupKind, Gvk, Limits, Manifest, ParentKind, PluginName, ReadKind,
    ReadScope, Scope, SelectorExt, parse_selector, yaml,
};
use innkeeper_policy::{Grants, PodSecurity, ReadGrant, Selection};
use innkeeper_schema::Schema;
use serde_json::{Map, Value, json};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn resource(name: &str, spec: &Value) -> Map<String, Value> {
    object(json!({
        "apiVersion": "innkeeper.dev/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": name},
        "spec": spec,
    }))
}

fn schema() -> Schema {
    Schema::new(&crd(), "v1alpha1").unwrap()
}

/// The answer of the API server to a resource; with its defaults if it accepts it.
fn admit(resource: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let admitted = schema().admit(resource).map_err(|rejection| {
        let causes: Vec<String> = rejection.causes().iter().map(ToString::to_string).collect();
        causes.join("\n")
    })?;
    match admitted.unknown_fields.first() {
        None => Ok(admitted.object),
        Some(field) => Err(format!("{field} is unknown")),
    }
}

/// The result of the host for a resource without defaults.
fn declare(resource: Map<String, Value>) -> Result<Declared, Error> {
    Plugin::read(&Value::Object(resource).to_string())?.declared()
}

/// A spec with a source and a few more fields.
fn spec_with(more: Value) -> Value {
    let mut spec = object(json!({"source": {"file": {"path": "memcached.wasm"}}}));
    spec.extend(object(more));
    Value::Object(spec)
}

fn local(name: &str) -> LocalRef {
    let name = name.to_owned();
    LocalRef { name }
}

fn chain(error: &Error) -> String {
    innkeeper_model::error_chain(error).to_string()
}

/// Asserts that the API server and the host reject a Plugin for these broken rules, one on each line.
#[track_caller]
fn check_both(name: &str, spec: &Value, causes: &str) {
    let answer = admit(resource(name, spec)).expect_err("the API server accepts it");
    assert_eq!(answer, causes, "{spec}");
    let error = declare(resource(name, spec)).expect_err("the host accepts it");
    let expected = format!("the Plugin breaks rules: {}", causes.replace('\n', "; "));
    assert_eq!(chain(&error), expected, "{spec}");
}

/// Asserts that both reject specs, each for a reason of its own: more fields, a field, and the broken rule.
#[track_caller]
fn check_refused<const N: usize>(rows: [(Value, &str, &str); N]) {
    for (more, field, rule) in rows {
        check_both("x", &spec_with(more), &format!("{field}: {rule}"));
    }
}

#[test]
fn a_spec_with_nothing_but_a_source_has_every_default() {
    let admitted = admit(resource("memcached", &spec_with(json!({})))).unwrap();
    let stored = declare(admitted).unwrap();
    let given = declare(resource("memcached", &spec_with(json!({})))).unwrap();
    assert_eq!(stored, given, "the API server's defaults are the host's");
    let Declared {
        name,
        created,
        origin,
        pull_every,
        digest,
        keys,
        identity,
        config,
        terms,
        rollout,
    } = stored;
    assert_eq!(name.as_str(), "memcached");
    assert_eq!(created, jiff::Timestamp::MAX);
    let path = "memcached.wasm".to_owned();
    assert_eq!(origin, Origin::File(FileSource { path }));
    assert_eq!((pull_every, digest, keys), (None, None, Vec::new()));
    assert_eq!(identity, Identity::default());
    assert_eq!(config, Map::new());
    assert_eq!(terms.limits, Limits::default());
    assert_eq!(terms.grants, no_grants());
    assert_eq!(terms.parents, Selection::default());
    assert_eq!(terms.field_manager, "innkeeper:memcached");
    assert_eq!(terms.service_account, None);
    assert_eq!((terms.crds, terms.suspend), (Crds::Install, false));
    assert_eq!(rollout.mode, RolloutMode::Immediate);
    assert!(rollout.auto_rollback);
    assert_eq!((rollout.prunes_max(100), rollout.approve), (20, None));
}

fn full_spec() -> Value {
    json!({
        "source": {
            "oci": {
                "reference": "registry.example/plugins/memcached:1.4.0",
                "pullSecretRef": {"name": "registry"},
                "insecure": true,
            },
            "pullPolicy": "Always",
            "pullInterval": "90s",
        },
        "digest": format!("sha256:{}", "0a".repeat(32)),
        "verify": {"keys": ["-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n-----END PUBLIC KEY-----\n"]},
        "fieldManager": "memcached-operator",
        "parents": {
            "namespaceSelector": {"matchLabels": {"team": "web"}},
            "labelSelector": {"matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ]},
        },
        "grants": {
            "parents": [
                {"group": "cache.example.com", "kind": "Memcached"},
                {"group": "apps", "kind": "Deployment", "builtin": true},
            ],
            "crds": [{"group": "gobackup.io", "kind": "Database"}],
            "children": [
                {"group": "apps", "kind": "Deployment", "adopt": true, "depth": 2},
                {"kind": "Namespace", "privileged": true},
            ],
            "reads": [
                {"kind": "Secret", "access": "hash"},
                {
                    "kind": "ConfigMap", "access": "full", "scope": "Namespaces",
                    "namespaces": ["b", "a"], "labelSelector": "app=web,tier in (a,b)",
                },
                {"kind": "Node", "access": "metadata", "scope": "Cluster", "privileged": true},
            ],
            "serviceAccountRef": {"namespace": "plugins", "name": "memcached"},
        },
        "limits": {"memory": "1Gi", "deadline": "2s", "object": "100000", "children": 10, "concurrency": 1},
        "config": {"image": "memcached:1"},
        "crds": "Ignore",
        "rollout": {
            "mode": "Gated", "autoRollback": false, "maxPrunes": 3, "approve": "0123456789abcdef",
        },
        "suspend": true,
    })
}

#[test]
fn every_given_field_is_declared() {
    let admitted = admit(resource("memcached", &full_spec())).unwrap();
    let declared = declare(admitted).unwrap();
    let reference = "registry.example/plugins/memcached:1.4.0";
    let oci = OciSource {
        reference: reference.to_owned(),
        pull_secret_ref: Some(local("registry")),
        insecure: true,
    };
    let expected = Origin::Oci(oci, reference.parse().unwrap());
    assert_eq!(declared.origin, expected);
    assert_eq!(declared.pull_every, Some(Duration::from_secs(90)));
    assert_eq!(declared.digest.unwrap().to_hex(), "0a".repeat(32));
    assert_eq!(declared.keys.len(), 1);
    assert_eq!(declared.config["image"], "memcached:1");
    let Terms {
        grants,
        limits,
        parents,
        field_manager,
        service_account,
        crds,
        suspend,
    } = declared.terms;
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert!(parents.namespaces.matches(&labels(&[("team", "web")])));
    assert!(!parents.namespaces.matches(&labels(&[])));
    assert!(parents.parents.matches(&labels(&[("tier", "b")])));
    assert!(
        !parents
            .parents
            .matches(&labels(&[("tier", "b"), ("old", "")]))
    );
    assert_eq!(limits.memory_bytes_max, 1024 * 1024 * 1024);
    assert_eq!(limits.deadline, Duration::from_secs(2));
    assert_eq!(limits.object_bytes_max, 100_000);
    assert_eq!((limits.children_max, limits.concurrency_max), (10, 1));
    assert_eq!(limits.output_bytes_max, Limits::default().output_bytes_max);
    assert_eq!(field_manager, "memcached-operator");
    let account = service_account.unwrap();
    assert_eq!(
        (&*account.namespace, &*account.name),
        ("plugins", "memcached")
    );
    assert_eq!((crds, suspend), (Crds::Ignore, true));
    check_granted(&grants);
    let deployments = GroupKind::new("apps", "Deployment");
    assert_eq!(grants.children[&deployments].depth, 2);
    let rollout = declared.rollout;
    assert_eq!(
        (rollout.mode, rollout.auto_rollback),
        (RolloutMode::Gated, false)
    );
    assert_eq!(rollout.prunes_max(100), 3);
    assert_eq!(rollout.approve.as_deref(), Some("0123456789abcdef"));
}

/// Asserts that these are the grants of the full spec.
fn check_granted(grants: &Grants) {
    let kind = GroupKind::new;
    assert!(grants.allows_parent(&kind("cache.example.com", "Memcached")));
    assert!(grants.allows_parent(&kind("apps", "Deployment")));
    assert!(grants.allows_crd(&kind("gobackup.io", "Database")));
    assert!(grants.allows_adoption(&kind("apps", "Deployment")));
    assert!(grants.allows_child(&kind("", "Namespace")));
    assert!(!grants.allows_adoption(&kind("", "Namespace")));
    let expected = ReadGrant {
        kind: kind("", "ConfigMap"),
        access: Access::Full,
        scope: ReadScope::Namespaces(["a", "b"].map(Arc::from).into()),
        label_selector: parse_selector("app=web,tier in (a,b)").unwrap(),
        privileged: false,
    };
    assert_eq!(grants.reads[1], expected);
    assert_eq!(grants.reads[0].access, Access::Hash);
    assert_eq!(grants.reads[0].scope, ReadScope::ParentNamespace);
}

#[test]
fn every_source_is_understood() {
    for (source, expected) in [
        (
            json!({"http": {"url": "https://a.example/x.wasm", "secretRef": {"name": "s"}}}),
            Origin::Http(HttpSource {
                url: "https://a.example/x.wasm".to_owned(),
                secret_ref: Some(local("s")),
            }),
        ),
        (
            json!({"configMap": {"name": "plugins"}}),
            Origin::ConfigMap(ConfigMapSource {
                name: "plugins".to_owned(),
                key: "plugin.wasm".to_owned(),
            }),
        ),
    ] {
        let admitted = admit(resource("x", &json!({"source": source}))).unwrap();
        assert_eq!(declare(admitted).unwrap().origin, expected);
    }
    let always = json!({"source": {"file": {"path": "x"}, "pullPolicy": "Always"}});
    let declared = declare(resource("x", &always)).unwrap();
    assert_eq!(declared.pull_every, Some(Duration::from_mins(5)));
}

#[test]
fn refuses_sources() {
    const ONE: &str = "must have exactly one of oci, http, configMap and file";
    const PATH: &str =
        "must be a path below --source-dir, without a leading / and without . or .. as a part";
    let file = |path: &str| json!({"file": {"path": path}});
    let forms = [
        (json!({}), "", ONE),
        (
            json!({"file": {"path": "a"}, "configMap": {"name": "b"}}),
            "",
            ONE,
        ),
        (
            json!({"oci": {"reference": "memcached:1"}}),
            ".oci.reference",
            "must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0",
        ),
        (
            json!({"http": {"url": "https://user:secret@a/x"}}),
            ".http.url",
            "must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment",
        ),
        (file("../a.wasm"), ".file.path", PATH),
        (file("/a.wasm"), ".file.path", PATH),
        (
            json!({"configMap": {"name": "a", "key": ".."}}),
            ".configMap.key",
            "must be a key of a ConfigMap: letters, digits, dashes, underscores and dots",
        ),
    ];
    for (source, field, form) in forms {
        let field = format!("spec.source{field}");
        check_refused([(json!({"source": source}), &field, form)]);
    }
    let pull = |policy: &str, interval: &str| {
        let file = json!({"path": "a"});
        json!({"source": {"file": file, "pullPolicy": policy, "pullInterval": interval}})
    };
    check_refused([
        (
            pull("IfNotPresent", "1m"),
            "spec.source",
            "pullInterval needs pullPolicy: Always",
        ),
        (
            pull("Always", "1s"),
            "spec.source.pullInterval",
            "must be between 10s and 24h",
        ),
    ]);
}

#[test]
fn refuses_names() {
    for name in ["a.b", &"x".repeat(41)] {
        let rule = "the object: metadata.name must be at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit";
        check_both(name, &spec_with(json!({})), rule);
    }
}

#[test]
fn refuses_digests_keys_managers_and_rollouts() {
    const PRUNES: &str = "must be a number, or a percentage such as 20%";
    check_refused([
        (
            json!({"digest": "sha256:abc"}),
            "spec.digest",
            "must be sha256: and 64 hexadecimal digits",
        ),
        (
            json!({"fieldManager": "innkeeper:other"}),
            "spec.fieldManager",
            "must not begin with innkeeper:, which is the host's own",
        ),
        (
            json!({"fieldManager": " x"}),
            "spec.fieldManager",
            "must be printable characters without a space at either end",
        ),
        (
            json!({"rollout": {"maxPrunes": "some"}}),
            "spec.rollout.maxPrunes",
            PRUNES,
        ),
        (
            json!({"rollout": {"maxPrunes": "101%"}}),
            "spec.rollout.maxPrunes",
            PRUNES,
        ),
        (
            json!({"rollout": {"maxPrunes": -1}}),
            "spec.rollout.maxPrunes",
            PRUNES,
        ),
        (
            json!({"rollout": {"approve": "sha256:1"}}),
            "spec.rollout.approve",
            "must be a revision as status.candidate.revision names it: 16 hexadecimal digits",
        ),
    ]);
    check_refused([
        (
            json!({"verify": {"keys": ["secret"]}}),
            "spec.verify.keys",
            "must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY",
        ),
        (
            json!({"fieldManager": "x".repeat(129)}),
            "spec.fieldManager",
            "the value is longer than 128 characters\n\
             the object: not all rules were checked: correct the other fields first",
        ),
    ]);
}

#[test]
fn refuses_limits_out_of_bounds() {
    for (field, value) in [
        ("memory", json!("2Gi")),
        ("memory", json!("1")),
        ("deadline", json!("31s")),
        ("output", json!("65Mi")),
        ("object", json!("2Mi")),
        ("children", json!(10_001)),
        ("children", json!(0)),
        ("logs", json!("2Mi")),
        ("logsPerSecond", json!("17Mi")),
        ("hostCalls", json!(100_001)),
        ("hostCallBytes", json!("1Gi")),
        ("concurrency", json!(65)),
        ("concurrency", json!(-1)),
        ("passesPerSecond", json!(100_001)),
        ("writesPerMinute", json!(6_001)),
        ("writesPerSecond", json!(10_001)),
        ("objectsPerNamespace", json!(0)),
        ("nestedParentsPerNamespace", json!(-1)),
        ("bytesPerNamespace", json!("17Gi")),
        ("retained", json!(-1)),
        ("memory", json!("64MB")),
        ("memory", json!("-1")),
        ("deadline", json!("0.1s")),
        ("deadline", json!("0ms")),
    ] {
        let resource = || resource("x", &spec_with(json!({"limits": {field: value}})));
        let server = admit(resource()).unwrap_err();
        assert!(server.contains(&format!("spec.limits.{field}")), "{server}");
        let host = chain(&declare(resource()).unwrap_err());
        assert!(host.contains(&format!("spec.limits.{field}: ")), "{host}");
    }
    check_refused([
        (
            json!({"limits": {"memory": "2Gi"}}),
            "spec.limits.memory",
            "must be between 64Ki and 1Gi",
        ),
        (
            json!({"limits": {"deadline": "1m"}}),
            "spec.limits.deadline",
            "must be between 1ms and 30s",
        ),
        (
            json!({"limits": {"children": 20_000}}),
            "spec.limits.children",
            "20000 is greater than the maximum of 10000",
        ),
        (
            json!({"grants": {"children": [{"kind": "Pod", "depth": 17}]}}),
            "spec.grants.children[0].depth",
            "17 is greater than the maximum of 16",
        ),
    ]);
}

#[test]
fn refuses_grants() {
    const PRIVILEGED: &str =
        "this kind gives power over the cluster: write privileged: true if that is meant";
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

#[test]
fn errors_of_the_host_alone_name_the_field_too() {
    for (more, expected) in [
        (
            json!({"grants": {"reads": [{"kind": "Pod", "access": "full", "labelSelector": "a b"}]}}),
            expect![[
                r#"spec.grants.reads[0].labelSelector "a b" is not a label selector: join "key=value", "key!=value", "key in (a,b)", "key notin (a,b)", "key" and "!key" by commas"#
            ]],
        ),
        (
            json!({"parents": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}),
            expect![
                "spec.parents.labelSelector must be a label selector: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
            ],
        ),
        (
            json!({"parents": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}}),
            expect![
                "spec.parents.namespaceSelector must be a label selector: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
            ],
        ),
        (
            json!({"parents": {"labelSelector": {"matchLabels": {"a": "b c"}}}}),
            expect![
                "spec.parents.labelSelector must be a label selector: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
            ],
        ),
        (
            json!({"verify": {"keys": ["-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]}}),
            expect![
                "spec.verify.keys[0] cannot be used: this kind of public key is not supported: use ECDSA on P-256, as cosign does, or Ed25519"
            ],
        ),
        (
            json!({"crds": "Maybe"}),
            expect![
                "failed to read the Plugin resource: spec.crds: unknown variant `Maybe`, expected `Install` or `Ignore` at line 1 column 101"
            ],
        ),
    ] {
        let host = declare(resource("x", &spec_with(more))).unwrap_err();
        expected.assert_eq(&chain(&host));
    }
}

#[test]
fn every_field_has_a_description() {
    fn undocumented(schema: &Value, path: &str, found: &mut Vec<String>) {
        let properties = schema["properties"].as_object();
        for (name, below) in properties.into_iter().flatten() {
            let path = format!("{path}.{name}");
            if below["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            undocumented(below, &path, found);
            undocumented(&below["items"], &path, found);
        }
    }
    let crd = Value::Object(crd());
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        undocumented(&root["properties"][part], part, &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn conditions_and_kinds_are_lists_by_key() {
    let crd = Value::Object(crd());
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"]["status"], json!({}));
    let root = &version["schema"]["openAPIV3Schema"]["properties"];
    let conditions = &root["status"]["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    for list in ["parents", "crds", "children"] {
        let list = &root["spec"]["properties"]["grants"]["properties"][list];
        let keys = &list["x-kubernetes-list-map-keys"];
        assert_eq!(*keys, json!(["group", "kind"]));
    }
    assert!(!crd.to_string().contains("nullable"));
}

fn manifest() -> Manifest {
    let child = |api_version: &str, kind: &str, required| ChildKind {
        kind: Gvk::parse(api_version, kind).unwrap(),
        required,
        ready_condition: None,
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
            let all = grants.entry(list).or_insert_with(|| json!([]));
            let all = all.as_array_mut().unwrap();
            all.extend(entries.as_array().unwrap().iter().cloned());
        }
    }
    let granted = grants_of_file(&grants).unwrap();
    let assessment = granted.assess(&manifest);
    assert_eq!(lines(&assessment), None, "{assessment:?}");
    assert_eq!(granted.reads_for(&manifest), manifest.reads);
}

/// The list of children is keyed by kind, so a second entry of the kind is refused.
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
        let text = lines(&terms.assess(&manifest())).unwrap();
        text.contains("gobackup.io")
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

/// Stated grants that allow nothing.
fn no_grants() -> Grants {
    Grants {
        beyond_parent_namespace: true,
        ..Grants::default()
    }
}

#[test]
fn grants_are_written_as_they_are_read() {
    let given = object(json!({
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
    let grants = grants_of_file(&given).unwrap();
    assert_eq!(file_of_grants(&grants), given);
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

#[test]
fn a_revision_has_a_short_name() {
    let revision = innkeeper_model::Digest::of(b"x");
    let name = revision_name(&revision);
    assert_eq!(name.len(), 16);
    assert!(revision.to_hex().starts_with(&name));
    let approve = json!({"rollout": {"approve": name}});
    assert!(admit(resource("x", &spec_with(approve))).is_ok());
}
