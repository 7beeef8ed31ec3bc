//! A site's desired state: names, labels, addresses, images.
//!
//! It depends only on the parent and the configuration, not on the observed state.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use serde_json::Value;

use crate::{
    api::{Claim, Credentials, DeletionPolicy, Managed, Route, Scheme, WordpressSpec},
    config::Config,
};

/// The annotation on parent and site Pods: a new value replaces the Pods.
pub(crate) const RESTART_TRIGGER: &str = "example.com/restart-trigger";

/// One parent's desired state.
pub(crate) struct Site<'a> {
    /// The parent's name.
    pub(crate) name: &'a str,
    /// The parent's namespace.
    pub(crate) namespace: &'a str,
    /// The parent's UID.
    pub(crate) uid: &'a str,
    /// The parent's spec.
    pub(crate) spec: &'a WordpressSpec,
    /// The administrator's settings.
    pub(crate) config: &'a Config,
    /// The value of the annotation that restarts the site.
    pub(crate) restart_trigger: Option<&'a str>,
    /// The site image.
    pub(crate) image: &'a str,
    /// The managed database; `None` if the database is external.
    pub(crate) managed: Option<Managed>,
    /// The Secret with the passwords for the database in use.
    pub(crate) credentials: Credentials,
    /// The claim for the site's files.
    pub(crate) code: Claim,
}

impl<'a> Site<'a> {
    pub(crate) fn new(request: &'a Request, spec: &'a WordpressSpec, config: &'a Config) -> Self {
        let external = spec.external();
        let managed_spec = spec
            .database
            .as_ref()
            .and_then(|database| database.managed.as_ref());
        let managed = external
            .is_none()
            .then(|| managed_spec.cloned().unwrap_or_default());
        let reference = managed
            .as_ref()
            .and_then(|managed| managed.credentials_secret_ref.as_ref());
        let credentials = match (external, reference) {
            (Some(external), _) => (&external.credentials_secret_ref).into(),
            (None, Some(reference)) => reference.into(),
            (None, None) => Credentials::generated(mysql_name(request.name())),
        };
        Self {
            name: request.name(),
            namespace: request.namespace(),
            uid: request.uid(),
            spec,
            config,
            restart_trigger: request.annotation(RESTART_TRIGGER),
            image: spec.image.as_deref().unwrap_or(&config.images.wordpress),
            managed,
            credentials,
            code: spec
                .code
                .as_ref()
                .and_then(|code| code.persistent_volume_claim.clone())
                .unwrap_or_default(),
        }
    }

    /// The kind of a data source that is not a claim, so the owner is unknown.
    pub(crate) fn foreign_source(&self) -> Option<&str> {
        let foreign = self
            .data_sources()
            .map(|(_, source)| source)
            .find(|source| !is_claim(source))?;
        Some(foreign["kind"].as_str().unwrap_or_default())
    }

    /// The data sources for the site's claims, with claim names.
    fn data_sources(&self) -> impl Iterator<Item = (String, &Value)> {
        self.managed
            .iter()
            .map(|managed| (self.mysql_name(), &managed.storage))
            .chain([(self.own_code_claim(), &self.code)])
            .filter_map(|(name, claim)| Some((name, claim.data_source.as_ref()?)))
    }

