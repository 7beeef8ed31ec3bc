//! rclone's settings for the storage with the archive.
//!
//! They are environment variables, so the kubelet fills in credentials. One table maps gobackup's names to rclone's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{references::Source, render::Credential, stop::Stop};

/// Prefix of the variables for the one remote, `src`.
const REMOTE: &str = "RCLONE_CONFIG_SRC_";

/// Prefix of variables with passwords that the script obscures for rclone.
pub(super) const PLAIN: &str = "FETCH_";

/// gobackup's keys, with rclone's options.
const OPTIONS: &[(&str, &str)] = &[
    ("access_key_id", "ACCESS_KEY_ID"),
    ("account", "ACCOUNT"),
    ("client_id", "CLIENT_ID"),
    ("client_secret", "CLIENT_SECRET"),
    ("credentials", "SERVICE_ACCOUNT_FILE"),
    ("credentials_file", "SERVICE_ACCOUNT_FILE"),
    ("endpoint", "ENDPOINT"),
    ("explicit_tls", "EXPLICIT_TLS"),
    ("force_path_style", "FORCE_PATH_STYLE"),
    ("host", "HOST"),
    ("no_check_certificate", "NO_CHECK_CERTIFICATE"),
    ("passphrase", "KEY_FILE_PASS"),
    ("password", "PASS"),
    ("port", "PORT"),
    ("private_key", "KEY_FILE"),
    ("region", "REGION"),
    ("root", "URL"),
    ("secret_access_key", "SECRET_ACCESS_KEY"),
    ("tenant_id", "TENANT"),
    ("tls", "TLS"),
    ("token", "SESSION_TOKEN"),
    ("username", "USER"),
];

/// S3-like types, with rclone's providers.
const PROVIDERS: &[(&str, &str)] = &[
    ("cos", "TencentCOS"),
    ("kodo", "Qiniu"),
    ("minio", "Minio"),
    ("obs", "HuaweiOBS"),
    ("oss", "Alibaba"),
    ("r2", "Cloudflare"),
    ("spaces", "DigitalOcean"),
];

/// A storage as rclone sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// Variables without credentials.
    pub(super) variables: BTreeMap<String, String>,
    /// Directory of the archives in the remote, with the bucket.
    pub(super) directory: String,
}

/// Returns the variable for a key; none if rclone does not need it.
fn variable(key: &str) -> Option<String> {
    let (_, option) = OPTIONS.iter().find(|(name, _)| *name == key)?;
    let start = match *option {
        "PASS" | "KEY_FILE_PASS" => PLAIN,
        _ => REMOTE,
    };
    Some(format!("{start}{option}"))
}

/// Returns the variable for a credential of the first storage.
pub(super) fn credential(credential: &Credential) -> Option<String> {
    let key = credential.name.strip_prefix("ST0_")?;
    variable(&key.to_lowercase())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Returns the remote for a storage that has passed a run's checks.
pub(super) fn remote(source: &Source) -> Result<Remote, Stop> {
    let mut config = source.config.clone();
    let take = |config: &mut BTreeMap<String, Value>, key: &str| {
        config
            .remove(key)
            .as_ref()
            .and_then(text)
            .unwrap_or_default()
    };
    let path = take(&mut config, "path");
    let mut variables = BTreeMap::new();
    let mut set = |option: &str, value: &str| {
        variables.insert(format!("{REMOTE}{option}"), value.to_owned());
    };
    let mut container = None;
    match source.type_.name {
        "local" | "ftp" | "webdav" => {
            set("TYPE", source.type_.name);
            // gobackup lets the first decide, and rclone refuses both.
            if config.get("tls") == Some(&Value::Bool(true)) {
                config.remove("explicit_tls");
            }
        }
        "sftp" | "scp" => set("TYPE", "sftp"),
        "gcs" => {
            set("TYPE", "google cloud storage");
            container = Some(take(&mut config, "bucket"));
        }
        "azure" => {
            set("TYPE", "azureblob");
            let old = take(&mut config, "bucket");
            if !old.is_empty() {
                set("ACCOUNT", &old);
            }
            let named = take(&mut config, "container");
            container = Some(if named.is_empty() {
                "gobackup".to_owned()
            } else {
                named
            });
        }
        name => {
            set("TYPE", "s3");
            container = Some(take(&mut config, "bucket"));
            s3(source, name, &mut config, &mut set)?;
        }
    }
    if source.type_.name == "webdav" {
        set("VENDOR", "other");
    }
    for (key, value) in &config {
        let is_plain = source.type_.key(key).is_some_and(|key| !key.is_secret);
        let is_path =
            key == "private_key" && !value.as_str().unwrap_or_default().contains("-----BEGIN");
        if let Some(value) = text(value)
            && (is_plain || is_path)
            && let Some(name) = variable(key)
        {
            variables.insert(name, value);
        }
    }
    let directory = match container {
        Some(container) => format!("{container}/{}", path.trim_matches('/')),
        None => path,
    };
    let directory = directory.trim_end_matches('/').to_owned();
    Ok(Remote {
        variables,
        directory,
    })
}

/// Sets the options of an S3-like store.
fn s3(
    source: &Source,
    name: &str,
    config: &mut BTreeMap<String, Value>,
    set: &mut impl FnMut(&str, &str),
) -> Result<(), Stop> {
    let endpoint = config.get("endpoint").and_then(text);
    let account = config.get("account_id").and_then(text);
    let provider = PROVIDERS
        .iter()
        .find(|(type_, _)| *type_ == name)
        .map_or("Other", |(_, provider)| provider);
    match (name, endpoint, account) {
        ("s3", None, _) => {
            set("PROVIDER", "AWS");
            if !config.contains_key("region") {
                set("REGION", "us-east-1");
            }
        }
        ("r2", None, Some(account)) => {
            set("PROVIDER", provider);
            set(
                "ENDPOINT",
                &format!("https://{account}.r2.cloudflarestorage.com"),
            );
        }
        (_, None, _) => {
            let problem = "is required to restore from this type of storage";
            let field = source.path("endpoint");
            return Err(Stop::invalid_reference(format!("{field} {problem}")));
        }
        _ => set("PROVIDER", provider),
    }
    Ok(())
}
