//! The desired state of a site: names, labels, addresses, images.
//!
//! It depends on the parent and the configuration alone, not on the observed state.

use std::collections::BTreeMap;

use innkeeper_kit::{labels, pod::ServiceType};
use innkeeper_sdk::prelude::*;
use serde_json::Value;

use crate::{
    api::{Claim, Credentials, DeletionPolicy, Managed, Route, Scheme, WordpressSpec},
    config::Config,
};

/// The annotation on a parent and on the Pods of the site: another value replaces them.
pub(crate) const RESTART_TRIGGER: &str = "example.com/restart-trigger";

/// The desired state of one parent.
pub(crate) struct Site<'a> {
    /// The parent's name.
    pub(crate) name: &'a str,
    /// The parent's namespace.
    pub(crate) namespace: &'a str,
    /// The parent's UID.
    pub(crate) uid: &'a str,
    /// The declaration of the user.
    pub(crate) spec: &'a WordpressSpec,
    /// The settings of the administrator.
    pub(crate) config: &'a Config,
    /// The value of the annotation that restarts the site.
    pub(crate) restart_trigger: Option<&'a str>,
    /// The image of the site.
    pub(crate) image: &'a str,
    /// The managed database; none if the database is external.
    pub(crate) managed: Option<Managed>,
    /// The Secret with the passwords of the database in use.
    pub(crate) credentials: Credentials,
    /// The claim of the site's files.
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

    /// The kind of a data source of the site's claims that is no claim: its owner is not known.
    pub(crate) fn foreign_source(&self) -> Option<&str> {
        let mut sources = self.data_sources().map(|(_, source)| source);
        let foreign = sources.find(|source| !is_claim(source))?;
        Some(foreign["kind"].as_str().unwrap_or_default())
    }

    /// The data sources of the site's claims, each with the name of the claim that starts with its data.
    fn data_sources(&self) -> impl Iterator<Item = (String, &Value)> {
        let managed = self
            .managed
            .iter()
            .map(|managed| (self.mysql_name(), &managed.storage));
        managed
            .chain([(self.own_code_claim(), &self.code)])
            .filter_map(|(name, claim)| Some((name, claim.data_source.as_ref()?)))
    }

    /// The names of the claims whose data other claims of the site start with: the site's and the
    /// source's name.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (String, &str)> {
        self.data_sources()
            .filter(|(_, source)| is_claim(source))
            .filter_map(|(name, source)| Some((name, source["name"].as_str()?)))
    }

    /// The name of all children of the database.
    pub(crate) fn mysql_name(&self) -> String {
        mysql_name(self.name)
    }

    /// The Secret with the keys and salts of the site.
    pub(crate) fn salts_name(&self) -> String {
        format!("{}-wp", self.name)
    }

    /// The ConfigMap with PHP's configuration.
    pub(crate) fn php_name(&self) -> String {
        format!("{}-php", self.name)
    }

    /// The claim of the site's files that this plugin creates.
    pub(crate) fn own_code_claim(&self) -> String {
        format!("{}-code", self.name)
    }

    /// The claim of the site's files that the pods mount.
    pub(crate) fn code_claim(&self) -> String {
        self.code
            .existing_claim
            .clone()
            .unwrap_or_else(|| self.own_code_claim())
    }

    /// The labels of a part of the site, and its selector.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        labels::base_labels("wordpress", self.name, component)
    }

    /// The desired number of replicas.
    pub(crate) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The image of a managed database.
    pub(crate) fn database_image(&self) -> &str {
        self.managed
            .as_ref()
            .and_then(|managed| managed.image.as_deref())
            .unwrap_or(&self.config.images.mysql)
    }

    /// The address of the database without its port.
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

    /// The user or group of pods, unless the cluster assigns them.
    pub(crate) fn user(&self, user: i64) -> Option<i64> {
        self.config.assign_user.then_some(user)
    }

    /// The main domain of the site.
    pub(crate) fn main_domain(&self) -> String {
        match self.spec.routes.first() {
            Some(route) => route.domain.clone(),
            None => format!("{}.{}.svc", self.name, self.namespace),
        }
    }

    /// The scheme of the site's URL.
    pub(crate) fn scheme(&self) -> Scheme {
        let default = match self.spec.tls_secret_ref {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        self.spec.external_scheme.unwrap_or(default)
    }

    /// The URL of the site without a trailing slash.
    pub(crate) fn home_url(&self) -> String {
        let path = self.spec.routes.first().map(Route::trimmed_path);
        format!(
            "{}://{}{}",
            self.scheme().as_str(),
            self.main_domain(),
            path.unwrap_or_default()
        )
    }

    /// The page that tells if a Pod of the site is ready. The installer needs PHP and the database, and loads
    /// neither themes nor plugins, also on a site that is installed; its first step asks no other server.
    pub(crate) fn readiness_path(&self) -> String {
        self.spec.readiness_path.clone().unwrap_or_else(|| {
            let path = self.spec.routes.first().map_or("", Route::trimmed_path);
            format!("{path}/wp-admin/install.php?step=1")
        })
    }

    /// The type of the site's Service.
    pub(crate) fn service_type(&self) -> ServiceType {
        self.spec
            .service
            .as_ref()
            .and_then(|service| service.type_)
            .unwrap_or_else(|| self.default_service_type())
    }

    /// The type of a Service whose type is absent.
    pub(crate) const fn default_service_type(&self) -> ServiceType {
        if self.spec.routes.is_empty() {
            ServiceType::NodePort
        } else {
            ServiceType::ClusterIp
        }
    }

    /// True if the site has an address outside of the cluster.
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

/// True if a data source is a PersistentVolumeClaim of Kubernetes.
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

/// True for an image of the site that Docker Hub's official repository holds.
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
