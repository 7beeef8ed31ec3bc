//! The CRD's validation rules: each message names the field and the remedy.

use serde_json::{Value, json};

use super::{plugin, stage};

/// Returns the API server's error for an administrator, so that only a validation rule can reject the
/// Plugin.
fn refusal(plugin: &Value) -> String {
    let error = stage()
        .plane
        .user()
        .apply(plugin)
        .expect_err("the API server accepts it");
    format!("{error:#}")
}

/// Checks that a rule rejects each spec, and that the message names the field and the remedy.
fn check_refused(cases: impl IntoIterator<Item = (Value, &'static str, &'static str)>) {
    for (more, field, message) in cases {
        let error = refusal(&plugin("refused", more.clone()));
        assert!(error.contains(field), "{more}: {field}: {error}");
        assert!(error.contains(message), "{more}: {message}: {error}");
    }
}

#[test]
fn rules_of_sources_name_the_field_and_the_remedy() {
    let source = |source: Value| json!({"source": source});
    let oci = |reference: &str| source(json!({"oci": {"reference": reference}}));
    check_refused([
        (
            source(json!({})),
            "spec.source",
            "must have exactly one of oci, http, configMap and file",
        ),
        (
            source(json!({"file": {"path": "a"}, "http": {"url": "https://a"}})),
            "spec.source",
            "must have exactly one of oci, http, configMap and file",
        ),
        (
            source(json!({"file": {"path": "a"}, "pullInterval": "5m"})),
            "spec.source",
            "pullInterval needs pullPolicy: Always",
        ),
        (
            source(json!({"file": {"path": "a"}, "pullPolicy": "Always", "pullInterval": "1s"})),
            "spec.source.pullInterval",
            "must be between 10s and 24h",
        ),
        (
            oci("memcached:1.4.0"),
            "spec.source.oci.reference",
            "must name registry, repository, and tag or digest",
        ),
        (
            oci("registry.example/memcached"),
            "spec.source.oci.reference",
            "must name registry, repository, and tag or digest",
        ),
        (
            source(json!({"http": {"url": "https://user:secret@a.example/x"}})),
            "spec.source.http.url",
            "holds neither credentials nor a fragment",
        ),
        (
            source(json!({"file": {"path": "a/../../b"}})),
            "spec.source.file.path",
            "must be a path below --source-dir",
        ),
        (
            source(json!({"configMap": {"name": "A"}})),
            "spec.source.configMap.name",
            "must be a name",
        ),
        (
            source(json!({"configMap": {"name": "a", "key": ".."}})),
            "spec.source.configMap.key",
            "must be a key of a ConfigMap",
        ),
    ]);
}

#[test]
fn rules_of_grants_name_the_field_and_the_remedy() {
    let grants = |grants: Value| json!({"grants": grants});
    check_refused([
        (
            grants(json!({"parents": [{"group": "apps", "kind": "Deployment"}]})),
            "spec.grants.parents[0]",
            "write builtin: true",
        ),
        (
            grants(json!({"parents": [{"kind": "Secret", "builtin": true, "privileged": true}]})),
            "spec.grants.parents[0]",
            "a Secret is never a parent",
        ),
        (
            grants(json!({"children": [{"group": "rbac.authorization.k8s.io", "kind": "Role"}]})),
            "spec.grants.children[0]",
            "write privileged: true",
        ),
        (
            grants(json!({"crds": [{"group": "innkeeper.dev", "kind": "Plugin"}]})),
            "spec.grants.crds[0]",
            "write privileged: true",
        ),
        (
            grants(json!({"crds": [{"group": "batch", "kind": "Job"}]})),
            "spec.grants.crds[0]",
            "have no CustomResourceDefinition",
        ),
        (
            grants(json!({"reads": [{"kind": "Node", "access": "full", "scope": "Cluster"}]})),
            "spec.grants.reads[0]",
            "write privileged: true",
        ),
        (
            grants(json!({"reads": [{"kind": "Pod", "access": "hash"}]})),
            "spec.grants.reads[0]",
            "access: hash is for Secrets and ConfigMaps",
        ),
        (
            grants(json!({"reads": [{"kind": "Pod", "access": "full", "scope": "Namespaces"}]})),
            "spec.grants.reads[0]",
            "namespaces must name at least one namespace",
        ),
        (
            grants(json!({"reads": [{"kind": "Pod", "access": "full", "namespaces": ["a"]}]})),
            "spec.grants.reads[0]",
            "namespaces must name at least one namespace",
        ),
        (
            grants(json!({"children": [{"group": "apps/v1", "kind": "Deployment"}]})),
            "spec.grants.children[0].group",
            "must be an API group without a version",
        ),
        (
            grants(json!({"serviceAccountRef": {"namespace": "a.b", "name": "a"}})),
            "spec.grants.serviceAccountRef.namespace",
            "must be a namespace",
        ),
    ]);
}

#[test]
fn rules_of_pod_security_and_namespaces_name_the_field() {
    let grants = |grants: Value| json!({"grants": grants});
    check_refused([
        (
            grants(json!({"podSecurity": "strict"})),
            "spec.grants.podSecurity",
            "supported values",
        ),
        (
            grants(json!({"serviceAccounts": ["A"]})),
            "spec.grants.serviceAccounts",
            "must be",
        ),
        (
            grants(json!({"systemNamespaces": ["kube.system"]})),
            "spec.grants.systemNamespaces",
            "must be a namespace",
        ),
    ]);
}

#[test]
fn all_other_rules_name_the_field_and_the_remedy() {
    check_refused([
        (
            json!({"digest": "sha256:abc"}),
            "spec.digest",
            "must be sha256: and 64 hexadecimal digits",
        ),
        (
            json!({"verify": {"keys": ["a"]}}),
            "spec.verify.keys",
            "must be a public key in PEM form",
        ),
        (
            json!({"fieldManager": "innkeeper:etcd"}),
            "spec.fieldManager",
            "must not begin with innkeeper:",
        ),
        (
            json!({"fieldManager": "x".repeat(129)}),
            "spec.fieldManager",
            "128",
        ),
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
            json!({"limits": {"deadline": "soon"}}),
            "spec.limits.deadline",
            "should match",
        ),
        (
            json!({"limits": {"children": 100_000}}),
            "spec.limits.children",
            "10000",
        ),
        (
            json!({"rollout": {"maxPrunes": "101%"}}),
            "spec.rollout.maxPrunes",
            "must be a number, or a percentage",
        ),
        (
            json!({"rollout": {"maxPrunes": -1}}),
            "spec.rollout.maxPrunes",
            "must be a number, or a percentage",
        ),
        (
            json!({"rollout": {"approve": "latest"}}),
            "spec.rollout.approve",
            "16 hexadecimal digits",
        ),
    ]);
    for name in ["a.b", &"x".repeat(41)] {
        let error = refusal(&plugin(name, json!({})));
        assert!(
            error.contains("metadata.name must be at most 40"),
            "{error}"
        );
    }
}
