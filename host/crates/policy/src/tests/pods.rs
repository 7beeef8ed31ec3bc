//! Pod security: one row for each rule, with every path where the field can be.

use std::collections::BTreeSet;

use super::*;

/// A Pod without a container that meets the level `restricted`.
fn spec() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}})
}

fn container() -> Value {
    json!({
        "name": "c",
        "image": "i",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    })
}

const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// A Pod with one container in each list.
fn pod() -> Value {
    let mut spec = spec();
    for list in LISTS {
        spec[list] = json!([container()]);
    }
    json!({"spec": spec})
}

/// Sets a field, and makes the objects and lists on the way.
fn set(object: &mut Value, path: &str, value: Value) {
    let place = path
        .split('/')
        .fold(object, |object, step| match step.parse::<usize>() {
            Ok(index) => {
                if !object.is_array() {
                    *object = json!([]);
                }
                let items = object.as_array_mut().unwrap();
                if items.len() == index {
                    items.push(json!({}));
                }
                &mut items[index]
            }
            Err(_) => &mut object[step],
        });
    *place = value;
}

fn broken(level: PodSecurity, object: &Value) -> Vec<String> {
    let kind = GroupKind::new("", "Pod");
    pod_violations(level, &BTreeSet::new(), &kind, object.as_object().unwrap())
}

/// Checks that a value violates one rule in this level and none in the weaker levels.
#[track_caller]
fn check_row(level: PodSecurity, path: &str, value: &Value, expected: &str) {
    let mut pod = pod();
    set(&mut pod, path, value.clone());
    for at in [PodSecurity::Restricted, PodSecurity::Baseline] {
        let violations = broken(at, &pod);
        if at <= level {
            assert!(
                violations.iter().any(|text| text.contains(expected)),
                "{at:?} {path} {value}: {violations:?}"
            );
        } else {
            assert_eq!(violations, [""; 0], "{at:?} {path} {value}");
        }
    }
    assert_eq!(
        broken(PodSecurity::Privileged, &pod),
        [""; 0],
        "{path} {value}"
    );
}

#[track_caller]
fn check_allowed(level: PodSecurity, path: &str, value: &Value) {
    let mut pod = pod();
    set(&mut pod, path, value.clone());
    assert_eq!(broken(level, &pod), [""; 0], "{path} {value}");
}

#[test]
fn a_hardened_pod_meets_every_level() {
    for level in [
        PodSecurity::Restricted,
        PodSecurity::Baseline,
        PodSecurity::Privileged,
    ] {
        assert_eq!(broken(level, &pod()), [""; 0]);
    }
    assert_eq!(PodSecurity::default(), PodSecurity::Restricted);
}

#[test]
fn baseline_refuses_what_reaches_the_node_through_the_pod() {
    use PodSecurity::Baseline;

    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        let expected = format!("spec.{field} must be false");
        check_row(Baseline, &format!("spec/{field}"), &json!(true), &expected);
        check_row(
            Baseline,
            &format!("spec/{field}"),
            &json!("true"),
            &expected,
        );
        check_allowed(Baseline, &format!("spec/{field}"), &json!(false));
    }
    check_row(
        Baseline,
        "spec/volumes/0",
        &json!({"name": "v", "hostPath": {"path": "/"}}),
        "spec.volumes[0].hostPath must be absent",
    );
    let sysctl = |name: &str| json!([{"name": name, "value": "0"}]);
    let path = "spec/securityContext/sysctls";
    check_row(
        Baseline,
        path,
        &sysctl("kernel.msgmax"),
        "sysctls[0].name must be one of",
    );
    for allowed in [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_syncookies",
    ] {
        check_allowed(PodSecurity::Restricted, path, &sysctl(allowed));
    }
    let profile = |name: &str| json!({"container.apparmor.security.beta.kubernetes.io/c": name});
    let path = "metadata/annotations";
    check_row(
        Baseline,
        path,
        &profile("unconfined"),
        "must be runtime/default or localhost/*",
    );
    check_allowed(PodSecurity::Restricted, path, &profile("runtime/default"));
    check_allowed(PodSecurity::Restricted, path, &profile("localhost/web"));
    check_allowed(
        PodSecurity::Restricted,
        path,
        &json!({"note": "unconfined"}),
    );
}

/// The paths of a Pod's security contexts, including those in containers.
fn contexts() -> Vec<String> {
    let of_containers = LISTS.map(|list| format!("spec/{list}/0/securityContext"));
    let of_pod = "spec/securityContext".to_owned();
    of_containers.into_iter().chain([of_pod]).collect()
}

