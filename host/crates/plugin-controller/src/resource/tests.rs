//! The Plugin resource: its definition, its declaration, and specs that both the API server and the host reject.

mod grants;

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use innkeeper_crd::Schema;
use innkeeper_model::{Access, GroupKind, Limits, ReadScope, SelectorExt, parse_selector};
use innkeeper_policy::{Grants, ReadGrant, Selection};
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

/// The API server's answer to a resource, with defaults if it accepts it.
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

/// The host's result for a resource without defaults.
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

/// Asserts that both reject specs, each for its own reason: more fields, a field, and the broken rule.
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
    let declared = declare(resource("memcached", &spec_with(json!({})))).unwrap();
    assert_eq!(stored, declared, "the API server's defaults are the host's");
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
        pairs
            .iter()
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

/// Asserts that these are the full spec's grants.
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
fn errors_of_the_host_alone_name_the_field_too() {
    for (more, expected) in [
        (
            json!({"grants": {"reads": [{"kind": "Pod", "access": "full", "labelSelector": "a b"}]}}),
            expect![[
                r#"spec.grants.reads[0].labelSelector "a b" is not a label selector: join at most 64 of "key=value", "key!=value", "key in (a,b)", "key notin (a,b)", "key" and "!key" by commas, in at most 4096 bytes"#
            ]],
        ),
        (
            json!({"parents": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}),
            expect![
                "spec.parents.labelSelector must be a label selector with at most 64 requirements and 4096 bytes: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
            ],
        ),
        (
            json!({"parents": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}}),
            expect![
                "spec.parents.namespaceSelector must be a label selector with at most 64 requirements and 4096 bytes: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
            ],
        ),
        (
            json!({"parents": {"labelSelector": {"matchLabels": {"a": "b c"}}}}),
            expect![
                "spec.parents.labelSelector must be a label selector with at most 64 requirements and 4096 bytes: matchLabels, and matchExpressions with the operators In and NotIn with values, Exists and DoesNotExist without"
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
    let mut problems = Vec::new();
    for part in ["spec", "status"] {
        undocumented(&root["properties"][part], part, &mut problems);
    }
    assert_eq!(problems, Vec::<String>::new());
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

/// Stated grants that allow nothing.
fn no_grants() -> Grants {
    Grants {
        beyond_parent_namespace: true,
        ..Grants::default()
    }
}

#[test]
fn a_revision_has_a_short_name() {
    let revision = innkeeper_model::Digest::hash(b"x");
    let name = revision_name(&revision);
    assert_eq!(name.len(), 16);
    assert!(revision.to_hex().starts_with(&name));
    let approve = json!({"rollout": {"approve": name}});
    assert!(admit(resource("x", &spec_with(approve))).is_ok());
}

#[test]
fn a_definition_without_a_field_of_the_host_is_older() {
    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let without = |path: &str, field: &str| {
        let mut older = Value::Object(crd());
        older
            .pointer_mut(path)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(field)
            .unwrap();
        missing_field(&object(older))
    };
    let mut newer = Value::Object(crd());
    newer.pointer_mut(SPEC).unwrap()["later"] = json!({"type": "string"});
    assert_eq!(missing_field(&crd()), None);
    assert_eq!(missing_field(&object(newer)), None);
    let limits = format!("{SPEC}/limits/properties");
    assert_eq!(
        without(&limits, "retained").unwrap(),
        "spec.limits.retained"
    );
    let children = format!("{SPEC}/grants/properties/children/items/properties");
    assert_eq!(
        without(&children, "depth").unwrap(),
        "spec.grants.children.depth"
    );
    assert_eq!(
        without("/spec", "versions").unwrap(),
        "the version v1alpha1"
    );
}

/// An administrator's Plugin with an invalid spec keeps its metrics, and nobody without the right to grant gets any.
#[test]
fn a_plugin_has_granted_parents_whatever_else_is_invalid() {
    let web = json!([{"group": "example.com", "kind": "Web"}]);
    for (spec, expected) in [
        (json!({}), false),
        (json!({"grants": {}}), false),
        (json!({"grants": {"parents": []}}), false),
        (json!({"grants": {"children": web}}), false),
        (json!({"grants": {"parents": "all"}}), false),
        (json!({"grants": {"parents": web}}), true),
        (
            json!({"grants": {"parents": web}, "source": 7, "limits": []}),
            true,
        ),
        (json!({"grants": {"parents": [{}]}}), true),
    ] {
        let kind = innkeeper_model::Gvk::new(GROUP, "v1alpha1", "Plugin");
        let key = innkeeper_model::HashKey::new([0; 32]);
        let plugin = resource("web", &spec);
        let plugin = innkeeper_cluster::present(&plugin, &kind, Access::Full, &key).unwrap();
        assert_eq!(has_granted_parents(&plugin), expected, "{spec}");
    }
}
