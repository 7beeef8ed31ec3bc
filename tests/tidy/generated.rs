//! Generated files in version control are up to date, and the host's manifests fit together.

use std::{fs, process::Command};

use expect_test::expect_file;
use innkeeper_model::yaml;
use innkeeper_plugin_controller::resource;
use innkeeper_tests::{
    helm,
    host::manifests,
    manifest::{self, at, root},
    process::path_from_env,
};
use serde_json::{Value, json};

const GUESTS: [&str; 4] = ["backup", "etcd", "memcached", "wordpress"];

#[test]
fn the_manifests_are_those_of_the_chart() {
    let rendered = helm::template(&["--set", "namespace.create=true"]).unwrap();
    let header = "# Rendered from the chart. Do not edit: set the values of the chart, or edit the kustomization.\n";
    expect_file![root().join("deploy/install.yaml")].assert_eq(&format!("{header}{rendered}"));
}

/// The kustomization sets the Deployment's image and changes nothing else.
#[test]
fn the_kustomization_changes_the_image_alone() {
    let directory = tempfile::tempdir().unwrap();
    let install = fs::read_to_string(root().join("deploy/install.yaml")).unwrap();
    fs::write(directory.path().join("install.yaml"), &install).unwrap();
    let kustomization = fs::read_to_string(root().join("deploy/kustomization.yaml")).unwrap();
    let unset = "newName: registry.invalid/innkeeper\n";
    assert!(kustomization.contains(unset), "{kustomization}");
    let set = "newName: registry.example/host\n  newTag: other\n";
    let kustomization = kustomization.replace(unset, set);
    fs::write(directory.path().join("kustomization.yaml"), kustomization).unwrap();
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "kustomize"])
        .arg(directory.path())
        .env("HOME", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let sorted = |text: &str| {
        let mut objects = manifest::parse(text).unwrap();
        objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
        objects
    };
    let image = concat!("registry.invalid/innkeeper:", env!("CARGO_PKG_VERSION"));
    assert_eq!(install.matches(image).count(), 1);
    let expected = install.replace(image, "registry.example/host:other");
    let rendered = String::from_utf8(output.stdout).unwrap();
    assert_eq!(sorted(&rendered), sorted(&expected));
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let chart = manifest::load("deploy/chart/Chart.yaml").unwrap().remove(0);
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_definition_of_plugins_is_that_of_the_host() {
    let mut definition = Value::Object(resource::crd());
    definition["metadata"]["labels"] = json!({"app.kubernetes.io/name": "innkeeper"});
    let text = yaml::write(&[definition]).unwrap();
    let text = format!("# Generated from the types of the host. Do not edit.\n{text}");
    // The chart has a copy, because Helm reads only files below a chart.
    for directory in ["deploy/crds", "deploy/chart/files"] {
        let file = root().join(directory).join("plugins.innkeeper.dev.yaml");
        expect_file![file].assert_eq(&text);
    }
}

/// The objects that `manifests` prints for a guest, except CRDs.
fn printed(guest: &str, arguments: &[&str]) -> Vec<Value> {
    let file = path_from_env("INNKEEPER_GUESTS")
        .expect("the guests are built")
        .join(format!("{guest}.wasm"));
    manifests(&[file], arguments)
        .expect("the plugin can be read")
        .into_iter()
        .filter(|object| object["kind"] != "CustomResourceDefinition")
        .collect()
}

/// The example Plugins have exactly the role and the grants that the plugins request.
#[test]
fn the_examples_of_plugins_match_the_output_of_manifests() {
    for guest in GUESTS {
        let example = manifest::load(&format!("examples/plugins/{guest}.yaml")).unwrap();
        let mut minimal = example.clone();
        let spec = minimal.last_mut().unwrap()["spec"].as_object_mut().unwrap();
        for more in ["limits", "rollout", "config"] {
            spec.remove(more);
        }
        assert_eq!(
            minimal,
            printed(guest, &[]),
            "examples/plugins/{guest}.yaml"
        );
        let spec = &example.last().unwrap()["spec"];
        assert!(spec["limits"].is_object() && spec["rollout"].is_object());
    }
}

/// The same for the memcached Plugin variants.
#[test]
fn the_variants_of_a_plugin_have_the_grants_that_it_asks_for() {
    let directory = "examples/plugins/variants";
    let declared = &printed("memcached", &[])[1]["spec"]["grants"];
    for file in fs::read_dir(root().join(directory)).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let objects = manifest::load(&format!("{directory}/{name}")).unwrap();
        if name == "account.yaml" {
            let account = "memcached=innkeeper-system/memcached-writer";
            let printed = printed("memcached", &["--account", account]);
            assert_eq!(objects, printed, "{name}");
        } else if name == "scripts.yaml" {
            // Beside Plugins from other files, which have the grants.
            let switch = json!({"config": {"tenants": {"scripts": true}}});
            assert!(objects.iter().all(|plugin| plugin["spec"] == switch));
        } else {
            let [plugin] = &objects[..] else {
                panic!("{name} has more than a Plugin");
            };
            assert_eq!(&plugin["spec"]["grants"], declared, "{name}");
        }
    }
}

