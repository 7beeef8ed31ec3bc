//! The cluster's hash key, created once and stored in a Secret in the host's namespace.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use innkeeper_apply::{self as apply, Writer};
use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_command::{Exit, Failure, HASH_KEY_SECRET, OrFail as _};
use innkeeper_model::{Gvk, HashKey, error_chain};
use innkeeper_reconcile::{INVENTORY, Inventory, InventoryError, Shared};
use serde::Deserialize;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{
    fill_random,
    tasks::{Tasks, retry},
};

/// The key in the Secret's data.
const DATA_KEY: &str = "key";

/// The key's length in bytes: that of the hash.
const LENGTH: usize = 32;

/// Why there is no hash key.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The Secret contains no key of the right length.
    #[error(
        "the Secret {namespace}/{HASH_KEY_SECRET} is invalid: restore the {LENGTH} bytes of data.{DATA_KEY} that the host created"
    )]
    Malformed {
        /// The host's namespace.
        namespace: String,
    },
    /// The Secret or its namespace cannot be read.
    #[error(transparent)]
    Read(#[from] Box<cluster::Error>),
    /// The Secret or its namespace cannot be created.
    #[error(transparent)]
    Write(#[from] Box<apply::Error>),
}

/// Reads or creates the inventory and the hash key. Retries temporary failures.
pub(super) async fn prepare(
    cluster: &Cluster,
    writer: &Arc<Writer>,
    namespace: &str,
) -> Result<(Inventory, Option<HashKey>), Failure> {
    let inventory = retry(
        "read the inventory",
        |error| matches!(error, InventoryError::Read { .. }),
        || Inventory::read(cluster, Arc::clone(writer), namespace),
    )
    .await
    .or_fail(
        Exit::Failure,
        "failed to read the inventory of kinds that plugins have created",
    )?;
    // Children need a key, so with kinds in the inventory a missing key is a lost one.
    let may_create = inventory.is_empty();
    let hash_key = retry(
        "get the hash key",
        |error| !matches!(error, Error::Malformed { .. }),
        || obtain(cluster, writer, namespace, may_create),
    )
    .await
    .or_fail(Exit::Failure, "failed to get the cluster's hash key")?;
    Ok((inventory, hash_key))
}

/// Reads the key, or creates it if plugins have created nothing yet (`may_create`).
/// Returns none for a lost key: a new one would change all hashes that plugins have used, and prove no retained child.
async fn obtain(
    cluster: &Cluster,
    writer: &Writer,
    namespace: &str,
    may_create: bool,
) -> Result<Option<HashKey>, Error> {
    if let Some(key) = read(cluster, namespace).await? {
        return Ok(Some(key));
    }
    if !may_create {
        error!(
            "the Secret {namespace}/{HASH_KEY_SECRET} is missing although plugins have created children: the host reconciles \
            nothing until you restore it. To use a new key instead, delete the ConfigMap {namespace}/{INVENTORY} and \
            restart: this changes all hashes that plugins have used, leaves retained children to adoption, and makes hosts \
            forget each status.history and load all Plugins from their sources"
        );
        return Ok(None);
    }
    ensure_namespace(cluster, writer, namespace).await?;
    let key = random();
    let data = BTreeMap::from([(DATA_KEY.to_owned(), key.as_bytes().to_owned())]);
    match writer.secret(namespace, HASH_KEY_SECRET, &data).await {
        Ok(_) => {
            info!("created the hash key, Secret {namespace}/{HASH_KEY_SECRET}");
            Ok(Some(key))
        }
        // Another host created it after the read.
        Err(error) if error.kind == apply::ErrorKind::Exists => read(cluster, namespace).await,
        Err(error) => Err(Box::new(error).into()),
    }
}

/// Returns a new key.
pub(super) fn random() -> HashKey {
    let mut key = [0; LENGTH];
    fill_random(&mut key);
    HashKey::new(key)
}

/// Creates a missing namespace. A host in the cluster runs in it, and needs no permission to create it.
async fn ensure_namespace(
    cluster: &Cluster,
    writer: &Writer,
    namespace: &str,
) -> Result<(), Error> {
    let kind = Gvk::new("", "v1", "Namespace");
    let object = cluster.live_get(&kind, None, namespace).await;
    if object.map_err(Box::new)?.is_none() {
        writer.namespace(namespace).await.map_err(Box::new)?;
    }
    Ok(())
}

/// Gives the key to the cache and the passes.
pub(super) fn set(shared: &Shared, key: HashKey) {
    // The cache first: passes start once they have the key, and need a cache with retained children.
    shared.cluster.set_hash_key(Some(key.clone()));
    shared.hash_key.get_or_init(|| key);
}

/// Sets the key, or starts a task that sets it once a lost key is restored in `namespace`.
pub(super) fn set_or_wait(
    shared: &Arc<Shared>,
    key: Option<HashKey>,
    namespace: &str,
    tasks: &mut Tasks,
) {
    if let Some(key) = key {
        return set(shared, key);
    }
    let shared = Arc::clone(shared);
    let namespace = namespace.to_owned();
    tasks.background.spawn(async move {
        let key = wait(&shared.cluster, &namespace).await;
        info!("found the restored hash key");
        set(&shared, key);
        Ok(())
    });
}

/// Waits for a key that the active host creates or the user restores.
pub(super) async fn wait(cluster: &Cluster, namespace: &str) -> HashKey {
    /// Neither a standby host nor one with a lost key is in a hurry.
    const POLL_INTERVAL: Duration = Duration::from_secs(30);

    let mut has_failed = false;
    loop {
        match read(cluster, namespace).await {
            Ok(Some(key)) => return key,
            Ok(None) => {}
            Err(error) if has_failed => drop(error),
            Err(error) => {
                has_failed = true;
                warn!(error = %error_chain(&error), "failed to read the hash key, retrying");
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Reads the key; none if the Secret does not exist.
pub(super) async fn read(cluster: &Cluster, namespace: &str) -> Result<Option<HashKey>, Error> {
    let kind = Gvk::new("", "v1", "Secret");
    let object = cluster
        .live_get(&kind, Some(namespace), HASH_KEY_SECRET)
        .await
        .map_err(Box::new)?;
    let Some(secret) = object else {
        return Ok(None);
    };
    parse(&secret.json)
        .map(Some)
        .ok_or_else(|| Error::Malformed {
            namespace: namespace.to_owned(),
        })
}

fn parse(json: &str) -> Option<HashKey> {
    #[derive(Deserialize)]
    struct KeySecret {
        data: BTreeMap<String, String>,
    }
    let KeySecret { data } = serde_json::from_str(json).ok()?;
    let key = BASE64_STANDARD.decode(data.get(DATA_KEY)?).ok()?;
    (key.len() == LENGTH).then(|| HashKey::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_a_key_of_full_length() {
        let secret = |bytes: &[u8]| {
            let key = BASE64_STANDARD.encode(bytes);
            format!(r#"{{"data": {{"key": "{key}"}}}}"#)
        };
        assert_eq!(parse(&secret(&[7; 32])).unwrap().as_bytes(), [7; 32]);
        for wrong in [&secret(&[7; 31]), &secret(&[]), "{}", r#"{"data": {}}"#] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
