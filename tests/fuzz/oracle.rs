//! The rules for a child in an answer, written a second time and without the policy: each child that the policy accepts
//! has to meet them. They cover fewer fields than the policy, so that they never refuse more.

use innkeeper_model::{Child, GroupKind, ObjectId, Scope};
use innkeeper_policy::PodSecurity;
use serde_json::{Map, Value};

use super::answer::{Case, HOST};

/// Groups whose kinds are privileged.
const PRIVILEGED_GROUPS: [&str; 6] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "innkeeper.dev",
    "rbac.authorization.k8s.io",
];

/// Checks a child and returns the identity.
pub(super) fn check(case: &Case, child: &Child) -> ObjectId {
    let kind = child.kind.group_kind();
    check_kind(case, child, &kind);
    check_place(case, child);
    check_metadata(child);
    check_depth(case, &kind);
    let object = Value::Object(child.object.clone());
    check_secret(case, &kind, &object);
    check_pod(case, &kind, &object);
    check_addresses(case, &kind, &object);
    if !case.is_granted {
        check_without_grants(case, &kind, &object);
    }
    let id = ObjectId::new(kind, child.namespace.as_deref(), child.name.as_str());
    assert_ne!(id, case.id, "the parent itself");
    id
}

fn check_kind(case: &Case, child: &Child, kind: &GroupKind) {
    let mut declared = case.manifest.children.iter();
    assert!(
        declared.any(|declared| declared.kind == child.kind),
        "{kind} is not declared"
    );
    let Some(grant) = case.grants.children.get(kind) else {
        panic!("{kind} is not granted");
    };
    let core = ["Namespace", "Node", "PersistentVolume", "ServiceAccount"];
    let interfering = [
        "Endpoints",
        "EndpointSlice",
        "Lease",
        "LimitRange",
        "ResourceQuota",
    ];
    let is_kubernetes = ["", "coordination.k8s.io", "discovery.k8s.io"].contains(&&*kind.group);
    let is_privileged = PRIVILEGED_GROUPS.contains(&&*kind.group)
        || kind.group.is_empty() && core.contains(&&*kind.kind)
        || is_kubernetes && interfering.contains(&&*kind.kind);
    assert!(
        !is_privileged || grant.privileged,
        "{kind} is a privileged kind"
    );
}

fn check_place(case: &Case, child: &Child) {
    let kind = &child.kind;
    let is_namespaced = case.kinds.resource_of(kind).scope == Scope::Namespaced;
    assert_eq!(is_namespaced, child.namespace.is_some(), "{kind}");
    match &case.id.namespace {
        Some(own) => assert_eq!(
            child.namespace.as_deref(),
            Some(&**own),
            "in another namespace"
        ),
        None => assert!(
            case.is_granted,
            "a cluster-scoped parent has a child without grants"
        ),
    }
    if let Some(namespace) = &child.namespace {
        let is_system = namespace.starts_with("kube-") || HOST.contains(&&**namespace);
        let is_granted = case.grants.system_namespaces.contains(namespace);
        assert!(is_granted || !is_system, "in {namespace}");
    }
    assert!(!child.name.contains(['/', '%', '\0']), "{}", child.name);
}

fn check_metadata(child: &Child) {
    let metadata = &child.object["metadata"];
    for field in ["ownerReferences", "finalizers", "uid", "resourceVersion"] {
        assert!(metadata.get(field).is_none(), "states {field}");
    }
    for field in ["labels", "annotations"] {
        let mut names = metadata[field].as_object().into_iter().flat_map(Map::keys);
        assert!(
            !names.any(|name| name.starts_with("innkeeper.dev/")),
            "a key of the host in {field}"
        );
    }
}

fn check_depth(case: &Case, kind: &GroupKind) {
    let mut parents = case.manifest.parents.iter();
    if parents.any(|parent| parent.kind.group_kind() == *kind) {
        let granted = u64::from(case.grants.children[kind].depth);
        let depth = case.depth;
        assert!(depth < granted, "depth {depth}, granted {granted}");
    }
}

fn check_secret(case: &Case, kind: &GroupKind, object: &Value) {
    if !is_core(kind, "Secret") {
        return;
    }
    let secret_type = object["type"].as_str().unwrap_or_default();
    let is_credential = [
        "bootstrap.kubernetes.io/token",
        "kubernetes.io/service-account-token",
    ]
    .contains(&secret_type);
    assert!(
        !is_credential || case.grants.children[kind].privileged,
        "a credential: {secret_type}"
    );
}

fn is_core(kind: &GroupKind, name: &str) -> bool {
    kind.group.is_empty() && &*kind.kind == name
}

/// Returns an object's Pod spec; `None` if the object creates no Pods.
fn pod_spec<'a>(kind: &GroupKind, object: &'a Value) -> Option<&'a Value> {
    let path = match (&*kind.group, &*kind.kind) {
        ("", "Pod") => "/spec",
        ("", "PodTemplate") => "/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => "/spec/template/spec",
        _ => return None,
    };
    Some(object.pointer(path).unwrap_or(&Value::Null))
}

