//! The fields that need no verb `grant` if the Plugin verifies signatures.

use serde_json::{Value, json};

use super::{check_change, grants, keys};

/// A pipeline that ships signed versions needs no verb `grant`, because the signature proves the code.
#[test]
fn a_signature_by_a_key_a_name_and_a_least_version_replaces_the_verb_grant_for_the_source() {
    let signed = |more: &Value| {
        let mut verify = keys("MFkw");
        for (field, value) in more.as_object().unwrap() {
            verify[field] = value.clone();
        }
        json!({"grants": grants("Pod"), "verify": verify})
    };
    let source = json!({"file": {"path": "b.wasm"}});
    let release = json!({"source": source, "digest": format!("sha256:{}", "0b".repeat(32))});
    let both = ["digest", "source"];
    let repository = "registry.example/plugins/web";
    let least = "1.4.0";
    let newer = json!({"name": "web", "minVersion": least});
    check_change(&signed(&newer), &release, &[]);
    let pushed = json!({"repository": repository, "minVersion": least});
    check_change(&signed(&pushed), &release, &[]);
    for bound in [
        // The key may have signed other plugins.
        json!({}),
        json!({"minVersion": least}),
        // An old version with the same key would bypass the digest that an administrator pinned.
        json!({"name": "web"}),
        json!({"name": "web", "repository": repository}),
    ] {
        let mut pinned = signed(&bound);
        check_change(&pinned, &release, &both);
        pinned["digest"] = json!(format!("sha256:{}", "0c".repeat(32)));
        let digest = json!({"digest": release["digest"]});
        check_change(&pinned, &digest, &["digest"]);
    }
    let with = |field: &str, value: Value| {
        let mut change = release.clone();
        change[field] = value;
        change
    };
    let named = signed(&newer);
    check_change(&named, &with("config", json!({"image": "b"})), &["config"]);
    for verify in [
        json!(null),
        json!({"name": "shop"}),
        json!({"name": null}),
        json!({"minVersion": "1.3.9"}),
        json!({"minVersion": null}),
        keys("MFkx"),
    ] {
        check_change(&named, &with("verify", verify), &["verify"]);
    }
    // Keys that the same write adds do not count.
    let unsigned = json!({"grants": grants("Pod")});
    let with_keys = with("verify", named["verify"].clone());
    check_change(&unsigned, &with_keys, &["verify"]);
}
