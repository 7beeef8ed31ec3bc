//! Claims.

use super::*;

#[test]
fn a_data_source_has_a_name_and_its_passwords() {
    let source =
        |name: &str| json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": name } });
    let database = |managed: Value| json!({ "database": { "managed": managed } });
    let own = json!({ "name": "s" });
    check(
        &[
            json!({ "code": { "persistentVolumeClaim": source("many") } }),
            json!({ "code": { "persistentVolumeClaim": source("") } }),
            database(json!({ "storage": source("many"), "credentialsSecretRef": own })),
            database(json!({ "storage": source("many") })),
            database(json!({ "storage": source(""), "credentialsSecretRef": own })),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}: accepted
            {"code":{"persistentVolumeClaim":{"dataSource":{"kind":"PersistentVolumeClaim","name":""}}}}: rejected, spec.code.persistentVolumeClaim.dataSource.name: "" is shorter than 1 character
            {"database":{"managed":{"credentialsSecretRef":{"name":"s"},"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}}: accepted
            {"database":{"managed":{"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}}: rejected, spec.database.managed: a dataSource needs database.managed.credentialsSecretRef with its data's passwords
            {"database":{"managed":{"credentialsSecretRef":{"name":"s"},"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":""}}}}}: rejected, spec.database.managed.storage.dataSource.name: "" is shorter than 1 character
        "#]],
    );
}

#[test]
fn a_claim_lets_pods_write() {
    let code =
        |modes: &[&str]| json!({ "code": { "persistentVolumeClaim": { "accessModes": modes } } });
    check(
        &[
            code(&["ReadOnlyMany"]),
            code(&["ReadOnlyMany", "ReadOnlyMany"]),
            code(&["ReadWriteOnce", "ReadOnlyMany"]),
            code(&["ReadOnlyMany", "ReadWriteMany"]),
            json!({ "database": { "managed": { "storage": { "accessModes": ["ReadOnlyMany"] } } } }),
            json!({ "code": { "persistentVolumeClaim": { "existingClaim": "read" } } }),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany"]}}}: rejected, spec.code.persistentVolumeClaim: accessModes needs a writable mode: ReadOnlyMany alone is read-only
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany","ReadOnlyMany"]}}}: rejected, spec.code.persistentVolumeClaim: accessModes needs a writable mode: ReadOnlyMany alone is read-only
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce","ReadOnlyMany"]}}}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany","ReadWriteMany"]}}}: accepted
            {"database":{"managed":{"storage":{"accessModes":["ReadOnlyMany"]}}}}: rejected, spec.database.managed.storage: accessModes needs a writable mode: ReadOnlyMany alone is read-only
            {"code":{"persistentVolumeClaim":{"existingClaim":"read"}}}: Invalid, spec.code.persistentVolumeClaim.existingClaim: claim read can only be read, and the site writes to it: name another
        "#]],
    );
}

#[test]
fn replicas_share_their_files() {
    let code = |replicas: i32, claim: Value| json!({ "replicas": replicas, "code": { "persistentVolumeClaim": claim } });
    check(
        &[
            json!({ "replicas": 0 }),
            json!({ "replicas": 1 }),
            json!({ "replicas": 2 }),
            json!({ "replicas": -1 }),
            json!({ "replicas": "2" }),
            json!({ "replicas": 2, "code": {} }),
            code(2, json!({})),
            code(2, json!({ "accessModes": ["ReadOnlyMany"] })),
            code(2, json!({ "accessModes": ["ReadWriteMany"] })),
            code(
                50,
                json!({ "accessModes": ["ReadWriteOnce", "ReadWriteMany"] }),
            ),
            code(51, json!({ "accessModes": ["ReadWriteMany"] })),
            code(2, json!({ "existingClaim": "many" })),
            code(2, json!({ "existingClaim": "one" })),
            code(1, json!({ "existingClaim": "one" })),
        ],
        &expect![[r#"
            {"replicas":0}: accepted
            {"replicas":1}: accepted
            {"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"replicas":-1}: rejected, spec.replicas: -1 is less than the minimum of 0
            {"replicas":"2"}: rejected, spec.replicas: "2" is not of type "integer"
            {"code":{},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"code":{"persistentVolumeClaim":{}},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany"]}},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage; spec.code.persistentVolumeClaim: accessModes needs a writable mode: ReadOnlyMany alone is read-only
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"replicas":2}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce","ReadWriteMany"]}},"replicas":50}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"replicas":51}: rejected, spec.replicas: 51 is greater than the maximum of 50
            {"code":{"persistentVolumeClaim":{"existingClaim":"many"}},"replicas":2}: accepted
            {"code":{"persistentVolumeClaim":{"existingClaim":"one"}},"replicas":2}: Invalid, spec.code.persistentVolumeClaim.existingClaim: claim one has no access mode ReadWriteMany
            {"code":{"persistentVolumeClaim":{"existingClaim":"one"}},"replicas":1}: accepted
        "#]],
    );
}

#[test]
fn a_claim_has_a_size_and_modes() {
    let code = |claim: Value| json!({ "code": { "persistentVolumeClaim": claim } });
    let data = |claim: Value| json!({ "database": { "managed": { "storage": claim } } });
    check(
        &[
            code(json!({ "size": 1 })),
            code(json!({ "size": "5Gi", "storageClassName": "fast" })),
            code(json!({ "size": "0" })),
            code(json!({ "size": 0 })),
            code(json!({ "size": "-1Gi" })),
            code(json!({ "size": "10 Gi" })),
            code(json!({ "size": "" })),
            code(json!({ "accessModes": [] })),
            code(json!({ "accessModes": ["Sometimes"] })),
            code(json!({ "existingClaim": "" })),
            data(json!({ "size": "0" })),
            data(json!({ "size": "10 Gi" })),
            data(json!({ "accessModes": [] })),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"size":1}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"5Gi","storageClassName":"fast"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"0"}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":0}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":"-1Gi"}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":"10 Gi"}}}: rejected, spec.code.persistentVolumeClaim: size must be a quantity, such as 10Gi
            {"code":{"persistentVolumeClaim":{"size":""}}}: rejected, spec.code.persistentVolumeClaim: size must be a quantity, such as 10Gi
            {"code":{"persistentVolumeClaim":{"accessModes":[]}}}: rejected, spec.code.persistentVolumeClaim.accessModes: [] has less than 1 item
            {"code":{"persistentVolumeClaim":{"accessModes":["Sometimes"]}}}: rejected, spec.code.persistentVolumeClaim.accessModes[0]: "Sometimes" is not one of "ReadWriteOnce", "ReadOnlyMany" or 2 other candidates
            {"code":{"persistentVolumeClaim":{"existingClaim":""}}}: rejected, spec.code.persistentVolumeClaim.existingClaim: "" is shorter than 1 character
            {"database":{"managed":{"storage":{"size":"0"}}}}: rejected, spec.database.managed.storage: size must be greater than zero
            {"database":{"managed":{"storage":{"size":"10 Gi"}}}}: rejected, spec.database.managed.storage: size must be a quantity, such as 10Gi
            {"database":{"managed":{"storage":{"accessModes":[]}}}}: rejected, spec.database.managed.storage.accessModes: [] has less than 1 item
        "#]],
    );
}

#[test]
fn claims_grow_and_nothing_else_of_them_changes() {
    let code = |claim: Value| json!({ "code": { "persistentVolumeClaim": claim } });
    let data = |claim: Value| json!({ "database": { "managed": { "storage": claim } } });
    let class = |class: &str| code(json!({ "storageClassName": class }));
    let modes = |modes: &[&str]| code(json!({ "accessModes": modes }));
    let size = |size: &str| code(json!({ "size": size }));
    check_edits(
        &[
            (size("10Gi"), size("10240Mi")),
            (size("10Gi"), size("20Gi")),
            (size("10Gi"), size("5Gi")),
            (size("10Gi"), code(json!({}))),
            (size("20Gi"), code(json!({}))),
            (class("a"), class("a")),
            (class("a"), class("b")),
            (class("a"), code(json!({}))),
            (code(json!({})), class("a")),
            (modes(&["ReadWriteMany"]), modes(&["ReadWriteMany"])),
            (modes(&["ReadWriteMany"]), modes(&["ReadWriteOnce"])),
            (
                data(json!({ "size": "10Gi" })),
                data(json!({ "size": "5Gi" })),
            ),
            (
                data(json!({ "storageClassName": "a" })),
                data(json!({ "storageClassName": "b" })),
            ),
            (
                data(json!({ "accessModes": ["ReadWriteMany"] })),
                data(json!({ "accessModes": ["ReadWriteOnce"] })),
            ),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"10240Mi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"20Gi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"5Gi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"20Gi"}}} to {"code":{"persistentVolumeClaim":{}}}: accepted
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}}: accepted
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"b"}}}: rejected, a claim's storage class is immutable
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{}}}: rejected, a claim's storage class is immutable
            {"code":{"persistentVolumeClaim":{}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}}: rejected, a claim's storage class is immutable
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}} to {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}} to {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce"]}}}: rejected, a claim's access modes are immutable
            {"database":{"managed":{"storage":{"size":"10Gi"}}}} to {"database":{"managed":{"storage":{"size":"5Gi"}}}}: accepted
            {"database":{"managed":{"storage":{"storageClassName":"a"}}}} to {"database":{"managed":{"storage":{"storageClassName":"b"}}}}: rejected, a claim's storage class is immutable
            {"database":{"managed":{"storage":{"accessModes":["ReadWriteMany"]}}}} to {"database":{"managed":{"storage":{"accessModes":["ReadWriteOnce"]}}}}: rejected, a claim's access modes are immutable
        "#]],
    );
}
