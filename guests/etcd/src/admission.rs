//! The members' init container, which lets only admitted Pods start without data.

use innkeeper_kit::pod;
use k8s_openapi::api::core::v1::{Container, VolumeMount};

use crate::{cluster::Cluster, container};

/// Ends when the member may start: it has data, the cluster is being formed, or the record admits this Pod.
///
/// Prevents a member that lost its disk from joining under an identity that had data, which would break Raft's
/// guarantees. Volatile media lose their data so easily that even their founders need an admission.
const SCRIPT: &str = r#"until ls /var/run/etcd/default.etcd/member/wal/*.wal >/dev/null 2>&1 \
  || [ "$PERSISTENT$(cat /state/ETCD_INITIAL_CLUSTER_STATE)" = truenew ] \
  || [ "$(cat "/state/ADMIT_${POD_NAME##*-}" 2>/dev/null)" = "$POD_UID" ]; do
  sleep 2
done
"#;

/// The container's name.
pub(crate) const CONTAINER: &str = "admit";

/// The container.
pub(crate) fn container(cluster: &Cluster<'_>) -> Container {
    let command = ["/bin/busybox", "sh", "-ec", SCRIPT].map(str::to_owned);
    let image = &cluster.config.images.tools;
    Container {
        env: Some(vec![
            pod::field_variable("POD_NAME", "metadata.name"),
            pod::field_variable("POD_UID", "metadata.uid"),
            pod::variable("PERSISTENT", cluster.is_persistent().to_string()),
        ]),
        volume_mounts: Some(vec![
            pod::mount("data", "/var/run/etcd"),
            VolumeMount {
                read_only: Some(true),
                ..pod::mount("state", "/state")
            },
        ]),
        ..container::container(cluster, CONTAINER, image, command.to_vec())
    }
}
