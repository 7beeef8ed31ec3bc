//! The site's Service and Ingress.

use std::collections::BTreeMap;

use innkeeper_kit::pod;
use innkeeper_sdk::{json, prelude::*};
use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort, ServiceSpec},
        networking::v1::{
            HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule,
            IngressServiceBackend, IngressSpec, IngressTLS, ServiceBackendPort,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::web::PORT_NAME;
use crate::Kinds;
use crate::site::Site;

/// The Service port.
const PORT: i32 = 80;

/// Service and Ingress. The Ingress sends traffic to the Service, whose name may have another owner.
pub(super) fn children(request: &Request, site: &Site<'_>) -> Vec<Child> {
    let service = Kinds::child("web-service", &super::marked(service(site))).after(["db"]);
    let ingress = site.has_ingress().then(|| {
        let ingress = Kinds::child("ingress", &super::marked(ingress(site))).after(["db"]);
        request.children.vouch(ingress, [&service])
    });
    // The Ingress waits for the Service, not for a load balancer's address.
    [service.ready()].into_iter().chain(ingress).collect()
}

fn service(site: &Site<'_>) -> Service {
    let labels = site.labels("web");
    let options = site.spec.service.as_ref();
    Service {
        metadata: annotated(site, options.map(|options| &options.annotations)),
        spec: Some(ServiceSpec {
            type_: Some(site.service_type().as_str().to_owned()),
            selector: Some(labels),
            ports: Some(vec![ServicePort {
                node_port: options.and_then(|options| options.node_port),
                ..pod::service_port(PORT_NAME, PORT)
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn ingress(site: &Site<'_>) -> Ingress {
    let options = site.spec.ingress.as_ref();
    let class = options.and_then(|options| options.class_name.clone());
    let rules: Vec<IngressRule> = paths_by_domain(site)
        .into_iter()
        .map(|(domain, paths)| IngressRule {
            host: Some(domain.to_owned()),
            http: Some(HTTPIngressRuleValue {
                paths: paths.into_iter().map(|path| backend(site, path)).collect(),
            }),
        })
        .collect();
    let hosts = rules.iter().filter_map(|rule| rule.host.clone()).collect();
    let tls = site.spec.tls_secret_ref.as_ref().map(|secret| {
        vec![IngressTLS {
            hosts: Some(hosts),
            secret_name: Some(secret.clone()),
        }]
    });
    Ingress {
        metadata: annotated(site, options.map(|options| &options.annotations)),
        spec: Some(IngressSpec {
            ingress_class_name: class.or_else(|| site.config.ingress_class_name.clone()),
            rules: Some(rules),
            tls,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Domains in order of first appearance, each with distinct paths in order.
fn paths_by_domain<'a>(site: &Site<'a>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut domains: Vec<(&str, Vec<&str>)> = Vec::new();
    for route in &site.spec.routes {
        let path = match route.trimmed_path() {
            "" => "/",
            path => path,
        };
        match domains
            .iter_mut()
            .find(|(domain, _)| *domain == route.domain)
        {
            Some((_, paths)) if paths.contains(&path) => {}
            Some((_, paths)) => paths.push(path),
            None => domains.push((&route.domain, vec![path])),
        }
    }
    domains
}

fn backend(site: &Site<'_>, path: &str) -> HTTPIngressPath {
    HTTPIngressPath {
        path: Some(path.to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend {
            service: Some(IngressServiceBackend {
                name: site.name.to_owned(),
                port: Some(ServiceBackendPort {
                    name: Some(PORT_NAME.to_owned()),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        },
    }
}

fn annotated(site: &Site<'_>, annotations: Option<&BTreeMap<String, String>>) -> ObjectMeta {
    let annotations = annotations.map(json::sanitized);
    ObjectMeta {
        annotations: annotations.filter(|annotations| !annotations.is_empty()),
        ..metadata(site.name, &site.labels("web"))
    }
}
