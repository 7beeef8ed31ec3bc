//! The memcached plugin's Pods.

use innkeeper_tests::{eventually, manifest::at};

use crate::Site;

const API: &str = "cache.example.com/v1";

// The name is resolved by the cluster's DNS, from inside of a Pod.
#[test]
fn the_pods_of_the_article_become_ready_and_answer_the_memcached_protocol() {
    let site = Site::new("memcached");
    eventually("the API server serves the plugin's kind", || {
        site.plane.user().list(site.kind(API, "Memcached"), "")
    });
    site.plane
        .apply_example(&site.namespace, "examples/memcached/01-article.yaml")
        .unwrap();
    let parent = site.wait_ready(API, "Memcached", "example-memcached");
    assert_eq!(parent["status"]["readyReplicas"], 3);

    let pods = site.plane.user().list(site.kind("v1", "Pod"), "").unwrap();
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert_eq!(pod["spec"]["nodeName"], "real-1");
        assert_eq!(at(pod, "/status/containerStatuses/0/restartCount"), 0);
    }
    assert_eq!(site.warnings(), Vec::<String>::new());

    let name = pods[0]["metadata"]["name"].as_str().unwrap();
    let address = parent["status"]["serverList"][0].as_str().unwrap();
    let script = format!(
        "exec 3<>/dev/tcp/{}; printf 'set key 0 0 5\\r\\nvalue\\r\\nget key\\r\\nquit\\r\\n' >&3; cat <&3",
        address.replace(':', "/")
    );
    // The name resolves a moment after the Pods are ready.
    let answer = eventually("memcached answers", || site.run(name, &script));
    assert_eq!(answer, "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n");
}
