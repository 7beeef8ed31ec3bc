//! The pods of site and database.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{
    claim, container, first, host, parent, pass, pass_with, pod, running, secret, with_scripts,
};

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|it| it["name"].as_str().unwrap()).collect()
}

#[test]
fn the_site_reads_the_variables_that_images_know() {
    let spec = json!({
        "image": "wordpress-below-a-path",
        "routes": [{ "domain": "shop.org", "path": "/a/" }, { "domain": "b.org", "path": "/" }],
        "tlsSecretRef": "tls",
        "configExtra": "$x = $(date);",
        "database": { "tablePrefix": "shop_" },
        "env": [{ "name": "STACK_SITE_NAME", "value": "mine" }, { "name": "MORE", "value": "1" }],
        "envFrom": [{ "configMapRef": { "name": "flags" } }],
    });
    let outcome = pass(&with_scripts(&spec));
    let container = container(&outcome, "web");
    assert_eq!(
        names(&container["env"]),
        [
            "WORDPRESS_DB_HOST",
            "WORDPRESS_DB_NAME",
            "WORDPRESS_DB_USER",
            "WORDPRESS_DB_PASSWORD",
            "WORDPRESS_TABLE_PREFIX",
            "WP_HOME",
            "WP_SITEURL",
            "STACK_ROUTES",
            "STACK_SITE_NAME",
            "STACK_SITE_NAMESPACE",
            "WORDPRESS_CONFIG_EXTRA",
            "MORE",
        ]
    );
    let value = |name: &str| {
        let list = container["env"].as_array().unwrap();
        let found = list.iter().find(|it| it["name"] == name).unwrap();
        found["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(value("WORDPRESS_DB_HOST"), "shop-mysql");
    assert_eq!(value("WP_HOME"), "https://shop.org/a");
    assert_eq!(value("STACK_ROUTES"), "shop.org/a,b.org");
    assert_eq!(value("STACK_SITE_NAME"), "mine");
    assert_eq!(
        value("WORDPRESS_CONFIG_EXTRA"),
        "define('WP_HOME', 'https://shop.org/a');\n\
         define('WP_SITEURL', 'https://shop.org/a');\n\
         define('WP_AUTO_UPDATE_CORE', false);\n$x = $$(date);"
    );
    assert_eq!(
        container["envFrom"],
        json!([
            { "prefix": "WORDPRESS_", "secretRef": { "name": "shop-wp" } },
            { "secretRef": { "name": "shop-wp" } },
            { "configMapRef": { "name": "flags" } },
        ])
    );
    let probe = &container["readinessProbe"]["httpGet"]["httpHeaders"];
    assert_eq!(probe[0], json!({ "name": "Host", "value": "shop.org" }));
    assert_eq!(
        probe[1],
        json!({ "name": "X-Forwarded-Proto", "value": "https" })
    );
}

#[test]
fn without_routes_no_address_is_fixed() {
    let outcome = first(&json!({}));
    let container = container(&outcome, "web");
    let names = names(&container["env"]);
    assert!(!names.contains(&"WP_HOME"));
    assert_eq!(container["env"][4]["value"], "shop.default.svc");
}

// Core files come from the image at each start: an update in a Pod would be lost with it, while the
// database keeps the schema of the newer version.
#[test]
fn the_core_is_updated_by_the_image_alone() {
    let extra = |spec: Value| {
        let container = container(&pass(&with_scripts(&spec)), "web");
        let variables = container["env"].as_array().unwrap();
        let name = "WORDPRESS_CONFIG_EXTRA";
        let found = variables.iter().find(|it| it["name"] == name).unwrap();
        found["value"].as_str().unwrap().to_owned()
    };
    let off = "define('WP_AUTO_UPDATE_CORE', false);";
    let own = "define('WP_AUTO_UPDATE_CORE', 'minor');";
    assert_eq!(extra(json!({})), off);
    assert_eq!(
        extra(json!({ "configExtra": "define('A', 1);" })),
        format!("{off}\ndefine('A', 1);")
    );
    // PHP warns about a constant that is defined twice.
    assert_eq!(extra(json!({ "configExtra": own })), own);
}

#[test]
fn an_external_database_is_named_with_its_port() {
    let spec = json!({ "database": { "external": {
        "host": "db.org", "port": 3307, "credentialsSecretRef": { "name": "mine" },
    } } });
    let host = host().object(&secret("mine", &["username", "password"]));
    let outcome = pass_with(&TestRequest::new(&parent("shop", &spec)), &host);
    let container = container(&outcome, "web");
    assert_eq!(container["env"][0]["value"], "db.org:3307");
    assert_eq!(container["env"][1]["value"], "wordpress");
}

#[test]
fn files_of_the_site_lie_where_the_image_expects_them() {
    let outcome = first(&json!({ "phpConfig": "memory_limit = 1G" }));
    let mounts = &container(&outcome, "web")["volumeMounts"];
    assert_eq!(
        *mounts,
        json!([
            { "name": "html", "mountPath": "/var/www/html" },
            { "name": "code", "mountPath": "/var/www/html/wp-content", "subPath": "wp-content" },
            { "name": "php-config", "mountPath": "/usr/local/etc/php/conf.d/zz-innkeeper.ini",
              "subPath": "php.ini", "readOnly": true },
        ])
    );
    let pod = pod(&outcome, "web");
    assert_eq!(
        names(&pod["spec"]["volumes"]),
        ["html", "code", "php-config"]
    );
    let hash = &pod["metadata"]["annotations"]["example.com/config-hash"];
    assert_eq!(
        *hash,
        json!(innkeeper_sdk::hash::sha256_hex("memory_limit = 1G"))
    );
}

#[test]
fn the_database_is_probed_over_tcp_and_given_time_to_initialize() {
    let outcome = first(&json!({ "database": { "managed": { "config": "[mysqld]" } } }));
    let container = container(&outcome, "db");
    let command = json!(["mysqladmin", "ping", "-h", "127.0.0.1"]);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["exec"]["command"], command);
    }
    assert_eq!(container["startupProbe"]["failureThreshold"], 120);
    assert_eq!(
        names(&container["env"]),
        [
            "MYSQL_ROOT_PASSWORD",
            "MYSQL_USER",
            "MYSQL_PASSWORD",
            "MYSQL_DATABASE"
        ]
    );
    assert_eq!(
        names(&container["volumeMounts"]),
        ["data", "run", "tmp", "config"]
    );
    assert_eq!(container["volumeMounts"][0]["subPath"], "mysql");
    let pod = pod(&outcome, "db");
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 120);
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(
        annotations.keys().collect::<Vec<_>>(),
        ["example.com/config-hash"]
    );
}

