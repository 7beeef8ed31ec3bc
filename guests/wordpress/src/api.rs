//! The API: spec and status.
//!
//! CEL rules are next to the fields they check; the module `validate` checks what CEL cannot express. Each submodule
//! has the fields for one concern.

mod database;
mod serving;
mod storage;

use innkeeper_kit::prelude::*;
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements,
};

pub(crate) use self::{
    database::{Credentials, Database, External, Managed},
    serving::{IngressOptions, Route, Scheme, ServiceOptions},
    storage::{Claim, Code},
};

/// A WordPress site, by default with its own MySQL database.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Wordpress",
    plural = "wordpresses",
    singular = "wordpress",
    shortname = "wp",
    category = "innkeeper",
    namespaced,
    status = "WordpressStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Database",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"DatabaseReady\")].status"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.size() <= 40")
        .message("metadata.name must be at most 40 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label that starts with a letter"),
    validation = Rule::new(
        "!self.metadata.name.endsWith('-mysql') && !self.metadata.name.endsWith('-mysql-exporter')"
    )
    .message(
        "metadata.name must not end in -mysql or -mysql-exporter: these names belong to the \
         database of another site"
    )
)]
#[x_kube(
    validation = Rule::new(
        "!has(self.sqlrootpassword) || !has(self.sqlRootPassword) \
         || self.sqlrootpassword == self.sqlRootPassword"
    )
    .message("sqlrootpassword and sqlRootPassword are two spellings of one field and must not differ"),
    validation = Rule::new(
        "!(has(self.sqlrootpassword) || has(self.sqlRootPassword)) \
         || !has(self.database) || !has(self.database.external)"
    )
    .message("sqlrootpassword has no effect with an external database"),
    validation = Rule::new(
        "!(has(self.sqlrootpassword) || has(self.sqlRootPassword)) \
         || !has(self.database) || !has(self.database.managed) \
         || !has(self.database.managed.credentialsSecretRef)"
    )
    .message("set either sqlrootpassword or database.managed.credentialsSecretRef"),
    validation = Rule::new(
        "!has(self.replicas) || self.replicas <= 1 \
         || (has(self.code) && has(self.code.persistentVolumeClaim) \
         && (has(self.code.persistentVolumeClaim.existingClaim) \
         || 'ReadWriteMany' in self.code.persistentVolumeClaim.accessModes))"
    )
    .message(
        "more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or \
         object storage"
    ),
    // Here and not on the field: a spec without `database.managed` also has the default name.
    validation = Rule::new(
        "has(self.database) && has(self.database.external) \
         || has(oldSelf.database) && has(oldSelf.database.external) \
         || (has(self.database) && has(self.database.managed) \
         ? self.database.managed.databaseName : 'wordpress') \
         == (has(oldSelf.database) && has(oldSelf.database.managed) \
         ? oldSelf.database.managed.databaseName : 'wordpress')"
    )
    .message("database.managed.databaseName cannot change"),
    validation = budget::below_replicas("podDisruptionBudget", "replicas"),
    validation = budget::allows_evictions("podDisruptionBudget", "replicas"),
    validation = Rule::new(
        "!has(self.tlsSecretRef) || (has(self.routes) && self.routes.size() > 0)"
    )
    .message("tlsSecretRef needs at least one route"),
    validation = Rule::new(
        "!has(self.ingress) || !has(self.ingress.enabled) || !self.ingress.enabled \
         || (has(self.routes) && self.routes.size() > 0)"
    )
    .message("ingress.enabled needs at least one route"),
    validation = Rule::new(
        "!has(self.env) || !self.env.exists(e, e.name == 'WORDPRESS_CONFIG_EXTRA')"
    )
    .message("use configExtra instead of the variable WORDPRESS_CONFIG_EXTRA")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WordpressSpec {
    /// Deprecated: the database's root password in clear text. The plugin copies it into the generated Secret when it
    /// creates that Secret; later changes have no effect.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = Rule::new(r#"!self.matches('[\'"\\\\\\x00-\\x1f\\x7f]')"#)
            .message("the root password must not contain quotes, backslashes or control characters")
    )]
    pub(crate) sqlrootpassword: Option<String>,
    /// Deprecated: alternative spelling of sqlrootpassword.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = Rule::new(r#"!self.matches('[\'"\\\\\\x00-\\x1f\\x7f]')"#)
            .message("the root password must not contain quotes, backslashes or control characters")
    )]
    pub(crate) sql_root_password: Option<String>,
    /// Site image, which must serve HTTP on containerPort; the image from the plugin's configuration when absent.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Image pull policy for all Pods: Always, IfNotPresent or Never; the Kubernetes default when
    /// absent.
    pub(crate) image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets with registry credentials, for all Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Number of site replicas, 0 to 50 (default 1).
    #[schemars(range(min = 0, max = 50))]
    pub(crate) replicas: Option<i32>,
    /// Port on which the image serves HTTP.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) container_port: i32,
    /// Path of the readiness page, which must return a status from 200 to 399. The default is the installer,
    /// `/wp-admin/install.php?step=1` below the first route's path: it needs PHP and the database, but no theme.
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$")
    )]
    pub(crate) readiness_path: Option<String>,
    /// Site requests and limits; requests of 100m CPU and 256Mi memory when absent.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Additional environment variables; a variable named like one of the plugin's replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) env: Vec<EnvVar>,
    /// Additional environment variable sources, after the salts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub(crate) env_from: Vec<EnvFromSource>,
    /// PHP settings in php.ini format.
    #[schemars(length(max = 16384))]
    pub(crate) php_config: Option<String>,
    /// PHP code appended to the generated WordPress configuration. Only a new image updates the core, unless this
    /// code defines WP_AUTO_UPDATE_CORE.
    #[schemars(length(max = 16384))]
    pub(crate) config_extra: Option<String>,
    /// Additional labels and annotations for the site's Pods.
    #[x_kube(
        validation = Rule::new(
            "(!has(self.labels) || self.labels.all(k, !k.startsWith('app.kubernetes.io/'))) \
             && (!has(self.annotations) || self.annotations.all(k, !k.startsWith('example.com/')))"
        )
        .message(
            "podMetadata must not use the prefixes app.kubernetes.io/ (labels) and example.com/ \
             (annotations)"
        )
    )]
    pub(crate) pod_metadata: Option<PodMetadata>,
    /// Fate of claims and generated Secrets when the object is deleted. Retain: they stay, and a later object
    /// with the same name reuses them; Delete: they are deleted too.
    #[serde(default)]
    pub(crate) deletion_policy: DeletionPolicy,
    /// The site's addresses; the first one is the main address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["domain", "path"])
    )]
    pub(crate) routes: Vec<Route>,
    /// Accepts an open installer on a published site: set it once WordPress is installed; otherwise the first visitor
    /// may become the administrator.
    #[serde(default)]
    pub(crate) allow_open_installer: bool,
    /// Secret with the TLS certificate for the routes.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) tls_secret_ref: Option<String>,
    /// URL scheme if TLS ends outside the cluster; by default https with tlsSecretRef, otherwise http.
    pub(crate) external_scheme: Option<Scheme>,
    /// Ingress options.
    pub(crate) ingress: Option<IngressOptions>,
    /// Service options.
    pub(crate) service: Option<ServiceOptions>,
    /// The site's database; a managed one when absent.
    pub(crate) database: Option<Database>,
    /// Storage for themes, plugins and uploads; a 10Gi claim when absent.
    pub(crate) code: Option<Code>,
    /// PodDisruptionBudget for the site's Pods; none when absent.
    pub(crate) pod_disruption_budget: Option<DisruptionBudget>,
}

