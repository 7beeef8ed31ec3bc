//! `spec.source`: the source of a component.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{DATA_KEY, DURATION_PATTERN, NAME, PATH, REFERENCE, URL, durations};

/// The default interval of pulls.
pub(super) const PULL_INTERVAL_DEFAULT: &str = "5m";

/// The source of a component.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "[has(self.oci), has(self.http), has(self.configMap), has(self.file)].filter(it, it).size() == 1"
    )
    .message("must have exactly one of oci, http, configMap and file"),
    validation = Rule::new("!has(self.pullInterval) || self.pullPolicy == 'Always'")
        .message("pullInterval needs pullPolicy: Always")
)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// An artifact in an OCI registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciSource>,
    /// A file on a web server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// A ConfigMap of the host's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// A file of the host's source directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileSource>,
    /// IfNotPresent fetches only when the spec changes; Always also polls the source at pullInterval.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// The poll interval for pullPolicy Always, such as `30s` or `5m`, between 10s and 24h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The bounds are chosen, not measured: registries limit the rate of pulls.
    #[schemars(length(max = 16), regex(pattern = DURATION_PATTERN))]
    #[x_kube(validation = durations("10s", "24h"))]
    pub pull_interval: Option<String>,
}

/// The policy for fetching a component again.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Only when the spec changes.
    #[default]
    IfNotPresent,
    /// Also at an interval, because the content behind a tag or a URL may change.
    Always,
}

/// An artifact in an OCI registry.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OciSource {
    /// Registry, repository, and a tag or the digest of the manifest or both:
    /// `registry.example/plugins/memcached:1.4.0`.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = REFERENCE.rule())]
    pub reference: String,
    /// A Secret of type kubernetes.io/dockerconfigjson with credentials for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret_ref: Option<LocalRef>,
    /// Speaks to the registry without TLS. Credentials then go to loopback only.
    #[serde(default)]
    pub insecure: bool,
}

/// A file on a web server.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// The URL, with https:// or http://, without credentials.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = URL.rule())]
    pub url: String,
    /// A Secret with credentials for the server: token, or username and password.
    ///
    /// Its annotation innkeeper.dev/hosts has to name the server's host, and the port unless it is the default.
    /// Credentials are not sent over plain http, except to loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// A ConfigMap of the host's namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: String,
    /// The key below `binaryData`. A ConfigMap holds at most 1 MiB, so the value may be the component in gzip; digest and
    /// signature are those of the unpacked component.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = DATA_KEY.rule())]
    pub key: String,
}

pub(super) fn default_key() -> String {
    "plugin.wasm".to_owned()
}

/// A file of the host's source directory.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSource {
    /// The path below the host's `--source-dir`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = PATH.rule())]
    pub path: String,
}

/// An object of the host's namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: String,
}