/// The rules of the Pod Security level `restricted` that a pod template can break.
fn check_restricted(pod: &Value) {
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    let security = &spec["securityContext"];
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
    assert_ne!(security["runAsUser"], 0);
    for sysctl in security["sysctls"].as_array().into_iter().flatten() {
        assert_eq!(sysctl["name"], "net.ipv4.ip_unprivileged_port_start");
    }
    for volume in spec["volumes"].as_array().unwrap() {
        let kinds = ["emptyDir", "persistentVolumeClaim", "configMap"];
        assert!(
            kinds.iter().any(|kind| volume.get(kind).is_some()),
            "{volume}"
        );
    }
    for container in spec["containers"].as_array().unwrap() {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(security["runAsNonRoot"], true);
        assert!(
            container["ports"]
                .as_array()
                .unwrap()
                .iter()
                .all(|it| it.get("hostPort").is_none())
        );
    }
}

#[test]
fn every_pod_fits_the_level_restricted() {
    for spec in [
        json!({}),
        json!({ "containerPort": 8080, "phpConfig": "memory_limit = 1G" }),
    ] {
        let outcome = first(&spec);
        check_restricted(&pod(&outcome, "web"));
        check_restricted(&pod(&outcome, "db"));
        let sysctls = pod(&outcome, "web")["spec"]["securityContext"]
            .get("sysctls")
            .cloned();
        assert_eq!(sysctls.is_some(), spec.get("containerPort").is_none());
    }
}

#[test]
fn users_are_left_to_the_cluster_where_it_assigns_them() {
    let request = TestRequest::new(&parent("shop", &json!({})));
    let assigned = pass(&request.clone().config(&json!({ "assignUser": false })));
    for (key, user) in [("web", 33), ("db", 999)] {
        let stated = pod(&pass(&request), key)["spec"]["securityContext"].clone();
        let left = pod(&assigned, key)["spec"]["securityContext"].clone();
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert_eq!(stated[field], user);
            assert_eq!(left.get(field), None);
        }
    }
}