#[test]
fn baseline_refuses_security_contexts_that_lift_the_confinement() {
    use PodSecurity::Baseline;

    for context in contexts() {
        let at = |field: &str| format!("{context}/{field}");
        check_row(
            Baseline,
            &at("windowsOptions"),
            &json!({"hostProcess": true}),
            "windowsOptions.hostProcess must be false",
        );
        for field in ["appArmorProfile", "seccompProfile"] {
            let expected = format!("{field}.type must be one of RuntimeDefault, Localhost");
            let profile = |kind: &str| json!({"type": kind, "localhostProfile": "p"});
            check_row(Baseline, &at(field), &profile("Unconfined"), &expected);
            check_allowed(PodSecurity::Restricted, &at(field), &profile("Localhost"));
        }
        let selinux = at("seLinuxOptions");
        for (options, expected) in [
            (
                json!({"type": "spc_t"}),
                "seLinuxOptions.type must be one of",
            ),
            (json!({"user": "u"}), "seLinuxOptions.user must be absent"),
            (json!({"role": "r"}), "seLinuxOptions.role must be absent"),
        ] {
            check_row(Baseline, &selinux, &options, expected);
        }
        for kind in [
            "",
            "container_t",
            "container_init_t",
            "container_kvm_t",
            "container_engine_t",
        ] {
            let options = json!({"type": kind, "level": "s0:c1,c2", "user": ""});
            check_allowed(PodSecurity::Restricted, &selinux, &options);
        }
    }
}

#[test]
fn baseline_refuses_containers_with_power_over_the_node() {
    use PodSecurity::Baseline;

    for list in LISTS {
        let at = |field: &str| format!("spec/{list}/0/{field}");
        let shown = |field: &str| format!("spec.{list}[0].{field}");
        check_row(
            Baseline,
            &at("securityContext/privileged"),
            &json!(true),
            &shown("securityContext.privileged must be false"),
        );
        check_row(
            Baseline,
            &at("securityContext/procMount"),
            &json!("Unmasked"),
            &shown("securityContext.procMount must be one of Default"),
        );
        check_allowed(
            PodSecurity::Restricted,
            &at("securityContext/procMount"),
            &json!("Default"),
        );
        let add = at("securityContext/capabilities/add");
        for capability in ["NET_RAW", "SYS_ADMIN", "ALL", "sys_admin"] {
            let expected = shown("securityContext.capabilities.add[0] must be one of AUDIT_WRITE");
            check_row(Baseline, &add, &json!([capability]), &expected);
        }
        check_row(
            Baseline,
            &at("ports"),
            &json!([{"containerPort": 1}, {"containerPort": 2, "hostPort": 80}]),
            &shown("ports[1].hostPort must be absent"),
        );
        check_allowed(
            PodSecurity::Restricted,
            &at("ports"),
            &json!([{"containerPort": 1, "hostPort": 0}]),
        );
        for action in [
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle/postStart",
            "lifecycle/preStop",
        ] {
            for kind in ["httpGet", "tcpSocket"] {
                let expected = format!("{kind}.host must be absent");
                check_row(
                    Baseline,
                    &at(action),
                    &json!({kind: {"host": "10.0.0.1"}}),
                    &expected,
                );
                check_allowed(
                    PodSecurity::Restricted,
                    &at(action),
                    &json!({kind: {"host": ""}}),
                );
            }
        }
    }
}

#[test]
fn restricted_requires_hardened_containers() {
    use PodSecurity::Restricted;

    for list in LISTS {
        let at = |field: &str| format!("spec/{list}/0/securityContext/{field}");
        let shown = |field: &str| format!("spec.{list}[0].securityContext.{field}");
        for value in [json!(true), json!(null)] {
            let expected = shown("allowPrivilegeEscalation must be false");
            check_row(
                Restricted,
                &at("allowPrivilegeEscalation"),
                &value,
                &expected,
            );
        }
        let expected = shown("capabilities.drop must have ALL");
        for dropped in [json!({}), json!({"drop": []}), json!({"drop": ["NET_RAW"]})] {
            check_row(Restricted, &at("capabilities"), &dropped, &expected);
        }
        let add = at("capabilities/add");
        let expected = shown("capabilities.add[0] must be one of NET_BIND_SERVICE");
        check_row(Restricted, &add, &json!(["CHOWN"]), &expected);
        check_allowed(Restricted, &add, &json!(["NET_BIND_SERVICE"]));
    }
    for context in contexts() {
        let shown = context.replace("/0", "[0]").replace('/', ".");
        let at = |field: &str| format!("{context}/{field}");
        let expected = format!("{shown}.runAsNonRoot must be true");
        check_row(Restricted, &at("runAsNonRoot"), &json!(false), &expected);
        let expected = format!("{shown}.runAsUser must be another user than 0");
        check_row(Restricted, &at("runAsUser"), &json!(0), &expected);
        check_allowed(Restricted, &at("runAsUser"), &json!(1000));
    }
}