const fn default_port() -> i32 {
    80
}

impl WordpressSpec {
    /// The root password in the spec, in either spelling.
    pub(crate) fn root_password(&self) -> Option<&str> {
        self.sqlrootpassword
            .as_deref()
            .or(self.sql_root_password.as_deref())
    }

    /// The external database, if the site uses one.
    pub(crate) fn external(&self) -> Option<&External> {
        self.database.as_ref()?.external.as_ref()
    }
}

/// Fate of claims and generated Secrets when the object is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeletionPolicy {
    /// They stay, and a later object with the same name reuses them.
    #[default]
    Retain,
    /// They are deleted with the object.
    Delete,
}

/// Observed site state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WordpressStatus {
    /// Number of site Pods.
    #[serde(default)]
    pub(crate) replicas: i32,
    /// Number of ready site Pods.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    /// Pod label selector, for autoscalers.
    #[serde(default)]
    pub(crate) selector: String,
    /// The site's home URL.
    #[serde(default)]
    pub(crate) url: String,
    /// Image in the site's Deployment; absent before the Deployment exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Database in use.
    #[serde(default)]
    pub(crate) database: DatabaseStatus,
    /// Children that outlive the object: sorted kinds and names.
    #[serde(default)]
    pub(crate) retained: Vec<String>,
    /// Object generation that the status describes.
    #[serde(default)]
    pub(crate) observed_generation: i64,
}

/// Database in use.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseStatus {
    /// Managed or External.
    #[serde(default)]
    pub(crate) mode: String,
    /// Database host name.
    #[serde(default)]
    pub(crate) host: String,
    /// Secret with user and password.
    #[serde(default)]
    pub(crate) secret_name: String,
}
