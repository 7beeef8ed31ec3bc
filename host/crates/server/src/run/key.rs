//! The cluster's hash key: created once and kept in a Secret of the host's namespace.

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

/// The length of the key in bytes: as long as the output of the hash.
pub(super) const LENGTH: usize = 32;

/// A failure to read or create the hash key.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The Secret does not contain a key of the right length.
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

/// Reads the inventory and the hash key, and creates the missing ones.
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
/// Returns none if the key is lost: a new key would change every hash that plugins have used, and prove no retained child.
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
            "the Secret {namespace}/{HASH_KEY_SECRET} is missing although plugins have created children: nothing is reconciled \
            until it is restored; to use a new key, which changes every hash that plugins have used, leaves \
            retained children to adoption, and makes hosts forget every status.history and load all Plugins from their \
            sources, delete the ConfigMap {namespace}/{INVENTORY} and restart"
        );
        return Ok(None);
    }
    ensure_namespace(cluster, writer, namespace).await?;
    let mut key = vec![0; LENGTH];
    fill_random(&mut key);
    let data = BTreeMap::from([(DATA_KEY.to_owned(), key.clone())]);
    match writer.secret(namespace, HASH_KEY_SECRET, &data).await {
        Ok(_) => {
            info!("created the hash key, Secret {namespace}/{HASH_KEY_SECRET}");
            Ok(Some(HashKey::new(key)))
        }
        // Another host created the Secret between the read and this write: use its key.
        Err(error) if error.kind == apply::ErrorKind::Exists => read(cluster, namespace).await,
        Err(error) => Err(Box::new(error).into()),
    }
}

/// Creates the namespace only if it is missing: a host in the cluster runs in it and needs no permission to create it.
async fn ensure_namespace(
    cluster: &Cluster,
    writer: &Writer,
    namespace: &str,
) -> Result<(), Error> {
    let kind = Gvk::new("", "v1", "Namespace");
    let found = cluster.live_get(&kind, None, namespace).await;
    if found.map_err(Box::new)?.is_none() {
        writer.namespace(namespace).await.map_err(Box::new)?;
    }
    Ok(())
}

/// Gives the key to the passes and to the cache.
pub(super) fn set(shared: &Shared, key: HashKey) {
    // The cache first: a pass begins only with the key, and would miss the retained children in a cache without it.
    shared.cluster.set_hash_key(Some(key.clone()));
    shared.hash_key.get_or_init(|| key);
}

/// Gives the key to the passes, or starts a task that does so once a lost key is restored in `namespace`.
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
        info!("the hash key was restored");
        set(&shared, key);
        Ok(())
    });
}

/// Waits until there is a key: the active host creates it, or the user restores a lost one.
pub(super) async fn wait(cluster: &Cluster, namespace: &str) -> HashKey {
    /// Chosen: a host that stands by, or whose key is lost, has time.
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
    let found = cluster
        .live_get(&kind, Some(namespace), HASH_KEY_SECRET)
        .await;
    let Some(secret) = found.map_err(Box::new)? else {
        return Ok(None);
    };
    let malformed = || Error::Malformed {
        namespace: namespace.to_owned(),
    };
    parse(&secret.json).map(Some).ok_or_else(malformed)
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
