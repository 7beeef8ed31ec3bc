//! Invalid and borderline parents: the CRD's verdict or, after it, the plugin's.

mod database;
mod serving;
mod storage;

use expect_test::{Expect, expect};
use innkeeper_crd::Admitted;
use innkeeper_guest_testing as testing;
use kube_cel::{ValidationErrors, Validator};
use serde_json::{Value, json};

use super::{PLUGIN, claim, host, parent, secret};

/// The parent as the API server stores it, or the verdict in one line.
fn admitted(object: &Value) -> Result<Admitted, String> {
    testing::admit(PLUGIN.schema("Wordpress"), object)
}

/// A parent's one-line verdict; the cluster contains the objects that it may reference.
fn verdict(object: &Value) -> String {
    let keys = ["root-password", "username", "password"];
    let host = host()
        .object(&secret("s", &keys))
        .object(&claim("many", "1Gi", &["ReadWriteMany"]))
        .object(&claim("one", "1Gi", &["ReadWriteOnce"]))
        .object(&claim("read", "1Gi", &["ReadOnlyMany"]));
    PLUGIN.verdict(object, &host)
}

/// Compares one verdict line per spec.
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs.iter().map(|spec| {
        let verdict = verdict(&parent("shop", spec));
        format!("{spec}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// Compares one line per edit: the messages of the rules that it breaks.
#[track_caller]
fn check_edits(edits: &[(Value, Value)], expected: &Expect) {
    let rules = PLUGIN.root("Wordpress");
    let stored = |spec: &Value| Value::Object(admitted(&parent("shop", spec)).unwrap().object);
    let lines = edits.iter().map(|(old, new)| {
        let messages = Validator::new()
            .validate(rules, &stored(new), Some(&stored(old)))
            .err()
            .map(ValidationErrors::into_vec)
            .into_iter()
            .flatten()
            .map(|error| error.message);
        let verdict = match &messages.collect::<Vec<_>>()[..] {
            [] => "accepted".to_owned(),
            messages => format!("rejected, {}", messages.join("; ")),
        };
        format!("{old} to {new}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn names_leave_room_for_those_of_children() {
    let longest = "a".repeat(40);
    let too_long = "a".repeat(41);
    let names = [
        &*longest,
        "a-b-1",
        &*too_long,
        "9shop",
        "shop.eu",
        "shop-mysql",
        "shop-mysql-exporter",
    ];
    let lines = names.map(|name| format!("{name}: {}\n", verdict(&parent(name, &json!({})))));
    expect![[r"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: accepted
        a-b-1: accepted
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: rejected, the object: metadata.name must be at most 40 characters
        9shop: rejected, the object: metadata.name must be a DNS label that starts with a letter
        shop.eu: rejected, the object: metadata.name must be a DNS label that starts with a letter
        shop-mysql: rejected, the object: metadata.name must not end in -mysql or -mysql-exporter: these names belong to the database of another site
        shop-mysql-exporter: rejected, the object: metadata.name must not end in -mysql or -mysql-exporter: these names belong to the database of another site
    "]].assert_eq(&lines.concat());
}

#[test]
fn a_spec_is_required_and_may_be_empty() {
    let mut none = parent("shop", &json!({}));
    none.as_object_mut().unwrap().remove("spec");
    assert_eq!(verdict(&none), "rejected, spec: is required");
    let code = json!({ "hostPath": { "path": "/" } });
    check(
        &[
            json!({}),
            json!({ "size": 3 }),
            json!({ "code": code }),
            json!({ "resources": { "claims": [{ "name": "gpu" }] } }),
            json!({ "database": { "managed": { "storage": { "existingClaim": "many" } } } }),
        ],
        &expect![[r#"
            {}: accepted
            {"size":3}: accepted without spec.size
            {"code":{"hostPath":{"path":"/"}}}: accepted without spec.code.hostPath
            {"resources":{"claims":[{"name":"gpu"}]}}: accepted without spec.resources.claims
            {"database":{"managed":{"storage":{"existingClaim":"many"}}}}: accepted without spec.database.managed.storage.existingClaim
        "#]],
    );
}

#[test]
fn a_disruption_budget_lets_some_pods_go() {
    let budget = |replicas: i32, mut budget: Value| {
        budget["enabled"] = json!(true);
        let many = json!({ "persistentVolumeClaim": { "accessModes": ["ReadWriteMany"] } });
        json!({ "replicas": replicas, "code": many, "podDisruptionBudget": budget })
    };
    check(
        &[
            json!({ "podDisruptionBudget": {} }),
            json!({ "podDisruptionBudget": { "enabled": true, "minAvailable": 1 } }),
            budget(3, json!({ "minAvailable": 2 })),
            budget(3, json!({ "minAvailable": "50%" })),
            budget(3, json!({ "minAvailable": "66%" })),
            budget(3, json!({ "minAvailable": "90%" })),
            json!({ "podDisruptionBudget": { "enabled": true, "minAvailable": "50%" } }),
            budget(3, json!({ "maxUnavailable": 1 })),
            budget(3, json!({ "maxUnavailable": "100%" })),
            budget(0, json!({ "minAvailable": 1 })),
            budget(3, json!({})),
            budget(3, json!({ "minAvailable": 1, "maxUnavailable": 1 })),
            budget(2, json!({ "minAvailable": 2 })),
            budget(3, json!({ "maxUnavailable": 0 })),
            budget(3, json!({ "maxUnavailable": "0%" })),
            budget(3, json!({ "maxUnavailable": "-5%" })),
            budget(3, json!({ "maxUnavailable": "101%" })),
            budget(3, json!({ "minAvailable": "100%" })),
            budget(3, json!({ "minAvailable": "half" })),
            budget(3, json!({ "minAvailable": "0x1" })),
            budget(3, json!({ "minAvailable": "2" })),
            budget(3, json!({ "minAvailable": -1 })),
        ],
        &expect![[r#"
            {"podDisruptionBudget":{}}: accepted
            {"podDisruptionBudget":{"enabled":true,"minAvailable":1}}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":2},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"66%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"90%"},"replicas":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"}}: rejected, spec: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":1},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"100%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":1},"replicas":0}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":1,"minAvailable":1},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":2},"replicas":2}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":0},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"0%"},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"-5%"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"101%"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"100%"},"replicas":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"half"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"0x1"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"2"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":-1},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
        "#]],
    );
}

#[test]
fn a_parent_is_at_most_256_kib_large() {
    testing::check_parent_size(|env| verdict(&parent("shop", &json!({ "env": env }))));
}

#[test]
fn variables_and_metadata_leave_the_plugins_own_alone() {
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "x" }] });
    let metadata = |block: &str, key: &str| json!({ "podMetadata": { block: { key: "x" } } });
    check(
        &[
            variable("APP_OTHER"),
            variable("WORDPRESS_DB_HOST"),
            variable("WORDPRESS_CONFIG_EXTRA"),
            json!({ "env": [{ "name": "A" }, { "name": "A" }] }),
            json!({ "env": [{ "value": "x" }] }),
            metadata("labels", "app.kubernetes.io/name"),
            metadata("labels", "example.com/a"),
            metadata("annotations", "example.com/a"),
            metadata("annotations", "app.kubernetes.io/name"),
            json!({ "podMetadata": { "labels": { "a": "b c" } } }),
        ],
        &expect![[r#"
            {"env":[{"name":"APP_OTHER","value":"x"}]}: accepted
            {"env":[{"name":"WORDPRESS_DB_HOST","value":"x"}]}: accepted
            {"env":[{"name":"WORDPRESS_CONFIG_EXTRA","value":"x"}]}: rejected, spec: use configExtra instead of the variable WORDPRESS_CONFIG_EXTRA
            {"env":[{"name":"A"},{"name":"A"}]}: rejected, spec.env[1]: {"name":"A"} is in the list twice
            {"env":[{"value":"x"}]}: rejected, spec.env[0].name: is required
            {"podMetadata":{"labels":{"app.kubernetes.io/name":"x"}}}: rejected, spec.podMetadata: podMetadata must not use the prefixes app.kubernetes.io/ (labels) and example.com/ (annotations)
            {"podMetadata":{"labels":{"example.com/a":"x"}}}: Invalid, spec.podMetadata.labels: tenants.podMetadata.labels of the plugin's configuration does not list example.com/a
            {"podMetadata":{"annotations":{"example.com/a":"x"}}}: rejected, spec.podMetadata: podMetadata must not use the prefixes app.kubernetes.io/ (labels) and example.com/ (annotations)
            {"podMetadata":{"annotations":{"app.kubernetes.io/name":"x"}}}: Invalid, spec.podMetadata.annotations: tenants.podMetadata.annotations of the plugin's configuration does not list app.kubernetes.io/name
            {"podMetadata":{"labels":{"a":"b c"}}}: Invalid, spec.podMetadata.labels.a: "b c" is not a label value: write at most 63 letters, digits, '-', '_' or '.', or nothing
        "#]],
    );
}

#[test]
fn lists_and_texts_have_bounds() {
    let keys = |count: usize| -> Value {
        (0..count)
            .map(|number| (format!("k{number}"), "x"))
            .collect()
    };
    let entries = |count: usize| -> Value {
        (0..count)
            .map(|number| json!({ "name": format!("A{number}") }))
            .collect()
    };
    let sources = |count: usize| vec![json!({ "secretRef": { "name": "s" } }); count];
    for (spec, field) in [
        (json!({ "phpConfig": "a".repeat(16385) }), "phpConfig"),
        (json!({ "configExtra": "a".repeat(16385) }), "configExtra"),
        (
            json!({ "database": { "managed": { "config": "a".repeat(16385) } } }),
            "database.managed.config",
        ),
        (json!({ "env": entries(65) }), "env"),
        (json!({ "envFrom": sources(65) }), "envFrom"),
        (
            json!({ "imagePullSecrets": entries(9) }),
            "imagePullSecrets",
        ),
        (
            json!({ "podMetadata": { "labels": keys(33) } }),
            "podMetadata.labels",
        ),
        (
            json!({ "service": { "annotations": keys(33) } }),
            "service.annotations",
        ),
        (
            json!({ "ingress": { "annotations": keys(33) } }),
            "ingress.annotations",
        ),
        (json!({ "tlsSecretRef": "a".repeat(254) }), "tlsSecretRef"),
        (json!({ "image": "a".repeat(513) }), "image"),
    ] {
        let verdict = verdict(&parent("shop", &spec));
        let expected = format!("rejected, spec.{field}: ");
        assert!(verdict.starts_with(&expected), "{field}: {verdict}");
    }
    let fits = json!({
        "phpConfig": "a".repeat(16384), "configExtra": "a".repeat(16384), "env": entries(64),
        "envFrom": sources(64), "image": "a".repeat(255),
    });
    assert_eq!(admitted(&parent("shop", &fits)).err(), None);
}

#[test]
fn texts_have_a_form() {
    let image = |image: &str| json!({ "image": image });
    check(
        &[
            image("registry:5000/wordpress"),
            image(&format!(
                "registry:5000/a/wordpress:7.1@sha256:{}",
                "0".repeat(64)
            )),
            image("wordpress:"),
            image("wordpress@sha256:zz"),
            json!({ "database": { "managed": { "image": "mysql:" } } }),
            image(""),
            image("-wordpress"),
            image("a b"),
            json!({ "imagePullPolicy": "Always" }),
            json!({ "imagePullPolicy": "Sometimes" }),
            json!({ "deletionPolicy": "Delete" }),
            json!({ "deletionPolicy": "Keep" }),
            json!({ "allowOpenInstaller": true }),
            json!({ "allowOpenInstaller": "yes" }),
        ],
        &expect![[r#"
            {"image":"registry:5000/wordpress"}: accepted
            {"image":"registry:5000/a/wordpress:7.1@sha256:0000000000000000000000000000000000000000000000000000000000000000"}: accepted
            {"image":"wordpress:"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":"wordpress@sha256:zz"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"database":{"managed":{"image":"mysql:"}}}: rejected, spec.database.managed.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":""}: rejected, spec.image: "" is shorter than 1 character
            {"image":"-wordpress"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":"a b"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"imagePullPolicy":"Always"}: accepted
            {"imagePullPolicy":"Sometimes"}: rejected, spec.imagePullPolicy: "Sometimes" is not one of "Always", "IfNotPresent" or "Never"
            {"deletionPolicy":"Delete"}: accepted
            {"deletionPolicy":"Keep"}: rejected, spec.deletionPolicy: "Keep" is not one of "Retain" or "Delete"
            {"allowOpenInstaller":true}: accepted
            {"allowOpenInstaller":"yes"}: rejected, spec.allowOpenInstaller: "yes" is not of type "boolean"
        "#]],
    );
}

#[test]
fn quantities_parse_and_requests_stay_below_limits() {
    let site = |requests: Value, limits: Value| json!({ "resources": { "requests": requests, "limits": limits } });
    let database = |block: Value| json!({ "database": { "managed": { "resources": block } } });
    check(
        &[
            site(json!({ "cpu": "100m" }), json!({ "cpu": 1 })),
            site(json!({ "cpu": 1 }), json!({ "cpu": 1 })),
            site(json!({ "cpu": "lots" }), json!({})),
            site(json!({}), json!({ "memory": "1 Gi" })),
            site(json!({ "memory": "2Gi" }), json!({ "memory": "1Gi" })),
            database(json!({ "limits": { "cpu": "lots" } })),
            database(json!({ "requests": { "cpu": 2 }, "limits": { "cpu": "1500m" } })),
        ],
        &expect![[r#"
            {"resources":{"limits":{"cpu":1},"requests":{"cpu":"100m"}}}: accepted
            {"resources":{"limits":{"cpu":1},"requests":{"cpu":1}}}: accepted
            {"resources":{"limits":{},"requests":{"cpu":"lots"}}}: Invalid, spec.resources.requests.cpu: "lots" is not a quantity
            {"resources":{"limits":{"memory":"1 Gi"},"requests":{}}}: Invalid, spec.resources.limits.memory: "1 Gi" is not a quantity
            {"resources":{"limits":{"memory":"1Gi"},"requests":{"memory":"2Gi"}}}: Invalid, spec.resources.memory: request 2Gi exceeds limit 1Gi
            {"database":{"managed":{"resources":{"limits":{"cpu":"lots"}}}}}: Invalid, spec.database.managed.resources.limits.cpu: "lots" is not a quantity
            {"database":{"managed":{"resources":{"limits":{"cpu":"1500m"},"requests":{"cpu":2}}}}}: Invalid, spec.database.managed.resources.cpu: request 2 exceeds limit 1500m
        "#]],
    );
}
