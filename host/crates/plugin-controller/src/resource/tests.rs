//! The Plugin resource: its definition, its declaration, and the specs that both the API server and the host reject.
#![expect(
    clippy::needless_raw_string_hashes,
    reason = "expect-test writes its expectations like this"
)]

use std::{path::Path, sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use innkeeper_model::{
    Access, ChildKind, GroupKind, Gvk, Limits, Manifest, ParentKind, PluginName, ReadKind,
    ReadScope, Scope, yaml,
};
use innkeeper_policy::{Grants, ReadGrant, Selection};
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

fn chain(error: &Error) -> String {
    innkeeper_model::error_chain(error).to_string()
}

/// Asserts that both reject a spec, and both messages: the API server first.
#[track_caller]
fn check_refused(more: Value, expected: Expect) {
    check_resource_refused("memcached", &spec_with(more), expected);
}

#[track_caller]
fn check_resource_refused(name: &str, spec: &Value, expected: Expect) {
    let server = admit(resource(name, spec)).expect_err("the API server takes it");
    let host = declare(resource(name, spec)).expect_err("the host takes it");
    expected.assert_eq(&format!("{server}\n{}", chain(&host)));
}

#[test]
fn a_spec_with_nothing_but_a_source_has_every_default() {
    let admitted = admit(resource("memcached", &spec_with(json!({})))).unwrap();
    let stored = declare(admitted).unwrap();
    let given = declare(resource("memcached", &spec_with(json!({})))).unwrap();
    assert_eq!(stored, given, "the API server's defaults are the host's");
    let Declared {
        name,
        origin,
        pull_every,
        digest,
        keys,
        config,
        charter,
        rollout,
    } = stored;
    assert_eq!(name.as_str(), "memcached");
    let path = Path::new("memcached.wasm").to_owned();
    assert_eq!(origin, Origin::File { path });
    assert_eq!((pull_every, digest, keys), (None, None, Vec::new()));
    assert_eq!(config, Map::new());
    assert_eq!(charter.limits, Limits::default());
    assert_eq!(charter.grants, Grants::default());
    assert_eq!(charter.parents, Selection::default());
    assert_eq!(charter.field_manager, "innkeeper:memcached");
    assert_eq!(charter.service_account, None);
    assert_eq!((charter.crds, charter.suspend), (Crds::Install, false));
    let expected = Rollout {
        mode: RolloutMode::Immediate,
        auto_rollback: true,
        prunes: PruneBudget::Percent(20),
        approved: None,
    };
    assert_eq!(rollout, expected);
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
                {"group": "apps", "kind": "Deployment", "adopt": true},
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
fn everything_that_is_said_is_declared() {
    let admitted = admit(resource("memcached", &full_spec())).unwrap();
    let declared = declare(admitted).unwrap();
    let expected = Origin::Oci {
        reference: "registry.example/plugins/memcached:1.4.0".parse().unwrap(),
        pull_secret: Some("registry".to_owned()),
        insecure: true,
    };
    assert_eq!(declared.origin, expected);
    assert_eq!(declared.pull_every, Some(Duration::from_secs(90)));
    assert_eq!(declared.digest.unwrap().to_hex(), "0a".repeat(32));
    assert_eq!(declared.keys.len(), 1);
    assert_eq!(declared.config["image"], "memcached:1");
    let Charter {
        grants,
        limits,
        parents,
        field_manager,
        service_account,
        crds,
        suspend,
    } = declared.charter;
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
    let Rollout {
        mode,
        auto_rollback,
        prunes,
        approved,
    } = declared.rollout;
    assert_eq!((mode, auto_rollback), (RolloutMode::Gated, false));
    assert_eq!(prunes, PruneBudget::Count(3));
    assert_eq!(approved.as_deref(), Some("0123456789abcdef"));
}

/// Holds that these are the grants of the full spec.
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
        label_selector: Some("app=web,tier in (a,b)".to_owned()),
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
            Origin::Http {
                url: "https://a.example/x.wasm".to_owned(),
                secret: Some("s".to_owned()),
            },
        ),
        (
            json!({"configMap": {"name": "plugins"}}),
            Origin::ConfigMap {
                name: "plugins".to_owned(),
                key: "plugin.wasm".to_owned(),
            },
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
    let check = |source: Value, expected: Expect| {
        check_resource_refused("x", &json!({"source": source}), expected);
    };
    check(
        json!({}),
        expect![[r#"
        spec.source: must have exactly one of oci, http, configMap and file
        spec.source must have exactly one of oci, http, configMap and file"#]],
    );
    check(
        json!({"file": {"path": "a"}, "configMap": {"name": "b"}}),
        expect![[r#"
            spec.source: must have exactly one of oci, http, configMap and file
            spec.source must have exactly one of oci, http, configMap and file"#]],
    );
    check(
        json!({"oci": {"reference": "memcached:1"}}),
        expect![[r#"
        spec.source.oci.reference: must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0
        spec.source.oci.reference must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0"#]],
    );
    check(
        json!({"http": {"url": "https://user:secret@a/x"}}),
        expect![[r#"
            spec.source.http.url: must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment
            spec.source.http.url must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment"#]],
    );
    check(
        json!({"file": {"path": "../a.wasm"}}),
        expect![[r#"
        spec.source.file.path: must be a path below --source-dir, without a leading / and without . or .. as a part
        spec.source.file.path must be a path below --source-dir, without a leading / and without . or .. as a part"#]],
    );
    check(
        json!({"file": {"path": "/a.wasm"}}),
        expect![[r#"
        spec.source.file.path: must be a path below --source-dir, without a leading / and without . or .. as a part
        spec.source.file.path must be a path below --source-dir, without a leading / and without . or .. as a part"#]],
    );
    check(
        json!({"configMap": {"name": "a", "key": ".."}}),
        expect![[r#"
            spec.source.configMap.key: must be a key of a ConfigMap: letters, digits, dashes, underscores and dots
            spec.source.configMap.key must be a key of a ConfigMap: letters, digits, dashes, underscores and dots"#]],
    );
    check(
        json!({"file": {"path": "a"}, "pullInterval": "1m"}),
        expect![[r#"
            spec.source: pullInterval needs pullPolicy: Always
            spec.source.pullInterval needs pullPolicy: Always"#]],
    );
    check(
        json!({"file": {"path": "a"}, "pullPolicy": "Always", "pullInterval": "1s"}),
        expect![[r#"
            spec.source.pullInterval: must be between 10s and 24h
            spec.source.pullInterval "1s" must be a duration between 10s and 24h, such as 24h"#]],
    );
}

#[test]
fn refuses_names_digests_keys_and_managers() {
    check_resource_refused(
        "a.b",
        &spec_with(json!({})),
        expect![[r#"
        the object: metadata.name must be at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit
        metadata.name "a.b" is not a plugin name: use at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit"#]],
    );
    check_resource_refused(
        &"x".repeat(41),
        &spec_with(json!({})),
        expect![[r#"
        the object: metadata.name must be at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit
        metadata.name "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is not a plugin name: use at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit"#]],
    );
    check_refused(
        json!({"digest": "sha256:abc"}),
        expect![[r#"
        spec.digest: must be sha256: and 64 hexadecimal digits
        spec.digest must be sha256: and 64 hexadecimal digits"#]],
    );
    check_refused(
        json!({"verify": {"keys": ["secret"]}}),
        expect![[r#"
        spec.verify.keys: must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY
        spec.verify.keys[0] must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY"#]],
    );
    check_refused(
        json!({"fieldManager": "innkeeper:other"}),
        expect![[r#"
        spec.fieldManager: must not begin with innkeeper:, which is the host's own
        spec.fieldManager must not begin with innkeeper:, which is the host's own"#]],
    );
    check_refused(
        json!({"fieldManager": " x"}),
        expect![[r#"
        spec.fieldManager: must be printable characters without a space at either end
        spec.fieldManager must be printable characters without a space at either end"#]],
    );
    check_refused(
        json!({"fieldManager": "x".repeat(129)}),
        expect![[r#"
        spec.fieldManager: the value is longer than 128 characters
        the object: not all rules were checked: correct the other fields first
        spec.fieldManager must be at most 128 characters long"#]],
    );
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
        ("memory", json!("64MB")),
        ("memory", json!("-1")),
        ("deadline", json!("0.1s")),
        ("deadline", json!("0ms")),
    ] {
        let resource = || resource("x", &spec_with(json!({"limits": {field: value}})));
        let server = admit(resource()).unwrap_err();
        assert!(server.contains(&format!("spec.limits.{field}")), "{server}");
        let host = chain(&declare(resource()).unwrap_err());
        assert!(host.starts_with(&format!("spec.limits.{field} ")), "{host}");
    }
    check_refused(
        json!({"limits": {"memory": "2Gi"}}),
        expect![[r#"
        spec.limits.memory: must be between 64Ki and 1Gi
        spec.limits.memory "2Gi" must be a size between 64Ki and 1Gi, such as 1Gi"#]],
    );
    check_refused(
        json!({"limits": {"deadline": "1m"}}),
        expect![[r#"
        spec.limits.deadline: must be between 1ms and 30s
        spec.limits.deadline "1m" must be a duration between 1ms and 30s, such as 30s"#]],
    );
    check_refused(
        json!({"limits": {"children": 20_000}}),
        expect![[r#"
        spec.limits.children: 20000 is greater than the maximum of 10000
        spec.limits.children 20000 must be between 1 and 10000"#]],
    );
}

#[test]
fn refuses_grants() {
    let check = |grants: Value, expected: Expect| {
        check_refused(json!({"grants": grants}), expected);
    };
    check(
        json!({"parents": [{"group": "apps", "kind": "Deployment"}]}),
        expect![[r#"
            spec.grants.parents[0]: this kind is part of Kubernetes: write builtin: true if its objects are to be parents
            spec.grants.parents[0] names Deployment.apps, which is part of Kubernetes: write builtin: true"#]],
    );
    check(
        json!({"parents": [{"kind": "Secret", "builtin": true, "privileged": true}]}),
        expect![[r#"
            spec.grants.parents[0]: a Secret is never a parent
            spec.grants.parents[0] names Secret, which is never a parent"#]],
    );
    check(
        json!({"parents": [{"kind": "Namespace", "builtin": true}]}),
        expect![[r#"
            spec.grants.parents[0]: this kind gives power over the cluster: write privileged: true if that is meant
            spec.grants.parents[0] names Namespace, which gives power over the cluster: write privileged: true"#]],
    );
    check(
        json!({"crds": [{"group": "innkeeper.dev", "kind": "Plugin"}]}),
        expect![[r#"
            spec.grants.crds[0]: this kind gives power over the cluster: write privileged: true if that is meant
            spec.grants.crds[0] names Plugin.innkeeper.dev, which gives power over the cluster: write privileged: true"#]],
    );
    check(
        json!({"crds": [{"group": "apps", "kind": "Deployment"}]}),
        expect![[r#"
            spec.grants.crds[0]: kinds of Kubernetes itself have no CustomResourceDefinition
            spec.grants.crds[0] names Deployment.apps, which is part of Kubernetes and has no definition"#]],
    );
    check(
        json!({"children": [{"kind": "ServiceAccount"}]}),
        expect![[r#"
            spec.grants.children[0]: this kind gives power over the cluster: write privileged: true if that is meant
            spec.grants.children[0] names ServiceAccount, which gives power over the cluster: write privileged: true"#]],
    );
    check(
        json!({"children": [{"kind": "Pod"}, {"kind": "Pod", "adopt": true}]}),
        expect![[r#"
            spec.grants.children[1]: {"group":"","kind":"Pod"} is in the list twice
            spec.grants.children[1] names Pod again: write one entry for it"#]],
    );
    check(
        json!({"children": [{"group": "apps/v1", "kind": "x"}]}),
        expect![[r#"
            spec.grants.children[0].group: must be an API group without a version, such as apps, or empty for the core group
            spec.grants.children[0].kind: must be a kind in CamelCase, such as Deployment
            spec.grants.children[0].group must be an API group without a version, such as apps, or empty for the core group"#]],
    );
}

#[test]
fn refuses_reads_and_accounts() {
    let check = |grants: Value, expected: Expect| {
        check_refused(json!({"grants": grants}), expected);
    };
    check(
        json!({"reads": [{"kind": "Node", "access": "full", "scope": "Cluster"}]}),
        expect![[r#"
            spec.grants.reads[0]: this kind gives power over the cluster: write privileged: true if that is meant
            spec.grants.reads[0] names Node, which gives power over the cluster: write privileged: true"#]],
    );
    check(
        json!({"reads": [{"kind": "Pod", "access": "hash"}]}),
        expect![[r#"
            spec.grants.reads[0]: access: hash is for Secrets and ConfigMaps; write full or metadata
            spec.grants.reads[0].access must be full or metadata: hash is for Secrets and ConfigMaps"#]],
    );
    check(
        json!({"reads": [{"kind": "Pod", "access": "full", "scope": "Namespaces"}]}),
        expect![[r#"
            spec.grants.reads[0]: namespaces must name at least one namespace for scope: Namespaces, and be absent for any other scope
            spec.grants.reads[0].namespaces must name at least one namespace for scope: Namespaces"#]],
    );
    check(
        json!({"reads": [{"kind": "Pod", "access": "full", "namespaces": ["a"]}]}),
        expect![[r#"
            spec.grants.reads[0]: namespaces must name at least one namespace for scope: Namespaces, and be absent for any other scope
            spec.grants.reads[0].namespaces are for scope: Namespaces only"#]],
    );
    check(
        json!({"reads": [{"kind": "Pod", "access": "full", "scope": "Namespaces", "namespaces": ["A"]}]}),
        expect![[r#"
            spec.grants.reads[0].namespaces: must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit
            spec.grants.reads[0].namespaces[0] must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit"#]],
    );
    check(
        json!({"serviceAccountRef": {"namespace": "a.b", "name": "x"}}),
        expect![[r#"
            spec.grants.serviceAccountRef.namespace: must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit
            spec.grants.serviceAccountRef.namespace must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit"#]],
    );
}

#[test]
fn refuses_rollouts() {
    check_refused(
        json!({"rollout": {"maxPrunes": "some"}}),
        expect![[r#"
        spec.rollout.maxPrunes: must be a number, or a percentage such as 20%
        spec.rollout.maxPrunes must be a number, or a percentage such as 20%"#]],
    );
    check_refused(
        json!({"rollout": {"maxPrunes": "101%"}}),
        expect![[r#"
        spec.rollout.maxPrunes: must be a number, or a percentage such as 20%
        spec.rollout.maxPrunes must be a number, or a percentage such as 20%"#]],
    );
    check_refused(
        json!({"rollout": {"maxPrunes": -1}}),
        expect![[r#"
        spec.rollout.maxPrunes: must be a number, or a percentage such as 20%
        spec.rollout.maxPrunes must be a number, or a percentage such as 20%"#]],
    );
    check_refused(
        json!({"rollout": {"approve": "sha256:1"}}),
        expect![[r#"
        spec.rollout.approve: must be a revision as status.candidate.revision names it: 16 hexadecimal digits
        spec.rollout.approve must be a revision as status.candidate.revision names it: 16 hexadecimal digits"#]],
    );
}

#[test]
fn what_only_the_host_can_check_names_the_field_too() {
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
fn every_field_says_what_it_is_for() {
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
        label_selector: selector.map(str::to_owned),
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
        config_schema: None,
    }
}

#[test]
fn what_is_missing_is_said_as_lines_to_add() {
    let manifest = manifest();
    let text = lines(&Grants::default().assess(&manifest)).unwrap();
    expect![[r#"
        The plugin does not serve without more grants. Add to spec.grants:
        children:
        - group: apps
          kind: Deployment
        - group: ""
          kind: Namespace
          privileged: true
        parents:
        - group: cache.example.com
          kind: Memcached

        The plugin serves with less than it asks for. Add to spec.grants:
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
fn the_lines_grant_what_is_missing() {
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

#[test]
fn a_secret_as_a_parent_is_said_to_be_out_of_the_question() {
    let mut manifest = manifest();
    manifest.parents[0].kind = Gvk::new("", "v1", "Secret");
    manifest.children.clear();
    manifest.reads.clear();
    manifest.crds.clear();
    let text = lines(&Grants::default().assess(&manifest)).unwrap();
    expect!["The plugin does not serve without more grants. It asks for parents of Secret (never granted)."].assert_eq(&text);
}

#[test]
fn definitions_that_are_not_installed_need_no_grant() {
    let ignoring = spec_with(json!({"crds": "Ignore"}));
    let charter = |spec: &Value| declare(resource("x", spec)).unwrap().charter;
    let lacks_crd = |charter: Charter| {
        let text = lines(&charter.assess(&manifest())).unwrap();
        text.contains("gobackup.io")
    };
    assert!(lacks_crd(charter(&spec_with(json!({})))));
    assert!(!lacks_crd(charter(&ignoring)));
}

#[test]
fn grants_of_a_file_are_those_of_a_spec() {
    let grants = object(full_spec()["grants"].clone());
    let in_spec = declare(resource("x", &full_spec())).unwrap().charter.grants;
    let mut of_file = grants.clone();
    of_file.remove("serviceAccountRef");
    assert_eq!(grants_of_file(&of_file).unwrap(), in_spec);
    assert_eq!(grants_of_file(&Map::new()).unwrap(), Grants::default());

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
fn a_revision_is_named_shortly() {
    let revision = innkeeper_model::Digest::of(b"x");
    let name = revision_name(&revision);
    assert_eq!(name.len(), 16);
    assert!(revision.to_hex().starts_with(&name));
    let approve = json!({"rollout": {"approve": name}});
    assert!(admit(resource("x", &spec_with(approve))).is_ok());
}
