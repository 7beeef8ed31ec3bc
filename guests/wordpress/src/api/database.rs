//! `spec.database`: a managed or an external database.

use std::net::{Ipv4Addr, Ipv6Addr};

use innkeeper_kit::prelude::*;
use k8s_openapi::api::core::v1::ResourceRequirements;

use super::Claim;

/// The site's database: managed or external.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!(has(self.managed) && has(self.external))")
        .message("set only one of database.managed and database.external")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Database {
    /// A database that the plugin creates and manages.
    pub(crate) managed: Option<Managed>,
    /// A database that the plugin only uses.
    pub(crate) external: Option<External>,
    /// Table prefix; the image's default when absent.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_]{1,32}$"))]
    pub(crate) table_prefix: Option<String>,
}

/// A database that the plugin creates and manages.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.storage.dataSource) || has(self.credentialsSecretRef)").message(
        "a dataSource needs database.managed.credentialsSecretRef with its data's passwords"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Managed {
    /// MySQL or MariaDB image; the image from the plugin's configuration when absent.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Schema that the database creates at its first start.
    #[serde(default = "default_schema")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_]{1,64}$"))]
    #[x_kube(
        // The site's user gets all privileges on it.
        validation = Rule::new(
            "!(self.lowerAscii() in ['mysql', 'sys', 'information_schema', 'performance_schema'])"
        )
        .message("databaseName is a system schema: set another name")
    )]
    pub(crate) database_name: String,
    /// Claim for the data.
    #[serde(default)]
    pub(crate) storage: Claim,
    /// Requests and limits; requests of 100m CPU and 640Mi memory when absent.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Database settings in my.cnf format.
    #[schemars(length(max = 16384))]
    pub(crate) config: Option<String>,
    /// Secret with the passwords, instead of the generated one.
    pub(crate) credentials_secret_ref: Option<ManagedCredentials>,
    /// Seconds after which a database that is not ready yet is restarted, 60 to 86400. Slow storage at the first
    /// start, upgrades of large data and recoveries can need more than the default.
    #[serde(default = "default_startup")]
    #[schemars(range(min = 60, max = 86400))]
    pub(crate) startup_seconds: i32,
}

pub(super) const fn default_startup() -> i32 {
    600
}

pub(super) fn default_schema() -> String {
    "wordpress".to_owned()
}

impl Default for Managed {
    fn default() -> Self {
        Self {
            image: None,
            database_name: default_schema(),
            storage: Claim::default(),
            resources: None,
            config: None,
            credentials_secret_ref: None,
            startup_seconds: default_startup(),
        }
    }
}

/// The Secret with a managed database's passwords.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("self.usernameKey != self.passwordKey && self.usernameKey != self.rootPasswordKey")
        .message("usernameKey must differ from the password keys")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagedCredentials {
    /// Secret name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Key of the root password.
    #[serde(default = "root_password_key")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) root_password_key: String,
    /// Key of the site's user name.
    #[serde(default = "username_key")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) username_key: String,
    /// Key of that user's password.
    #[serde(default = "password_key")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) password_key: String,
}

/// A database that the plugin only uses.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct External {
    /// DNS name or IP address, without the port.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) host: String,
    /// Port.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i32,
    /// The site's schema.
    #[serde(default = "default_schema")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_]{1,64}$"))]
    pub(crate) database_name: String,
    /// Secret with the site's user and password.
    pub(crate) credentials_secret_ref: ExternalCredentials,
}

const fn default_port() -> i32 {
    3306
}

impl External {
    /// True if the host is a DNS name, an IPv4 address, or an IPv6 address with or without brackets.
    pub(crate) fn is_host_valid(&self) -> bool {
        self.ipv6().is_some() || self.host.parse::<Ipv4Addr>().is_ok() || is_dns_name(&self.host)
    }

    /// Host and port as WordPress reads them.
    pub(crate) fn address(&self) -> String {
        match self.ipv6() {
            Some(address) => format!("[{address}]:{}", self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    fn ipv6(&self) -> Option<&str> {
        let bare =
            |host| Some(host).and_then(|host: &str| host.strip_prefix('[')?.strip_suffix(']'));
        let address = bare(&*self.host).unwrap_or(&self.host);
        address.parse::<Ipv6Addr>().is_ok().then_some(address)
    }
}

/// True for a DNS name, with or without a trailing dot. Its last part contains a letter: only addresses end in a
/// number.
fn is_dns_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_edge = |edge: Option<char>| edge.is_some_and(|c| c.is_ascii_alphanumeric());
    let mut parts = name.split('.');
    let has_letter = |part: &str| part.chars().any(|c| c.is_ascii_alphabetic());
    parts.clone().next_back().is_some_and(has_letter)
        && parts.all(|part| {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
            part.len() <= 63
                && part.chars().all(is_inner)
                && is_edge(part.chars().next())
                && is_edge(part.chars().next_back())
        })
}

/// The Secret with an external database's user and password.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExternalCredentials {
    /// Secret name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Key of the site's user name.
    #[serde(default = "username_key")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) username_key: String,
    /// Key of that user's password.
    #[serde(default = "password_key")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) password_key: String,
}

fn root_password_key() -> String {
    "root-password".to_owned()
}

fn username_key() -> String {
    "username".to_owned()
}

fn password_key() -> String {
    "password".to_owned()
}

/// The Secret and keys with the credentials in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The Secret's name.
    pub(crate) secret: String,
    /// The root password's key; `None` for an external database, for which the plugin does not need it.
    pub(crate) root_password_key: Option<String>,
    /// The key of the site's user name.
    pub(crate) username_key: String,
    /// The key of that user's password.
    pub(crate) password_key: String,
    /// True for the Secret that the plugin generates.
    pub(crate) is_generated: bool,
}

impl Credentials {
    /// The generated Secret with this name.
    pub(crate) fn generated(secret: String) -> Self {
        Self {
            secret,
            root_password_key: Some(root_password_key()),
            username_key: username_key(),
            password_key: password_key(),
            is_generated: true,
        }
    }

    /// The keys that the Secret must have.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.root_password_key
            .as_deref()
            .into_iter()
            .chain([self.username_key.as_str(), self.password_key.as_str()])
    }
}

impl From<&ManagedCredentials> for Credentials {
    fn from(secret: &ManagedCredentials) -> Self {
        Self {
            secret: secret.name.clone(),
            root_password_key: Some(secret.root_password_key.clone()),
            username_key: secret.username_key.clone(),
            password_key: secret.password_key.clone(),
            is_generated: false,
        }
    }
}

impl From<&ExternalCredentials> for Credentials {
    fn from(secret: &ExternalCredentials) -> Self {
        Self {
            secret: secret.name.clone(),
            root_password_key: None,
            username_key: secret.username_key.clone(),
            password_key: secret.password_key.clone(),
            is_generated: false,
        }
    }
}