#[test]
fn restricted_accepts_user_and_seccomp_of_pod_or_container() {
    for (field, value) in [
        ("runAsNonRoot", json!(true)),
        ("seccompProfile", json!({"type": "RuntimeDefault"})),
    ] {
        let mut without = pod();
        without["spec"]["securityContext"]
            .as_object_mut()
            .unwrap()
            .remove(field);
        let violations = broken(PodSecurity::Restricted, &without);
        assert_eq!(violations.len(), 3, "{violations:?}");
        for list in LISTS {
            assert!(
                violations
                    .iter()
                    .any(|text| text.starts_with(&format!("spec.{list}[0]")))
            );
            without["spec"][list][0]["securityContext"][field] = value.clone();
        }
        assert_eq!(broken(PodSecurity::Restricted, &without), [""; 0]);
        assert_eq!(broken(PodSecurity::Baseline, &without), [""; 0]);
    }
}

#[test]
fn restricted_allows_volumes_that_hold_no_part_of_the_node_or_of_a_foreign_server() {
    let volume = |kind: &str| json!({"name": "v", kind: {}});
    for refused in ["nfs", "iscsi", "gcePersistentDisk", "flexVolume", "image"] {
        let expected = format!("spec.volumes[0].{refused} must be one of configMap, csi");
        check_row(
            PodSecurity::Restricted,
            "spec/volumes/0",
            &volume(refused),
            &expected,
        );
    }
    for allowed in [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ] {
        check_allowed(PodSecurity::Restricted, "spec/volumes/0", &volume(allowed));
    }
}

#[test]
fn pods_use_only_the_service_accounts_of_the_grants_at_every_level() {
    let kind = GroupKind::new("", "Pod");
    let named = BTreeSet::from(["web".to_owned()]);
    for field in ["serviceAccountName", "serviceAccount"] {
        for (account, is_allowed) in [
            (json!(""), true),
            (json!("default"), true),
            (json!("web"), true),
            (json!("admin"), false),
            (json!(["default"]), false),
        ] {
            let mut pod = pod();
            pod["spec"][field] = account.clone();
            for level in [PodSecurity::Restricted, PodSecurity::Privileged] {
                let violations = pod_violations(level, &named, &kind, pod.as_object().unwrap());
                assert_eq!(
                    violations.is_empty(),
                    is_allowed,
                    "{account} {violations:?}"
                );
            }
        }
    }
}

#[test]
fn every_kind_that_makes_pods_is_checked_at_its_template() {
    let privileged = json!({"spec": {"hostNetwork": true}});
    for (group, name, path) in [
        ("", "Pod", ""),
        ("", "PodTemplate", "template"),
        ("", "ReplicationController", "spec/template"),
        ("apps", "DaemonSet", "spec/template"),
        ("apps", "Deployment", "spec/template"),
        ("apps", "ReplicaSet", "spec/template"),
        ("apps", "StatefulSet", "spec/template"),
        ("batch", "CronJob", "spec/jobTemplate/spec/template"),
        ("batch", "Job", "spec/template"),
    ] {
        let kind = GroupKind::new(group, name);
        assert!(makes_pods(&kind), "{kind}");
        let mut object = json!({});
        if path.is_empty() {
            object = privileged.clone();
        } else {
            set(&mut object, path, privileged.clone());
        }
        let violations = pod_violations(
            PodSecurity::Baseline,
            &BTreeSet::new(),
            &kind,
            object.as_object().unwrap(),
        );
        let at = if path.is_empty() {
            String::new()
        } else {
            path.replace('/', ".") + "."
        };
        assert_eq!(violations, [format!("{at}spec.hostNetwork must be false")]);
    }
    for (group, name) in [
        ("", "ConfigMap"),
        ("example.com", "Deployment"),
        ("apps", "Job"),
    ] {
        let kind = GroupKind::new(group, name);
        assert!(!makes_pods(&kind), "{kind}");
        let object = privileged.as_object().unwrap();
        let violations = pod_violations(PodSecurity::Restricted, &BTreeSet::new(), &kind, object);
        assert_eq!(violations, [""; 0]);
    }
}

