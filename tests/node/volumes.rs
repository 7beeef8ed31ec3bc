//! Volumes with real directories.

use serde_json::{Value, json};

use crate::Site;

/// Mounts a claim, and leaves the owner and mode of the directory as a message.
fn look(site: &Site, name: &str, claim: &str) -> String {
    let spec = json!({
        "securityContext": { "fsGroup": 4242 },
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        "containers": [{
            "name": "shell", "image": "memcached:1.6",
            "command": ["bash", "-c", "{ stat -c '%u:%g %a' /data; ls /data; touch /data/file; } >/dev/termination-log 2>&1"],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        }],
    });
    site.create_shell(name, "", &spec);
    site.wait_message(name)
}

fn claim(site: &Site, name: &str, class: &Value) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": site.namespace },
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    site.plane.user().apply(&claim).unwrap();
}

#[test]
fn a_volume_belongs_to_root_and_gets_the_group_of_the_pod() {
    let site = Site::new("volumes");
    claim(&site, "data", &json!("standard"));
    assert_eq!(look(&site, "first", "data"), "0:4242 2775\n");
    // The next Pod has the files of the first.
    assert_eq!(look(&site, "second", "data"), "0:4242 2775\nfile\n");
}

#[test]
fn a_volume_that_ignores_the_group_stays_closed() {
    let site = Site::new("volumes-ignored");
    claim(&site, "data", &json!("fsgroup-ignored"));
    assert_eq!(
        look(&site, "first", "data"),
        "0:0 755\ntouch: cannot touch '/data/file': Permission denied\n"
    );
}
