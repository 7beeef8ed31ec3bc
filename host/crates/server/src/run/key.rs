//! The cluster's hash key, created once and stored in a Secret in the host's namespace.

use std::{collections::BTreeMap, sync::Arc};

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
    tasks::{self, Tasks, retry},
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

/// Reads the inventory, and reads or creates the hash key. Retries temporary failures.
pub(super) async fn prepare(
    cluster: &Cluster,
    writer: &Writer,
    namespace: &str,
) -> Result<(Inventory, Option<HashKey>), Failure> {
    let inventory = read_inventory(|| Inventory::read(cluster, namespace)).await?;
    // Children need a key, so with kinds in the inventory a missing key is a lost one.
    let may_create = inventory.is_empty();
    let hash_key = get(|| obtain(cluster, writer, namespace, may_create)).await?;
    Ok((inventory, hash_key))
}

/// Reads the inventory and the hash key, which the leader creates. Retries temporary failures.
pub(super) async fn prepare_follower(
    cluster: &Cluster,
    namespace: &str,
) -> Result<(Inventory, Option<HashKey>), Failure> {
    let inventory = read_inventory(|| Inventory::read(cluster, namespace)).await?;
    let hash_key = get(|| read(cluster, namespace)).await?;
    Ok((inventory, hash_key))
}

/// Prepares a follower that has become the leader.
pub(super) async fn prepare_leader(shared: &Shared) -> Result<(), Failure> {
    read_inventory(|| shared.inventory.refresh()).await?;
    let Shared {
        cluster, inventory, ..
    } = shared;
    let writer = shared.writers.leader();
    let may_create = inventory.is_empty();
    if let Some(key) = get(|| obtain(cluster, writer, inventory.namespace(), may_create)).await? {
        set(shared, key);
    }
    Ok(())
}

/// Retries temporary failures to read the inventory.
pub(super) async fn read_inventory<T, F>(attempt: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, InventoryError>>,
{
    retry(
        "read the inventory",
        |error| matches!(error, InventoryError::Read { .. }),
        attempt,
    )
    .await
    .or_fail(
        Exit::Failure,
        "failed to read the inventory of kinds that plugins have created",
    )
}

/// Retries temporary failures to get the hash key.
async fn get<F>(attempt: impl FnMut() -> F) -> Result<Option<HashKey>, Failure>
where
    F: Future<Output = Result<Option<HashKey>, Error>>,
{
    retry(
        "get the hash key",
        |error| !matches!(error, Error::Malformed { .. }),
        attempt,
    )
    .await
    .or_fail(Exit::Failure, "failed to get the cluster's hash key")
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

/// Sets the key, or starts a task that sets it once the leader has created it or the user has restored it in `namespace`.
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
        info!("found the hash key");
        set(&shared, key);
        Ok(())
    });
}

/// Waits for a key that the active host creates or the user restores.
pub(super) async fn wait(cluster: &Cluster, namespace: &str) -> HashKey {
    let mut has_failed = false;
    // A new cluster's leader creates the key at once; a standby host and one with a lost key are in no hurry.
    let mut pauses = tasks::backoff();
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
        sleep(pauses.delay()).await;
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
