//! `spec.source`: the source of a component.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{DATA_KEY, DURATION_PATTERN, NAME, PATH, REFERENCE, URL, durations};

/// The default interval of pulls.
pub(super) const PULL_INTERVAL_DEFAULT: &str = "5m";

/// Where a component comes from.
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
    /// A ConfigMap in the host's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// A file in the host's source directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileSource>,
    /// IfNotPresent: fetch only when the spec changes. Always: also poll every pullInterval.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Poll interval for pullPolicy Always, such as `30s` or `5m`, from 10s to 24h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Registries limit the rate of pulls.
    #[schemars(length(max = 16), regex(pattern = DURATION_PATTERN))]
    #[x_kube(validation = durations("10s", "24h"))]
    pub pull_interval: Option<String>,
}

/// When to fetch a component again.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Only when the spec changes.
    #[default]
    IfNotPresent,
    /// Also at an interval, because a tag's or URL's content may change.
    Always,
}

/// An artifact in an OCI registry.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OciSource {
    /// Registry, repository, and tag or manifest digest or both: `registry.example/plugins/memcached:1.4.0`.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = REFERENCE.rule())]
    pub reference: String,
    /// A kubernetes.io/dockerconfigjson Secret with registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret_ref: Option<LocalRef>,
    /// Use plain HTTP. Credentials are then sent to loopback only.
    #[serde(default)]
    pub insecure: bool,
}

/// A file on a web server.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// The https:// or http:// URL, without credentials.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = URL.rule())]
    pub url: String,
    /// A Secret with server credentials: token, or username and password. Its annotation innkeeper.dev/hosts must list
    /// the server's host, with the port unless it is the default. Over plain http, credentials are sent only to
    /// loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// A ConfigMap in the host's namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: String,
    /// The key in `binaryData`. The component may be compressed with gzip, because a ConfigMap holds at most 1 MiB;
    /// digest and signature are for the uncompressed component.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = DATA_KEY.rule())]
    pub key: String,
}

pub(super) fn default_key() -> String {
    "plugin.wasm".to_owned()
}

/// A file in the host's source directory.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSource {
    /// The path below the host's `--source-dir`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = PATH.rule())]
    pub path: String,
}

/// An object in the host's namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: String,
}