#[test]
fn a_volume_that_cannot_be_shared_is_released_first() {
    let strategy = |spec: Value| {
        let namespace = json!({ "tenants": { "references": "namespace" } });
        let request = TestRequest::new(&parent("shop", &spec)).config(&namespace);
        let shared = claim("shared", "1Gi", &["ReadWriteMany"]);
        let host = host()
            .object(&shared)
            .object(&claim("single", "1Gi", &["ReadWriteOnce"]));
        let outcome = pass_with(&request, &host);
        outcome.child("web").unwrap().object["spec"]["strategy"].clone()
    };
    let code = |claim: Value| json!({ "code": { "persistentVolumeClaim": claim } });
    let rolling = json!({
        "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
    });
    let recreate = json!({ "type": "Recreate" });
    assert_eq!(strategy(json!({})), recreate);
    assert_eq!(
        strategy(code(json!({ "accessModes": ["ReadWriteMany"] }))),
        rolling
    );
    assert_eq!(
        strategy(code(json!({ "existingClaim": "shared" }))),
        rolling
    );
    assert_eq!(
        strategy(code(json!({ "existingClaim": "single" }))),
        recreate
    );
    assert_eq!(
        strategy(code(json!({ "existingClaim": "missing" }))),
        recreate
    );
}

#[test]
fn selectors_do_not_depend_on_images() {
    let outcome = first(&json!({
        "image": "registry:5000/wordpress:6.8@sha256:00",
        "database": { "managed": { "image": "mysql" } },
    }));
    let default = first(&json!({}));
    for key in ["web", "db"] {
        let selector = |outcome: &Outcome| {
            outcome.child(key).unwrap().object["spec"]["selector"]["matchLabels"].clone()
        };
        assert_eq!(selector(&outcome), selector(&default));
        assert_eq!(selector(&outcome).as_object().unwrap().len(), 4);
    }
    let version = |key: &str| {
        pod(&outcome, key)["metadata"]["labels"]
            .get("app.kubernetes.io/version")
            .cloned()
    };
    assert_eq!(version("web"), Some(json!("6.8")));
    assert_eq!(version("db"), None);
}

#[test]
fn blocks_of_the_user_are_copied_without_the_keys_of_the_host() {
    let spec = json!({
        "podMetadata": {
            "labels": { "team": "a" },
            "annotations": { "note": "b", "innkeeper.dev/key": "x" },
        },
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{ "name": "registry" }],
        "resources": { "limits": { "memory": "1Gi" } },
        "service": { "annotations": { "innkeeper.dev/key": "x" } },
    });
    let tenants = json!({
        "podMetadata": { "labels": ["team"], "annotations": ["note", "innkeeper.dev/"] },
        "serviceAnnotations": ["innkeeper.dev/"],
    });
    let request = TestRequest::new(&parent("shop", &spec)).config(&json!({ "tenants": tenants }));
    let outcome = pass_with(&request, &host().object(&secret("registry", &[])));
    let web = pod(&outcome, "web");
    assert_eq!(web["metadata"]["labels"]["team"], "a");
    assert_eq!(web["metadata"]["annotations"]["note"], "b");
    assert!(
        !json!(
            outcome
                .children()
                .iter()
                .map(|it| &it.object)
                .collect::<Vec<_>>()
        )
        .to_string()
        .contains("innkeeper.dev/")
    );
    assert_eq!(
        container(&outcome, "web")["resources"],
        json!({ "limits": { "memory": "1Gi" } })
    );
    for key in ["web", "db"] {
        assert_eq!(container(&outcome, key)["imagePullPolicy"], "Always");
        let secrets = &pod(&outcome, key)["spec"]["imagePullSecrets"];
        assert_eq!(*secrets, json!([{ "name": "registry" }]));
    }
}

#[test]
fn the_restart_trigger_reaches_the_site_only() {
    let mut parent = parent("shop", &json!({}));
    parent["metadata"]["annotations"] = json!({ "example.com/restart-trigger": "now" });
    let outcome = pass(&running(&parent));
    let annotations = &pod(&outcome, "web")["metadata"]["annotations"];
    assert_eq!(annotations["example.com/restart-trigger"], "now");
    assert_eq!(pod(&outcome, "db")["metadata"].get("annotations"), None);
}
