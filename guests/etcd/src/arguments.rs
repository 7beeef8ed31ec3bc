//! etcd's arguments: the plugin's, the user's flags, and the database quota.

use std::collections::BTreeMap;

use innkeeper_kit::quantity::Amount;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{api::CompactionMode, cluster::Cluster, observe::Observation, tls};

const QUOTA: &str = "quota-backend-bytes";

/// The largest quota that etcd accepts without a warning.
const QUOTA_BYTES_MAX: i128 = 8 << 30;

/// Volumes of at least this size have room for the default quota and the log: 5 % are over 200 MB, about three log
/// segments.
const VOLUME_BYTES_ROOMY: i128 = 4 << 30;

/// Flags that make a member write a snapshot when it starts and keep no earlier log entries for other members: a
/// member without data gets the snapshot instead.
const SNAPSHOT_FLAGS: [&str; 2] = ["snapshot-count", "snapshot-catchup-entries"];

/// etcd's arguments, in a fixed order: a changed order would restart the members.
pub(crate) fn all(cluster: &Cluster<'_>, observation: &Observation) -> Vec<String> {
    let headless = cluster.name;
    let scheme = cluster.scheme();
    let mut arguments = vec![
        "--name=$(POD_NAME)".to_owned(),
        // Without TLS, because the kubelet's probes present no client certificate.
        "--listen-metrics-urls=http://0.0.0.0:2381".to_owned(),
        "--listen-peer-urls=https://0.0.0.0:2380".to_owned(),
        format!("--listen-client-urls={scheme}://0.0.0.0:2379"),
        format!(
            "--initial-advertise-peer-urls=https://$(POD_NAME).{headless}.$(POD_NAMESPACE).svc:2380"
        ),
        "--data-dir=/var/run/etcd/default.etcd".to_owned(),
        format!(
            "--advertise-client-urls={scheme}://$(POD_NAME).{headless}.$(POD_NAMESPACE).svc:2379"
        ),
    ];
    arguments.extend(tls::flags(cluster));
    let user = user_flags(cluster, observation);
    if !user.contains_key("auto-compaction-retention") {
        // As a number of revisions, etcd reads 5m as 300,000,000,000 and never compacts.
        let is_by_revision = user
            .get("auto-compaction-mode")
            .is_some_and(|mode| mode == "revision");
        let retention = if is_by_revision { "1000" } else { "5m" };
        arguments.push(format!("--auto-compaction-retention={retention}"));
    }
    if !user.contains_key("snapshot-count") {
        arguments.push("--snapshot-count=10000".to_owned());
    }
    let flag = |(name, value): (&String, &String)| match value.as_str() {
        "" => format!("--{name}"),
        value => format!("--{name}={value}"),
    };
    arguments.extend(user.iter().map(flag));
    arguments
}

/// The user's flags and the quota.
fn user_flags(cluster: &Cluster<'_>, observation: &Observation) -> BTreeMap<String, String> {
    let spec = cluster.spec;
    let mode = spec.auto_compaction_mode.map(|mode| match mode {
        CompactionMode::Periodic => "periodic".to_owned(),
        CompactionMode::Revision => "revision".to_owned(),
    });
    let quota = spec.quota_backend_bytes.map(|bytes| bytes.to_string());
    let typed = [
        ("auto-compaction-mode", mode),
        (
            "auto-compaction-retention",
            spec.auto_compaction_retention.clone(),
        ),
        (QUOTA, quota),
        (
            "snapshot-count",
            spec.snapshot_count.map(|count| count.to_string()),
        ),
    ];
    let mut flags = spec.options.clone();
    flags.extend(
        typed
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    if cluster.preparing.is_some() {
        let flags_of = SNAPSHOT_FLAGS.map(|name| (name.to_owned(), "1".to_owned()));
        flags.extend(flags_of);
    }
    if let (None, Some(size)) = (flags.get(QUOTA), volume_bytes(cluster, observation)) {
        // Larger volumes get the maximum quota anyway; the cap keeps the product within the type.
        let size = size.min(2 * QUOTA_BYTES_MAX);
        let quota = (size * 95 / 100).min(QUOTA_BYTES_MAX);
        flags.insert(QUOTA.to_owned(), quota.to_string());
    }
    flags
}

/// The smallest volume in bytes.
///
/// StorageClasses that do not expand volumes leave them smaller than the spec. Larger volumes are ignored, so that
/// members do not restart when their volumes are bound.
fn volume_bytes(cluster: &Cluster<'_>, observation: &Observation) -> Option<i128> {
    let bytes = |size: &Quantity| Amount::from_quantity(size).and_then(Amount::floor);
    let real = observation
        .smallest_volume(cluster)
        .as_ref()
        .and_then(bytes);
    let requested = bytes(&cluster.spec.storage.size)?;
    Some(real.map_or(requested, |real| real.min(requested)))
}

/// True if the default quota leaves little room on the volume for the log and for the copy that a defragmentation
/// makes.
pub(crate) fn is_quota_near_disk(cluster: &Cluster<'_>, observation: &Observation) -> bool {
    let spec = cluster.spec;
    let is_default = spec.quota_backend_bytes.is_none() && !spec.options.contains_key(QUOTA);
    is_default && volume_bytes(cluster, observation).is_some_and(|bytes| bytes < VOLUME_BYTES_ROOMY)
}
