//! Certificates for members, clients and Jobs.

use expect_test::expect;

use super::*;

const ISSUED: [&str; 3] = ["demo-peer-tls", "demo-server-tls", "demo-client-tls"];

fn secret(name: &str) -> Value {
    let metadata = json!({ "name": name, "namespace": "default" });
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
}

fn with_tls(tls: &Value) -> EtcdCluster {
    let inspection = json!({ "schedule": "@hourly" });
    parent(json!({
        "size": 3, "image": IMAGE, "tls": tls, "inspection": inspection, "quotaBackendBytes": 512 << 20,
    }))
}

/// A formed cluster's answer with existing Secrets.
fn secured(tls: &Value) -> Answer {
    let parent = with_tls(tls);
    let host = || {
        let named = ["peers", "server", "clients", "operator"];
        host()
            .objects(named.map(secret))
            .objects(ISSUED.map(secret))
    };
    let ready = (0..3).fold(host(), |host, ordinal| {
        host.object(&pod(ordinal, true, IMAGE))
    });
    let first = answer(TestRequest::new(&parent), &host());
    let second = answer(observing(&parent, &settled(&first, 0)), &host());
    let third = answer(observing(&parent, &settled(&second, 3)), &ready);
    answer(observing(&parent, &settled(&third, 3)), &ready)
}

