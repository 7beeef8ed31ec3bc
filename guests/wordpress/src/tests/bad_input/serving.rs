//! Routes, Ingress, Service and readiness page.

use super::*;

#[test]
fn a_path_is_one_that_the_image_serves() {
    let routes = json!([{ "domain": "a.org" }, { "domain": "www.a.org", "path": "/blog" }]);
    let with = |image: &str| json!({ "routes": routes, "image": image });
    check(
        &[
            json!({ "routes": routes }),
            with("wordpress:6.9"),
            with("docker.io/library/wordpress:6.9"),
            with("registry.example.com/team/wordpress:6.9"),
            with("mine"),
        ],
        &expect![[r#"
            {"routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image wordpress:7.1-apache serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image wordpress:6.9 serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"docker.io/library/wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image docker.io/library/wordpress:6.9 serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"registry.example.com/team/wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: accepted
            {"image":"mine","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: accepted
        "#]],
    );
}

#[test]
fn a_page_of_readiness_is_a_path() {
    let path = |path: &str| json!({ "readinessPath": path });
    check(
        &[
            path("/"),
            path("/wp-login.php?a=b"),
            path(""),
            path("a"),
            path("/a b"),
            path("/#a"),
        ],
        &expect![[r#"
            {"readinessPath":"/"}: accepted
            {"readinessPath":"/wp-login.php?a=b"}: accepted
            {"readinessPath":""}: rejected, spec.readinessPath: "" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"; spec.readinessPath: "" is shorter than 1 character
            {"readinessPath":"a"}: rejected, spec.readinessPath: "a" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
            {"readinessPath":"/a b"}: rejected, spec.readinessPath: "/a b" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
            {"readinessPath":"/#a"}: rejected, spec.readinessPath: "/#a" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
        "#]],
    );
}

#[test]
fn routes_are_addresses_of_the_site() {
    let route = |domain: &str, path: &str| json!({ "image": "mine", "routes": [{ "domain": domain, "path": path }] });
    let pair = |first: &str, other: &str| {
        let paths = [first, other].map(|path| json!({ "domain": "a.org", "path": path }));
        json!({ "image": "mine", "routes": paths })
    };
    check(
        &[
            json!({ "routes": [] }),
            json!({ "routes": [{ "path": "/" }] }),
            json!({ "routes": [{ "domain": "a.org", "path": "/a" }] }),
            json!({ "routes": [{ "domain": "a.org" }, { "domain": "a.org", "path": "/a" }] }),
            route("a.org", "/"),
            route("localhost", "/a/b.c~d/"),
            route("*.a.org", "/"),
            route("Shop.org", "/"),
            route("a.org/x", "/"),
            route("a..org", "/"),
            route("-a.org", "/"),
            route("a.org');phpinfo();//", "/"),
            route("", "/"),
            route("a.org", "x"),
            route("a.org", ""),
            route("a.org", "//"),
            route("a.org", "/a?b"),
            pair("/x", "/x"),
            pair("/x", "/x/"),
        ],
        &expect![[r#"
            {"routes":[]}: accepted
            {"routes":[{"path":"/"}]}: rejected, spec.routes[0].domain: is required
            {"routes":[{"domain":"a.org","path":"/a"}]}: Invalid, spec.routes[0].path: the image wordpress:7.1-apache serves the root of a domain and not /a: remove the path, or give spec.image an image that serves it
            {"routes":[{"domain":"a.org"},{"domain":"a.org","path":"/a"}]}: Invalid, spec.routes[1].path: the image wordpress:7.1-apache serves the root of a domain and not /a: remove the path, or give spec.image an image that serves it
            {"image":"mine","routes":[{"domain":"a.org","path":"/"}]}: accepted
            {"image":"mine","routes":[{"domain":"localhost","path":"/a/b.c~d/"}]}: accepted
            {"image":"mine","routes":[{"domain":"*.a.org","path":"/"}]}: rejected, spec.routes[0].domain: "*.a.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"Shop.org","path":"/"}]}: rejected, spec.routes[0].domain: "Shop.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a.org/x","path":"/"}]}: rejected, spec.routes[0].domain: "a.org/x" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a..org","path":"/"}]}: rejected, spec.routes[0].domain: "a..org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"-a.org","path":"/"}]}: rejected, spec.routes[0].domain: "-a.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a.org');phpinfo();//","path":"/"}]}: rejected, spec.routes[0].domain: "a.org');phpinfo();//" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"","path":"/"}]}: rejected, spec.routes[0].domain: "" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"; spec.routes[0].domain: "" is shorter than 1 character
            {"image":"mine","routes":[{"domain":"a.org","path":"x"}]}: rejected, spec.routes[0].path: "x" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":""}]}: rejected, spec.routes[0].path: "" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"//"}]}: rejected, spec.routes[0].path: "//" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"/a?b"}]}: rejected, spec.routes[0].path: "/a?b" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"/x"},{"domain":"a.org","path":"/x"}]}: rejected, spec.routes[1]: {"domain":"a.org","path":"/x"} is in the list twice
            {"image":"mine","routes":[{"domain":"a.org","path":"/x"},{"domain":"a.org","path":"/x/"}]}: accepted
        "#]],
    );
    let many = |count: usize| {
        let routes = (0..count).map(|number| json!({ "domain": format!("{number}.org") }));
        verdict(&parent(
            "shop",
            &json!({ "routes": routes.collect::<Value>() }),
        ))
    };
    assert_eq!(many(64), "accepted");
    assert_eq!(
        many(65),
        "rejected, spec.routes: the value has more than 64 items"
    );
}

#[test]
fn tls_and_the_ingress_need_a_route() {
    let routes = json!([{ "domain": "a.org" }]);
    check(
        &[
            json!({ "tlsSecretRef": "s" }),
            json!({ "tlsSecretRef": "s", "routes": [] }),
            json!({ "tlsSecretRef": "s", "routes": routes }),
            json!({ "tlsSecretRef": "", "routes": routes }),
            json!({ "ingress": { "enabled": true } }),
            json!({ "ingress": { "enabled": true }, "routes": [] }),
            json!({ "ingress": { "enabled": true }, "routes": routes }),
            json!({ "ingress": { "enabled": false } }),
            json!({ "ingress": { "className": "" } }),
            json!({ "externalScheme": "https" }),
            json!({ "externalScheme": "ftp" }),
        ],
        &expect![[r#"
            {"tlsSecretRef":"s"}: rejected, spec: tlsSecretRef needs at least one route
            {"routes":[],"tlsSecretRef":"s"}: rejected, spec: tlsSecretRef needs at least one route
            {"routes":[{"domain":"a.org"}],"tlsSecretRef":"s"}: accepted
            {"routes":[{"domain":"a.org"}],"tlsSecretRef":""}: rejected, spec.tlsSecretRef: "" is shorter than 1 character
            {"ingress":{"enabled":true}}: rejected, spec: ingress.enabled needs at least one route
            {"ingress":{"enabled":true},"routes":[]}: rejected, spec: ingress.enabled needs at least one route
            {"ingress":{"enabled":true},"routes":[{"domain":"a.org"}]}: accepted
            {"ingress":{"enabled":false}}: accepted
            {"ingress":{"className":""}}: rejected, spec.ingress.className: "" is shorter than 1 character
            {"externalScheme":"https"}: accepted
            {"externalScheme":"ftp"}: rejected, spec.externalScheme: "ftp" is not one of "http" or "https"
        "#]],
    );
}

#[test]
fn a_port_of_nodes_needs_a_type_of_the_service() {
    let service = |service: Value| json!({ "service": service });
    check(
        &[
            service(json!({ "type": "NodePort" })),
            service(json!({ "type": "ExternalName" })),
            service(json!({ "nodePort": 30080 })),
            service(json!({ "nodePort": 30080, "type": "ClusterIP" })),
            // The configuration decides if a parent may choose a port.
            service(json!({ "nodePort": 30080, "type": "NodePort" })),
            service(json!({ "nodePort": 30080, "type": "LoadBalancer" })),
            service(json!({ "nodePort": 0, "type": "NodePort" })),
            service(json!({ "nodePort": 65536, "type": "NodePort" })),
            json!({ "containerPort": 1 }),
            json!({ "containerPort": 65535 }),
            json!({ "containerPort": 0 }),
            json!({ "containerPort": 65536 }),
        ],
        &expect![[r#"
            {"service":{"type":"NodePort"}}: accepted
            {"service":{"type":"ExternalName"}}: rejected, spec.service.type: "ExternalName" is not one of "ClusterIP", "NodePort" or "LoadBalancer"
            {"service":{"nodePort":30080}}: rejected, spec.service: service.nodePort needs service.type NodePort or LoadBalancer
            {"service":{"nodePort":30080,"type":"ClusterIP"}}: rejected, spec.service: service.nodePort needs service.type NodePort or LoadBalancer
            {"service":{"nodePort":30080,"type":"NodePort"}}: Invalid, spec.service.type: tenants.serviceTypes of the plugin's configuration does not list NodePort
            {"service":{"nodePort":30080,"type":"LoadBalancer"}}: Invalid, spec.service.type: tenants.serviceTypes of the plugin's configuration does not list LoadBalancer
            {"service":{"nodePort":0,"type":"NodePort"}}: rejected, spec.service.nodePort: 0 is less than the minimum of 1
            {"service":{"nodePort":65536,"type":"NodePort"}}: rejected, spec.service.nodePort: 65536 is greater than the maximum of 65535
            {"containerPort":1}: accepted
            {"containerPort":65535}: accepted
            {"containerPort":0}: rejected, spec.containerPort: 0 is less than the minimum of 1
            {"containerPort":65536}: rejected, spec.containerPort: 65536 is greater than the maximum of 65535
        "#]],
    );
}