fn check_pod(case: &Case, kind: &GroupKind, object: &Value) {
    let level = case.grants.pod_security;
    if &*kind.kind == "ControllerRevision" && &*kind.group == "apps" {
        assert_eq!(level, PodSecurity::Privileged, "a ControllerRevision");
    }
    let Some(spec) = pod_spec(kind, object) else {
        return;
    };
    for field in ["serviceAccountName", "serviceAccount"] {
        let account = spec[field].as_str().unwrap_or_default();
        let is_named =
            ["", "default"].contains(&account) || case.grants.service_accounts.contains(account);
        assert!(is_named, "the service account {account}");
    }
    if level != PodSecurity::Privileged {
        check_baseline(spec);
    }
    if level == PodSecurity::Restricted {
        check_restricted(spec);
    }
}

/// Returns true if a switch is absent or off.
fn is_off(value: &Value) -> bool {
    value.is_null() || *value == Value::Bool(false)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&spec[list]))
}

fn check_baseline(spec: &Value) {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(is_off(&spec[field]), "{field} is on");
    }
    for volume in items(&spec["volumes"]) {
        assert!(volume["hostPath"].is_null(), "a hostPath volume");
    }
    for container in containers(spec) {
        let security = &container["securityContext"];
        assert!(is_off(&security["privileged"]), "a privileged container");
        for port in items(&container["ports"]) {
            let number = &port["hostPort"];
            assert!(number.is_null() || *number == 0, "hostPort {number}");
        }
        for added in items(&security["capabilities"]["add"]) {
            let capabilities = ["SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "ALL"];
            let added = added.as_str().unwrap_or_default();
            assert!(!capabilities.contains(&added), "the capability {added}");
        }
    }
}

fn check_restricted(spec: &Value) {
    let of_pod = &spec["securityContext"];
    for container in containers(spec) {
        let security = &container["securityContext"];
        let escalation = &security["allowPrivilegeEscalation"];
        assert_eq!(*escalation, false, "allowPrivilegeEscalation");
        let either = |path: &str| {
            security
                .pointer(path)
                .or_else(|| of_pod.pointer(path))
                .unwrap_or(&Value::Null)
        };
        assert_eq!(*either("/runAsNonRoot"), true, "runAsNonRoot");
        assert_ne!(*either("/runAsUser"), 0, "runAsUser");
        let seccomp = either("/seccompProfile/type");
        let profiles = ["RuntimeDefault", "Localhost"];
        assert!(
            profiles.iter().any(|profile| seccomp == profile),
            "seccomp {seccomp}"
        );
        let dropped = &security["capabilities"]["drop"];
        let mut all = items(dropped);
        assert!(
            all.any(|capability| capability == "ALL") || dropped == "ALL",
            "drop {dropped}"
        );
    }
}

/// A plugin from a file stays in the parent's namespace and does not instruct other controllers.
fn check_addresses(case: &Case, kind: &GroupKind, object: &Value) {
    let is_confirmed = case.grants.children[kind].privileged;
    if is_core(kind, "Service") && !is_confirmed {
        for field in ["externalIPs", "loadBalancerIP", "externalName"] {
            let value = &object["spec"][field];
            let is_unset = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            assert!(is_unset, "{field} of {kind}");
        }
    }
}

fn check_without_grants(case: &Case, kind: &GroupKind, object: &Value) {
    let harmless = ["ConfigMap", "PersistentVolumeClaim", "Secret", "Service"];
    assert!(
        harmless.iter().any(|name| is_core(kind, name)),
        "{kind} is made without grants"
    );
    assert!(!case.grants.beyond_parent_namespace);
    for field in ["labels", "annotations"] {
        let names = object["metadata"][field].as_object();
        for name in names.into_iter().flat_map(Map::keys) {
            let is_own = !name.contains('/') || name.starts_with("app.kubernetes.io/");
            assert!(is_own, "{name} in {field}");
        }
    }
    let spec = &object["spec"];
    let is_unset = |field: &str| match &spec[field] {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let refused: &[&str] = match &*kind.kind {
        "Secret" => {
            let secret_type = object["type"].as_str().unwrap_or("Opaque");
            let is_usual =
                ["", "Opaque"].contains(&secret_type) || secret_type.starts_with("kubernetes.io/");
            assert!(is_usual, "a Secret of type {secret_type}");
            &[]
        }
        "Service" => {
            let service_type = spec["type"].as_str().unwrap_or("ClusterIP");
            assert_eq!(service_type, "ClusterIP", "the type of a Service");
            &["externalIPs", "loadBalancerIP", "externalName"]
        }
        "PersistentVolumeClaim" => {
            assert_ne!(spec["storageClassName"], "", "storageClassName");
            &["volumeName", "selector", "dataSource", "dataSourceRef"]
        }
        _ => &[],
    };
    for field in refused {
        assert!(is_unset(field), "{field} of {kind}");
    }
}
