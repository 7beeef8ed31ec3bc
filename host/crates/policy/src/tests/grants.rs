//! Granted kinds, denied kinds, and attempts to bypass a denial.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::parse_selector;

use super::*;
use crate::{DEPTH_MAX, is_built_in, is_privileged, is_privileged_to_read, privilege::reach};

fn kind(group: &str, kind: &str) -> GroupKind {
    GroupKind::new(group, kind)
}

fn read_grant(of: GroupKind, access: Access, scope: ReadScope) -> ReadGrant {
    ReadGrant {
        kind: of,
        access,
        scope,
        label_selector: Selector::default(),
        privileged: false,
    }
}

fn namespaces(names: &[&str]) -> ReadScope {
    ReadScope::Namespaces(names.iter().map(|name| Arc::from(*name)).collect())
}

fn secret() -> GroupKind {
    kind("", "Secret")
}

/// Returns a manifest that requests only these reads.
fn reading(reads: Vec<ReadKind>) -> Manifest {
    Manifest {
        parents: Vec::new(),
        crds: Vec::new(),
        children: Vec::new(),
        reads,
        ..manifest()
    }
}

fn lines(shortfalls: &[Shortfall]) -> String {
    let lines: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn proposed_grants_are_the_requests_except_privileged_kinds_and_secrets() {
    let manifest = manifest();
    let grants = Grants::proposed(&manifest);
    assert!(grants.allows_parent(&kind("example.dev", "Web")));
    assert!(grants.allows_crd(&kind("example.dev", "Related")));
    assert!(grants.allows_crd(&kind("example.dev", "Web")));
    assert!(!grants.allows_crd(&kind("example.dev", "Other")));
    assert!(grants.allows_child(&secret()));
    assert!(!grants.allows_adoption(&secret()));
    assert!(!grants.allows_child(&kind("", "Namespace")));
    assert!(!grants.allows_child(&kind("rbac.authorization.k8s.io", "Role")));
    let shown = |of: &GroupKind| grants.child_access(of, Scope::Namespaced);
    assert_eq!(shown(&secret()), Access::Hash);
    assert_eq!(shown(&kind("", "ConfigMap")), Access::Full);
    let assessment = grants.assess(&manifest);
    assert!(assessment.serves());
    expect![[r#"
        children of Namespace (a privileged kind)
        children of Role.rbac.authorization.k8s.io (a privileged kind)
        full reads of Secret as asked for (granted: hash)
        metadata reads of Node (a privileged kind)"#]]
    .assert_eq(&lines(&assessment.reduced));
}

/// A manifest that requests these children, and these reads besides those in [`manifest`].
fn asking(children: &[(&str, &str)], reads: Vec<ReadKind>) -> Manifest {
    let children = children.iter();
    Manifest {
        children: children
            .map(|(api_version, kind)| kind_of_child(api_version, kind, false))
            .collect(),
        reads,
        ..manifest()
    }
}

#[test]
fn a_file_without_grants_makes_no_pods_and_redirects_no_traffic() {
    let denied = [
        ("v1", "Pod"),
        ("v1", "PodTemplate"),
        ("v1", "ReplicationController"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ControllerRevision"),
        ("batch/v1", "CronJob"),
        ("batch/v1", "Job"),
        ("v1", "Endpoints"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ("v1", "ResourceQuota"),
        ("v1", "LimitRange"),
        ("coordination.k8s.io/v1", "Lease"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("storage.k8s.io/v1", "StorageClass"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("policy/v1", "PodDisruptionBudget"),
        ("example.dev/v1", "Web"),
    ];
    let allowed = [
        ("v1", "ConfigMap"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Secret"),
        ("v1", "Service"),
    ];
    let manifest = asking(&[&denied[..], &allowed].concat(), Vec::new());
    let grants = Grants::for_file(&manifest);
    let is_allowed = |(api_version, kind): &(&str, &str)| {
        grants.allows_child(&gvk(api_version, kind).group_kind())
    };
    for kind in &denied {
        assert!(!is_allowed(kind), "{kind:?}");
    }
    for kind in &allowed {
        assert!(is_allowed(kind), "{kind:?}");
    }
    assert!(!grants.children[&secret()].privileged);
    assert!(!grants.beyond_parent_namespace);
    assert_eq!(grants.system_namespaces, BTreeSet::new());
}

/// A plugin that serves a foreign kind controls the objects of that kind's users.
#[test]
fn without_grants_a_plugin_serves_only_kinds_whose_definition_it_carries() {
    let mut manifest = asking(&[("v1", "ConfigMap")], Vec::new());
    manifest.parents.truncate(1);
    let kind = manifest.parents[0].kind.group_kind();
    let granted = |manifest: &Manifest| {
        let grants = Grants::for_file(manifest);
        assert!(grants.own_definitions);
        (
            grants.parent_kinds_of(manifest),
            grants.assess(manifest).missing,
        )
    };
    let crd = |kind: &GroupKind| {
        json!({"spec": {"group": kind.group, "names": {"kind": kind.kind}}})
            .as_object()
            .unwrap()
            .clone()
    };
    let other = GroupKind::new(kind.group.clone(), "Other");
    for crds in [Vec::new(), vec![crd(&other)]] {
        manifest.crds = crds;
        let missing = vec![Shortfall::Parent(kind.clone())];
        assert_eq!(granted(&manifest), (BTreeSet::new(), missing));
    }
    manifest.crds.push(crd(&kind));
    assert_eq!(granted(&manifest), ([kind].into(), Vec::new()));
    // An administrator's grants may include foreign kinds.
    assert!(!Grants::requested(&manifest).own_definitions);
}

#[test]
fn without_grants_children_reach_nothing_outside_of_their_namespace() {
    let claim = "PersistentVolumeClaim";
    let of_kind = |of: &str, field: &str, value: Value| {
        let spec = json!({field: value});
        (
            of.to_owned(),
            json!({"spec": spec}),
            format!("spec.{field}"),
        )
    };
    let of_service = |field: &str, value: Value| of_kind("Service", field, value);
    let of_claim = |field: &str, value: Value| of_kind(claim, field, value);
    let refused = [
        of_service("type", "NodePort".into()),
        of_service("type", "LoadBalancer".into()),
        of_service("type", "ExternalName".into()),
        of_service("externalIPs", json!(["192.0.2.1"])),
        of_service("externalName", "a.example".into()),
        of_service("loadBalancerIP", "192.0.2.1".into()),
        of_service("clusterIP", "10.0.0.10".into()),
        of_service("clusterIPs", json!(["10.0.0.10"])),
        of_claim("volumeName", "pv".into()),
        of_claim("selector", json!({"matchLabels": {"a": "b"}})),
        of_claim("storageClassName", "".into()),
        of_claim("dataSource", json!({"kind": "VolumeSnapshot", "name": "a"})),
        of_claim(
            "dataSourceRef",
            json!({"kind": "Other", "name": "a", "namespace": "b"}),
        ),
    ];
    for (of, object, field) in refused {
        let reached = reach(&kind("", &of), object.as_object().unwrap());
        assert_eq!(reached, Some(field), "{of} {object}");
    }
}

#[test]
fn without_grants_children_carry_nothing_that_other_controllers_obey() {
    let claim = "PersistentVolumeClaim";
    let of_secret = |value: &str| {
        (
            "Secret".to_owned(),
            json!({"type": value}),
            "type".to_owned(),
        )
    };
    let with = |of: &str, field: &str, key: &str| {
        let object = json!({"metadata": {field: {"a": "b", key: "x"}}});
        (of.to_owned(), object, format!("metadata.{field}.{key}"))
    };
    let refused = [
        of_secret("helm.sh/release.v1"),
        of_secret("example.com/any"),
        of_secret("kubernetes.io/service-account-token"),
        with(
            "Service",
            "annotations",
            "external-dns.alpha.kubernetes.io/hostname",
        ),
        with("Secret", "labels", "argocd.argoproj.io/secret-type"),
        with("ConfigMap", "labels", "argocd.argoproj.io/instance"),
        with(
            claim,
            "annotations",
            "volume.beta.kubernetes.io/storage-class",
        ),
        with("Service", "labels", "kubernetes.io/cluster-service"),
        with("Service", "annotations", "app.kubernetes.io.example/a"),
    ];
    for (of, object, field) in refused {
        let reached = reach(&kind("", &of), object.as_object().unwrap());
        assert_eq!(reached, Some(field), "{of} {object}");
    }
}

#[test]
fn without_grants_children_have_what_plugins_usually_state() {
    let claim = "PersistentVolumeClaim";
    let allowed = [
        ("Service", json!({"spec": {"selector": {"a": "b"}}})),
        (
            "Service",
            json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}}),
        ),
        (
            "Service",
            json!({"spec": {"clusterIPs": ["None"], "clusterIP": ""}}),
        ),
        (
            "Service",
            json!({"spec": {"externalIPs": [], "loadBalancerIP": null}}),
        ),
        (claim, json!({"spec": {"storageClassName": "fast"}})),
        (
            "ConfigMap",
            json!({"spec": {"volumeName": "pv"}, "type": "a"}),
        ),
        ("Secret", json!({})),
        ("Secret", json!({"type": "Opaque"})),
        ("Secret", json!({"type": "kubernetes.io/tls"})),
        ("Secret", json!({"type": "kubernetes.io/dockerconfigjson"})),
        (
            "ConfigMap",
            json!({"metadata": {"labels": {"app.kubernetes.io/name": "a", "b": "c"}}}),
        ),
        (
            "Service",
            json!({"metadata": {"annotations": {"note": "a"}}}),
        ),
    ];
    for (of, object) in allowed {
        let reached = reach(&kind("", of), object.as_object().unwrap());
        assert_eq!(reached, None, "{of} {object}");
    }
}

#[test]
fn a_child_that_reaches_out_is_refused_without_grants_alone() {
    let mut scene = scene();
    let answer = || {
        desired(vec![with_metadata(
            json!({"name": "a", "labels": {"example.com/a": "b"}}),
        )])
    };
    assert!(check(answer(), &scene.rules()).is_ok());
    scene.grants = Grants::for_file(&scene.manifest);
    scene.check_refused(
        answer(),
        expect![[
            r#"ChildForbidden: child "a": `metadata.labels.example.com/a` reaches beyond the namespace or is for another controller: a plugin file needs --grants for that"#
        ]],
    );
}

#[test]
fn a_file_without_grants_reads_only_the_namespaces_of_its_parents() {
    let requested = vec![
        read("v1", "Secret", Access::Full, ReadScope::Cluster),
        read("v1", "ConfigMap", Access::Full, ReadScope::Cluster),
        read("v1", "Pod", Access::Metadata, ReadScope::ParentNamespace),
    ];
    let manifest = asking(&[], requested);
    let grants = Grants::for_file(&manifest);
    let reads = grants.reads_for(&manifest);
    assert_eq!(reads.len(), 3);
    for read in reads {
        assert_eq!(read.scope, ReadScope::ParentNamespace, "{read:?}");
        assert!(read.access != Access::Full || &*read.kind.kind == "ConfigMap");
    }
    // A cluster-scoped parent gives no access to Secrets either.
    assert_eq!(grants.child_access(&secret(), Scope::Cluster), Access::Hash);
}

#[test]
fn requested_grants_cover_all_requests_with_their_confirmations() {
    let mut manifest = manifest();
    let grants = Grants::requested(&manifest);
    assert_eq!(grants.assess(&manifest), Assessment::default());
    assert!(grants.allows_child(&kind("rbac.authorization.k8s.io", "Role")));
    assert_eq!(grants.pod_security, PodSecurity::Restricted);
    assert_eq!(
        grants.child_access(&secret(), Scope::Namespaced),
        Access::Full
    );
    manifest.parents[0].kind = gvk("apps/v1", "Deployment");
    assert!(Grants::requested(&manifest).allows_parent(&kind("apps", "Deployment")));
    manifest.parents[0].kind = gvk("v1", "Secret");
    assert!(!Grants::requested(&manifest).allows_parent(&secret()));
}

/// Each of them affects all users.
#[test]
fn kinds_that_set_something_for_the_whole_cluster_need_a_confirmation_to_make_them_but_not_to_read_them()
 {
    for (group, name, is_setting) in [
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", true),
        (
            "flowcontrol.apiserver.k8s.io",
            "PriorityLevelConfiguration",
            true,
        ),
        ("internal.apiserver.k8s.io", "StorageVersion", true),
        ("networking.k8s.io", "IPAddress", true),
        ("networking.k8s.io", "IngressClass", true),
        ("networking.k8s.io", "ServiceCIDR", true),
        ("node.k8s.io", "RuntimeClass", true),
        ("resource.k8s.io", "DeviceClass", true),
        ("resource.k8s.io", "DeviceTaintRule", true),
        ("resource.k8s.io", "ResourceSlice", true),
        ("scheduling.k8s.io", "PriorityClass", true),
        ("storage.k8s.io", "CSIDriver", true),
        ("storage.k8s.io", "CSINode", true),
        ("storage.k8s.io", "StorageClass", true),
        ("storage.k8s.io", "VolumeAttachment", true),
        ("storage.k8s.io", "VolumeAttributesClass", true),
        ("storagemigration.k8s.io", "StorageVersionMigration", true),
        // They stay in their namespace.
        ("networking.k8s.io", "Ingress", false),
        ("networking.k8s.io", "NetworkPolicy", false),
        ("resource.k8s.io", "ResourceClaim", false),
        ("resource.k8s.io", "ResourceClaimTemplate", false),
        ("scheduling.k8s.io", "Workload", false),
    ] {
        let kind = kind(group, name);
        assert!(is_built_in(&kind), "{kind}");
        assert_eq!(is_privileged(&kind), is_setting, "{kind}");
        assert!(!is_privileged_to_read(&kind), "{kind}");
        let child = |privileged| {
            let grant = ChildGrant {
                privileged,
                ..ChildGrant::default()
            };
            let children = BTreeMap::from([(kind.clone(), grant)]);
            let grants = Grants {
                children,
                ..Grants::default()
            };
            grants.allows_child(&kind)
        };
        assert!(child(true), "{kind}");
        assert_eq!(child(false), !is_setting, "{kind}");
        let grants = Grants {
            reads: vec![read_grant(kind.clone(), Access::Full, ReadScope::Cluster)],
            ..Grants::default()
        };
        assert_eq!(grants.reads_of(&kind).count(), 1, "{kind}");
    }
}

/// The kinds in [`manifest`] nest, which a plugin with all requested grants may do.
#[test]
fn own_kinds_of_parents_are_granted_with_a_depth_and_reported_without_one() {
    let manifest = manifest();
    let web = kind("example.dev", "Web");
    let depth = |grants: &Grants| grants.children[&web].depth;
    let mut grants = Grants::requested(&manifest);
    assert_eq!(depth(&grants), DEPTH_MAX);
    assert_eq!(grants.children[&secret()].depth, 0);
    assert_eq!(depth(&Grants::proposed(&manifest)), 1);
    let power = "can create its own parents, which it then serves like those of users: ";
    let powers = grants.powers(&manifest);
    let both = format!("{power}Fleet.example.dev, Web.example.dev");
    assert!(powers.contains(&both), "{powers:?}");

    grants.children.get_mut(&web).unwrap().depth = 0;
    let powers = grants.powers(&manifest);
    assert!(
        powers.contains(&format!("{power}Fleet.example.dev")),
        "{powers:?}"
    );
    let assessment = grants.assess(&manifest);
    assert!(assessment.serves());
    expect!["children of Web.example.dev, its own parents (no depth is granted)"]
        .assert_eq(&lines(&assessment.reduced));
}

#[test]
fn system_namespaces_are_served_only_by_name() {
    let mut grants = Grants::requested(&manifest());
    // The second has the host's account, which is enough to become the host.
    let host = ["inn", "inn-pods"].map(str::to_owned);
    for namespace in ["kube-system", "kube-", "inn", "inn-pods"] {
        assert!(!grants.allows_namespace(namespace, &host), "{namespace}");
    }
    for namespace in ["default", "kube", "mykube-system", "innkeeper-system"] {
        assert!(grants.allows_namespace(namespace, &host), "{namespace}");
    }
    grants.system_namespaces.insert("inn".to_owned());
    assert!(grants.allows_namespace("inn", &host));
    assert!(!grants.allows_namespace("inn-pods", &host));
    assert!(!grants.allows_namespace("kube-system", &host));
}

#[test]
fn grants_are_described_in_plain_words() {
    let requested = vec![
        read("v1", "Secret", Access::Full, ReadScope::ParentNamespace),
        read("v1", "ConfigMap", Access::Hash, ReadScope::Cluster),
        read("v1", "Node", Access::Metadata, ReadScope::Cluster),
    ];
    let children = [
        ("v1", "Secret"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("batch/v1", "Job"),
        ("v1", "ResourceQuota"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("example.dev/v1", "Web"),
    ];
    let manifest = asking(&children, requested);
    let mut grants = Grants::requested(&manifest);
    expect![[r#"
        can run Pods with any image as the namespace's service account default, at podSecurity: restricted, through Deployment.apps, Job.batch
        can read every Secret and ConfigMap in its children's namespaces, by mounting them in Pods
        can change the cluster, its settings or its permissions, through Role.rbac.authorization.k8s.io
        can redirect or block network traffic, through Service
        can block the work of others, through ResourceQuota
        can create settings and credentials that Pods and other controllers read, through Secret
        can create custom objects, whose effect depends on their controllers: Web.example.dev
        can define and change kinds for the whole cluster: Related.example.dev
        can create its own parents, which it then serves like those of users: Web.example.dev
        can read the values of all objects of Secret in its parents' namespaces
        can read the metadata of all objects of Node in the whole cluster
        can create its children in every namespace but kube-* and the host's"#]]
    .assert_eq(&grants.powers(&manifest).join("\n"));

    grants.pod_security = PodSecurity::Privileged;
    grants.service_accounts = ["deployer".to_owned()].into();
    grants.system_namespaces = ["kube-system".to_owned()].into();
    grants.children.get_mut(&secret()).unwrap().privileged = true;
    let powers = grants.powers(&manifest).join("\n");
    for part in [
        "as the namespace's service accounts default, deployer, at podSecurity: privileged",
        "can take over every node that runs its Pods",
        "can get the token of every service account",
        "works in the system namespaces kube-system",
    ] {
        assert!(powers.contains(part), "{powers}");
    }
    let none = Grants::for_file(&reading(Vec::new())).powers(&reading(Vec::new()));
    assert_eq!(none, [""; 0]);
}

/// Built-in kinds, and one that no rule names.
const ALL_KINDS: [(&str, &str); 21] = [
    (
        "v1",
        "ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    (
        "apps/v1",
        "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    ),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("batch/v1", "CronJob Job"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    ("coordination.k8s.io/v1", "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("events.k8s.io/v1", "Event"),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema PriorityLevelConfiguration",
    ),
    (
        "networking.k8s.io/v1",
        "IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
    ),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("policy/v1", "PodDisruptionBudget"),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    (
        "resource.k8s.io/v1",
        "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
    ),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    (
        "storage.k8s.io/v1",
        "CSIDriver CSINode StorageClass VolumeAttachment",
    ),
    ("monitoring.example/v1", "Monitor"),
    ("unknown/v1", "Later"),
];

#[test]
fn no_granted_kind_is_without_a_sentence() {
    let all = ALL_KINDS
        .into_iter()
        .flat_map(|(api_version, names)| names.split(' ').map(move |name| (api_version, name)));
    for (api_version, name) in all {
        let manifest = Manifest {
            crds: Vec::new(),
            ..asking(&[(api_version, name)], Vec::new())
        };
        let kind = gvk(api_version, name).group_kind();
        let powers = Grants::requested(&manifest).powers(&manifest);
        let named = [format!(" {kind}"), format!(", {kind}")];
        let is_named = |power: &String| named.iter().any(|name| power.ends_with(name.as_str()));
        assert!(powers.iter().any(is_named), "{kind}: {powers:?}");
        let is_caught =
            powers.contains(&format!("can create, change and delete objects of {kind}"));
        let is_other = matches!(name, "Event" | "Later");
        assert_eq!(is_caught, is_other, "{kind}: {powers:?}");
    }
    let manifest = asking(
        &[
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("v1", "PersistentVolumeClaim"),
        ],
        Vec::new(),
    );
    let mut grants = Grants::requested(&manifest);
    let powers = grants.powers(&manifest).join("\n");
    for part in [
        "can start and stop Pods of every workload in its children's namespaces, through HorizontalPodAutoscaler.autoscaling",
        "can claim storage, including existing volumes and snapshots, through PersistentVolumeClaim",
        "can define and change kinds for the whole cluster: Related.example.dev",
    ] {
        assert!(powers.contains(part), "{powers}");
    }
    grants.crds.clear();
    let powers = grants.powers(&manifest).join("\n");
    assert!(!powers.contains("define"), "{powers}");
}

#[test]
fn parents_of_kubernetes_itself_are_described() {
    let deployment = kind("apps", "Deployment");
    let mut manifest = asking(&[], Vec::new());
    manifest.parents[0].kind = gvk("apps/v1", "Deployment");
    let mut grants = Grants::requested(&manifest);
    let power = "reads all objects of Deployment.apps, and can change their status and block their deletion";
    assert!(grants.powers(&manifest).contains(&power.to_owned()));
    grants.parents.remove(&deployment);
    assert!(!grants.powers(&manifest).contains(&power.to_owned()));
}

#[test]
fn nothing_is_granted_by_default() {
    let assessment = Grants::default().assess(&manifest());
    assert!(!assessment.serves());
    expect![[r#"
        parents of Web.example.dev
        parents of Fleet.example.dev
        children of ConfigMap
        children of Secret
        children of Web.example.dev
        children of Fleet.example.dev"#]]
    .assert_eq(&lines(&assessment.missing));
    expect![[r#"
        the CustomResourceDefinition of Related.example.dev
        children of Namespace (a privileged kind)
        children of Role.rbac.authorization.k8s.io (a privileged kind)
        children of ServiceMonitor.monitoring.coreos.com
        full reads of Secret
        full reads of ConfigMap
        metadata reads of Node (a privileged kind)"#]]
    .assert_eq(&lines(&assessment.reduced));
    assert_eq!(Grants::default().reads_for(&manifest()), []);
}

#[test]
fn built_in_kinds_and_secrets_are_no_parents_of_files() {
    for (api_version, kind) in [
        ("v1", "Secret"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("networking.k8s.io/v1", "Ingress"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("innkeeper.dev/v1alpha1", "Plugin"),
    ] {
        let mut manifest = manifest();
        manifest.parents[0].kind = gvk(api_version, kind);
        let grants = Grants::for_file(&manifest);
        let parent = manifest.parents[0].kind.group_kind();
        assert!(!grants.allows_parent(&parent), "{parent}");
        assert!(!grants.assess(&manifest).serves(), "{parent}");
    }
}

#[test]
fn a_privileged_built_in_parent_needs_both_confirmations() {
    let allowed = |of: &GroupKind, built_in, privileged| {
        let grant = ParentGrant {
            built_in,
            privileged,
        };
        let grants = Grants {
            parents: BTreeMap::from([(of.clone(), grant)]),
            ..Grants::default()
        };
        grants.allows_parent(of)
    };
    let deployment = kind("apps", "Deployment");
    assert!(!allowed(&deployment, false, true));
    assert!(allowed(&deployment, true, false));
    for powerful in [
        kind("", "Namespace"),
        kind("rbac.authorization.k8s.io", "Role"),
    ] {
        assert!(!allowed(&powerful, true, false), "{powerful}");
        assert!(!allowed(&powerful, false, true), "{powerful}");
        assert!(allowed(&powerful, true, true), "{powerful}");
    }
    let plugin = kind("innkeeper.dev", "Plugin");
    assert!(!allowed(&plugin, true, false));
    assert!(!allowed(&secret(), true, true), "a Secret never is");
}

#[test]
fn a_confirmation_on_one_grant_does_not_cover_another() {
    let role = kind("rbac.authorization.k8s.io", "Role");
    let privileged = ReadGrant {
        privileged: true,
        ..read_grant(role.clone(), Access::Full, ReadScope::Cluster)
    };
    let grants = Grants {
        parents: BTreeMap::from([(role.clone(), ParentGrant::default())]),
        crds: BTreeMap::from([(role.clone(), CrdGrant { privileged: true })]),
        children: BTreeMap::from([(role.clone(), ChildGrant::default())]),
        reads: vec![
            privileged.clone(),
            read_grant(kind("", "Node"), Access::Full, ReadScope::Cluster),
        ],
        ..Grants::default()
    };
    assert!(!grants.allows_parent(&role));
    assert!(!grants.allows_child(&role));
    assert_eq!(grants.reads_of(&role).collect::<Vec<_>>(), [&privileged]);
    assert_eq!(grants.reads_of(&kind("", "Node")).count(), 0);
}

#[test]
fn a_definition_of_a_built_in_kind_is_never_installed() {
    let role = kind("rbac.authorization.k8s.io", "Role");
    let deployment = kind("apps", "Deployment");
    let own = kind("innkeeper.dev", "Plugin");
    let word = CrdGrant { privileged: true };
    let parent = ParentGrant {
        built_in: true,
        privileged: true,
    };
    let grants = Grants {
        parents: BTreeMap::from([(deployment.clone(), parent)]),
        crds: BTreeMap::from([(role.clone(), word), (own.clone(), CrdGrant::default())]),
        ..Grants::default()
    };
    for defined in [role, deployment, own] {
        assert!(!grants.allows_crd(&defined), "{defined}");
    }
}

#[test]
fn adoption_needs_its_own_field_and_a_grant_of_the_kind() {
    let grants = |kind: &GroupKind, adopt| {
        let grant = ChildGrant {
            adopt,
            privileged: false,
            ..ChildGrant::default()
        };
        Grants {
            children: BTreeMap::from([(kind.clone(), grant)]),
            ..Grants::default()
        }
    };
    let config_map = kind("", "ConfigMap");
    assert!(grants(&config_map, true).allows_adoption(&config_map));
    assert!(!grants(&config_map, false).allows_adoption(&config_map));
    assert!(!grants(&config_map, true).allows_adoption(&secret()));
    let namespace = kind("", "Namespace");
    assert!(!grants(&namespace, true).allows_adoption(&namespace));
}

#[test]
fn secrets_of_children_are_shown_only_where_full_reads_reach_all_of_them() {
    let shown = |grant: ReadGrant, parent| {
        let grants = Grants {
            reads: vec![grant],
            ..Grants::default()
        };
        grants.child_access(&secret(), parent)
    };
    let full = |scope| read_grant(secret(), Access::Full, scope);
    let labelled = ReadGrant {
        label_selector: parse_selector("app=web").unwrap(),
        ..full(ReadScope::Cluster)
    };
    for (grant, below_namespaced, below_cluster) in [
        (full(ReadScope::Cluster), Access::Full, Access::Full),
        (full(ReadScope::ParentNamespace), Access::Full, Access::Hash),
        (full(namespaces(&["demo"])), Access::Hash, Access::Hash),
        (labelled, Access::Hash, Access::Hash),
        (
            read_grant(secret(), Access::Hash, ReadScope::Cluster),
            Access::Hash,
            Access::Hash,
        ),
        (
            read_grant(
                kind("example.dev", "Secret"),
                Access::Full,
                ReadScope::Cluster,
            ),
            Access::Hash,
            Access::Hash,
        ),
    ] {
        let label = format!("{grant:?}");
        assert_eq!(
            shown(grant.clone(), Scope::Namespaced),
            below_namespaced,
            "{label}"
        );
        assert_eq!(shown(grant, Scope::Cluster), below_cluster, "{label}");
    }
}

#[test]
fn a_read_gets_the_lesser_access_and_the_narrower_scope() {
    let requested = |access, scope, selector: Option<&str>| ReadKind {
        label_selector: parse_selector(selector.unwrap_or_default()).unwrap(),
        ..read("v1", "Secret", access, scope)
    };
    let granted = |access, scope, selector: Option<&str>| ReadGrant {
        label_selector: parse_selector(selector.unwrap_or_default()).unwrap(),
        ..read_grant(secret(), access, scope)
    };
    use ReadScope::{Cluster, ParentNamespace};
    for (asked_for, grant, served, reduced) in [
        // Grants with less access than requested.
        (
            requested(Access::Full, Cluster, None),
            granted(Access::Hash, Cluster, None),
            requested(Access::Hash, Cluster, None),
            true,
        ),
        // Grants with more access than requested: the guest gets the requested access.
        (
            requested(Access::Metadata, ParentNamespace, None),
            granted(Access::Full, Cluster, None),
            requested(Access::Metadata, ParentNamespace, None),
            false,
        ),
        (
            requested(Access::Full, Cluster, None),
            granted(Access::Full, ParentNamespace, None),
            requested(Access::Full, ParentNamespace, None),
            true,
        ),
        (
            requested(Access::Full, Cluster, None),
            granted(Access::Full, namespaces(&["a"]), None),
            requested(Access::Full, namespaces(&["a"]), None),
            true,
        ),
        (
            requested(Access::Full, ParentNamespace, None),
            granted(Access::Full, namespaces(&["a"]), None),
            requested(Access::Full, namespaces(&["a"]), None),
            true,
        ),
        // Two label selectors are joined, so they only narrow the read.
        (
            requested(Access::Full, Cluster, None),
            granted(Access::Full, Cluster, Some("app=web")),
            requested(Access::Full, Cluster, Some("app=web")),
            true,
        ),
        (
            requested(Access::Full, Cluster, Some("tier=db")),
            granted(Access::Full, Cluster, Some("app=web")),
            requested(Access::Full, Cluster, Some("app=web,tier=db")),
            true,
        ),
    ] {
        let manifest = reading(vec![asked_for]);
        let grants = Grants {
            reads: vec![grant.clone()],
            ..Grants::default()
        };
        assert_eq!(grants.reads_for(&manifest), [served], "{grant:?}");
        let assessment = grants.assess(&manifest);
        assert!(
            assessment.serves(),
            "a missing read never keeps a plugin from serving"
        );
        assert_eq!(!assessment.reduced.is_empty(), reduced, "{grant:?}");
    }
}

#[test]
fn grants_with_different_access_each_apply_in_their_scope() {
    let manifest = reading(vec![read("v1", "Secret", Access::Full, ReadScope::Cluster)]);
    let grants = Grants {
        reads: vec![
            read_grant(secret(), Access::Full, ReadScope::ParentNamespace),
            read_grant(secret(), Access::Metadata, ReadScope::Cluster),
        ],
        ..Grants::default()
    };
    let served = grants.reads_for(&manifest);
    let served: Vec<String> = served
        .iter()
        .map(|read| format!("{} {}", read.access, read.scope))
        .collect();
    assert_eq!(served, ["full ParentNamespace", "metadata Cluster"]);
    expect!["full reads of Secret as asked for (granted: full)"]
        .assert_eq(&lines(&grants.assess(&manifest).reduced));
}

#[test]
fn a_kind_of_parents_without_a_grant_stops_only_a_plugin_that_has_no_other() {
    let manifest = manifest();
    let mut grants = Grants::requested(&manifest);
    grants.parents.remove(&kind("example.dev", "Fleet"));
    let assessment = grants.assess(&manifest);
    assert!(assessment.serves());
    assert_eq!(lines(&assessment.reduced), "parents of Fleet.example.dev");
    let kinds = grants
        .parents_of(&manifest)
        .map(|parent| &*parent.kind.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), ["Web"]);
    grants.parents.clear();
    let assessment = grants.assess(&manifest);
    assert!(!assessment.serves());
    assert_eq!(
        lines(&assessment.missing),
        "parents of Web.example.dev\nparents of Fleet.example.dev"
    );
}