fn installed(kind: &str) -> Value {
    manifest::load("deploy/install.yaml")
        .expect("the file can be read")
        .into_iter()
        .find(|object| object["kind"] == kind)
        .expect("the chart has such an object")
}

fn container() -> Value {
    at(&installed("Deployment"), "/spec/template/spec/containers/0").clone()
}

#[test]
fn only_scrapers_reach_the_pod_and_only_at_its_admin_port() {
    let policy = &installed("NetworkPolicy")["spec"];
    let deployment = installed("Deployment");
    assert_eq!(policy["podSelector"], deployment["spec"]["selector"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let port = &container()["ports"][0]["name"];
    let from = json!([{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]);
    assert_eq!(
        policy["ingress"],
        json!([{"from": from, "ports": [{"port": port}]}])
    );
}

/// With `networkPolicy.egress` the Pod reaches DNS, the API server and what the values list.
#[test]
fn the_pod_reaches_only_the_listed_servers_if_egress_is_limited() {
    let rules = r#"[{"ports": [{"port": 5000}], "to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}]"#;
    let rules_argument = format!("networkPolicy.egress.rules={rules}");
    let dns = json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]});
    let registry = serde_json::from_str::<Vec<Value>>(rules).unwrap().remove(0);
    for (arguments, api_server, more) in [
        (
            vec![],
            json!({"ports": [{"port": 443}, {"port": 6443}]}),
            None,
        ),
        (
            vec![
                "--set",
                "networkPolicy.egress.apiServer.ports={8443},networkPolicy.egress.apiServer.cidrs={10.0.0.1/32}",
                "--set-json",
                rules_argument.as_str(),
            ],
            json!({"ports": [{"port": 8443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}),
            Some(registry),
        ),
    ] {
        let enabled = ["--set", "networkPolicy.egress.enabled=true"];
        let objects = helm::objects(&[&enabled[..], &arguments].concat()).unwrap();
        let policy = objects
            .iter()
            .find(|object| object["kind"] == "NetworkPolicy");
        let spec = &policy.unwrap()["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        let expected: Vec<Value> = [dns.clone(), api_server].into_iter().chain(more).collect();
        assert_eq!(spec["egress"], json!(expected));
        assert_eq!(
            spec["ingress"],
            installed("NetworkPolicy")["spec"]["ingress"]
        );
    }
}

/// A host's self-signed certificate cannot be verified; a Secret's certificate is.
#[test]
fn a_scraper_verifies_the_certificate_of_a_secret() {
    let secret = "metrics.certificateSecret=tls";
    let other = "serviceMonitor.tlsConfig.serverName=other";
    let authority = json!({"secret": {"name": "tls", "key": "ca.crt"}});
    let verified = json!({"serverName": "innkeeper-metrics.innkeeper-system.svc", "ca": authority});
    for (values, expected) in [
        (String::new(), json!({"insecureSkipVerify": true})),
        (format!(",{secret}"), verified),
        (format!(",{secret},{other}"), json!({"serverName": "other"})),
    ] {
        let values = format!("serviceMonitor.enabled=true{values}");
        let objects = helm::objects(&["--set", &values]).unwrap();
        let monitor = objects
            .iter()
            .find(|object| object["kind"] == "ServiceMonitor");
        let endpoint = &monitor.unwrap()["spec"]["endpoints"][0];
        assert_eq!(endpoint["tlsConfig"], expected, "{values}");
    }
}

#[test]
fn no_role_of_the_host_has_a_wildcard() {
    for object in manifest::load("deploy/install.yaml").unwrap() {
        let rules = object["rules"].to_string();
        assert!(!rules.contains('*'), "{rules}");
    }
}

#[test]
fn the_pod_is_restricted() {
    let deployment = installed("Deployment");
    let pod = at(&deployment, "/spec/template/spec");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &container()["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}));
}

#[test]
fn the_pod_is_asked_where_the_host_answers() {
    let container = container();
    let port = &container["ports"][0];
    let address = format!("--admin-address=0.0.0.0:{}", port["containerPort"]);
    let args = container["args"].as_array().unwrap();
    assert!(args.contains(&json!(address)), "{args:?}");
    assert!(args.contains(&json!("--admin-tls")), "{args:?}");
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        let probe_target = &container[probe]["httpGet"];
        let expected = json!({"path": path, "port": port["name"], "scheme": "HTTPS"});
        assert_eq!(*probe_target, expected);
    }
    let objects = helm::objects(&["--set", "serviceMonitor.enabled=true"]).unwrap();
    let of_kind = |kind: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind)
            .unwrap()
    };
    let service = &of_kind("Service")["spec"]["ports"][0];
    assert_eq!(service["targetPort"], port["name"]);
    let endpoint = &of_kind("ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["name"]);
    assert_eq!(endpoint["scheme"], "https");
    assert_eq!(endpoint["tlsConfig"]["insecureSkipVerify"], true);
}

#[test]
fn plain_metrics_need_neither_roles_nor_tls() {
    let plain = [
        "--set",
        "serviceMonitor.enabled=true,metrics.secure=false,metrics.certificateSecret=nobody-reads-it",
    ];
    let text = json!(helm::objects(&plain).unwrap()).to_string();
    for word in [
        "\"scheme\":",
        "--admin-tls",
        "reviews",
        "metrics-reader",
        "bearertoken",
        "nobody-reads-it",
    ] {
        assert!(!text.to_lowercase().contains(word), "{word}");
    }
}

#[test]
fn the_certificate_and_the_readers_of_metrics_are_settings() {
    let values = [
        "--set",
        "metrics.certificateSecret=cert,metrics.readers[0].name=prometheus,metrics.readers[0].namespace=monitoring",
    ];
    let objects = helm::objects(&values).unwrap();
    let find = |kind: &str, name: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let deployment = find("Deployment", "innkeeper");
    let pod = at(&deployment, "/spec/template/spec");
    let args = pod["containers"][0]["args"].as_array().unwrap();
    for file in ["cert=/certificate/tls.crt", "key=/certificate/tls.key"] {
        assert!(
            args.contains(&json!(format!("--admin-tls-{file}"))),
            "{args:?}"
        );
    }
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = json!({"name": "certificate", "secret": {"secretName": "cert"}});
    assert!(volumes.contains(&volume), "{volumes:?}");
    let binding = find("ClusterRoleBinding", "innkeeper-metrics-reader");
    let prometheus =
        json!([{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]);
    assert_eq!(binding["subjects"], prometheus);
}

#[test]
fn kinds_of_other_software_are_options() {
    let kinds = |arguments: &[&str]| -> Vec<String> {
        let objects = helm::objects(arguments).unwrap();
        objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let usual = kinds(&[]);
    let optional = ["ServiceMonitor", "PrometheusRule", "ConfigMap", "Namespace"];
    assert!(
        optional
            .iter()
            .all(|kind| !usual.contains(&(*kind).to_owned())),
        "{usual:?}"
    );
    let all = "serviceMonitor.enabled=true,alerts.enabled=true,dashboard.enabled=true,namespace.create=true";
    let all = kinds(&["--set", all]);
    assert!(
        optional
            .iter()
            .all(|kind| all.contains(&(*kind).to_owned())),
        "{all:?}"
    );
}

#[test]
fn usual_parts_can_be_switched_off() {
    let text = |arguments: &[&str]| json!(helm::objects(arguments).unwrap()).to_string();
    let usual = text(&[]);
    for (switch, part) in [
        ("networkPolicy.enabled=false", r#""kind":"NetworkPolicy""#),
        (
            "podDisruptionBudget.enabled=false",
            r#""kind":"PodDisruptionBudget""#,
        ),
        (
            "grantPolicy.enabled=false",
            r#""kind":"ValidatingAdmissionPolicy""#,
        ),
        ("topologySpread.enabled=false", "topologySpreadConstraints"),
        ("podAntiAffinity=None", "podAntiAffinity"),
        ("replicas=null", r#""replicas":"#),
    ] {
        assert!(usual.contains(part), "{part}");
        assert!(!text(&["--set", switch]).contains(part), "{switch}");
    }
    let priority = r#""priorityClassName":"high""#;
    assert!(!usual.contains("priorityClassName"));
    assert!(text(&["--set", "priorityClassName=high"]).contains(priority));
}

#[test]
fn two_pods_take_turns_and_each_says_its_name_in_the_lease() {
    assert_eq!(installed("Deployment")["spec"]["replicas"], 2);
    let name = json!({
        "name": "INNKEEPER_LEASE_IDENTITY",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
    });
    let container = container();
    assert!(container["env"].as_array().unwrap().contains(&name));
    assert!(
        container["args"]
            .as_array()
            .unwrap()
            .contains(&json!("--lease-name=innkeeper"))
    );
}

/// The account may write the Lease of each shard and no other, and sees the holders of all.
#[test]
fn the_pods_share_as_many_shards_as_the_values_say() {
    let leases = |arguments: &[&str]| {
        let objects = helm::objects(arguments).unwrap();
        let find = |kind: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind)
                .unwrap()
        };
        let rules = find("Role")["rules"].as_array().unwrap().clone();
        let mut rules = rules
            .into_iter()
            .filter(|rule| rule["resources"] == json!(["leases"]));
        let args = at(find("Deployment"), "/spec/template/spec/containers/0/args").to_string();
        let first = rules.next().unwrap();
        (
            first["resourceNames"].clone(),
            rules.next().map(|rule| rule["verbs"].clone()),
            args,
        )
    };
    let (names, more, args) = leases(&[]);
    assert_eq!((names, more), (json!(["innkeeper"]), None));
    assert!(!args.contains("--shards"), "{args}");
    let (names, more, args) = leases(&["--set", "shards=3"]);
    let each = json!(["innkeeper", "innkeeper.1", "innkeeper.2", "innkeeper.next"]);
    assert_eq!((names, more), (each, Some(json!(["list"]))));
    assert!(args.contains(r#""--shards=3""#), "{args}");
}

/// An affinity in the values is added, and replaces the chart's own rules of that type.
#[test]
fn the_pods_avoid_each_others_nodes() {
    let affinity = |values: &str| {
        let objects = helm::objects(&["--set", values]).unwrap();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        at(deployment.unwrap(), "/spec/template/spec/affinity").clone()
    };
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let own = json!({"matchLabels": installed("Deployment")["spec"]["selector"]["matchLabels"]});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": own});
    let preferred = json!([{"weight": 100, "podAffinityTerm": term}]);
    let nodes = "affinity.nodeAffinity.key=value";
    for (values, expected) in [
        (
            "replicas=2",
            json!({"podAntiAffinity": {PREFERRED: preferred}}),
        ),
        (
            "podAntiAffinity=Required",
            json!({"podAntiAffinity": {REQUIRED: [term]}}),
        ),
        (
            nodes,
            json!({"podAntiAffinity": {PREFERRED: preferred}, "nodeAffinity": {"key": "value"}}),
        ),
        (
            "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
            json!({"podAntiAffinity": {PREFERRED: [{"weight": 1}]}}),
        ),
    ] {
        assert_eq!(affinity(values), expected, "{values}");
    }
}

/// A release with another name is another host: it has a separate account, lease and plugin roles.
#[test]
fn two_releases_share_no_name() {
    let fixed = ["template", "red", "deploy/chart", "--namespace", "red"];
    let text = helm::run(
        &[
            &fixed[..],
            &helm::IMAGE,
            &["--set", "grantPolicy.enabled=false,crds.install=false"],
        ]
        .concat(),
    );
    let objects = manifest::parse(&text.unwrap()).unwrap();
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name == "red" || name.starts_with("red-"), "{name}");
    }
    let aggregated = objects
        .iter()
        .find(|object| object["aggregationRule"].is_object());
    let label = "/aggregationRule/clusterRoleSelectors/0/matchLabels/innkeeper.dev~1aggregate-to";
    assert_eq!(at(aggregated.unwrap(), label), "red");
}

#[test]
fn a_value_that_does_not_fit_is_refused_by_its_name() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "missing property 'repository'"),
        (&["--set", "image.repository="], "/image/repository"),
        (
            &["--set", "replica=3"],
            "additional properties 'replica' not allowed",
        ),
        (&["--set", "pluginCrds=Keep"], "/pluginCrds"),
        (&["--set", "namespaces={A}"], "/namespaces/0"),
        (&["--set", "shards=65"], "/shards"),
    ];
    for (values, part) in cases {
        let image: &[&str] = if part.contains("repository") {
            &[]
        } else {
            &helm::IMAGE
        };
        let arguments = [&["template", "deploy/chart"], image, values].concat();
        let error = format!("{:#}", helm::run(&arguments).unwrap_err());
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn the_chart_passes_the_checks_of_helm() {
    helm::run(&[&["lint", "deploy/chart", "--strict"], &helm::IMAGE[..]].concat()).unwrap();
}

/// The CRDs of the shipped plugins' parents.
const PARENTS: [&str; 7] = [
    "backups.gobackup.io",
    "cronbackups.gobackup.io",
    "etcdclusters.etcd.ydzs.io",
    "memcacheds.cache.example.com",
    "restores.gobackup.io",
    "storages.gobackup.io",
    "wordpresses.example.com",
];

/// `kubectl get innkeeper` lists all of them, and their columns begin and end alike.
#[test]
fn parents_have_one_category_and_the_same_columns_first_and_last() {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let files: Vec<_> = GUESTS
        .iter()
        .map(|guest| guests.join(format!("{guest}.wasm")))
        .collect();
    let printed = manifests(&files, &[]).unwrap();
    for name in PARENTS {
        let is_it = |object: &&Value| object["metadata"]["name"] == name;
        let crd = printed.iter().find(is_it).unwrap();
        let spec = &crd["spec"];
        assert_eq!(spec["names"]["categories"], json!(["innkeeper"]), "{name}");
        let columns: Vec<&str> = spec["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| entry["name"].as_str())
            .collect();
        assert_eq!((columns[0], columns[1]), ("Ready", "Reason"), "{name}");
        assert_eq!(columns.last(), Some(&"Age"), "{name}");
        let text = crd.to_string();
        assert!(
            !text.contains("resourceClaims"),
            "{name} has resources.claims"
        );
    }
}
