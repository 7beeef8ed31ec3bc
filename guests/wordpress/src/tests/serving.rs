//! Services and the Ingress.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{first, parent, pass};

fn service(spec: &Value) -> Value {
    first(spec).child("web-service").unwrap().object["spec"].clone()
}

#[test]
fn the_type_of_the_service_depends_on_routes_unless_it_is_given() {
    let routes = json!([{ "domain": "a.org" }]);
    assert_eq!(service(&json!({}))["type"], "NodePort");
    assert_eq!(service(&json!({ "routes": routes }))["type"], "ClusterIP");
    let spec = json!({ "service": { "type": "LoadBalancer", "nodePort": 30080 } });
    let types = json!({ "tenants": { "serviceTypes": ["LoadBalancer"] } });
    let service = pass(&TestRequest::new(&parent("shop", &spec)).config(&types))
        .child("web-service")
        .unwrap()
        .object["spec"]
        .clone();
    assert_eq!(service["type"], "LoadBalancer");
    assert_eq!(
        service["ports"],
        json!([{ "name": "http", "port": 80, "targetPort": "http", "nodePort": 30080,
                 "protocol": "TCP" }])
    );
}

#[test]
fn the_database_has_a_headless_service_of_its_own() {
    let outcome = first(&json!({}));
    let service = &outcome.child("db-service").unwrap().object["spec"];
    assert_eq!(service["clusterIP"], "None");
    assert_eq!(service["ports"][0]["port"], 3306);
    let selector = &outcome.child("db").unwrap().object["spec"]["selector"]["matchLabels"];
    assert_eq!(service["selector"], *selector);
}

#[test]
fn the_ingress_has_a_rule_per_domain_and_each_path_once() {
    let spec = json!({
        "image": "wordpress-below-a-path",
        "routes": [
            { "domain": "a.org", "path": "/x" },
            { "domain": "b.org" },
            { "domain": "a.org", "path": "/x/" },
            { "domain": "a.org", "path": "/y" },
        ],
        "tlsSecretRef": "tls",
        "ingress": { "className": "public", "annotations": { "a": "b" } },
    });
    let config = json!({ "tenants": { "ingressAnnotations": ["a"] } });
    let outcome = pass(&TestRequest::new(&parent("shop", &spec)).config(&config));
    let ingress = &outcome.child("ingress").unwrap().object;
    assert_eq!(ingress["metadata"]["annotations"]["a"], "b");
    assert_eq!(ingress["spec"]["ingressClassName"], "public");
    let tls = json!([{ "hosts": ["a.org", "b.org"], "secretName": "tls" }]);
    assert_eq!(ingress["spec"]["tls"], tls);
    let rules: Vec<(String, Vec<String>)> = ingress["spec"]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| {
            let paths = rule["http"]["paths"].as_array().unwrap().iter();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (
                text(&rule["host"]),
                paths.map(|path| text(&path["path"])).collect(),
            )
        })
        .collect();
    let expected = [
        ("a.org".to_owned(), vec!["/x".to_owned(), "/y".to_owned()]),
        ("b.org".to_owned(), vec!["/".to_owned()]),
    ];
    assert_eq!(rules, expected);
    let path = &ingress["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!(path["pathType"], "Prefix");
    let backend = json!({ "service": { "name": "shop", "port": { "name": "http" } } });
    assert_eq!(path["backend"], backend);
}

#[test]
fn the_ingress_can_be_switched_off_and_takes_the_class_of_the_configuration() {
    let routes = json!([{ "domain": "a.org" }]);
    let off = json!({ "routes": routes, "ingress": { "enabled": false } });
    assert!(first(&off).child("ingress").is_none());
    let request = TestRequest::new(&parent("shop", &json!({ "routes": routes })));
    let outcome = pass(&request.config(&json!({ "ingressClassName": "internal" })));
    let ingress = &outcome.child("ingress").unwrap().object;
    assert_eq!(ingress["spec"]["ingressClassName"], "internal");
}

// The observed children belong to the parent: another owner's Service with the same name is not among them.
#[test]
fn an_ingress_never_leads_to_the_service_of_another_owner() {
    let parent = parent("shop", &json!({ "routes": [{ "domain": "a.org" }] }));
    let all = pass(&TestRequest::new(&parent));
    let observing = |gone: &[&str]| {
        let children = all
            .children()
            .iter()
            .filter(|child| !gone.contains(&&*child.key))
            .cloned();
        let observed = Answer::from(Desired::new().children(children));
        let outcome = pass(&TestRequest::new(&parent).answered(&observed));
        let ingress = outcome.child("ingress").unwrap();
        // The host creates it when the Service is a child; a load balancer's address may never come.
        assert_eq!(ingress.after, ["db", "web-service"]);
        let service = outcome.child("web-service").unwrap();
        assert_eq!(service.readiness, Readiness::Ready);
        ingress.apply
    };
    assert_eq!(observing(&["web-service", "ingress"]), ApplyPolicy::Always);
    assert_eq!(observing(&["ingress"]), ApplyPolicy::Always);
    assert_eq!(observing(&[]), ApplyPolicy::Always);
    // An existing one is neither changed nor deleted.
    assert_eq!(observing(&["web-service"]), ApplyPolicy::Hold);
}

#[test]
fn the_url_follows_the_first_route() {
    let url = |spec: Value| first(&spec).report().status.as_ref().unwrap()["url"].clone();
    let routes = json!([{ "domain": "a.org", "path": "/" }, { "domain": "b.org" }]);
    assert_eq!(url(json!({})), "http://shop.default.svc");
    assert_eq!(url(json!({ "routes": routes })), "http://a.org");
    assert_eq!(
        url(json!({ "routes": routes, "tlsSecretRef": "t" })),
        "https://a.org"
    );
    let spec = json!({ "routes": routes, "tlsSecretRef": "t", "externalScheme": "http" });
    assert_eq!(url(spec), "http://a.org");
}
