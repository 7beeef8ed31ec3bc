//! The network of Pods.

use innkeeper_tests::eventually;
use serde_json::json;

use crate::Site;

#[test]
fn pods_reach_the_api_server_and_nothing_outside() {
    let site = Site::new("network");
    site.create_shell("client", "echo started; sleep infinity", &json!({}));
    site.wait_pod("client");
    let connect = |address: &str| site.run("client", &format!(": <>/dev/tcp/{address}"));

    eventually("the Service kubernetes answers", || {
        connect("kubernetes.default.svc/443")
    });
    // An address that documentation uses. There is no route, so the answer is immediate.
    let refused = connect("192.0.2.1/80").unwrap_err();
    assert!(refused.contains("unreachable"), "{refused}");
    let unknown = connect("example.com/80").unwrap_err();
    assert!(unknown.contains("not known"), "{unknown}");

    let log = site.kubectl(&["logs", "client"]);
    assert_eq!(String::from_utf8_lossy(&log.stdout), "started\n", "{log:?}");
}