    /// The claims that are data sources: the name of the site's claim, and the source's name.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (String, &str)> {
        self.data_sources()
            .filter(|(_, source)| is_claim(source))
            .filter_map(|(name, source)| Some((name, source["name"].as_str()?)))
    }

    /// The name of all database children.
    pub(crate) fn mysql_name(&self) -> String {
        mysql_name(self.name)
    }

    /// The name of the Secret with the site's keys and salts.
    pub(crate) fn salts_name(&self) -> String {
        format!("{}-wp", self.name)
    }

    /// The name of the ConfigMap with the PHP settings.
    pub(crate) fn php_name(&self) -> String {
        format!("{}-php", self.name)
    }

    /// The name of the files claim that this plugin creates.
    pub(crate) fn own_code_claim(&self) -> String {
        format!("{}-code", self.name)
    }

    /// The name of the files claim that the Pods mount.
    pub(crate) fn code_claim(&self) -> String {
        self.code
            .existing_claim
            .clone()
            .unwrap_or_else(|| self.own_code_claim())
    }

    /// A component's labels and selector.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        base_labels("wordpress", self.name, component)
    }

    /// The desired number of replicas.
    pub(crate) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// A managed database's image.
    pub(crate) fn database_image(&self) -> &str {
        self.managed
            .as_ref()
            .and_then(|managed| managed.image.as_deref())
            .unwrap_or(&self.config.images.mysql)
    }

    /// The database address without the port.
    pub(crate) fn database_host(&self) -> String {
        self.spec
            .external()
            .map_or_else(|| self.mysql_name(), |external| external.host.clone())
    }

    /// The policy for claims and generated Secrets when the parent is deleted.
    pub(crate) const fn policy(&self) -> RemovalPolicy {
        match self.spec.deletion_policy {
            DeletionPolicy::Retain => RemovalPolicy::Retain,
            DeletionPolicy::Delete => RemovalPolicy::Delete,
        }
    }

    /// The Pods' user or group, unless the cluster assigns it.
    pub(crate) fn user(&self, user: i64) -> Option<i64> {
        self.config.assign_user.then_some(user)
    }

    /// The site's main domain.
    pub(crate) fn main_domain(&self) -> String {
        match self.spec.routes.first() {
            Some(route) => route.domain.clone(),
            None => format!("{}.{}.svc", self.name, self.namespace),
        }
    }

    /// The site's URL scheme.
    pub(crate) fn scheme(&self) -> Scheme {
        let default = match self.spec.tls_secret_ref {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        self.spec.external_scheme.unwrap_or(default)
    }

    /// The site's URL without a trailing slash.
    pub(crate) fn home_url(&self) -> String {
        let path = self.spec.routes.first().map(Route::trimmed_path);
        format!(
            "{}://{}{}",
            self.scheme().as_str(),
            self.main_domain(),
            path.unwrap_or_default()
        )
    }

    /// The page that tells whether a site Pod is ready. The installer needs PHP and the database but loads neither
    /// themes nor plugins, even on an installed site; the first step calls no server.
    pub(crate) fn readiness_path(&self) -> String {
        self.spec.readiness_path.clone().unwrap_or_else(|| {
            let path = self.spec.routes.first().map_or("", Route::trimmed_path);
            format!("{path}/wp-admin/install.php?step=1")
        })
    }

    /// The site's Service type.
    pub(crate) fn service_type(&self) -> ServiceType {
        self.spec
            .service
            .as_ref()
            .and_then(|service| service.type_)
            .unwrap_or_else(|| self.default_service_type())
    }

    /// The Service type when the spec has none.
    pub(crate) const fn default_service_type(&self) -> ServiceType {
        if self.spec.routes.is_empty() {
            ServiceType::NodePort
        } else {
            ServiceType::ClusterIp
        }
    }

    /// True if the site can be reached from outside the cluster.
    pub(crate) fn is_published(&self) -> bool {
        self.has_ingress() || self.service_type() != ServiceType::ClusterIp
    }

    /// True if the site has an Ingress.
    pub(crate) fn has_ingress(&self) -> bool {
        self.spec
            .ingress
            .as_ref()
            .and_then(|ingress| ingress.enabled)
            .unwrap_or(true)
            && !self.spec.routes.is_empty()
    }
}

/// True if a data source is a Kubernetes PersistentVolumeClaim.
fn is_claim(source: &Value) -> bool {
    source["apiGroup"].as_str().unwrap_or_default().is_empty()
        && source["kind"] == "PersistentVolumeClaim"
}

/// The last part of an image's repository.
pub(crate) fn product_of(image: &str) -> &str {
    repository_of(image)
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .split(':')
        .next()
        .unwrap_or_default()
}

/// True for a site image from Docker Hub's official repository.
pub(crate) fn is_official(image: &str) -> bool {
    let name = repository_of(image);
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    name.strip_prefix("library/")
        .unwrap_or(name)
        .split(':')
        .next()
        == Some("wordpress")
}

fn repository_of(image: &str) -> &str {
    image.split('@').next().unwrap_or_default()
}

fn mysql_name(parent: &str) -> String {
    format!("{parent}-mysql")
}
