//! Invalid and borderline parents: the CRD's verdict or, after it, the plugin's.

use expect_test::{Expect, expect};
use innkeeper_sdk::testing::TestRequest;
use serde_json::{Value, json};

use super::{PLUGIN, host, parent};
use crate::{Plugin, flags::FLAGS};

/// The one-line verdict on a parent with this name and spec.
fn verdict(name: &str, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "etcd.ydzs.io/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    });
    PLUGIN.verdict(&object, &host())
}

/// Compares one verdict line per spec.
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs
        .iter()
        .map(|spec| format!("{spec}: {}\n", verdict("demo", spec)));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn names_leave_room_for_those_of_children() {
    let longest = "a".repeat(44);
    let too_long = "a".repeat(45);
    let lines = [&*longest, "a-1", &*too_long, "1a", "a.b", "a-"]
        .map(|name| format!("{name}: {}\n", verdict(name, &json!({}))));
    expect![[r#"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: accepted
        a-1: accepted
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: rejected, the object: metadata.name must be a DNS label of at most 44 characters that starts with a letter
        1a: rejected, the object: metadata.name must be a DNS label of at most 44 characters that starts with a letter
        a.b: rejected, the object: metadata.name must be a DNS label of at most 44 characters that starts with a letter
        a-: rejected, metadata.name: "a-" is not a valid DNS subdomain (RFC 1123); the object: metadata.name must be a DNS label of at most 44 characters that starts with a letter
    "#]].assert_eq(&lines.concat());
}

#[test]
fn sizes_and_numbers_have_ranges() {
    check(
        &[
            json!({ "size": 0 }),
            json!({ "size": 9 }),
            json!({ "size": -1 }),
            json!({ "size": 10 }),
            json!({ "size": "3" }),
            json!({ "replicas": 3 }),
            json!({ "snapshotCount": 0 }),
            json!({ "quotaBackendBytes": -1 }),
            json!({ "progressDeadlineSeconds": 0 }),
        ],
        &expect![[r#"
            {"size":0}: accepted
            {"size":9}: accepted
            {"size":-1}: rejected, spec.size: -1 is less than the minimum of 0
            {"size":10}: rejected, spec.size: 10 is greater than the maximum of 9
            {"size":"3"}: rejected, spec.size: "3" is not of type "integer"
            {"replicas":3}: accepted without spec.replicas
            {"snapshotCount":0}: rejected, spec.snapshotCount: 0 is less than the minimum of 1
            {"quotaBackendBytes":-1}: rejected, spec.quotaBackendBytes: -1 is less than the minimum of 0
            {"progressDeadlineSeconds":0}: rejected, spec.progressDeadlineSeconds: 0 is less than the minimum of 1
        "#]],
    );
}

#[test]
fn versions_and_images_fit_together() {
    let digest = format!("etcd@sha256:{}", "0".repeat(64));
    check(
        &[
            json!({ "version": "v3.6.14" }),
            json!({ "version": "3.6.0-rc.1" }),
            json!({ "version": "3.6.0-rc.1", "image": "etcd:v3.6.0-rc.1" }),
            json!({ "version": "3.6.0", "image": "etcd:v3.6.0-rc.1" }),
            json!({ "version": "3.5.21", "image": "bitnami/etcd:3.5.21-debian-12-r3" }),
            json!({ "version": "3.6.0-debian" }),
            json!({ "version": "99999999999.6.0" }),
            json!({ "version": "3.6" }),
            json!({ "image": "" }),
            json!({ "image": "a b" }),
            json!({ "image": "etcd:v3.6.14", "version": "3.6.14" }),
            json!({ "image": "etcd:v3.6.14", "version": "3.6.13" }),
            json!({ "image": digest, "version": "3.6.13" }),
            json!({ "image": digest }),
            json!({ "version": "3.7.0", "options": { "experimental-memory-mlock": "" } }),
            json!({ "version": "3.6.14", "options": { "experimental-memory-mlock": "" } }),
        ],
        &expect![[r#"
            {"version":"v3.6.14"}: accepted
            {"version":"3.6.0-rc.1"}: accepted
            {"image":"etcd:v3.6.0-rc.1","version":"3.6.0-rc.1"}: accepted
            {"image":"etcd:v3.6.0-rc.1","version":"3.6.0"}: Invalid, spec.version: 3.6.0 is not the version in the tag of spec.image, 3.6.0-rc.1: remove version, or correct one of them
            {"image":"bitnami/etcd:3.5.21-debian-12-r3","version":"3.5.21"}: accepted
            {"version":"3.6.0-debian"}: rejected, spec.version: "3.6.0-debian" does not match "^v?\d{1,4}\.\d{1,4}\.\d{1,4}(-(alpha|beta|pre|rc)(\.\d{1,4})?)?$"
            {"version":"99999999999.6.0"}: rejected, spec.version: "99999999999.6.0" does not match "^v?\d{1,4}\.\d{1,4}\.\d{1,4}(-(alpha|beta|pre|rc)(\.\d{1,4})?)?$"
            {"version":"3.6"}: rejected, spec.version: "3.6" does not match "^v?\d{1,4}\.\d{1,4}\.\d{1,4}(-(alpha|beta|pre|rc)(\.\d{1,4})?)?$"
            {"image":""}: rejected, spec.image: "" is shorter than 1 character
            {"image":"a b"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":"etcd:v3.6.14","version":"3.6.14"}: accepted
            {"image":"etcd:v3.6.14","version":"3.6.13"}: Invalid, spec.version: 3.6.13 is not the version in the tag of spec.image, 3.6.14: remove version, or correct one of them
            {"image":"etcd@sha256:0000000000000000000000000000000000000000000000000000000000000000","version":"3.6.13"}: accepted
            {"image":"etcd@sha256:0000000000000000000000000000000000000000000000000000000000000000"}: accepted
            {"options":{"experimental-memory-mlock":""},"version":"3.7.0"}: Invalid, spec.options: experimental-memory-mlock was removed in etcd 3.7: use memory-mlock
            {"options":{"experimental-memory-mlock":""},"version":"3.6.14"}: accepted
        "#]],
    );
}

#[test]
fn an_inspection_has_a_schedule() {
    let inspection = |schedule: &str| json!({ "inspection": { "schedule": schedule } });
    check(
        &[
            inspection("*/10 * * * *"),
            inspection("@hourly"),
            inspection(""),
            inspection("60 * * * *"),
            inspection("hourly"),
            json!({ "inspection": {} }),
        ],
        &expect![[r#"
            {"inspection":{"schedule":"*/10 * * * *"}}: accepted
            {"inspection":{"schedule":"@hourly"}}: accepted
            {"inspection":{"schedule":""}}: rejected, spec.inspection.schedule: "" is shorter than 1 character
            {"inspection":{"schedule":"60 * * * *"}}: Invalid, spec.inspection.schedule: 60 is not between 0 and 59
            {"inspection":{"schedule":"hourly"}}: Invalid, spec.inspection.schedule: cron must have 5 fields or be an @ macro
            {"inspection":{}}: rejected, spec.inspection.schedule: is required
        "#]],
    );
}

#[test]
fn what_reaches_beyond_the_members_needs_a_permission() {
    let placed = |spec: Value| json!({ "podTemplate": { "spec": spec } });
    let annotated = |field: &str, key: &str| json!({ field: { "annotations": { key: "x" } } });
    let allowed = |source: Value| json!({ "networkPolicy": { "allowedSources": [source] } });
    check(
        &[
            placed(json!({ "nodeSelector": { "disk": "ssd" } })),
            placed(json!({ "nodeSelector": { "a b": "c" } })),
            placed(json!({ "tolerations": [{ "operator": "Exists" }] })),
            placed(json!({ "priorityClassName": "system-node-critical" })),
            json!({ "podTemplate": { "metadata": { "labels": { "a": "b" } } } }),
            json!({ "podTemplate": { "metadata": { "annotations": { "a": "b" } } } }),
            annotated("headlessService", "a/b"),
            annotated("clientService", "a/b"),
            annotated("clientService", "a b"),
            json!({ "clientService": { "type": "ClusterIP" } }),
            json!({ "clientService": { "type": "NodePort" } }),
            json!({ "clientService": { "type": "ExternalName" } }),
            json!({ "networkPolicy": {} }),
            allowed(json!({ "ipBlock": { "cidr": "10.0.0.0/8" } })),
            allowed(json!({ "ipBlock": {} })),
            allowed(json!({})),
            allowed(json!({ "podSelector": {}, "namespaceSelector": {} })),
            allowed(json!({ "podSelector": {}, "ipBlock": { "cidr": "10.0.0.0/8" } })),
        ],
        &expect![[r#"
            {"podTemplate":{"spec":{"nodeSelector":{"disk":"ssd"}}}}: accepted
            {"podTemplate":{"spec":{"nodeSelector":{"a b":"c"}}}}: Invalid, spec.podTemplate.spec.nodeSelector: "a b" is not a label key: write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be
            {"podTemplate":{"spec":{"tolerations":[{"operator":"Exists"}]}}}: Invalid, spec.podTemplate.spec.tolerations: tenants.tolerations of the plugin's configuration does not list *
            {"podTemplate":{"spec":{"priorityClassName":"system-node-critical"}}}: Invalid, spec.podTemplate.spec.priorityClassName: tenants.priorityClasses of the plugin's configuration does not list system-node-critical
            {"podTemplate":{"metadata":{"labels":{"a":"b"}}}}: Invalid, spec.podTemplate.metadata.labels: tenants.podMetadata.labels of the plugin's configuration does not list a
            {"podTemplate":{"metadata":{"annotations":{"a":"b"}}}}: Invalid, spec.podTemplate.metadata.annotations: tenants.podMetadata.annotations of the plugin's configuration does not list a
            {"headlessService":{"annotations":{"a/b":"x"}}}: Invalid, spec.headlessService.annotations: tenants.serviceAnnotations of the plugin's configuration does not list a/b
            {"clientService":{"annotations":{"a/b":"x"}}}: Invalid, spec.clientService.annotations: tenants.serviceAnnotations of the plugin's configuration does not list a/b
            {"clientService":{"annotations":{"a b":"x"}}}: Invalid, spec.clientService.annotations: "a b" is not an annotation key: write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be
            {"clientService":{"type":"ClusterIP"}}: accepted
            {"clientService":{"type":"NodePort"}}: Invalid, spec.clientService.type: tenants.serviceTypes of the plugin's configuration does not list NodePort
            {"clientService":{"type":"ExternalName"}}: rejected, spec.clientService.type: "ExternalName" is not one of "ClusterIP", "NodePort" or "LoadBalancer"
            {"networkPolicy":{}}: accepted
            {"networkPolicy":{"allowedSources":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}}: accepted
            {"networkPolicy":{"allowedSources":[{"ipBlock":{}}]}}: rejected, spec.networkPolicy.allowedSources[0].ipBlock.cidr: is required
            {"networkPolicy":{"allowedSources":[{}]}}: rejected, spec.networkPolicy: allowedSources: each entry needs either ipBlock, or podSelector, namespaceSelector or both
            {"networkPolicy":{"allowedSources":[{"namespaceSelector":{},"podSelector":{}}]}}: accepted
            {"networkPolicy":{"allowedSources":[{"ipBlock":{"cidr":"10.0.0.0/8"},"podSelector":{}}]}}: rejected, spec.networkPolicy: allowedSources: each entry needs either ipBlock, or podSelector, namespaceSelector or both
        "#]],
    );
}

#[test]
fn certificates_come_from_named_secrets() {
    let client = |client: Value| json!({ "tls": { "client": client } });
    check(
        &[
            json!({ "tls": {} }),
            json!({ "tls": { "peer": {} } }),
            json!({ "tls": { "peer": { "secretName": "" } } }),
            json!({ "tls": { "peer": { "secretName": "peers" } } }),
            json!({ "tls": { "peer": { "secretName": "peers", "trustedCASecretName": "all" } } }),
            json!({ "tls": { "peer": { "trustedCASecretName": "all" } } }),
            json!({ "tls": { "onChange": "Restart" } }),
            json!({ "tls": { "onChange": "restart" } }),
            client(json!({})),
            client(json!({ "serverSecretName": "a", "trustedCASecretName": "b" })),
            client(json!({ "serverSecretName": "a", "clientSecretName": "b" })),
            json!({ "tls": { "peer": { "secretName": "a", "certManager": { "issuerRef": { "name": "a" } } } } }),
            json!({ "tls": { "peer": { "certManager": { "issuerRef": {} } } } }),
            json!({ "tls": { "peer": { "certManager": { "issuerRef": { "name": "a" } } } } }),
            json!({ "tls": { "peer": { "certManager": {
                "issuerRef": { "name": "a" }, "duration": "1h", "renewBefore": "1h30m",
            } } } }),
            json!({ "tls": { "peer": { "certManager": { "issuerRef": { "name": "a" }, "duration": "1d" } } } }),
            json!({ "tls": { "peer": { "certManager": { "issuerRef": { "name": "a", "kind": "ClusterIssuer" } } } } }),
            client(
                json!({ "serverSecretName": "a", "certManager": { "issuerRef": { "name": "a" } } }),
            ),
            client(json!({
                "certManager": { "issuerRef": { "name": "a" } }, "trustedCASecretName": "b", "clientSecretName": "c",
            })),
            client(json!({
                "certManager": { "issuerRef": { "name": "a" }, "duration": "1h", "renewBefore": "1h" },
            })),
            client(json!({
                "certManager": { "issuerRef": { "name": "a" }, "clientIssuerRef": { "name": "b", "group": "x.example" } },
            })),
            json!({ "options": { "cert-file": "/x" } }),
            json!({ "monitoring": { "serviceMonitor": { "interval": "1m" } } }),
            json!({ "monitoring": { "serviceMonitor": { "interval": "often" } } }),
        ],
        &expect![[r#"
            {"tls":{}}: accepted
            {"tls":{"peer":{}}}: rejected, spec.tls.peer: set exactly one of secretName and certManager
            {"tls":{"peer":{"secretName":""}}}: rejected, spec.tls.peer.secretName: "" is shorter than 1 character
            {"tls":{"peer":{"secretName":"peers"}}}: Invalid, spec.tls: Secret not found: peers
            {"tls":{"peer":{"secretName":"peers","trustedCASecretName":"all"}}}: Invalid, spec.tls: Secret not found: all, peers
            {"tls":{"peer":{"trustedCASecretName":"all"}}}: rejected, spec.tls.peer: set exactly one of secretName and certManager
            {"tls":{"onChange":"Restart"}}: accepted
            {"tls":{"onChange":"restart"}}: rejected, spec.tls.onChange: "restart" is not one of "Reload" or "Restart"
            {"tls":{"client":{}}}: rejected, spec.tls.client: set exactly one of serverSecretName and certManager
            {"tls":{"client":{"serverSecretName":"a","trustedCASecretName":"b"}}}: rejected, spec.tls.client: trustedCASecretName and clientSecretName need each other: Jobs are clients, too
            {"tls":{"client":{"clientSecretName":"b","serverSecretName":"a"}}}: rejected, spec.tls.client: trustedCASecretName and clientSecretName need each other: Jobs are clients, too
            {"tls":{"peer":{"certManager":{"issuerRef":{"name":"a"}},"secretName":"a"}}}: rejected, spec.tls.peer: set exactly one of secretName and certManager
            {"tls":{"peer":{"certManager":{"issuerRef":{}}}}}: rejected, spec.tls.peer.certManager.issuerRef.name: is required
            {"tls":{"peer":{"certManager":{"issuerRef":{"name":"a"}}}}}: accepted
            {"tls":{"peer":{"certManager":{"duration":"1h","issuerRef":{"name":"a"},"renewBefore":"1h30m"}}}}: rejected, spec.tls.peer.certManager: renewBefore must be shorter than duration
            {"tls":{"peer":{"certManager":{"duration":"1d","issuerRef":{"name":"a"}}}}}: rejected, spec.tls.peer.certManager.duration: "1d" does not match "^([0-9]{1,6}[hms]){1,3}$"
            {"tls":{"peer":{"certManager":{"issuerRef":{"kind":"ClusterIssuer","name":"a"}}}}}: Invalid, spec.tls.peer.certManager.issuerRef: tenants.clusterIssuers of the plugin's configuration does not list a
            {"tls":{"client":{"certManager":{"issuerRef":{"name":"a"}},"serverSecretName":"a"}}}: rejected, spec.tls.client: set exactly one of serverSecretName and certManager
            {"tls":{"client":{"certManager":{"issuerRef":{"name":"a"}},"clientSecretName":"c","trustedCASecretName":"b"}}}: rejected, spec.tls.client: trustedCASecretName excludes certManager: set certManager.clientIssuerRef
            {"tls":{"client":{"certManager":{"duration":"1h","issuerRef":{"name":"a"},"renewBefore":"1h"}}}}: rejected, spec.tls.client.certManager: renewBefore must be shorter than duration
            {"tls":{"client":{"certManager":{"clientIssuerRef":{"group":"x.example","name":"b"},"issuerRef":{"name":"a"}}}}}: Invalid, spec.tls.client.certManager.clientIssuerRef: tenants.clusterIssuers of the plugin's configuration does not list b
            {"options":{"cert-file":"/x"}}: rejected, spec.options: options: cert-file is set by the guest
            {"monitoring":{"serviceMonitor":{"interval":"1m"}}}: accepted
            {"monitoring":{"serviceMonitor":{"interval":"often"}}}: rejected, spec.monitoring.serviceMonitor.interval: "often" does not match "^[1-9][0-9]*(s|m|h)$"
        "#]],
    );
}

#[test]
fn storage_has_a_size_and_outlives_its_pod() {
    let storage = |field: &str, value: Value| json!({ "storage": { field: value } });
    check(
        &[
            storage("size", json!("2Gi")),
            storage("size", json!(0)),
            storage("size", json!("many")),
            storage("medium", json!("Disk")),
            storage("medium", json!("EmptyDir")),
            storage("medium", json!("Memory")),
            json!({ "size": 2, "storage": { "medium": "Memory" } }),
            storage("accessModes", json!([])),
            storage("accessModes", json!(["ReadWriteOncePod"])),
            storage("accessModes", json!(["ReadWrite"])),
            storage("accessModes", json!(["ReadWriteMany"])),
            storage("accessModes", json!(["ReadOnlyMany"])),
            // Kubernetes rejects such a claim.
            storage("accessModes", json!(["ReadWriteOnce", "ReadWriteOncePod"])),
            storage("existingClaims", json!("adopt")),
            storage("whenDeleted", json!("Keep")),
            json!({ "size": 0, "storage": { "medium": "Memory" } }),
            json!({ "quotaBackendBytes": 1_073_741_824 }),
            json!({ "quotaBackendBytes": 1_073_741_825 }),
        ],
        &expect![[r#"
            {"storage":{"size":"2Gi"}}: accepted
            {"storage":{"size":0}}: rejected, spec.storage: storage.size must be greater than 0
            {"storage":{"size":"many"}}: rejected, spec.storage: storage.size must be a quantity, such as 10Gi
            {"storage":{"medium":"Disk"}}: rejected, spec.storage.medium: "Disk" is not one of "Persistent", "EmptyDir" or "Memory"
            {"storage":{"medium":"EmptyDir"}}: accepted
            {"storage":{"medium":"Memory"}}: accepted
            {"size":2,"storage":{"medium":"Memory"}}: Invalid, spec.size: 2 members cannot replace one that lost its data, and with storage.medium Memory each deletion of a Pod does that: set size to 3 or more, or storage.medium to Persistent
            {"storage":{"accessModes":[]}}: rejected, spec.storage.accessModes: [] has less than 1 item
            {"storage":{"accessModes":["ReadWriteOncePod"]}}: accepted
            {"storage":{"accessModes":["ReadWrite"]}}: rejected, spec.storage.accessModes[0]: "ReadWrite" is not one of "ReadWriteOnce" or "ReadWriteOncePod"
            {"storage":{"accessModes":["ReadWriteMany"]}}: rejected, spec.storage.accessModes[0]: "ReadWriteMany" is not one of "ReadWriteOnce" or "ReadWriteOncePod"
            {"storage":{"accessModes":["ReadOnlyMany"]}}: rejected, spec.storage.accessModes[0]: "ReadOnlyMany" is not one of "ReadWriteOnce" or "ReadWriteOncePod"
            {"storage":{"accessModes":["ReadWriteOnce","ReadWriteOncePod"]}}: rejected, spec.storage.accessModes: ["ReadWriteOnce","ReadWriteOncePod"] has more than 1 item
            {"storage":{"existingClaims":"adopt"}}: rejected, spec.storage.existingClaims: "adopt" is not one of "Refuse" or "Adopt"
            {"storage":{"whenDeleted":"Keep"}}: rejected, spec.storage.whenDeleted: "Keep" is not one of "Retain" or "Delete"
            {"size":0,"storage":{"medium":"Memory"}}: rejected, spec: size 0 needs persistent storage: an emptyDir loses its data when the Pod stops
            {"quotaBackendBytes":1073741824}: accepted
            {"quotaBackendBytes":1073741825}: Invalid, spec.quotaBackendBytes: it is larger than storage.size, 1Gi, so the disk would be full before etcd rejects writes: lower it, or enlarge storage.size
        "#]],
    );
}

#[test]
fn a_retention_fits_its_mode() {
    check(
        &[
            json!({ "autoCompactionRetention": "1h" }),
            json!({ "autoCompactionMode": "periodic", "autoCompactionRetention": "1h" }),
            json!({ "autoCompactionMode": "revision", "autoCompactionRetention": "1000" }),
            json!({ "autoCompactionMode": "revision", "autoCompactionRetention": "5m" }),
            json!({ "autoCompactionMode": "revision", "autoCompactionRetention": "0" }),
            json!({ "autoCompactionMode": "Revision" }),
        ],
        &expect![[r#"
            {"autoCompactionRetention":"1h"}: accepted
            {"autoCompactionMode":"periodic","autoCompactionRetention":"1h"}: accepted
            {"autoCompactionMode":"revision","autoCompactionRetention":"1000"}: accepted
            {"autoCompactionMode":"revision","autoCompactionRetention":"5m"}: rejected, spec: autoCompactionRetention must be a whole number of revisions with autoCompactionMode revision
            {"autoCompactionMode":"revision","autoCompactionRetention":"0"}: rejected, spec: autoCompactionRetention must be a whole number of revisions with autoCompactionMode revision
            {"autoCompactionMode":"Revision"}: rejected, spec.autoCompactionMode: "Revision" is not one of "periodic" or "revision"
        "#]],
    );
}

#[test]
fn flags_of_the_plugin_and_given_twice_are_refused() {
    check(
        &[
            json!({ "options": { "heartbeat-interval": "100" } }),
            json!({ "options": { "--pre-vote": "" } }),
            json!({ "options": { "A": "" } }),
            json!({ "options": { "a".repeat(64): "" } }),
            json!({ "options": { "data-dir": "/x" } }),
            json!({ "options": { "initial-cluster": "a" } }),
            json!({ "options": { "quota-backend-bytes": "1" }, "quotaBackendBytes": 1 }),
            json!({ "options": { "snapshot-count": "1" }, "snapshotCount": 1 }),
        ],
        &expect![[r#"
            {"options":{"heartbeat-interval":"100"}}: accepted
            {"options":{"--pre-vote":""}}: rejected, spec.options: options: flag names must not start or end with a dash
            {"options":{"A":""}}: rejected, spec.options: options: flag names have at most 63 lower-case letters, digits and dashes, and no other characters
            {"options":{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":""}}: rejected, spec.options: options: flag names have at most 63 lower-case letters, digits and dashes, and no other characters
            {"options":{"data-dir":"/x"}}: rejected, spec.options: options: data-dir is set by the guest
            {"options":{"initial-cluster":"a"}}: rejected, spec.options: options: initial-cluster is set by the guest
            {"options":{"quota-backend-bytes":"1"},"quotaBackendBytes":1}: rejected, spec: quota-backend-bytes is set twice
            {"options":{"snapshot-count":"1"},"snapshotCount":1}: rejected, spec: snapshot-count is set twice
        "#]],
    );
}

/// The verdict on flags.
fn flags(options: &Value) -> String {
    verdict("demo", &json!({ "options": options }))
}

/// etcd flags that the configuration must allow, with a value. An environment variable `ETCD_…` is a flag too, and no
/// field sets one.
const UNLISTED: &[(&str, &str)] = &[
    ("auto-tls-x", ""),
    ("client-cert-file", "/x"),
    ("client-crl-file", "/x"),
    ("client-key-file", "/x"),
    ("distributed-tracing-address", "collector:4317"),
    ("enable-distributed-tracing", ""),
    ("enable-log-rotation", ""),
    ("enable-pprof", ""),
    ("experimental-distributed-tracing-address", "collector:4317"),
    ("experimental-enable-distributed-tracing", ""),
    ("experimental-peer-skip-client-san-verification", ""),
    ("log-outputs", "/var/run/etcd/x"),
    ("log-output", "/var/run/etcd/x"),
    ("log-rotation-config-json", "{}"),
    ("proxy", "on"),
    ("self-signed-cert-validity", "1"),
    ("unsafe-no-fsync", ""),
    ("unsafe-overwrite-db", ""),
    ("v2-deprecation", "not-yet"),
    ("version", ""),
    ("help", ""),
    ("h", ""),
    ("heartbeat", "1"),
];

/// Flags that the plugin sets and no configuration allows.
const RESERVED: &[&str] = &[
    "name",
    "data-dir",
    "wal-dir",
    "config-file",
    "force-new-cluster",
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
    "advertise-client-urls",
    "initial-cluster",
    "initial-cluster-state",
    "discovery",
    "discovery-proxy",
    "discovery-srv",
    "peer-auto-tls",
    "peer-cert-file",
    "peer-trusted-ca-file",
    "auto-tls",
    "trusted-ca-file",
    "client-cert-auth",
    "cert-file",
    "key-file",
];

#[test]
fn flags_that_name_files_and_addresses_or_give_up_data_need_the_configuration() {
    let unlisted =
        "Invalid, spec.options: tenants.options of the plugin's configuration does not list";
    for (flag, value) in UNLISTED {
        let expected = format!("{unlisted} {flag}");
        assert_eq!(flags(&json!({ *flag: value })), expected);
    }
    for flag in RESERVED {
        let expected = format!("rejected, spec.options: options: {flag} is set by the guest");
        assert_eq!(flags(&json!({ *flag: "x" })), expected);
    }
}

#[test]
fn flags_have_values_of_their_form() {
    for (flag, value, form) in [
        // It would take the next argument as a value.
        ("heartbeat-interval", "", "a whole number"),
        ("heartbeat-interval", "100 --data-dir=/x", "a whole number"),
        ("quota-backend-bytes", "$(POD_NAME)", "a whole number"),
        ("backend-batch-interval", "/x", "a duration such as 1h30m"),
        (
            "auth-token",
            "jwt,pub-key=/x,priv-key=/y,sign-method=RS256",
            "simple",
        ),
        ("metrics", "basic,extensive", "basic or extensive"),
        ("pre-vote", "1", "true, false or no value"),
        ("cors", "/etc", "words with commas between them"),
    ] {
        let expected = format!("Invalid, spec.options: {flag} \"{value}\": write {form}");
        assert_eq!(flags(&json!({ flag: value })), expected);
    }
}

#[test]
fn the_readme_names_the_flags_that_need_no_configuration() {
    let readme = include_str!("../../README.md");
    for flag in FLAGS.iter().filter(|flag| flag.form.is_some()) {
        let name = flag.name;
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn flags_of_tuning_need_no_configuration() {
    let accepted = json!({
        "auth-token": "simple", "auth-token-ttl": "300", "auto-compaction-mode": "periodic", "auto-compaction-retention": "1h",
        "backend-batch-interval": "100ms", "backend-batch-limit": "10000", "backend-bbolt-freelist-type": "map",
        "cipher-suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256", "cors": "*",
        "election-timeout": "2000", "enable-grpc-gateway": "false", "experimental-compaction-batch-limit": "500",
        "experimental-corrupt-check-time": "12h", "experimental-initial-corrupt-check": "true",
        "experimental-warning-apply-duration": "200ms", "feature-gates": "CompactHashCheck=true,LeaseCheckpoint=true",
        "grpc-keepalive-min-time": "5s", "heartbeat-interval": "200", "host-whitelist": "localhost,127.0.0.1",
        "log-format": "json", "log-level": "warn", "logger": "zap", "max-concurrent-streams": "1000",
        "max-request-bytes": "10485760", "max-snapshots": "5", "max-txn-ops": "1024", "max-wals": "5",
        "metrics": "extensive", "pre-vote": "", "quota-backend-bytes": "1073741824", "snapshot-catchup-entries": "5000",
        "snapshot-count": "10000", "strict-reconfig-check": "true", "tls-min-version": "TLS1.3",
    });
    // A digest contains no version, so no flag can be missing from it.
    let image = format!("etcd@sha256:{}", "0".repeat(64));
    let spec = json!({ "image": image, "options": accepted });
    assert_eq!(verdict("demo", &spec), "accepted");
    let listed = parent(json!({ "options": { "log-outputs": "/x", "unsafe-no-fsync": "" } }));
    let config = json!({ "tenants": { "options": ["log-outputs", "unsafe-no-fsync"] } });
    let request = TestRequest::new(&listed).config(&config).build();
    Plugin::reconcile(&request, &host()).expect("the configuration lists both");
}

#[test]
fn a_disruption_budget_has_one_number_or_percentage() {
    let budget = |budget: Value| json!({ "podDisruptionBudget": budget });
    check(
        &[
            budget(json!({ "minAvailable": 2 })),
            budget(json!({ "minAvailable": "50%" })),
            budget(json!({ "minAvailable": "66%" })),
            budget(json!({ "minAvailable": "90%" })),
            budget(json!({ "minAvailable": "half" })),
            budget(json!({ "maxUnavailable": "1" })),
            budget(json!({ "maxUnavailable": -1 })),
            budget(json!({ "minAvailable": 4 })),
            budget(json!({ "minAvailable": 1, "maxUnavailable": 1 })),
            budget(json!({ "minAvailable": 3 })),
            budget(json!({ "maxUnavailable": 0 })),
            budget(json!({ "maxUnavailable": "0%" })),
            budget(json!({ "maxUnavailable": 0, "enabled": false })),
            budget(json!({ "maxUnavailable": 1 })),
        ],
        &expect![[r#"
            {"podDisruptionBudget":{"minAvailable":2}}: accepted
            {"podDisruptionBudget":{"minAvailable":"50%"}}: accepted
            {"podDisruptionBudget":{"minAvailable":"66%"}}: accepted
            {"podDisruptionBudget":{"minAvailable":"90%"}}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"minAvailable":"half"}}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"podDisruptionBudget":{"maxUnavailable":"1"}}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"podDisruptionBudget":{"maxUnavailable":-1}}: rejected, spec: podDisruptionBudget.maxUnavailable must be between 0 and size
            {"podDisruptionBudget":{"minAvailable":4}}: rejected, spec: podDisruptionBudget.minAvailable must be between 0 and size
            {"podDisruptionBudget":{"maxUnavailable":1,"minAvailable":1}}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable exclude each other
            {"podDisruptionBudget":{"minAvailable":3}}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"maxUnavailable":0}}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"maxUnavailable":"0%"}}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"enabled":false,"maxUnavailable":0}}: accepted
            {"podDisruptionBudget":{"maxUnavailable":1}}: accepted
        "#]],
    );
}

#[test]
fn a_parent_is_at_most_256_kib_large() {
    let options = |count: usize| {
        let options: serde_json::Map<String, Value> = (0..count)
            .map(|number| (format!("flag-{number}"), json!("x".repeat(4096))))
            .collect();
        verdict("demo", &json!({ "options": options }))
    };
    let problem = options(64);
    assert!(
        problem.starts_with("Invalid, the object is too large: "),
        "{problem}"
    );
    assert!(problem.contains("; spec.options has "), "{problem}");
    let smaller = options(63);
    assert!(smaller.starts_with("Invalid, spec.options: "), "{smaller}");
    let more = options(65);
    assert!(more.starts_with("rejected, spec.options: "), "{more}");
}

#[test]
fn resources_are_quantities() {
    let limit = |value: Value| json!({ "resources": { "limits": { "memory": value } } });
    check(
        &[
            limit(json!("512Mi")),
            limit(json!("512Mo")),
            limit(json!(-1)),
        ],
        &expect![[r#"
            {"resources":{"limits":{"memory":"512Mi"}}}: accepted
            {"resources":{"limits":{"memory":"512Mo"}}}: Invalid, spec.resources.limits.memory: "512Mo" is not a quantity
            {"resources":{"limits":{"memory":-1}}}: accepted
        "#]],
    );
}