/// A container's mounts as `path: Secret, keys`.
fn mounts(pod: &Value, container: &Value) -> Vec<String> {
    let volumes = pod["volumes"].as_array().unwrap();
    let mount = |mount: &Value| {
        let mut volumes = volumes.iter();
        let secret = &volumes.find(|volume| volume["name"] == mount["name"])?["secret"];
        let keys: Vec<&str> = secret["items"]
            .as_array()?
            .iter()
            .map(|item| item["key"].as_str().unwrap())
            .collect();
        assert_eq!(mount["readOnly"], true);
        let path = &mount["mountPath"];
        let name = &secret["secretName"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Some(format!("{}: {} {}", text(path), text(name), keys.join(" ")))
    };
    container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(mount)
        .collect()
}

fn described(tls: &Value) -> String {
    let outcome = secured(tls);
    let object = |key| Value::from(outcome.child(key).unwrap().object.clone());
    let member = object("members")["spec"]["template"]["spec"].clone();
    let etcd = &member["containers"][0];
    let flags = etcd["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flag| flag.as_str().unwrap());
    let shown = |flag: &&str| {
        ["client-urls", "-file", "auth", "auto-tls"]
            .iter()
            .any(|part| flag.contains(part))
    };
    let flags = flags.filter(shown);
    let job = object("inspect")["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone();
    let etcdctl = &job["containers"][0];
    let variables = etcdctl["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| format!("{}={}", variable["name"], variable["value"]).replace('"', ""));
    let lines = [
        flags.map(str::to_owned).collect(),
        mounts(&member, etcd),
        variables.collect(),
        mounts(&job, etcdctl),
        vec![
            outcome.report().status.as_ref().unwrap()["endpoints"]["client"]
                .as_str()
                .unwrap()
                .to_owned(),
        ],
    ];
    lines.concat().join("\n") + "\n"
}

#[test]
fn each_pod_gets_the_keys_that_it_needs() {
    let peer = json!({ "secretName": "peers" });
    let client = json!({ "serverSecretName": "server" });
    let verified = json!({
        "serverSecretName": "server", "trustedCASecretName": "clients", "clientSecretName": "operator",
    });
    expect![[r"
        --listen-client-urls=http://0.0.0.0:2379
        --advertise-client-urls=http://$(POD_NAME).demo.$(POD_NAMESPACE).svc:2379
        --peer-trusted-ca-file=/etc/etcd/pki/peer/ca/ca.crt
        --peer-cert-file=/etc/etcd/pki/peer/cert/tls.crt
        --peer-key-file=/etc/etcd/pki/peer/cert/tls.key
        --peer-client-cert-auth
        /etc/etcd/pki/peer/cert: peers tls.crt tls.key
        /etc/etcd/pki/peer/ca: peers ca.crt
        ENDPOINTS=http://demo-0.demo.default.svc:2379 http://demo-1.demo.default.svc:2379 http://demo-2.demo.default.svc:2379
        http://demo-client.default.svc:2379
    "]].assert_eq(&described(&json!({ "peer": peer })));
    expect![[r"
        --listen-client-urls=https://0.0.0.0:2379
        --advertise-client-urls=https://$(POD_NAME).demo.$(POD_NAMESPACE).svc:2379
        --peer-auto-tls
        --cert-file=/etc/etcd/pki/server/cert/tls.crt
        --key-file=/etc/etcd/pki/server/cert/tls.key
        /etc/etcd/pki/server/cert: server tls.crt tls.key
        ENDPOINTS=https://demo-0.demo.default.svc:2379 https://demo-1.demo.default.svc:2379 https://demo-2.demo.default.svc:2379
        ETCDCTL_CACERT=/etc/etcd/pki/server/ca/ca.crt
        /etc/etcd/pki/server/ca: server ca.crt
        https://demo-client.default.svc:2379
    "]].assert_eq(&described(&json!({ "client": client })));
    expect![[r"
        --listen-client-urls=https://0.0.0.0:2379
        --advertise-client-urls=https://$(POD_NAME).demo.$(POD_NAMESPACE).svc:2379
        --peer-trusted-ca-file=/etc/etcd/pki/peer/ca/ca.crt
        --peer-cert-file=/etc/etcd/pki/peer/cert/tls.crt
        --peer-key-file=/etc/etcd/pki/peer/cert/tls.key
        --peer-client-cert-auth
        --cert-file=/etc/etcd/pki/server/cert/tls.crt
        --key-file=/etc/etcd/pki/server/cert/tls.key
        --trusted-ca-file=/etc/etcd/pki/client/ca/ca.crt
        --client-cert-auth
        /etc/etcd/pki/peer/cert: peers tls.crt tls.key
        /etc/etcd/pki/peer/ca: peers ca.crt
        /etc/etcd/pki/server/cert: server tls.crt tls.key
        /etc/etcd/pki/client/ca: clients ca.crt
        ENDPOINTS=https://demo-0.demo.default.svc:2379 https://demo-1.demo.default.svc:2379 https://demo-2.demo.default.svc:2379
        ETCDCTL_CACERT=/etc/etcd/pki/server/ca/ca.crt
        ETCDCTL_CERT=/etc/etcd/pki/client/cert/tls.crt
        ETCDCTL_KEY=/etc/etcd/pki/client/cert/tls.key
        /etc/etcd/pki/server/ca: server ca.crt
        /etc/etcd/pki/client/cert: operator tls.crt tls.key
        https://demo-client.default.svc:2379
    "]].assert_eq(&described(&json!({ "peer": peer, "client": verified })));
}

#[test]
fn certificates_exist_and_are_open_to_the_parent() {
    let tls =
        json!({ "peer": { "secretName": "peers" }, "client": { "serverSecretName": "server" } });
    let parent = with_tls(&tls);
    let refused = |host: &FakeHost| {
        let request = TestRequest::new(&parent).build();
        Plugin::reconcile(&request, host).map_err(|fault| fault.message)
    };
    assert_eq!(
        refused(&host()).unwrap_err(),
        "spec.tls: Secret not found: peers, server"
    );
    let both = host().objects(["peers", "server"].map(secret));
    assert!(refused(&both).is_ok());
    let foreign = host()
        .object(&secret("peers"))
        .object(&owned_by_another(secret("server")));
    let problem = refused(&foreign).unwrap_err();
    assert!(
        problem.starts_with("spec.tls: Secret server belongs to another parent"),
        "{problem}"
    );
}

#[test]
fn a_secret_that_is_gone_stops_no_running_cluster() {
    let verified = json!({
        "serverSecretName": "server", "trustedCASecretName": "clients", "clientSecretName": "operator",
    });
    for client in [json!({ "serverSecretName": "server" }), verified] {
        let tls = json!({ "peer": { "secretName": "peers" }, "client": client });
        let children = settled(&secured(&tls), 3);
        let request = observing(&with_tls(&tls), &children).build();
        let answer = Plugin::reconcile(&request, &host());
        assert!(answer.is_ok(), "{tls}: {answer:?}");
    }
}

// A Pod picks up a Secret when it appears, before a pass can reject another parent's.
#[test]
fn no_job_begins_without_the_certificate_of_clients() {
    let tls = json!({ "client": {
        "serverSecretName": "server", "trustedCASecretName": "clients", "clientSecretName": "operator",
    } });
    let parent = with_tls(&tls);
    let children = settled(&secured(&tls), 3);
    let pass = |secrets: &[&str]| {
        let mut empty = pod(2, false, IMAGE);
        empty["metadata"]["uid"] = json!("new");
        empty["status"]["initContainerStatuses"] = json!([{
            "name": "admit", "state": { "running": { "startedAt": "1970-01-01T00:00:00Z" } },
        }]);
        let ready = (0..2).map(|ordinal| pod(ordinal, true, IMAGE));
        let host = host()
            .objects(ready)
            .object(&empty)
            .now(60_000)
            .objects(secrets.iter().map(|secret| pair(secret, "1")));
        answer(observing(&parent, &children), &host)
    };
    let described = |outcome: &Answer| {
        let inspect = Value::from(outcome.child("inspect").unwrap().object.clone());
        let progressing = outcome.report().find_condition("Progressing").unwrap();
        format!(
            "suspended: {}, Job: {}, {}: {}\n",
            inspect["spec"]["suspend"],
            outcome.child("operation-0").is_some(),
            progressing.reason,
            progressing.message
        )
    };
    expect![[r"
        suspended: false, Job: true, ReplacingMember: replacing members without data: demo-2
    "]]
    .assert_eq(&described(&pass(&["server", "clients", "operator"])));
    let without = pass(&["server", "clients"]);
    expect![[r"
        suspended: true, Job: false, SecretNotFound: demo-2: Secret not found: operator: no Job starts until it exists
    "]]
    .assert_eq(&described(&without));
    let warnings = &without.report().status.as_ref().unwrap()["warnings"];
    assert_eq!(warnings[0]["code"], "SecretNotFound");
    // Another parent's Secret is rejected.
    let host = host()
        .objects(["server", "clients"].map(|name| pair(name, "1")))
        .object(&owned_by_another(pair("operator", "1")));
    let request = observing(&parent, &children).build();
    let fault = Plugin::reconcile(&request, &host).unwrap_err();
    let expected = "spec.tls: Secret operator belongs to another parent";
    assert!(fault.message.starts_with(expected), "{}", fault.message);
}

/// A Secret as the plugin sees it with a hash grant.
fn hashed(name: &str, keys: &[(&str, &str)]) -> Value {
    let mut secret = secret(name);
    let data = keys
        .iter()
        .map(|(key, hash)| ((*key).to_owned(), json!(hash)));
    secret["type"] = json!("Opaque");
    secret["data"] = Value::Object(data.collect());
    secret
}

fn pair(name: &str, number: &str) -> Value {
    hashed(
        name,
        &[("tls.crt", number), ("tls.key", number), ("ca.crt", "a")],
    )
}

fn authority(name: &str, hash: &str) -> Value {
    hashed(name, &[("ca.crt", hash)])
}

/// The authorities' hash on the Pods in a parent's answer.
fn authorities(parent: &EtcdCluster, children: &[(String, Value)], secrets: &[Value]) -> Value {
    let host = host().objects(secrets);
    let outcome = answer(observing(parent, children), &host);
    let members = Value::from(outcome.child("members").unwrap().object.clone());
    members["spec"]["template"]["metadata"]["annotations"]["etcd.ydzs.io/secret-hash"].clone()
}

#[test]
fn a_changed_authority_restarts_the_members_on_demand() {
    let tls = |on_change: &str| {
        json!({
            "peer": { "secretName": "peers", "trustedCASecretName": "authority" }, "onChange": on_change,
            "client": {
                "serverSecretName": "server", "trustedCASecretName": "clients", "clientSecretName": "operator",
            },
        })
    };
    let secrets = |number: &str, peers: &str, clients: &str| {
        let own = ["peers", "server", "operator"].map(|name| pair(name, number));
        let trusted =
            [("authority", peers), ("clients", clients)].map(|(name, it)| authority(name, it));
        [&own[..], &trusted].concat()
    };
    let parent = with_tls(&tls("Restart"));
    let first = answer(
        TestRequest::new(&parent),
        &host().objects(secrets("1", "a", "a")),
    );
    let begun = settled(&first, 0);
    let hash = |secrets: &[Value]| authorities(&parent, &begun, secrets);
    let now = hash(&secrets("1", "a", "a"));
    assert!(now.is_string());
    // etcd reloads renewed certificates.
    assert_eq!(hash(&secrets("2", "a", "a")), now);
    assert_ne!(hash(&secrets("1", "b", "a")), now);
    assert_ne!(hash(&secrets("1", "a", "b")), now);
    let second = answer(
        observing(&parent, &begun),
        &host().objects(secrets("1", "a", "a")),
    );
    let running = settled(&second, 3);
    // Nothing restarts while new Pods could not start.
    let mut fewer = secrets("1", "b", "a");
    fewer.pop();
    assert_eq!(authorities(&parent, &running, &fewer), now);
    let patient = with_tls(&tls("Reload"));
    let without = authorities(&patient, &begun, &secrets("1", "a", "a"));
    assert_eq!(without, Value::Null);
}

#[test]
fn a_plugin_that_may_not_see_keys_says_so_when_it_needs_them() {
    let problem = |on_change: &str| {
        let parent = with_tls(&json!({ "peer": { "secretName": "peers" }, "onChange": on_change }));
        let request = TestRequest::new(&parent).build();
        Plugin::reconcile(&request, &host().object(&secret("peers"))).map_err(|fault| fault.message)
    };
    assert!(problem("Reload").is_ok());
    assert_eq!(
        problem("Restart").unwrap_err(),
        "spec.tls.onChange: the plugin cannot see the keys in Secret peers: grant it reads of Secrets with access hash, or \
         set onChange to Reload"
    );
}

#[test]
fn a_key_that_is_missing_is_named_before_the_first_start_and_warned_of_later() {
    let parent = with_tls(&json!({ "peer": { "secretName": "peers" } }));
    let whole = host().object(&pair("peers", "1"));
    let partial = host().object(&hashed("peers", &[("tls.crt", "1"), ("tls.key", "1")]));
    let request = TestRequest::new(&parent).build();
    let fault = Plugin::reconcile(&request, &partial).unwrap_err();
    assert_eq!(fault.message, "spec.tls: Secret peers lacks the key ca.crt");
    let first = answer(TestRequest::new(&parent), &whole);
    let second = answer(observing(&parent, &settled(&first, 0)), &whole);
    let running = settled(&second, 3);
    let codes = |host: &FakeHost| {
        let outcome = answer(observing(&parent, &running), host);
        let status = outcome.report().status.as_ref().unwrap();
        status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|warning| warning["code"].clone())
            .collect::<Vec<Value>>()
    };
    assert_eq!(codes(&whole), [""; 0]);
    assert_eq!(codes(&partial), ["SecretIncomplete"]);
    assert_eq!(codes(&host()), ["SecretNotFound"]);
}

fn issued(client_issuer: Option<&str>) -> Value {
    let issuer = |name: &str| json!({ "name": name });
    let mut client = json!({ "certManager": { "issuerRef": issuer("servers") } });
    if let Some(name) = client_issuer {
        client["certManager"]["clientIssuerRef"] = issuer(name);
    }
    let times = json!({ "issuerRef": issuer("peers"), "duration": "2160h", "renewBefore": "720h" });
    json!({ "peer": { "certManager": times }, "client": client })
}

#[test]
fn secrets_of_cert_manager_are_mounted_as_those_of_users() {
    let named = json!({
        "peer": { "secretName": ISSUED[0] }, "client": { "serverSecretName": ISSUED[1] },
    });
    assert_eq!(described(&issued(None)), described(&named));
    let named = json!({
        "peer": { "secretName": ISSUED[0] },
        "client": {
            "serverSecretName": ISSUED[1], "trustedCASecretName": ISSUED[2], "clientSecretName": ISSUED[2],
        },
    });
    assert_eq!(described(&issued(Some("clients"))), described(&named));
}

#[test]
fn certificates_have_the_names_of_members_and_clients() {
    let outcome = secured(&issued(Some("clients")));
    let spec = |key: &str| {
        let object = Value::from(outcome.child(key).unwrap().object.clone());
        assert_eq!(object["metadata"]["name"], object["spec"]["secretName"]);
        serde_json::to_string_pretty(&object["spec"]).unwrap() + "\n"
    };
    expect![[r#"
        {
          "dnsNames": [
            "*.demo.default.svc",
            "*.demo.default.svc.cluster.local",
            "demo-client.default.svc",
            "demo-client.default.svc.cluster.local",
            "demo.default.svc",
            "demo-client",
            "demo-client.default",
            "localhost"
          ],
          "duration": "2160h",
          "ipAddresses": [
            "127.0.0.1"
          ],
          "issuerRef": {
            "group": "cert-manager.io",
            "kind": "Issuer",
            "name": "peers"
          },
          "renewBefore": "720h",
          "secretName": "demo-peer-tls",
          "usages": [
            "server auth",
            "client auth"
          ]
        }
    "#]]
    .assert_eq(&spec("cert-peer"));
    expect![[r#"
        {
          "commonName": "root",
          "issuerRef": {
            "group": "cert-manager.io",
            "kind": "Issuer",
            "name": "clients"
          },
          "secretName": "demo-client-tls",
          "usages": [
            "client auth"
          ]
        }
    "#]]
    .assert_eq(&spec("cert-client"));
    let server = Value::from(outcome.child("cert-server").unwrap().object.clone());
    let peer = Value::from(outcome.child("cert-peer").unwrap().object.clone());
    assert_eq!(server["spec"]["dnsNames"], peer["spec"]["dnsNames"]);
    assert_eq!(server["spec"]["usages"], peer["spec"]["usages"]);
    assert_eq!(server["metadata"]["name"], "demo-server-tls");
    // The members do not wait for a kind that the cluster may lack.
    let members = outcome.child("members").unwrap();
    assert!(!members.after.iter().any(|key| key.starts_with("cert-")));
    assert!(secured(&issued(None)).child("cert-client").is_none());
}

#[test]
fn a_cluster_begins_when_cert_manager_has_written_the_secrets() {
    let parent = with_tls(&issued(Some("clients")));
    let first = |host: &FakeHost| {
        let outcome = answer(TestRequest::new(&parent), host);
        let report = outcome.report();
        let ready = report
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        // Every normal start waits like this.
        assert_eq!(report.status.as_ref().unwrap()["warnings"], json!([]));
        let line = format!("{}: {}", ready.reason, ready.message);
        (
            outcome.child("state").is_some(),
            outcome.child("cert-peer").is_some(),
            line,
        )
    };
    let remedy = "; cert-manager writes it after Service demo, demo-client belongs to this EtcdCluster: see the condition Synced";
    let (is_begun, has_certificates, line) = first(&host().object(&pair(ISSUED[1], "1")));
    assert!(!is_begun && has_certificates);
    assert_eq!(
        line,
        format!(
            "SecretNotFound: Secret not found: demo-client-tls, demo-peer-tls: no member starts until it exists{remedy}"
        )
    );
    let incomplete = hashed(ISSUED[0], &[("tls.crt", "1"), ("tls.key", "1")]);
    let others: Vec<Value> = ISSUED[1..].iter().map(|name| pair(name, "1")).collect();
    let (is_begun, _, line) = first(&host().objects(&others).object(&incomplete));
    assert!(!is_begun);
    assert_eq!(
        line,
        format!(
            "SecretIncomplete: Secret demo-peer-tls lacks the key ca.crt: no member starts until it has it{remedy}"
        )
    );
    let (is_begun, _, _) = first(&host().objects(&others).object(&pair(ISSUED[0], "1")));
    assert!(is_begun);
    // Another parent's Secret stays unused.
    let foreign = host()
        .objects(ISSUED[1..].iter().map(|name| secret(name)))
        .object(&owned_by_another(secret(ISSUED[0])));
    let request = TestRequest::new(&parent).build();
    let fault = Plugin::reconcile(&request, &foreign).unwrap_err();
    assert!(
        fault
            .message
            .starts_with("spec.tls: Secret demo-peer-tls belongs to another parent")
    );
}

/// The servers' Certificate as `apply, after`, and a condition's line, in an answer that observes these children.
fn vouched(
    parent: &EtcdCluster,
    observed: &[(String, Value)],
    host: &FakeHost,
) -> (String, String) {
    let outcome = answer(observing(parent, observed), host);
    let server = outcome.child("cert-server").unwrap();
    let ready = outcome.report().find_condition("Ready").unwrap();
    let client = outcome.child("cert-client").unwrap();
    assert_eq!(
        (client.apply, &client.after[..]),
        (ApplyPolicy::Always, &[][..])
    );
    let peer = outcome.child("cert-peer").unwrap();
    assert_eq!((peer.apply, &peer.after), (server.apply, &server.after));
    (
        format!("{:?}, after {}", server.apply, server.after.join(" ")),
        format!("{}: {}", ready.reason, ready.message),
    )
}

// The observed children belong to the parent: another owner's Service with the same name is not among them.
#[test]
fn a_certificate_never_has_the_name_of_the_service_of_another_owner() {
    let parent = with_tls(&issued(Some("clients")));
    let first = settled(&answer(TestRequest::new(&parent), &host()), 0);
    let without = |gone: &[&str]| {
        let mut children = first.clone();
        children.retain(|(key, _)| !gone.contains(&key.as_str()));
        children
    };
    let certificates = ["cert-peer", "cert-server"];
    let secret = "SecretNotFound: Secret not found: demo-client-tls, demo-peer-tls, demo-server-tls: no member starts until it \
                  exists; cert-manager writes it";
    let waiting = |services: &str| {
        format!(
            "{secret} after Service {services} belongs to this EtcdCluster: see the condition Synced"
        )
    };
    let issuing = format!("{secret}: see the Certificate of that name, and the condition Synced");
    let mut deleted = first.clone();
    deleted[1].1["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    let cases = [
        // The host creates it when both Services are children.
        (Vec::new(), "Always", waiting("demo, demo-client")),
        (
            without(&["client", certificates[0], certificates[1]]),
            "Always",
            waiting("demo-client"),
        ),
        (without(&certificates), "Always", issuing.clone()),
        (first.clone(), "Always", issuing),
        // An existing one is neither changed nor deleted.
        (without(&["client"]), "Hold", waiting("demo-client")),
        (without(&["headless"]), "Hold", waiting("demo")),
        (deleted, "Hold", waiting("demo-client")),
    ];
    for (observed, apply, line) in cases {
        let certificate = format!("{apply}, after headless client");
        assert_eq!(vouched(&parent, &observed, &host()), (certificate, line));
    }
}

#[test]
fn a_running_cluster_warns_of_a_service_that_another_owner_has_taken() {
    let tls = issued(Some("clients"));
    let parent = with_tls(&tls);
    let mut children = settled(&secured(&tls), 3);
    let host = || host().objects(ISSUED.map(|name| pair(name, "1")));
    let warnings = |children: &[(String, Value)]| {
        answer(observing(&parent, children), &host())
            .report()
            .status
            .as_ref()
            .unwrap()["warnings"]
            .clone()
    };
    assert_eq!(warnings(&children), json!([]));
    children.retain(|(key, _)| key != "client");
    let message = "Service demo-client is missing or belongs to another owner: certificates stay as they are, and \
                   status.endpoints omits it, see the \
                   condition Synced";
    assert_eq!(
        warnings(&children),
        json!([{ "code": "ServiceNotOwned", "message": message }])
    );
}

// A load balancer may never get an address, but the members need their certificates.
#[test]
fn certificates_wait_for_the_owner_of_a_service_and_not_for_its_address() {
    let outcome = answer(TestRequest::new(&with_tls(&issued(None))), &host());
    assert_eq!(outcome.child("client").unwrap().readiness, Readiness::Ready);
}

#[test]
fn issuers_beyond_the_namespace_need_the_configuration() {
    let tls = json!({ "peer": { "certManager": { "issuerRef": { "name": "all", "kind": "ClusterIssuer" } } } });
    let parent = with_tls(&tls);
    let verdict = |config: &Value| {
        let request = TestRequest::new(&parent).config(config).build();
        Plugin::reconcile(&request, &host()).map_err(|fault| fault.message)
    };
    assert_eq!(
        verdict(&json!({})).unwrap_err(),
        "spec.tls.peer.certManager.issuerRef: tenants.clusterIssuers of the plugin's configuration does not list all"
    );
    let listed =
        json!({ "tenants": { "clusterIssuers": ["all"] }, "clusterDomain": "example.internal" });
    let outcome = verdict(&listed).unwrap();
    let certificate = Value::from(outcome.child("cert-peer").unwrap().object.clone());
    assert_eq!(
        certificate["spec"]["dnsNames"][1],
        "*.demo.default.svc.example.internal"
    );
}