#[test]
fn a_controller_revision_may_hold_any_template() {
    let kind = GroupKind::new("apps", "ControllerRevision");
    let violations = |level| pod_violations(level, &BTreeSet::new(), &kind, &Map::new());
    assert!(makes_pods(&kind));
    assert_eq!(
        violations(PodSecurity::Baseline),
        ["a ControllerRevision may hold any Pod template"]
    );
    assert_eq!(violations(PodSecurity::Privileged), [""; 0]);
}

/// Checks answers with a Deployment.
fn scene_with_deployment() -> Scene {
    let mut scene = scene();
    scene
        .manifest
        .children
        .push(kind_of_child("apps/v1", "Deployment", true));
    let deployment = GroupKind::new("apps", "Deployment");
    scene
        .grants
        .children
        .insert(deployment, ChildGrant::default());
    scene
}

#[test]
fn rejects_pods_below_the_granted_level() {
    let mut deployment = child("apps/v1", "Deployment", "a");
    let template = json!({"spec": {"hostNetwork": true, "containers": [container()]}});
    deployment
        .object
        .insert("spec".to_owned(), json!({"template": template}));
    let mut scene = scene_with_deployment();
    let answer = || desired(vec![deployment.clone()]);
    scene.check_refused(
        answer(),
        expect![[
            r#"ChildForbidden: child "a": it breaks the level `podSecurity: restricted` of the grants: spec.template.spec.hostNetwork must be false; spec.template.spec.containers[0].securityContext.runAsNonRoot must be true, here or for the Pod; spec.template.spec.containers[0].securityContext.seccompProfile.type must be RuntimeDefault or Localhost, here or for the Pod"#
        ]],
    );
    scene.grants.pod_security = PodSecurity::Baseline;
    scene.check_refused(
        answer(),
        expect![[
            r#"ChildForbidden: child "a": it breaks the level `podSecurity: baseline` of the grants: spec.template.spec.hostNetwork must be false"#
        ]],
    );
    scene.grants.pod_security = PodSecurity::Privileged;
    assert!(check(answer(), &scene.rules()).is_ok());
}

#[test]
fn rejects_secrets_that_are_credentials_of_the_cluster() {
    for credential in [
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
    ] {
        let mut secret = child("v1", "Secret", "s");
        secret.object.insert("type".to_owned(), credential.into());
        let mut scene = scene();
        assert!(check(desired(vec![secret.clone()]), &scene.rules()).is_ok());
        let kind = GroupKind::new("", "Secret");
        scene.grants.children.insert(kind, ChildGrant::default());
        let rejection = check(desired(vec![secret.clone()]), &scene.rules()).unwrap_err();
        assert_eq!(rejection.reason(), "ChildForbidden");
        let expected = format!("a Secret of type {credential} is a credential of the cluster");
        assert!(rejection.message().contains(&expected), "{rejection}");
        secret.object.insert("type".to_owned(), "Opaque".into());
        assert!(check(desired(vec![secret]), &scene.rules()).is_ok());
    }
}

#[test]
fn rejects_children_in_system_namespaces_that_the_grants_do_not_name() {
    let mut scene = Scene::cluster_scoped();
    for namespace in ["kube-system", "kube-public", "innkeeper-system"] {
        let mut config_map = config_map("a");
        config_map.namespace = Some(namespace.to_owned());
        let answer = || desired(vec![config_map.clone()]);
        let rejection = check(answer(), &scene.rules()).unwrap_err();
        let expected =
            format!("\"{namespace}\" is a namespace of Kubernetes itself or of the host");
        assert!(rejection.message().contains(&expected), "{rejection}");
        scene.grants.system_namespaces.insert(namespace.to_owned());
        assert!(check(answer(), &scene.rules()).is_ok());
    }
    // A namespaced parent in such a namespace has no pass; its answer would be refused as well.
    let mut scene = super::scene();
    let kind = GroupKind::new("example.dev", "Web");
    scene.parent = ObjectId::new(kind, Some("kube-system"), "shop");
    assert!(check(desired(vec![config_map("a")]), &scene.rules()).is_err());
}

#[test]
fn rejects_children_of_cluster_scoped_parents_without_grants() {
    let mut scene = Scene::cluster_scoped();
    scene.grants = Grants::for_file(&scene.manifest);
    let mut namespaced = config_map("a");
    namespaced.namespace = Some("anywhere".to_owned());
    let elsewhere = "a plugin without grants makes children in the namespace of their parent only";
    let custom = child("example.dev/v1", "Fleet", "other");
    for (child, expected) in [
        (namespaced, elsewhere),
        (custom, "not granted children of kind"),
    ] {
        let rejection = check(desired(vec![child]), &scene.rules()).unwrap_err();
        assert!(rejection.message().contains(expected), "{rejection}");
    }
}
