//! The site's and the database's Pods.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{
    claim, container, first, host, parent, pass, pass_with, pod, running, secret, with_scripts,
};

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
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
        let variable = container["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|variable| variable["name"] == name)
            .unwrap();
        variable["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(value("WORDPRESS_DB_HOST"), "shop-mysql");
    assert_eq!(value("WP_HOME"), "https://shop.org/a");
    assert_eq!(value("STACK_ROUTES"), "shop.org/a,b.org");
    assert_eq!(value("STACK_SITE_NAME"), "mine");
    assert_eq!(
        value("WORDPRESS_CONFIG_EXTRA"),
        "$_SERVER['HTTPS'] = 'on';\n\
         define('WP_HOME', 'https://shop.org/a');\n\
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
    let page = &container["readinessProbe"]["httpGet"];
    assert_eq!(page["path"], "/a/wp-admin/install.php?step=1");
    let probe = &page["httpHeaders"];
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

// Core files come from the image at each start: an update inside a Pod would be lost with it, while the database
// keeps the newer schema.
#[test]
fn the_core_is_updated_by_the_image_alone() {
    let extra = |spec: Value| {
        let container = container(&pass(&with_scripts(&spec)), "web");
        let variables = container["env"].as_array().unwrap();
        let name = "WORDPRESS_CONFIG_EXTRA";
        let variable = variables
            .iter()
            .find(|variable| variable["name"] == name)
            .unwrap();
        variable["value"].as_str().unwrap().to_owned()
    };
    let off = "define('WP_AUTO_UPDATE_CORE', false);";
    let own = "define('WP_AUTO_UPDATE_CORE', 'minor');";
    let with =
        |text: &str| extra(json!({ "routes": [{ "domain": "a.org" }], "configExtra": text }));
    let urls = "define('WP_HOME', 'http://a.org');\ndefine('WP_SITEURL', 'http://a.org');";
    assert_eq!(with(""), format!("{urls}\n{off}"));
    assert_eq!(
        with("define('A', 1);"),
        format!("{urls}\n{off}\ndefine('A', 1);")
    );
    // PHP warns about a constant that is defined twice.
    assert_eq!(with(own), format!("{urls}\n{own}"));
    let home = "define('WP_HOME', 'http://b.org');";
    assert_eq!(
        with(home),
        format!("define('WP_SITEURL', 'http://a.org');\n{off}\n{home}")
    );
    let both = format!("{home} define('WP_SITEURL', 'http://b.org');");
    assert_eq!(
        extra(json!({ "configExtra": both })),
        format!("{off}\n{both}")
    );
    let free = extra(json!({}));
    assert!(
        free.contains("define('WP_HOME', $innkeeper_url);"),
        "{free}"
    );
    assert!(!free.contains("$("), "{free}");
}

#[test]
fn an_external_database_is_named_with_its_port() {
    let host = host().object(&secret("mine", &["username", "password"]));
    for (given, expected) in [
        ("db.org", "db.org:3307"),
        ("db", "db:3307"),
        ("DB-1.example.com.", "DB-1.example.com.:3307"),
        ("203.0.113.5", "203.0.113.5:3307"),
        ("2001:db8::5", "[2001:db8::5]:3307"),
        ("[2001:db8::5]", "[2001:db8::5]:3307"),
        ("::1", "[::1]:3307"),
        ("::ffff:203.0.113.5", "[::ffff:203.0.113.5]:3307"),
    ] {
        let spec = json!({ "database": { "external": {
            "host": given, "port": 3307, "credentialsSecretRef": { "name": "mine" },
        } } });
        let outcome = pass_with(&TestRequest::new(&parent("shop", &spec)), &host);
        let container = container(&outcome, "web");
        assert_eq!(container["env"][0]["value"], expected);
        assert_eq!(container["env"][1]["value"], "wordpress");
    }
}

// The kubelet would expand `$(` as a variable reference.
#[test]
fn scripts_run_as_they_are_written() {
    let outcome = first(&json!({}));
    let site = pod(&outcome, "web")["spec"].clone();
    let core = &site["initContainers"][0];
    assert_eq!(core["name"], "core");
    for field in ["image", "resources", "securityContext"] {
        assert_eq!(core[field], site["containers"][0][field], "{field}");
    }
    let database = container(&outcome, "db");
    for script in [
        &core["command"][2],
        &database["command"][2],
        &database["startupProbe"]["exec"]["command"][2],
        &database["livenessProbe"]["exec"]["command"][2],
    ] {
        assert!(!script.as_str().unwrap().contains("$("), "{script}");
    }
}

#[test]
fn a_parent_names_its_page_of_readiness() {
    let path =
        |spec: Value| container(&first(&spec), "web")["readinessProbe"]["httpGet"]["path"].clone();
    assert_eq!(path(json!({})), "/wp-admin/install.php?step=1");
    assert_eq!(path(json!({ "readinessPath": "/" })), "/");
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
    for (probe, script) in [
        ("startupProbe", "login"),
        ("livenessProbe", "ping"),
        ("readinessProbe", "ping"),
    ] {
        let text = container[probe]["exec"]["command"][2].as_str().unwrap();
        assert_eq!(
            text.contains("MYSQL_PASSWORD"),
            script == "login",
            "{probe}"
        );
        assert!(text.contains("-h 127.0.0.1"), "{probe}");
    }
    assert_eq!(container["resources"]["requests"]["memory"], "640Mi");
    assert_eq!(container["startupProbe"]["failureThreshold"], 120);
    for (seconds, failures) in [(60, 12), (601, 121), (86400, 17280)] {
        let spec = json!({ "database": { "managed": { "startupSeconds": seconds } } });
        let probe = &self::container(&first(&spec), "db")["startupProbe"];
        let period = probe["periodSeconds"].as_i64().unwrap();
        assert_eq!(probe["failureThreshold"], failures, "{seconds}");
        assert!(failures * period >= seconds, "{seconds}");
    }
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
        ["data", "data", "run", "tmp", "config"]
    );
    assert_eq!(container["volumeMounts"][0]["subPath"], "mysql");
    assert_eq!(container["volumeMounts"][1]["subPath"], "first-start");
    let pod = pod(&outcome, "db");
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 120);
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(
        annotations.keys().collect::<Vec<_>>(),
        ["example.com/config-hash"]
    );
}

/// The rules of Pod Security `restricted` that a Pod template can break.
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
    let containers = ["initContainers", "containers"].into_iter();
    for container in containers
        .filter_map(|list| spec[list].as_array())
        .flatten()
    {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(security["runAsNonRoot"], true);
        assert!(
            container["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|port| port.get("hostPort").is_none())
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
        let unassigned = pod(&assigned, key)["spec"]["securityContext"].clone();
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert_eq!(stated[field], user);
            assert_eq!(unassigned.get(field), None);
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
            .object(&claim("single", "1Gi", &["ReadWriteOnce"]))
            .object(&claim("read", "1Gi", &["ReadWriteOnce", "ReadOnlyMany"]));
        pass_with(&request, &host).child("web").unwrap().object["spec"]["strategy"].clone()
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
    // Pods on two nodes could only read such a volume.
    let once = ["ReadWriteOnce", "ReadOnlyMany"];
    assert_eq!(strategy(code(json!({ "accessModes": once }))), recreate);
    for name in ["single", "read"] {
        assert_eq!(strategy(code(json!({ "existingClaim": name }))), recreate);
    }
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
        let selector = |outcome: &Answer| {
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
                .map(|child| &child.object)
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
